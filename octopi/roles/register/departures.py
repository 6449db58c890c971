"""Brokers whose connection to the register ended: are they gone, or only the connection?

A process that is killed and a connection that is reset look alike from here.  So the register
connects to the broker's address.  Where the machine refuses, the process is gone, and so is the
broker, at once.  Else the broker has `LINK_GRACE_S` to make a new connection, and until then it
counts as live: it leads what it leads.

A connection that ended because it was silent is not looked after: a broker that hangs would
answer no sooner on another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from octopi.errors import ConnectionLostError, OctopiError, UnreachableError
from octopi.limits import BACKOFF_S_FIRST, LINK_GRACE_S
from octopi.logger import get_logger
from octopi.tracing import steps
from octopi.transport.handshake import open_connection
from octopi.wire.endpoints import CLIENT

if TYPE_CHECKING:
    from octopi.roles.register.node import RegisterNode
    from octopi.roles.register.sessions import MembershipSession

_log = get_logger(__name__)


class Departures:
    """Notes which brokers are members no more; its tasks are *tasks*'."""

    def __init__(self, node: RegisterNode, tasks: trio.Nursery) -> None:
        self._node = node
        self._tasks = tasks

    def ended(self, session: MembershipSession) -> None:
        """The connection of a joined broker ended."""
        if self._node.members.get(session.broker) is not session:
            return  # there is a newer one
        if session.was_silent:
            self.gone(session)
        elif not self._node.is_stopping:
            self._look_after(session)

    def _look_after(self, session: MembershipSession) -> None:
        """Give the broker time to come back, if it is still there."""
        facts = {"broker": session.broker, "incarnation": session.incarnation}
        if (trace := self._node.environment.trace) is not None:
            trace(steps.R7Broken(**facts))
        _log.warning("connection with a broker broke", **facts, why=session.end_reason)
        self._tasks.start_soon(self._wait_for, session)

    async def _wait_for(self, session: MembershipSession) -> None:
        with self._node.environment.clock.timeout(LINK_GRACE_S):
            if not await self._is_gone(session):
                await session.replaced.wait()
        self.gone(session)

    async def _is_gone(self, session: MembershipSession) -> bool:
        """Whether no process listens where the broker did.  Asks until there is an answer, or
        the broker is back."""
        environment = self._node.environment
        address = self._node.controller.state.brokers[session.broker].address
        while not session.replaced.is_set():
            try:
                connection = await open_connection(
                    environment, address, CLIENT, self._node.options.agent
                )
            except UnreachableError as error:
                if error.is_refused:
                    return True
            except ConnectionLostError:
                pass
            except OctopiError:
                return False  # somebody answered, though it doesn't want to talk to us
            else:
                await connection.close()
                return False
            await environment.clock.sleep_until(environment.clock.now() + BACKOFF_S_FIRST)
        return False

    def gone(self, session: MembershipSession) -> None:
        """The broker of that connection is a member no more, unless it has a newer one."""
        node = self._node
        if node.is_stopping:
            return  # it was this side that ended it: the broker is not gone
        broker, incarnation = session.broker, session.incarnation
        if node.members.get(broker) is session:
            if (trace := node.environment.trace) is not None:
                trace(steps.R6Lost(broker=broker, incarnation=incarnation))
            del node.members[broker]
            node.controller.left(broker, incarnation)
            node.events.left(broker)
            _log.warning("broker left", broker=broker, incarnation=incarnation)
            node.election_driver.look()
            self._tasks.start_soon(self._tell_left, broker)

    async def _tell_left(self, broker: int) -> None:
        """Leaders that count on a broker which left learn so: it may never have followed them,
        and then they would wait for it."""
        node = self._node
        records = [
            one for one in node.controller.state.partitions.values() if broker in one.in_sync
        ]
        leaders = {one.leader for one in records} & node.members.keys()
        await node.tell_partitions(records, [node.members[one] for one in sorted(leaders)])
