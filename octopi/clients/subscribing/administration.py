"""Makes, describes, resets and deletes durable subscriptions.

A subscription is known to its coordinator, the leader of its topic's first partition, and each
log's leader keeps its mark there.  So most of these operations have several steps.  Each step can
be repeated, and what one caller leaves unfinished, another one finishes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, Literal

import attrs

from octopi.clients.consuming.start_position import OffsetSpec, find_starts, start_places
from octopi.clients.described_generations import sealed_for_good
from octopi.clients.leader_lookup import place_of
from octopi.clients.routing import RequestRouter
from octopi.clients.subscribing.descriptions import (
    describe_marks,
    describe_subscription,
    first_partition,
    list_subscriptions,
    partitions_of,
)
from octopi.clients.subscribing.extension import extend, open_mark
from octopi.clients.subscribing.subscription_options import (
    dead_letter_topic,
    is_queue,
    subscription_name,
)
from octopi.clients.topic_creation import create_topic
from octopi.errors import (
    InvalidOptionError,
    MemberFencedError,
    RefusedError,
    Status,
    UnknownSubscriptionError,
)
from octopi.identifiers import (
    NO_CLAIM,
    Claim,
    MemberId,
    Offset,
    PartitionId,
    SubscriptionId,
    TopicName,
    topic_name,
)
from octopi.limits import LIST_COUNT_MAX
from octopi.model import (
    SubscriptionDefinition,
    SubscriptionOptions,
    SubscriptionStart,
    SubscriptionState,
)
from octopi.position import NO_ANCHOR, Anchor, Position
from octopi.wire.messages import (
    CreateSubscription,
    DeleteMarks,
    DeleteSubscription,
    Done,
    FinishReset,
    FinishSubscription,
    ResetBegun,
    ResetSubscription,
    SetMark,
    SubscriptionDescription,
    SubscriptionMember,
    TopicInfo,
    TopicOptions,
)

_DELETION_TRIES: Final = 3
"""How often a deletion begins, if all replicas lose their power in the middle of it each time."""

Creation = Literal["create", "attach", "create_or_attach"]
"""Whether a subscription has to be new, has to be there, or is made if it is missing."""


@attrs.frozen
class SubscribedLogStatus:
    """A subscription in one log."""

    partition: PartitionId
    phase: str
    """``assigned`` to a member, ``free`` or ``resetting``."""
    member: MemberId
    """Who has it; empty: nobody."""
    claim: Claim
    mark: Offset
    """Everything below it is processed."""
    highwater: Offset
    lag_bytes: int
    lag_ms: int
    """Age of the message at the mark; 0 at the end of the log."""
    changed_ms: int
    """When the mark was stored last (ms since 1970)."""
    is_attached: bool
    """Whether a member is connected to the log's leader."""
    skipped: list[tuple[Offset, Offset]]
    """What was lost and passed over (begin, end), the newest last; at most 100."""
    open_count: int = 0
    """Of a queue: messages that members have, and have not answered."""
    waiting_count: int = 0
    """Of a queue: messages that are to be dealt again."""
    dead_count: int = 0
    """Of a queue: dead letters so far."""
    letter_fault: str = ""
    """Of a queue: why no dead letter can be written now; empty: one can."""
    lost: tuple[Offset, Offset] | None = None
    """What was lost (begin, end), and the next member will be told; None: nothing."""
    held_bytes: int = 0
    """What retention would have removed, and keeps since it has yet to be processed."""
    anchor: Anchor = NO_ANCHOR
    """Of the mark, to compare with the log; empty: not known."""


@attrs.frozen
class SubscriptionStatus:
    """A subscription, its members, and how far it is."""

    definition: SubscriptionDefinition
    members: list[SubscriptionMember]
    logs: list[SubscribedLogStatus]

    @property
    def lag_bytes(self) -> int:
        """Of all logs."""
        return sum(one.lag_bytes for one in self.logs)

    @property
    def dead_letters(self) -> str:
        """The topic with the dead letters of a queue; empty: it is none."""
        definition = self.definition
        if not is_queue(definition.mode):
            return ""
        return dead_letter_topic(definition.topic, definition.name)


@attrs.frozen
class MarkReset:
    """What a reset does, or would do, to the mark of one log."""

    partition: PartitionId
    before: Offset
    after: Offset


