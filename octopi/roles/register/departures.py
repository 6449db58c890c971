"""Brokers whose connection to the register ended: are they gone, or only the connection?

A killed process and a reset connection look alike to the register, so it connects to the broker's
address.  If the machine refuses the connection, the process is gone, and the broker stops being a
member at once.  Otherwise the broker has `LINK_GRACE_S` to make a new connection.  Until then it
counts as live and keeps its leaderships.

If the connection ended because the broker was silent, the broker gets no grace: if it hangs, it
would not answer on another connection either.
"""

from __future__ import annotations

import trio

from octopi.coordination.controller import Controller
from octopi.environment import Environment
from octopi.errors import ConnectionLostError, OctopiError, UnreachableError
from octopi.identifiers import BrokerId
from octopi.limits import BACKOFF_S_FIRST, LINK_GRACE_S
from octopi.logger import get_logger
from octopi.roles.register.election_driver import ElectionDriver
from octopi.roles.register.event_log import EventLog
from octopi.roles.register.member import Member
from octopi.roles.register.members import Members
from octopi.roles.register.register_tracer import RegisterTracer
from octopi.transport.handshake import open_connection
from octopi.wire.endpoints import CLIENT

_log = get_logger(__name__)


class Departures:
    """Notes which brokers are no longer members."""

    def __init__(
        self,
        environment: Environment,
        agent: str,
        controller: Controller,
        events: EventLog,
        tracer: RegisterTracer,
        members: Members,
        election_driver: ElectionDriver,
        tasks: trio.Nursery,
        stop: trio.Event,
    ) -> None:
        """*agent*: the name of the register when it connects to a broker's address.  *stop*: set
        when the register itself ends connections."""
        self._environment = environment
        self._agent = agent
        self._controller = controller
        self._events = events
        self._tracer = tracer
        self._members = members
        self._election_driver = election_driver
        self._tasks = tasks
        self._stop = stop

    def ended(self, member: Member) -> None:
        """The connection of a joined broker ended."""
        if self._members.get(member.broker) is not member:
            return  # there is a newer one
        if self._controller.state.handed_over is not None:
            return  # the brokers look after each other
        if member.was_silent:
            self.gone(member)
        elif not self._stop.is_set():
            self._look_after(member)

    def _look_after(self, member: Member) -> None:
        """Give the broker time to come back, if its process still runs."""
        broker, incarnation = member.broker, member.incarnation
        self._tracer.broken(broker, incarnation)
        _log.warning(
            "connection with a broker broke",
            broker=broker,
            incarnation=incarnation,
            why=member.end_reason,
        )
        self._tasks.start_soon(self._wait_for, member)

    async def _wait_for(self, member: Member) -> None:
        with self._environment.clock.timeout(LINK_GRACE_S):
            if not await self._is_gone(member):
                await member.is_over.wait()
        self.gone(member)

    async def _is_gone(self, member: Member) -> bool:
        """Whether no process listens at the broker's address.  Tries until there is an answer or
        the broker is back."""
        environment = self._environment
        address = self._controller.state.brokers[member.broker].address
        while not member.is_over.is_set():
            try:
                connection = await open_connection(environment, address, CLIENT, self._agent)
            except UnreachableError as error:
                if error.is_refused:
                    return True
            except ConnectionLostError:
                pass
            except OctopiError:
                return False  # a process answered, though it refuses this connection
            else:
                await connection.close()
                return False
            await environment.clock.sleep_until(environment.clock.now() + BACKOFF_S_FIRST)
        return False

    def gone(self, member: Member) -> None:
        """The broker of that connection is no longer a member, unless it has a newer connection."""
        if self._stop.is_set() or self._controller.state.handed_over is not None:
            return  # the register ended the connection: the broker is not gone
        broker, incarnation = member.broker, member.incarnation
        if self._members.get(broker) is member:
            self._tracer.lost(broker, incarnation)
            self._members.left(broker)
            member.is_over.set()
            self._controller.left(broker, incarnation)
            self._events.left(broker)
            _log.warning("broker left", broker=broker, incarnation=incarnation)
            self._election_driver.look()
            self._tasks.start_soon(self._tell_left, broker)

    async def _tell_left(self, broker: BrokerId) -> None:
        """Tell leaders that a broker in their in-sync sets has left.  It may never have followed
        them, and then they would wait for it."""
        records = [
            one for one in self._controller.state.partitions.values() if broker in one.in_sync
        ]
        leaders = {one.leader for one in records} & self._members.keys()
        await self._members.tell_partitions(
            records, [self._members[one] for one in sorted(leaders)]
        )
