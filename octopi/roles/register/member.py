"""A broker on its membership connection: the orders that the register sends it, and those of them
that it could not carry out."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, TypeVar

import attrs
import trio

from octopi.coordination.controller import Controller
from octopi.coordination.generations import SealedLog
from octopi.environment import Environment
from octopi.errors import ConnectionLostError, NotReadyError, ProtocolError, RefusedError
from octopi.identifiers import (
    BrokerId,
    DirectoryId,
    Epoch,
    Incarnation,
    Offset,
    PartitionId,
    TopicId,
)
from octopi.limits import (
    MEMBERSHIP_HEARTBEAT_TIMEOUT_S,
    ORDER_RETRY_S,
    ORDER_RETRY_S_MAX,
    PREPARE_S,
    REQUEST_TIMEOUT_S,
)
from octopi.logger import get_logger
from octopi.roles.register.decision_log import DecisionLog
from octopi.roles.register.register_tracer import (
    PartitionsOrder,
    RegisterTracer,
    RemovalOrder,
    TopicsOrder,
)
from octopi.transport.connection import Connection
from octopi.transport.pending_requests import Numbered
from octopi.wire import messages as m

_log = get_logger(__name__)

_RECORDS_PER_PAGE: Final = 1_000
_CLOCK_RESOLUTION_S: Final = 1e-3
"""Differences of times are inexact: a wait of one second may seem to take a little less."""

_T = TypeVar("_T")


@attrs.define
class _TopicOrder:
    """An order about topics that is being collected, or was sent."""

    topics: dict[str, m.TopicRecord] = attrs.field(factory=dict)
    """By their ids."""
    is_confirmed: bool = False


class Member:
    """One connection of a broker, from before it joins until the connection has ended."""

    def __init__(
        self,
        environment: Environment,
        controller: Controller,
        decisions: DecisionLog,
        tracer: RegisterTracer,
        connection: Connection,
        health_changed: Callable[[], None],
    ) -> None:
        """*health_changed*: called when the set of the broker's replicas that serve has changed."""
        self._environment = environment
        self._controller = controller
        self._decisions = decisions
        self._tracer = tracer
        self._connection = connection
        self._health_changed = health_changed
        self.broker = BrokerId(0)
        """Its id, once it has joined."""
        self.incarnation = Incarnation(0)
        self.directory = DirectoryId("")
        """The number of its acceptor's journal, if it can be a broker of a ring; otherwise
        empty."""
        self.is_closed = False
        """Whether the connection has ended."""
        self.is_over: Final = trio.Event()
        """Set when the broker has a newer connection, or is no longer a member."""
        self.is_silent = False
        """Whether an order got no answer, so the connection ends."""
        self._next_topics = _TopicOrder()
        self._topics_lock = trio.Lock()
        """Held while an order about topics is under way."""
        self._hosts: set[PartitionId] = set()
        """Partitions that the broker confirmed to be a replica of, on this connection, and was not
        told since that it is none."""
        self._newest_told: dict[PartitionId, m.PartitionRecord] = {}
        """The newest decision about each partition that was sent on this connection."""
        self._undone_partitions: set[PartitionId] = set()
        self._undone_topics: set[str] = set()
        self._are_removals_undone = self._are_relays_undone = False
        self._failed = trio.Event()
        """Set when the broker could not carry out a part of an order."""

    @property
    def was_silent(self) -> bool:
        """Whether the connection ended because the broker was silent for too long."""
        silence_s = self._environment.clock.now() - self._connection.last_received_at
        return silence_s > MEMBERSHIP_HEARTBEAT_TIMEOUT_S - _CLOCK_RESOLUTION_S

    @property
    def end_reason(self) -> str | None:
        """Why the connection ended; None while it hasn't."""
        return self._connection.end_reason

    async def dismiss(self) -> None:
        """The register has handed over: the broker asks it for that when it connects again."""
        await self._connection.close(1001, "the register has handed the cluster over")

    async def replace(self) -> None:
        """The broker has a newer connection: close this one."""
        self.is_over.set()
        await self._connection.close(1000, "the broker has a newer connection")

    def joined_as(self, broker: BrokerId, incarnation: Incarnation) -> None:
        """The register admitted the broker."""
        self.broker, self.incarnation = broker, incarnation

    def post(self, message: m.AnnounceEpoch | m.InSyncAltered | m.BrokersStopping) -> None:
        """Send *message*, if the connection still exists."""
        with contextlib.suppress(ConnectionLostError):
            self._connection.post(message)

    async def prepare_hand_over(self, partition: PartitionId) -> None:
        """Have the broker prepare the hand-over to another leader, within `PREPARE_S`."""
        request = m.PrepareHandOver(self._connection.next_request(), partition)
        with (
            self._environment.clock.timeout(PREPARE_S),
            contextlib.suppress(ConnectionLostError, RefusedError),
        ):
            await self._connection.request(request, m.Done, REQUEST_TIMEOUT_S)

    @property
    def knows_seals(self) -> bool:
        """Whether the broker is of a version that has generations of topics."""
        return self._connection.version >= m.DECLARATIONS[m.SealTopic].since

    async def seal_topic(
        self, topic_id: TopicId, partition: PartitionId, epoch: Epoch, generation: int
    ) -> SealedLog | None:
        """Have the broker, which leads *partition* in *epoch*, seal the log of a topic for the next
        *generation*; return where the log ends, or None if it is not known to be sealed."""
        order = m.SealTopic(self._connection.next_request(), topic_id, partition, epoch, generation)
        try:
            answer = await self._connection.request(order, m.TopicSealed, REQUEST_TIMEOUT_S)
        except (ConnectionLostError, ProtocolError, RefusedError) as error:
            _log.info("log not sealed", broker=self.broker, partition=partition, why=str(error))
            return None
        return SealedLog(Epoch(answer.epoch), Offset(answer.end))

    async def announce_hand_over(self, attempt: str, record: bytes) -> str:
        """Have the broker store that the register is about to hand over; return why it has not;
        empty: it has."""
        request = m.AnnounceHandOver(self._connection.next_request(), attempt, record)
        try:
            await self._connection.request(request, m.Done, REQUEST_TIMEOUT_S)
        except (ConnectionLostError, ProtocolError, RefusedError) as error:
            return str(error)
        return ""

    async def install_partitions(
        self, records: list[m.PartitionRecord], brokers: list[m.BrokerInfo]
    ) -> bool:
        """Send decisions about partitions; return whether the broker confirmed."""
        confirmed = True
        for page in _pages(records):
            confirmed &= await self._install_page_of_partitions(page, brokers)
        return confirmed

    async def _install_page_of_partitions(
        self, records: list[m.PartitionRecord], brokers: list[m.BrokerInfo]
    ) -> bool:
        if not await self._may_tell():
            return False
        self._tracer.ordering(self.broker, PartitionsOrder(records))
        seals = self._controller.seals
        message = m.InstallPartitions(
            self._connection.next_request(),
            [seals.of_partition(one) for one in records],
            [
                attrs.evolve(one, stream_key=seals.stream_key(self.broker, one.broker))
                for one in brokers
            ],
        )
        for record in records:
            self._newest_told[record.partition] = record
            if self.broker not in record.replicas:
                # It may be a replica again before it has confirmed that it is none, and then it
                # needs the topics again.
                self._hosts.discard(record.partition)
        undone = await self._tell(message)
        if undone is None:
            return False
        failed = {one.partition for one in undone}
        done = [one for one in records if one.partition not in failed]
        for record in done:
            is_newest = self._newest_told[record.partition] is record
            if is_newest and self.broker in record.replicas:
                self._hosts.add(record.partition)
            self._undone_partitions.discard(record.partition)
        self._undone_partitions.update(one.partition for one in records if one not in done)
        self._note_failures(bool(undone))
        self._note_unstored()
        self._tracer.ordered(self.broker, PartitionsOrder(done))
        return not undone

    async def install_topics(self, records: list[m.TopicRecord]) -> bool:
        """Tell decisions about topics; say whether the broker confirmed.  Calls that come while an
        order is under way share the next one.

        A broker ignores topics in partitions of which it doesn't know that it is a replica, and the
        decision about such a partition may not have been sent to it yet.
        """
        order = self._next_topics
        order.topics.update({one.topic_id: one for one in records})
        async with self._topics_lock:
            if order is self._next_topics:  # else another call has sent it
                self._next_topics = _TopicOrder()
                order.is_confirmed = True
                for page in _pages(self._controller.view.tellable([*order.topics.values()])):
                    order.is_confirmed &= await self._install_page_of_topics(page)
        return order.is_confirmed

    async def install_options(self, records: list[m.TopicRecord]) -> None:
        """Tell a broker that has just joined the options of topics that were altered while it was
        away, before it is told which partitions it leads."""
        for page in _pages(self._controller.view.tellable(records)):
            await self._order_topics(page)

    async def _install_page_of_topics(self, records: list[m.TopicRecord]) -> bool:
        if untold := self._unhosted(records):
            brokers = self._controller.view.brokers()
            await self.install_partitions(untold, brokers)
        return await self._order_topics(records)

    async def _order_topics(self, records: list[m.TopicRecord]) -> bool:
        if not await self._may_tell():
            return False
        # Leave out topics that were deleted meanwhile: the broker would make them again, and report
        # them when it joins the next time.  Others may have been altered meanwhile.
        state = self._controller.state
        newest = [(one, state.topic(one.topic)) for one in records]
        records = [now for one, now in newest if now is not None and now.topic_id == one.topic_id]
        if not records:
            return True
        self._tracer.ordering(self.broker, TopicsOrder(records))
        seal = self._controller.seals.of_topic
        message = m.InstallTopics(self._connection.next_request(), [seal(one) for one in records])
        undone = await self._tell(message)
        if undone is None:
            return False
        failed = {one.topic_id for one in undone}
        # The broker ignored topics in partitions whose records it could not store.
        failed.update(one.topic_id for one in records if self._unhosted([one]))
        done = [one for one in records if one.topic_id not in failed]
        self._undone_topics.difference_update(one.topic for one in done)
        self._undone_topics.update(one.topic for one in records if one.topic_id in failed)
        self._note_failures(bool(failed))
        self._tracer.ordered(self.broker, TopicsOrder(done))
        return not failed

    async def install_relay_sets(
        self,
        sets: list[m.RelaySetRecord],
        topics: list[m.TopicRecord],
        wished: Mapping[PartitionId, BrokerId] | None = None,
    ) -> None:
        """Tell decisions about relay sets and topics in memory, and who is *wished* to be the
        sequencer."""
        sequencers = [m.WishedSequencer(*one) for one in (wished or {}).items()]
        named = {one for record in sets for one in record.members}
        brokers = [one for one in self._controller.view.brokers() if one.broker in named]
        pages = [*_pages(topics)] or [[]]
        for page in pages:
            if not await self._may_tell():
                return
            # Leave out topics that were deleted meanwhile.
            state = self._controller.state
            page = [one for one in page if state.topic_of_id(one.topic_id) is not None]
            request = self._connection.next_request()
            undone = await self._tell(m.InstallRelaySets(request, sets, page, brokers, sequencers))
            self._are_relays_undone |= bool(undone)
            self._note_failures(bool(undone))

    def _unhosted(self, records: list[m.TopicRecord]) -> list[m.PartitionRecord]:
        """The partitions of topics that the broker is a replica of and has not confirmed."""
        partitions = self._controller.state.partitions
        return [
            partitions[number]
            for number in sorted({one for record in records for one in record.log_partitions})
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
        self._tracer.ordering(self.broker, RemovalOrder(topics))
        message = m.RemoveTopics(self._connection.next_request(), topics)
        undone = await self._tell(message)
        if undone is None:
            return []
        failed = {one.topic_id for one in undone}
        self._are_removals_undone |= bool(undone)
        self._note_failures(bool(undone))
        done = [one for one in topics if one.topic_id not in failed]
        self._tracer.ordered(self.broker, RemovalOrder(done))
        return done

    def _note_unstored(self) -> None:
        """Send no clients to the broker for partitions whose newest decision it could not store."""
        controller = self._controller
        if self.is_closed or not controller.is_live(self.broker):
            return
        mine = [
            one
            for one in self._undone_partitions
            if self.broker in controller.state.partitions[one].replicas
        ]
        if controller.health.unstored(self.broker, mine):
            self._health_changed()

    def _note_failures(self, are_there: bool) -> None:
        if are_there:
            self._failed.set()

    # --- orders that were not carried out ------------------------------------------------

    async def keep_telling(self, tell_again: Callable[[], Awaitable[None]]) -> None:
        """Await *tell_again* some time after an order was not carried out, until the connection
        ends."""
        clock = self._environment.clock
        pause_s = ORDER_RETRY_S
        while not self.is_closed:
            await self._failed.wait()
            await clock.sleep_until(clock.now() + pause_s)
            self._failed = trio.Event()
            await tell_again()
            pause_s = (
                min(ORDER_RETRY_S_MAX, 2 * pause_s) if self._failed.is_set() else ORDER_RETRY_S
            )

    def take_undone_removals(self) -> bool:
        """Whether the broker could not remove some topics; the call clears this."""
        undone, self._are_removals_undone = self._are_removals_undone, False
        return undone

    def take_undone_relays(self) -> bool:
        """Whether the broker could not store some relay sets; the call clears this."""
        undone, self._are_relays_undone = self._are_relays_undone, False
        return undone

    def undone_partitions(self) -> list[PartitionId]:
        """Partitions of which the broker could not store the newest decision."""
        return sorted(self._undone_partitions)

    def take_undone_topics(self) -> list[str]:
        """The names of topics that the broker could not make; the call clears them."""
        names = sorted(self._undone_topics)
        self._undone_topics.clear()
        return names

    async def _may_tell(self) -> bool:
        """Wait until all decisions are durable: a caller may have read a decision that another task
        took a moment ago."""
        try:
            await self._decisions.durable()
        except NotReadyError:
            return False
        return True

    async def _tell(self, message: Numbered) -> list[m.Undone] | None:
        """Send an order; return the parts that the broker could not carry out.  None: the broker
        didn't answer, so its connection ends, and it is sent everything when it joins again."""
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
