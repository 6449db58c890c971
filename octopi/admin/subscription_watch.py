"""Asks coordinators and leaders how far durable subscriptions are, for the pages of a node.

A look is bounded, however many subscriptions and partitions there are, and shared by all who ask
for the same within `octopi.limits.LOOK_INTERVAL_S`; one look is under way at a time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import attrs
import trio

from octopi.admin.recent_looks import RecentLooks
from octopi.clients.routing import RequestRouter
from octopi.clients.subscribing.descriptions import (
    describe_marks,
    describe_subscription,
    list_subscriptions,
)
from octopi.environment import Clock
from octopi.errors import OctopiError, RefusedError, Status
from octopi.identifiers import PartitionId
from octopi.model import SubscriptionDefinition
from octopi.wire.messages import (
    MarksDescription,
    SubscriptionList,
    SubscriptionMember,
    TopicInfo,
)

TOPICS_LOOKED_AT_MAX: Final = 50
"""Topics whose subscriptions one look lists: as many as the console shows."""

LISTED_COUNT_MAX: Final = 100
"""Subscriptions of one topic that one look lists."""

LOGS_LOOKED_AT_MAX: Final = 1_000
"""Marks that one look asks for; what comes behind that is listed without its lag."""

_ASKED_AT_A_TIME: Final = 20

_NOT_GRANTED: Final = (
    "the token of the node that was asked (--token-file) doesn't grant consume on all "
    "subscriptions: make one with `octopi-node token create --replicate '*' --consume '*'`"
)

_T = TypeVar("_T")


@attrs.frozen
class SeenLog:
    """A subscription in one log."""

    partition: PartitionId
    phase: str
    """An `octopi.subscriptions.entries.AssignmentPhase`."""
    member: str
    """The one that has the log; empty: none."""
    claim: int
    marks: MarksDescription | None
    """None: the log's leader did not tell."""
    why: str
    """Why not; else empty."""


@attrs.frozen
class SeenSubscription:
    """A subscription, its members and its logs."""

    definition: SubscriptionDefinition
    members: list[SubscriptionMember]
    logs: list[SeenLog]
    is_complete: bool = True
    """Whether its coordinator was asked and answered; else it has neither members nor logs."""


@attrs.frozen
class SeenSubscriptions:
    """The subscriptions of some topics, in the order of topics and names."""

    seen_at_ms: int
    subscriptions: list[SeenSubscription]
    silent: dict[str, str]
    """Topics whose subscriptions are not known, and why."""
    after: dict[str, str]
    """Topics that have more subscriptions, and the name that these come behind."""


class SubscriptionWatch:
    """Looks at subscriptions."""

    def __init__(self, clock: Clock, router: Callable[[], RequestRouter]) -> None:
        """*router* gives the way to the cluster, or raises NotReadyError while there is none."""
        self._clock = clock
        self._router = router
        self._asking = trio.CapacityLimiter(_ASKED_AT_A_TIME)
        self._looks = RecentLooks(clock)

    async def of_topics(self, topics: Sequence[TopicInfo], after: str = "") -> SeenSubscriptions:
        """The subscriptions of the first `TOPICS_LOOKED_AT_MAX` of *topics*, in each those whose
        names come behind *after*."""
        some = topics[:TOPICS_LOOKED_AT_MAX]
        key = (after, *((one.topic, one.topic_id) for one in some))
        return await self._looks.fresh(key, partial(self._look_at_topics, some, after))

    async def of_name(self, topic: TopicInfo, name: str) -> SeenSubscription:
        """One subscription.

        Raises:
          UnknownSubscriptionError: if there is none.
          OctopiError: if its coordinator can't be asked.
        """
        key = ("", topic.topic, topic.topic_id, name)
        return await self._looks.fresh(key, partial(self._describe, topic, name))

    # --- looking -------------------------------------------------------------------------

    async def _look_at_topics(self, topics: Sequence[TopicInfo], after: str) -> SeenSubscriptions:
        pages: dict[str, SubscriptionList] = {}
        silent: dict[str, str] = {}

        async def list_one(info: TopicInfo) -> None:
            try:
                pages[info.topic] = await self._ask(
                    lambda router: list_subscriptions(router, info, after, LISTED_COUNT_MAX)
                )
            except OctopiError as error:
                silent[info.topic] = str(error)

        await _in_parallel([partial(list_one, one) for one in topics])
        found: dict[tuple[str, str], SeenSubscription] = {}

        async def describe(info: TopicInfo, definition: SubscriptionDefinition) -> None:
            try:
                seen = await self._describe(info, definition.name)
            except OctopiError:  # it was just deleted, or its coordinator is silent
                seen = SeenSubscription(definition, [], [], is_complete=False)
            found[definition.topic, definition.name] = seen

        calls, count = [], 0
        for info in topics:
            for one in pages[info.topic].definitions if info.topic in pages else ():
                found[one.topic, one.name] = SeenSubscription(one, [], [], is_complete=False)
                count += len(one.partitions)
                if count <= LOGS_LOOKED_AT_MAX:
                    calls.append(partial(describe, info, one))
        await _in_parallel(calls)
        more = {topic: page.after for topic, page in sorted(pages.items()) if page.after}
        return SeenSubscriptions(self._clock.wall_ms(), list(found.values()), silent, more)

    async def _describe(self, info: TopicInfo, name: str) -> SeenSubscription:
        told = await self._ask(lambda router: describe_subscription(router, info, name))
        assignments = {one.partition: one for one in told.assignments}
        logs: dict[PartitionId, SeenLog] = {}

        async def look_at_log(partition: PartitionId) -> None:
            marks, why = None, ""
            try:
                marks = await self._ask(
                    lambda router: describe_marks(router, told.definition, partition)
                )
            except OctopiError as error:
                why = str(error)
            one = assignments.get(partition)
            phase, member = ("free", "") if one is None else (one.phase, one.member)
            claim = 0 if one is None else one.claim
            logs[partition] = SeenLog(partition, phase, member, claim, marks, why)

        await _in_parallel([partial(look_at_log, one) for one in told.definition.partitions])
        return SeenSubscription(
            told.definition, told.members, [logs[one] for one in told.definition.partitions]
        )

    async def _ask(self, question: Callable[[RequestRouter], Awaitable[_T]]) -> _T:
        async with self._asking:
            try:
                return await question(self._router())
            except RefusedError as error:
                if error.status is Status.FORBIDDEN:
                    raise RefusedError(_NOT_GRANTED, Status.FORBIDDEN) from error
                raise


async def _in_parallel(calls: Sequence[Callable[[], Awaitable[None]]]) -> None:
    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(call)
