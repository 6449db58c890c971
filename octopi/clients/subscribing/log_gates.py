"""When a member of a subscription may begin with a log, if the topic got other partitions.

The messages of a key may lie in several logs then (`octopi.generation_gates`), and other members
may have those.  So a log is begun when the marks of those before it are committed at their sealed
ends.  Their leaders are asked from time to time.
"""

from __future__ import annotations

import math

import attrs
import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.described_generations import generations_of
from octopi.clients.subscribing.descriptions import describe_marks
from octopi.clients.subscribing.extension import extend
from octopi.errors import NotReadyError, OctopiError, TopicReplacedError
from octopi.generation_gates import GatedRange, first_index, range_at
from octopi.identifiers import Offset, PartitionId, TopicName
from octopi.limits import MARK_LOOK_S
from octopi.model import SubscriptionDefinition
from octopi.retry import may_pass, retry
from octopi.wire.messages import TopicInfo


@attrs.frozen
class OpenedRange:
    """What may be read now."""

    end: Offset | None
    """Up to where; None: without end."""
    generation: int
    """The newest one that is known."""


class LogGates:
    """Those of one member."""

    def __init__(
        self, cluster: ClusterHandle, info: TopicInfo, definition: SubscriptionDefinition
    ) -> None:
        self._cluster = cluster
        self._clock = cluster.environment.clock
        self._info = info
        self._definition = definition
        self._marks: dict[PartitionId, Offset] = {}
        """Committed marks, as far as they were heard of."""
        self._looking = trio.Lock()

    @property
    def newest(self) -> int:
        """The newest generation that is known."""
        return generations_of(self._info)[-1].number

    def knows(self, partition: PartitionId) -> bool:
        """Whether *partition* is in a generation that is known."""
        return any(partition in one.partitions for one in generations_of(self._info))

    def first_index(self, partition: PartitionId) -> int:
        """The index in the topic's first list of the log whose keys *partition* got; the lowest if
        there are several."""
        return first_index(generations_of(self._info), partition)

    async def opened(self, partition: PartitionId, reached: Offset) -> OpenedRange:
        """Wait until the messages of a log from *reached* on may be handed out.

        Raises:
          OctopiError: why it can't be known.
        """
        while not self.knows(partition):
            await self.look_up(self.newest)  # another member has heard of it before
        found = range_at(generations_of(self._info), partition, reached)
        newest = self.newest
        await self._until_passed(found)
        return OpenedRange(found.end, newest)

    async def _until_passed(self, found: GatedRange) -> None:
        if found.is_over:
            await trio.sleep_forever()  # until the log goes to another member
        for partition, end in found.before.items():
            while self._marks.get(partition, -1) < end:
                try:
                    told = await describe_marks(
                        self._cluster.router, self._definition, partition, confirmed=True
                    )
                    self._marks[partition] = Offset(told.mark)
                except OctopiError as error:
                    if not may_pass(error):
                        raise
                if self._marks.get(partition, -1) < end:
                    await self._clock.sleep_until(self._clock.now() + MARK_LOOK_S)

    async def look_up(self, known: int) -> None:
        """The topic has a newer generation than *known*: have the subscription have all its logs.

        Raises:
          OctopiError: if that can't be done.
        """
        async with self._looking:
            if self.newest <= known:
                info = await self._newer(known)
                await extend(self._cluster.router, info, self._definition)
                self._info = info

    async def _newer(self, known: int) -> TopicInfo:
        topic, wrong = TopicName(self._definition.topic), self._info

        async def attempt() -> TopicInfo:
            nonlocal wrong
            wrong = await self._cluster.lookup.topic(
                topic, other_than=wrong, follows_generations=True
            )
            if wrong.topic_id != self._definition.topic_id:
                raise TopicReplacedError(f"{topic}: the topic was deleted and created again")
            if generations_of(wrong)[-1].number <= known:
                raise NotReadyError(f"the register doesn't say yet what {topic} has now")
            return wrong

        return await retry(self._cluster.environment, math.inf, f"look up topic {topic}", attempt)