class SubscriptionAdministration:
    """These operations, for one client."""

    def __init__(self, router: RequestRouter) -> None:
        self._router = router

    async def have(
        self,
        info: TopicInfo,
        name: str,
        mode: str,
        options: SubscriptionOptions,
        start: str,
        create: Creation,
    ) -> SubscriptionDefinition:
        """The subscription, made as *create* says, with a mark in each log.

        Raises:
          InvalidOptionError: if *name* or an option can't be.
          SubscriptionExistsError, UnknownSubscriptionError: as *create* says.
        """
        wanted = subscription_name(name)
        if is_queue(mode):
            dead_letter_topic(info.topic, name)
        if start not in set(SubscriptionStart):
            raise InvalidOptionError(f"start is {start!r}; it must be earliest or latest")
        if fault := options.fault():
            raise InvalidOptionError(fault)
        topic, first = TopicName(info.topic), first_partition(info)
        if info.generations:
            if is_queue(mode):
                raise InvalidOptionError(
                    f"topic {info.topic} got other partitions while it was in use, and mode {mode} "
                    "is for topics that never did: use exclusive or failover"
                )
            await self._open_further(info, wanted)
        partitions = partitions_of(info)
        found = await self._router.ask_leader(
            f"create subscription {name}",
            topic,
            first,
            lambda request: CreateSubscription(
                request,
                topic,
                first,
                info.topic_id,
                partitions,
                wanted,
                mode,
                options,
                start,
                create,
            ),
            SubscriptionDescription,
            follows_generations=True,
        )
        definition = found.definition
        if definition.state == SubscriptionState.CREATING:
            await self._open(definition, info, definition.start)
        return definition

    async def _open_further(self, info: TopicInfo, name: str) -> None:
        """If a subscription is there, have it have a mark in each log that the topic got."""
        with suppress(UnknownSubscriptionError):
            found = (await self.description(info.topic, name)).definition
            await extend(self._router, info, found)

    async def finish_creation(self, topic: TopicName, name: str, sid: SubscriptionId) -> None:
        """Create a subscription to its end again, if that is needed: all replicas that knew the end
        of its creation may have lost that.  A log that lost its mark as well begins at its start.

        Raises:
          OctopiError: if that failed; it can be repeated.
        """
        info = await self._router.describe_topic(topic)
        found = (await self.description(topic, name)).definition
        if (found.sid, found.state) == (sid, SubscriptionState.CREATING):
            await self._open(found, info, SubscriptionStart.EARLIEST)

    async def _open(self, definition: SubscriptionDefinition, info: TopicInfo, start: str) -> None:
        """Fix that the subscription begins at *start* in each log without its mark, make the topic
        for dead letters, and say so to the coordinator."""
        for partition in definition.partitions:
            await open_mark(self._router, definition, partition, start)
        if is_queue(definition.mode):
            await self._have_dead_letters(definition, info)
        topic, first = TopicName(definition.topic), definition.partitions[0]
        await self._router.ask_leader(
            f"create subscription {definition.name}",
            topic,
            first,
            lambda request: FinishSubscription(request, topic, first, definition.sid),
            Done,
            follows_generations=True,
        )

    async def restore_mark(
        self, definition: SubscriptionDefinition, partition: PartitionId
    ) -> None:
        """Open the mark of one log again, at the log's start: all replicas of its partition have
        lost it, with the records that it was about.

        Raises:
          UnknownSubscriptionError: if the subscription was deleted, or expired.
        """
        topic, name = definition.topic, definition.name
        found = (await self.description(topic, name)).definition
        if found.sid != definition.sid or found.state == SubscriptionState.DELETING:
            raise UnknownSubscriptionError(f"{topic}: the subscription {name} was deleted")
        await open_mark(self._router, definition, partition, SubscriptionStart.EARLIEST)

    async def _have_dead_letters(self, definition: SubscriptionDefinition, info: TopicInfo) -> None:
        """Have the topic for the dead letters of a queue, beside its topic."""
        options = TopicOptions(
            flush_before_ack=info.options.flush_before_ack, min_insync=info.options.min_insync
        )
        name = dead_letter_topic(definition.topic, definition.name)
        made = await create_topic(
            self._router, name, 0, None, options, exist_ok=True, beside=definition.topic
        )
        places = [PartitionId(one.partition) for one in made.partitions]
        if places != definition.partitions:
            raise InvalidOptionError(
                f"the topic {name} exists, for other partitions than {definition.topic}: dead "
                "letters need the same. Delete it, or give the subscription another name"
            )

    async def describe(self, topic: str, name: str) -> SubscriptionStatus:
        """A subscription, its members, and how far it is.

        Raises:
          UnknownTopicError, UnknownSubscriptionError: if there is none.
        """
        found = await self.description(topic, name)
        assignments = {one.partition: one for one in found.assignments}
        logs = []
        for partition in found.definition.partitions:
            marks = await describe_marks(self._router, found.definition, partition)
            one = assignments.get(partition)
            logs.append(
                SubscribedLogStatus(
                    partition=partition,
                    phase="free" if one is None else one.phase,
                    member=MemberId("") if one is None else one.member,
                    claim=marks.claim if one is None else one.claim,
                    mark=marks.mark,
                    highwater=marks.highwater,
                    lag_bytes=marks.lag_bytes,
                    lag_ms=marks.lag_ms,
                    changed_ms=marks.changed_ms,
                    is_attached=bool(marks.member),
                    skipped=[(one.begin, one.end) for one in marks.skipped],
                    open_count=marks.open_count,
                    waiting_count=marks.waiting_count,
                    dead_count=marks.dead_count,
                    letter_fault=marks.letter_fault,
                    lost=None if marks.lost is None else (marks.lost.begin, marks.lost.end),
                    held_bytes=marks.held_bytes,
                    anchor=Anchor(marks.anchor),
                )
            )
        return SubscriptionStatus(found.definition, found.members, logs)

    async def description(self, topic: str, name: str) -> SubscriptionDescription:
        """What the coordinator knows of a subscription.

        Raises:
          UnknownTopicError, UnknownSubscriptionError: if there is none.
        """
        info = await self._router.describe_topic(topic_name(topic))
        return await describe_subscription(self._router, info, subscription_name(name))

    async def of_topic(self, topic: str) -> list[SubscriptionDefinition]:
        """The subscriptions of a topic, in the order of their names.

        Raises:
          UnknownTopicError: if there is no such topic.
        """
        info = await self._router.describe_topic(topic_name(topic))
        found: list[SubscriptionDefinition] = []
        after = ""
        while True:
            page = await list_subscriptions(self._router, info, after, LIST_COUNT_MAX // 10)
            found += page.definitions
            after = page.after
            if not after:
                return found

    async def reset(
        self,
        topic: str,
        name: str,
        to: OffsetSpec | Position | str,
        *,
        partition: int | None,
        force: bool,
        dry_run: bool,
    ) -> list[MarkReset]:
        """Set the marks to *to*, log by log.

        Raises:
          InvalidOptionError: if *to* is no place in the topic.
          SubscriptionBusyError: if a member has a log, unless *force*.
          OffsetOutOfRangeError, OffsetInsideRecordError: if an offset is no record's.
        """
        definition = (await self.description(topic, name)).definition
        info = await self._router.describe_topic(topic_name(topic))
        chosen = list(definition.partitions)
        if partition is not None:
            chosen = [PartitionId(place_of(info, partition).partition)]
        asked = TopicName(info.topic)
        starts = await find_starts(
            start_places(info, to, chosen),
            lambda one, at, value: self._router.find_offset(asked, one, at, value),
            with_end=False,
            sealed=sealed_for_good(info),
        )
        resets = []
        for one, found in starts.items():
            before = (await describe_marks(self._router, definition, one)).mark
            after = found.place.offset
            if not dry_run:
                await self._reset_log(definition, one, after, force)
            resets.append(MarkReset(one, before, after))
        return resets

    async def _reset_log(
        self, definition: SubscriptionDefinition, log: PartitionId, offset: Offset, force: bool
    ) -> None:
        """First the coordinator takes the log from its member, then the log's leader sets the mark,
        then the coordinator assigns the log again.

        The log's leader may know a newer claim than the coordinator gave.  Then that one has to
        count on from there."""
        try:
            await self._reset_from(definition, log, offset, force, NO_CLAIM)
        except MemberFencedError:
            newest = (await describe_marks(self._router, definition, log)).claim
            await self._reset_from(definition, log, offset, force, newest)

    async def _reset_from(
        self,
        definition: SubscriptionDefinition,
        log: PartitionId,
        offset: Offset,
        force: bool,
        newest: Claim,
    ) -> None:
        topic, first = TopicName(definition.topic), definition.partitions[0]
        sid, what = definition.sid, f"reset subscription {definition.name}"
        begun = await self._router.ask_leader(
            what,
            topic,
            first,
            lambda request: ResetSubscription(
                request, topic, first, sid, log, offset, force, newest
            ),
            ResetBegun,
            follows_generations=True,
        )
        await self._router.ask_leader(
            what,
            topic,
            log,
            lambda request: SetMark(request, topic, log, sid, begun.claim, offset),
            Done,
            follows_generations=True,
        )
        await self._router.ask_leader(
            what,
            topic,
            first,
            lambda request: FinishReset(request, topic, first, sid, log, begun.claim),
            Done,
            follows_generations=True,
        )

    async def delete(self, topic: str, name: str) -> None:
        """Delete a subscription and its marks.

        Raises:
          UnknownTopicError, UnknownSubscriptionError: if there is none.
        """
        definition = (await self.description(topic, name)).definition
        for tries_left in reversed(range(_DELETION_TRIES)):
            try:
                await self._delete(definition)
                return
            except RefusedError as error:
                # All replicas may have lost that it began: then the subscription is there again,
                # and its members found no marks.
                if error.status != Status.INVALID_OPTION or not tries_left:
                    raise

    async def _delete(self, definition: SubscriptionDefinition) -> None:
        asked, first = TopicName(definition.topic), definition.partitions[0]
        sid, what = definition.sid, f"delete subscription {definition.name}"

        async def step(text: str) -> None:
            await self._router.ask_leader(
                what,
                asked,
                first,
                lambda request: DeleteSubscription(request, asked, first, sid, text),
                Done,
                follows_generations=True,
            )

        await step("begin")
        for partition in definition.partitions:

            def question(request: int, partition: PartitionId = partition) -> DeleteMarks:
                return DeleteMarks(request, asked, partition, sid)

            await self._router.ask_leader(
                what, asked, partition, question, Done, follows_generations=True
            )
        await step("end")
