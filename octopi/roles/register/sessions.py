"""The register's side of a broker's membership connection: admits the broker and takes its
messages."""

from __future__ import annotations

from typing import Final

import trio

from octopi.errors import ConnectionLostError, OctopiError, ProtocolError
from octopi.identifiers import BrokerId, Incarnation
from octopi.limits import TOPIC_COUNT_MAX
from octopi.logger import get_logger
from octopi.roles.answers import refuse
from octopi.roles.register.member import Member
from octopi.roles.register.node import RegisterNode
from octopi.transport.connection import Connection
from octopi.wire import messages as m

_log = get_logger(__name__)

_INVENTORY_PAGES_MAX: Final = TOPIC_COUNT_MAX // 1_000 + 10
"""A page has up to 1,000 entries of each kind."""


class MembershipSession:
    """A broker's membership: the broker is a member while this connection lasts, and for a grace
    time if it breaks (`octopi.roles.register.departures`)."""

    def __init__(self, node: RegisterNode, connection: Connection, tasks: trio.Nursery) -> None:
        self._node = node
        self._connection = connection
        self._tasks = tasks
        self._member = Member(
            node.environment,
            node.controller,
            node.decisions,
            node.tracer,
            connection,
            node.election_driver.look,
        )
        self._inventory: list[m.Inventory] = []
        self._asked = False

    def handle(self, message: object) -> None:
        """Collect the inventory, then admit."""
        handing_over = self._node.handing_over
        match message:
            case m.AskHandOver():
                self._connection.post(handing_over.page(message))
            case m.Join() if handing_over.is_done.is_set():
                handing_over.refuse_broker()
            case m.RingReady():
                self._require_joined()
                self._member.directory = message.directory
            case m.Inventory():
                if self._asked or len(self._inventory) >= _INVENTORY_PAGES_MAX:
                    raise ProtocolError("inventory comes before join, in bounded number")
                self._inventory.append(message)
            case m.Join():
                if self._asked:
                    raise ProtocolError("a membership connection joins once")
                self._asked = True
                self._tasks.start_soon(self._admit, message)
            case m.AcceptEpoch():
                self._require_own(message.broker, message.incarnation)
                self._node.election_driver.accept(message)
            case m.BrokerStatus():
                self._require_joined()
                self._told(message)
            case m.BrokerLoad():
                self._require_joined()
                self._node.shedding.reported(self._member.broker, message)
            case m.StreamExpired():
                self._require_joined()
                self._tasks.start_soon(
                    self._node.topics.delete_expired, message.topic_id, self._member.broker
                )
            case m.RelayReport():
                self._require_joined()
                self._tasks.start_soon(self._node.relay_sets.told, self._member.broker, message)
            case m.Resign():
                self._require_own(message.leader, message.leader_incarnation)
                self._tasks.start_soon(self._node.leader_requests.resign, message)
            case m.Stopping():
                self._require_joined()
                self._tasks.start_soon(self._hand_over, message)
            case m.Goodbye():
                self._node.departures.gone(self._member)
            case m.AlterInSync():
                self._require_own(message.leader, message.leader_incarnation)
                self._tasks.start_soon(
                    self._node.leader_requests.alter_in_sync, self._member, message
                )
            case _:
                raise ProtocolError(f"{type(message).__name__} is no membership message")

    def _require_joined(self) -> None:
        """Refuse a message that only an admitted broker may send."""
        if not self._member.broker:
            raise ProtocolError("a broker has to join before it says this")

    def _require_own(self, broker: BrokerId, incarnation: Incarnation) -> None:
        """Refuse a message in the name of another broker, or of another incarnation of this one."""
        self._require_joined()
        member = self._member
        if (broker, incarnation) != (member.broker, member.incarnation):
            raise ProtocolError(
                f"broker {member.broker}, incarnation {member.incarnation}, sent a message in the "
                f"name of broker {broker}, incarnation {incarnation}"
            )

    def token_refreshed(self) -> None:
        """Does nothing: the endpoint takes no fresh tokens; a broker reconnects with a new one."""

    def closed(self) -> None:
        """The connection ended."""
        self._member.is_closed = True
        if self._member.broker:
            self._node.departures.ended(self._member)

    async def _admit(self, join: m.Join) -> None:
        try:
            admissions = self._node.admissions
            broker = await admissions.admit(self._member, join, self._inventory)
            reported = [topic for page in self._inventory for topic in page.topics]
            self._inventory = []
            state = self._node.controller.state
            seals = self._node.controller.seals
            life, credential = seals.of_life(state.life), seals.credential(broker)
            self._connection.post(m.Joined(join.request, state.cluster, broker, life, credential))
            await admissions.sync(self._member, broker, reported)
            self._node.generations.resume()
            await self._node.members.keep_telling(self._member)
        except ConnectionLostError:
            pass
        except OctopiError as error:
            refuse(self._connection, join.request, error)

    async def _hand_over(self, message: m.Stopping) -> None:
        try:
            await self._node.hand_overs.broker_stops(self._member)
            await self._node.decisions.durable()
            self._connection.post(m.Done(message.request))
        except ConnectionLostError:
            pass
        except OctopiError as error:
            refuse(self._connection, message.request, error)

    def _told(self, status: m.BrokerStatus) -> None:
        """The broker says which of its replicas take records."""
        broker, health = self._member.broker, self._node.controller.health
        self._node.tracer.troubled(broker, status)
        before = health.disk_trouble(broker)
        if health.told(broker, status):
            _log_status(broker, status, before)
            self._node.election_driver.look()


def _log_status(broker: BrokerId, status: m.BrokerStatus, before: str) -> None:
    """Log what changed.  *before*: why the broker took no records before; empty: it did."""
    if status.disk_trouble and not before:
        _log.warning("broker takes no records", broker=broker, why=status.disk_trouble)
    if before and not status.disk_trouble:
        _log.info("broker takes records again", broker=broker)
    troubled = [one for one in status.replicas if one.reason]
    if troubled:
        _log.warning(
            "replicas take no records",
            broker=broker,
            partitions=[one.partition for one in troubled],
            why=troubled[0].reason,
        )
    well = [one.partition for one in status.replicas if not one.reason]
    if well:
        _log.info("replicas take records again", broker=broker, partitions=well)
