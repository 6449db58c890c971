"""The brokers that are members of the cluster now, and messages to all or some of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial

import trio

from octopi.coordination.controller import Controller
from octopi.errors import NotReadyError, StorageError
from octopi.identifiers import BrokerId, Incarnation, PartitionId
from octopi.roles.register.announcements import Announcements
from octopi.roles.register.decision_log import DecisionLog
from octopi.roles.register.member import Member
from octopi.wire.messages import BrokerInfo, PartitionRecord, RemovedTopic, TopicRecord


class Members(Mapping[BrokerId, Member]):
    """The joined brokers by their ids: each with its newest connection, which may just have broken
    (`octopi.roles.register.departures`)."""

    def __init__(
        self, controller: Controller, decisions: DecisionLog, announcements: Announcements
    ) -> None:
        self._controller = controller
        self._decisions = decisions
        self._announcements = announcements
        self._members: dict[BrokerId, Member] = {}
        self._next_placed: dict[PartitionId, None] = {}
        """Partitions that were placed, and that members are told of next."""
        self._placed_lock = trio.Lock()

    def __getitem__(self, broker: BrokerId) -> Member:
        return self._members[broker]

    def __iter__(self) -> Iterator[BrokerId]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def joined(self, member: Member, broker: BrokerId, incarnation: Incarnation) -> None:
        """The register admitted *member* as *broker*; older connections of the broker no longer
        count."""
        self._members[broker] = member
        member.joined_as(broker, incarnation)

    def left(self, broker: BrokerId) -> None:
        """The broker is no longer a member."""
        del self._members[broker]

    # --- what they are told --------------------------------------------------------------

    async def tell_partitions(self, records: list[PartitionRecord], members: list[Member]) -> None:
        """Send decisions about partitions to *members*.  Every broker stores the whole table, not
        only its own part, so a register that lost its disk learns of partitions whose brokers are
        away."""
        brokers = self._controller.view.brokers()
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(self._tell, member, records, brokers)

    async def tell_placed(self, partitions: list[PartitionId]) -> None:
        """Tell all members the newest decisions about *partitions*, which were placed just now.
        Calls that come while an order is under way share the next one."""
        order = self._next_placed
        order.update(dict.fromkeys(partitions))
        async with self._placed_lock:
            if order is self._next_placed:  # else another call has told it
                self._next_placed = {}
                records = [self._controller.state.partitions[one] for one in order]
                await self.tell_partitions(records, list(self._members.values()))

    async def _tell(
        self, member: Member, records: list[PartitionRecord], brokers: list[BrokerInfo]
    ) -> None:
        """Send decisions about partitions to one broker."""
        await member.install_partitions(records, brokers)
        if not member.is_closed:
            # If the partition was new to the broker, it could not accept an epoch of it before.
            await self._announcements.tell_again(member, records)

    async def tell_learned(self, topics: list[TopicRecord], reporter: Member | None) -> None:
        """Send *topics* to brokers that joined before the register had learned these topics again:
        they may hold replicas and lack the topics.  The *reporter* of the topics is told by
        `Admissions.sync`; None: nobody has reported them just now."""
        partitions = self._controller.state.partitions
        async with trio.open_nursery() as nursery:
            for broker, member in self._members.items():
                held = [
                    topic
                    for topic in topics
                    if any(broker in partitions[one].replicas for one in topic.log_partitions)
                ]
                if member is not reporter:
                    nursery.start_soon(member.install_topics, held)

    async def have_removed(self, member: Member, topics: list[RemovedTopic]) -> None:
        """Have a broker remove deleted topics, and remember which it has removed."""
        for topic in await member.remove_topics(topics):
            # If this isn't journaled, the broker is told again, which does no harm.
            with contextlib.suppress(NotReadyError, StorageError):
                self._decisions.persist(self._controller.removed(topic.topic_id, member.broker))
        with contextlib.suppress(NotReadyError):
            await self._decisions.durable()

    async def keep_telling(self, member: Member) -> None:
        """Repeat orders that a broker could not carry out, until it has or its connection ends:
        first the removals, then the newest decisions about what it has to hold."""
        await member.keep_telling(partial(self._tell_again, member))

    async def _tell_again(self, member: Member) -> None:
        controller, state = self._controller, self._controller.state
        if member.take_undone_removals():
            await self.have_removed(member, controller.view.removals_of(member.broker))
        if member.take_undone_relays():
            mine = controller.view.relay_sets_of(member.broker)
            held = [topic for one in mine for topic in state.relay_topics_on(one.partition)]
            await member.install_relay_sets(list(state.relay_sets.values()), held)
        partitions = member.undone_partitions()
        if partitions:
            records = [state.partitions[one] for one in partitions]
            await self._tell(member, records, controller.view.brokers())
        # Topics that were deleted meanwhile are left out.
        topics = [state.topic(one) for one in member.take_undone_topics()]
        await member.install_topics([one for one in topics if one is not None])
