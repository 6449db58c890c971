"""What a register does on the connection of a member: it admits the broker and gives it orders."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeVar

import attrs
import trio

from octopi.errors import (
    ConnectionLostError,
    NotReadyError,
    OctopiError,
    ProtocolError,
    RefusedError,
)
from octopi.limits import (
    MEMBERSHIP_HEARTBEAT_TIMEOUT_S,
    ORDER_RETRY_S,
    ORDER_RETRY_S_MAX,
    PREPARE_S,
    REQUEST_TIMEOUT_S,
    TOPIC_COUNT_MAX,
)
from octopi.logger import get_logger
from octopi.roles.answers import refuse
from octopi.tracing import steps
from octopi.transport.connection import Connection
from octopi.transport.pending_requests import Numbered
from octopi.wire import messages as m

if TYPE_CHECKING:
    from octopi.roles.register.node import RegisterNode

_log = get_logger(__name__)

_INVENTORY_PAGES_MAX: Final = TOPIC_COUNT_MAX // 1_000 + 10
"""A page has up to 1,000 entries of each kind."""
_RECORDS_PER_PAGE: Final = 1_000
_CLOCK_RESOLUTION_S: Final = 1e-3
"""Differences of times are inexact: what has to last a second may seem to last a little less."""

_T = TypeVar("_T")


class MembershipSession:
    """A broker's membership: it is a member while this connection lives, and for a moment
    longer if it breaks (`octopi.roles.register.departures`)."""

    def __init__(self, node: RegisterNode, connection: Connection, tasks: trio.Nursery) -> None:
        self._node = node
        self._connection = connection
        self._tasks = tasks
        self._inventory: list[m.Inventory] = []
        self._asked = False
        self.broker = 0
        """Its id, once it has joined."""
        self.incarnation = 0
        self.is_closed = False
        """Whether the connection has ended."""
        self.replaced: Final = trio.Event()
        """Set when the broker, in the same life, has a newer connection."""
        self.is_silent = False
        """Whether an order got no answer: then the connection ends."""
        self._hosts: set[int] = set()
        """Partitions that the broker confirmed to be a replica of, on this connection."""
        self._undone_partitions: set[int] = set()
        self._undone_topics: set[str] = set()
        """Names of topics; these are what the broker was told and could not do."""
        self._are_removals_undone = False
        self._failed = trio.Event()
        """Something was left undone."""

    def handle(self, message: object) -> None:
        """Collect the inventory, then admit."""
        match message:
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
            case m.Resign():
                self._require_own(message.leader, message.leader_incarnation)
                self._tasks.start_soon(self._node.election_driver.resign, message)
            case m.Stopping():
                self._require_joined()
                self._tasks.start_soon(self._hand_over, message)
            case m.Goodbye():
                self._node.departures.gone(self)
            case m.AlterInSync():
                self._require_own(message.leader, message.leader_incarnation)
                self._tasks.start_soon(self._node.election_driver.alter_in_sync, self, message)
            case _:
                raise ProtocolError(f"{type(message).__name__} is no membership message")

    def _require_joined(self) -> None:
        """Refuse what only a broker says that was let in."""
        if not self.broker:
            raise ProtocolError("a broker has to join before it says this")

    def _require_own(self, broker: int, incarnation: int) -> None:
        """Refuse what is said in the name of another broker, or of another life of this one."""
        self._require_joined()
        if (broker, incarnation) != (self.broker, self.incarnation):
            raise ProtocolError(
                f"broker {self.broker}, life {self.incarnation}, speaks for broker {broker}, life "
                f"{incarnation}"
            )

    def token_refreshed(self) -> None:
        """The endpoint takes no fresh tokens: a broker comes back with one."""

    def closed(self) -> None:
        """The connection ended."""
        self.is_closed = True
        if self.broker:
            self._node.departures.ended(self)

    @property
    def was_silent(self) -> bool:
        """Whether nothing came for so long that the connection ended because of that."""
        silence_s = self._node.environment.clock.now() - self._connection.last_received_at
        return silence_s > MEMBERSHIP_HEARTBEAT_TIMEOUT_S - _CLOCK_RESOLUTION_S

    @property
    def end_reason(self) -> str | None:
        """Why the connection ended; None while it hasn't."""
        return self._connection.end_reason

    async def replace(self) -> None:
        """The broker has a newer connection: this one is of no use any more."""
        self.replaced.set()
        await self._connection.close(1000, "the broker has a newer connection")

    def joined_as(self, broker: int, incarnation: int) -> None:
        """The register let the broker in."""
        self.broker, self.incarnation = broker, incarnation

    async def _admit(self, join: m.Join) -> None:
        try:
            broker = await self._node.admit(self, join, self._inventory)
            self._inventory = []
            state = self._node.controller.state
            seals = self._node.controller.seals
            life, credential = seals.of_life(state.life), seals.credential(broker)
            self._connection.post(m.Joined(join.request, state.cluster, broker, life, credential))
            await self._node.brief(self, broker)
            await self.keep_telling()
        except ConnectionLostError:
            pass
        except OctopiError as error:
            refuse(self._connection, join.request, error)

    async def _hand_over(self, message: m.Stopping) -> None:
        try:
            await self._node.hand_overs.broker_stops(self)
            await self._node.durable()
            self._connection.post(m.Done(message.request))
        except ConnectionLostError:
            pass
        except OctopiError as error:
            refuse(self._connection, message.request, error)

    def _told(self, status: m.BrokerStatus) -> None:
        """The broker says which of its replicas take records."""
        if (trace := self._node.environment.trace) is not None:
            trace(
                steps.J14Troubled(
                    broker=self.broker, disk_trouble=status.disk_trouble, troubles=status.replicas
                )
            )
        before = self._node.controller.health.disk_trouble(self.broker)
        if self._node.controller.health.told(self.broker, status):
            self._log_status(status, before)
            self._node.election_driver.look()

    def _log_status(self, status: m.BrokerStatus, before: str) -> None:
        if status.disk_trouble and not before:
            _log.warning("broker takes no records", broker=self.broker, why=status.disk_trouble)
        if before and not status.disk_trouble:
            _log.info("broker takes records again", broker=self.broker)
        troubled = [one for one in status.replicas if one.reason]
        if troubled:
            _log.warning(
                "replicas take no records",
                broker=self.broker,
                partitions=[one.partition for one in troubled],
                why=troubled[0].reason,
            )
        well = [one.partition for one in status.replicas if not one.reason]
        if well:
            _log.info("replicas take records again", broker=self.broker, partitions=well)

    def post(self, message: m.AnnounceEpoch | m.InSyncAltered | m.BrokersStopping) -> None:
        """Send it, if the broker is still there."""
        with contextlib.suppress(ConnectionLostError):
            self._connection.post(message)

    async def prepare_hand_over(self, partition: int) -> None:
        """Have the broker do what has to be done before another one leads, within `PREPARE_S`."""
        request = m.PrepareHandOver(self._connection.next_request(), partition)
        with (
            self._node.environment.clock.timeout(PREPARE_S),
            contextlib.suppress(ConnectionLostError, RefusedError),
        ):
            await self._connection.request(request, m.Done, REQUEST_TIMEOUT_S)

    async def install_partitions(
        self, records: list[m.PartitionRecord], brokers: list[m.BrokerInfo]
    ) -> bool:
        """Tell decisions about partitions; say whether the broker confirmed."""
        confirmed = True
        for page in _pages(records):
            confirmed &= await self._install_page_of_partitions(page, brokers)
        return confirmed

    async def _install_page_of_partitions(
        self, records: list[m.PartitionRecord], brokers: list[m.BrokerInfo]
    ) -> bool:
        if not await self._may_tell():
            return False
        if (trace := self._node.environment.trace) is not None:
            trace(steps.E9Telling(broker=self.broker, records=records))
        seals = self._node.controller.seals
        message = m.InstallPartitions(
            self._connection.next_request(),
            [seals.of_partition(one) for one in records],
            [
                attrs.evolve(one, stream_key=seals.stream_key(self.broker, one.broker))
                for one in brokers
            ],
        )
        undone = await self._tell(message)
        if undone is None:
            return False
        failed = {one.partition for one in undone}
        done = [one for one in records if one.partition not in failed]
        for record in done:
            known = self._hosts.add if self.broker in record.replicas else self._hosts.discard
            known(record.partition)
            self._undone_partitions.discard(record.partition)
        self._undone_partitions.update(one.partition for one in records if one not in done)
        self._note_failures(bool(undone))
        self._note_unstored()
        if trace is not None and done:
            trace(steps.E9Confirmed(broker=self.broker, records=done))
        return not undone

    async def install_topics(self, records: list[m.TopicRecord]) -> bool:
        """Tell decisions about topics; say whether the broker confirmed.

        It passes over those in partitions that it doesn't know to be a replica of, and who
        decided about a partition may not have told it yet.
        """
        confirmed = True
        for page in _pages(self._node.controller.tellable(records)):
            confirmed &= await self._install_page_of_topics(page)
        return confirmed

    async def _install_page_of_topics(self, records: list[m.TopicRecord]) -> bool:
        if untold := self._unhosted(records):
            brokers = self._node.controller.describe_brokers()
            await self.install_partitions(untold, brokers)
        if not await self._may_tell():
            return False
        # One that was deleted meanwhile is gone: the broker would make it anew, and tell of it
        # when it joins the next time.
        state = self._node.controller.state
        records = [one for one in records if one == state.topic(one.topic)]
        if not records:
            return True
        if (trace := self._node.environment.trace) is not None:
            trace(steps.T2Telling(broker=self.broker, topics=records))
        seal = self._node.controller.seals.of_topic
        message = m.InstallTopics(self._connection.next_request(), [seal(one) for one in records])
        undone = await self._tell(message)
        if undone is None:
            return False
        failed = {one.topic_id for one in undone}
        # It passed over those in partitions that it could not store to be a replica of.
        failed.update(one.topic_id for one in records if self._unhosted([one]))
        done = [one for one in records if one.topic_id not in failed]
        self._undone_topics.difference_update(one.topic for one in done)
        self._undone_topics.update(one.topic for one in records if one.topic_id in failed)
        self._note_failures(bool(failed))
        if trace is not None and done:
            trace(steps.T2Confirmed(broker=self.broker, topics=done))
        return not failed

    def _unhosted(self, records: list[m.TopicRecord]) -> list[m.PartitionRecord]:
        """The partitions of topics that the broker is a replica of and has not confirmed."""
        partitions = self._node.controller.state.partitions
        return [
            partitions[number]
            for number in sorted({one for record in records for one in record.partitions})
            if number not in self._hosts and self.broker in partitions[number].replicas
        ]

    async def remove_topics(self, topics: list[m.RemovedTopic]) -> list[m.RemovedTopic]:
        """Have the records of deleted topics removed; return those that the broker confirmed."""
        confirmed: list[m.RemovedTopic] = []
        for page in _pages(topics):
            confirmed += await self._remove_page_of_topics(page)
        return confirmed

    async def _remove_page_of_topics(self, topics: list[m.RemovedTopic]) -> list[m.RemovedTopic]:
        if not await self._may_tell():
            return []
        if (trace := self._node.environment.trace) is not None:
            for one in topics:
                trace(steps.T6Telling(broker=self.broker, **attrs.asdict(one)))
        message = m.RemoveTopics(self._connection.next_request(), topics)
        undone = await self._tell(message)
        if undone is None:
            return []
        failed = {one.topic_id for one in undone}
        self._are_removals_undone |= bool(undone)
        self._note_failures(bool(undone))
        done = [one for one in topics if one.topic_id not in failed]
        if trace is not None:
            for one in done:
                trace(steps.T6Confirmed(broker=self.broker, **attrs.asdict(one)))
        return done

    def _note_unstored(self) -> None:
        """Clients are not sent to the broker for what it doesn't know."""
        controller = self._node.controller
        if self.is_closed or not controller.is_live(self.broker):
            return
        mine = [
            one
            for one in self._undone_partitions
            if self.broker in controller.state.partitions[one].replicas
        ]
        if controller.health.unstored(self.broker, mine):
            self._node.election_driver.look()

    def _note_failures(self, are_there: bool) -> None:
        if are_there:
            self._failed.set()

    async def keep_telling(self) -> None:
        """Tell the broker again what it could not do, until it has or the connection ends: first
        what it has to remove, then what it has to hold, as it is decided by then."""
        clock = self._node.environment.clock
        pause_s = ORDER_RETRY_S
        while not self.is_closed:
            await self._failed.wait()
            await clock.sleep_until(clock.now() + pause_s)
            self._failed = trio.Event()
            await self._tell_again()
            pause_s = (
                min(ORDER_RETRY_S_MAX, 2 * pause_s) if self._failed.is_set() else ORDER_RETRY_S
            )

    async def _tell_again(self) -> None:
        state, controller = self._node.controller.state, self._node.controller
        if self._are_removals_undone:
            self._are_removals_undone = False
            await self._node.have_removed(self, controller.removals_of(self.broker))
        partitions = sorted(self._undone_partitions)
        if partitions:
            records = [state.partitions[one] for one in partitions]
            await self._node.tell(self, records, controller.describe_brokers())
        topics = [state.topic(one) for one in sorted(self._undone_topics)]
        self._undone_topics.clear()  # deleted ones are of no interest any more
        await self.install_topics([one for one in topics if one is not None])

    async def _may_tell(self) -> bool:
        """Wait until all that was decided is durable: whoever tells of it may have read what was
        decided a moment ago, for another reason."""
        try:
            await self._node.durable()
        except NotReadyError:
            return False
        return True

    async def _tell(self, message: Numbered) -> list[m.Undone] | None:
        """Give an order; return what of it the broker could not do.  None: the broker gave no
        answer, so its connection ends, and it is told all of it when it joins again."""
        order = m.TYPE_NAMES[type(message)]
        try:
            answer = await self._connection.request(message, m.OrderCarriedOut, REQUEST_TIMEOUT_S)
        except (ConnectionLostError, ProtocolError, RefusedError) as error:
            self.is_silent = True
            _log.warning("broker did not confirm", broker=self.broker, order=order, why=str(error))
            return None
        if answer.undone:
            _log.warning(
                "broker could not carry out all",
                broker=self.broker,
                order=order,
                count=len(answer.undone),
                why=answer.undone[0].reason,
            )
        return answer.undone


def _pages(records: list[_T]) -> Iterator[list[_T]]:
    for at in range(0, len(records), _RECORDS_PER_PAGE):
        yield records[at : at + _RECORDS_PER_PAGE]
