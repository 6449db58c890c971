"""A cache of where the partitions of topics are.

The register's answer is kept until a caller finds it wrong.  Then the register is asked again, once
for all callers that found the same answer wrong.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import attrs
import trio

from octopi.environment import Clock
from octopi.errors import (
    ConnectionLostError,
    NotReadyError,
    RefusedError,
    Status,
    UnreachableError,
)
from octopi.limits import QUESTION_INTERVAL_S
from octopi.wire.messages import PartitionInfo, TopicInfo, TopicKind

Describe = Callable[[str, bool], Awaitable[TopicInfo]]
"""Asks the register for a topic (its name, and whether to create it if it is missing)."""


@attrs.define
class _Known:
    info: TopicInfo | None = None
    addresses: dict[int, list[str]] = attrs.field(factory=dict)
    """Partition -> the addresses at which it was served, by the last answer that named any; the
    best first."""
    kind: str = TopicKind.LOG
    """That of its last description."""
    asking: trio.Lock = attrs.field(factory=trio.Lock)

    def learn(self, info: TopicInfo) -> None:
        """Store an answer of the register."""
        self.info, self.kind = info, info.kind
        for place in (*info.partitions, *info.sealed_partitions):
            if found := [one for one in (*place.readers, place.leader_address) if one]:
                self.addresses[place.partition] = found


class LeaderLookup:
    """A cache of `TopicInfo`."""

    def __init__(self, clock: Clock, describe: Describe) -> None:
        self._clock = clock
        self._describe = describe
        self._topics: dict[str, _Known] = {}
        self._places: dict[tuple[str, int], tuple[float, PartitionInfo]] = {}
        """The answers that `place` got about partitions, by their kinds and numbers, each with the
        time at which it asked."""
        self._asking_place = trio.Lock()
        self._failed_at = -math.inf
        """When `place` last failed to reach the register."""

    async def topic(
        self,
        name: str,
        *,
        create: bool = False,
        other_than: TopicInfo | None = None,
        follows_generations: bool = False,
    ) -> TopicInfo:
        """What is known about a topic; if nothing is, the register is asked.

        *other_than*: an earlier result that proved wrong; it is not returned again.
        *follows_generations*: the caller can handle a topic of several generations.

        Raises:
          RefusedError: UNSUPPORTED_VERSION, if the topic has several generations, and the caller
            can't follow them.
          OctopiError: any error of the request to the register.
        """
        known = self._topics.setdefault(name, _Known())
        if known.info is None or known.info is other_than:
            async with known.asking:
                if known.info is None or known.info is other_than:
                    known.info = None
                    known.learn(await self._describe(name, create))
        assert known.info is not None
        if not follows_generations:
            require_one_generation(known.info)
        return known.info

    def brokers(self, name: str, partition: int) -> list[str]:
        """The addresses at which the topic was served last, those of *partition* first.  Each
        broker there knows the leader, or knew it a moment ago."""
        known = self._topics.get(name)
        if known is None:
            return []
        places = sorted(known.addresses, key=lambda one: one != partition)
        return list(dict.fromkeys(one for place in places for one in known.addresses[place]))

    async def place(self, topic: str, partition: int) -> PartitionInfo:
        """Where a partition is, according to the register's present answer or a very recent one.

        All callers share answers and failures, and an answer about any topic of the partition
        counts.  One request is sent at a time, and none while the last answer about the partition,
        or the last failure, is younger than half of `QUESTION_INTERVAL_S`.  This doesn't change
        what `topic` returns, until a caller finds that wrong.

        Raises:
          RefusedError: UNKNOWN_PARTITION, if the topic doesn't have it.
          ConnectionLostError: if the register didn't answer a very recent request.
          OctopiError: any error of the request to the register.
        """
        old_at = self._clock.now() - QUESTION_INTERVAL_S / 2
        async with self._asking_place:
            known = self._topics.get(topic)
            kind = TopicKind.LOG if known is None else known.kind
            asked_at, place = self._places.get((kind, partition), (-math.inf, None))
            if place is None or asked_at < old_at:
                if self._failed_at >= old_at:
                    raise ConnectionLostError("the register didn't answer a moment ago")
                asked_at = self._clock.now()
                try:
                    info = await self._describe(topic, False)
                except (ConnectionLostError, UnreachableError, NotReadyError):
                    self._failed_at = self._clock.now()
                    raise
                self._places.update(
                    ((info.kind, one.partition), (asked_at, one))
                    for one in (*info.partitions, *info.sealed_partitions)
                )
                place = place_of(info, partition)
        return place

    def remember(self, info: TopicInfo) -> None:
        """Keep a description that arrived in another answer."""
        known = self._topics.setdefault(info.topic, _Known())
        known.learn(info)

    def forget(self, name: str) -> None:
        """What is known about the topic is wrong: ask the register when it is needed next."""
        if name in self._topics:
            self._topics[name].info = None


def require_one_generation(info: TopicInfo) -> None:
    """Check that the list of partitions says where the topic's messages are, for a caller that
    doesn't follow generations: it would read in the wrong order.

    Raises:
      RefusedError: UNSUPPORTED_VERSION, if the topic got other partitions while it was in use.
    """
    if info.generations:
        raise RefusedError(
            f"topic {info.topic} got other partitions while it was in use, and what was called "
            "can't keep the order of its messages: read it with `client.consumer`, or as a member "
            "of a subscription of mode exclusive or failover",
            Status.UNSUPPORTED_VERSION,
        )


def place_of(info: TopicInfo, partition: int) -> PartitionInfo:
    """The description of *partition* in that of the topic, also if it only has a sealed log.

    Raises:
      RefusedError: UNKNOWN_PARTITION, if the topic doesn't have it.
    """
    for one in info.sealed_partitions:
        if one.partition == partition:
            return one
    return partition_of(info, partition)


def partition_of(info: TopicInfo, partition: int) -> PartitionInfo:
    """The description of *partition*, which takes messages of the topic.

    Raises:
      RefusedError: UNKNOWN_PARTITION, if the topic doesn't have it.
    """
    for one in info.partitions:
        if one.partition == partition:
            return one
    has = ", ".join(str(one.partition) for one in info.partitions)
    raise RefusedError(
        f"topic {info.topic} has no partition {partition}; it has {has}", Status.UNKNOWN_PARTITION
    )


def generation_of(info: TopicInfo) -> int:
    """The number of the generation that is in force."""
    return info.generations[-1].number if info.generations else 1


def leader_address(info: TopicInfo, partition: int) -> str:
    """The address of the leader of *partition*.

    Raises:
      RefusedError: UNKNOWN_PARTITION, if the topic doesn't have it.
      NotReadyError: if no broker leads it now.
    """
    return leader_at(info, place_of(info, partition))


def leader_at(info: TopicInfo, place: PartitionInfo) -> str:
    """The address of the leader at *place*, which the topic has.

    Raises:
      NotReadyError: if no broker leads it now.
    """
    if place.leader is None or not place.leader_address:
        raise NotReadyError(f"no broker leads partition {place.partition} of {info.topic} now")
    return place.leader_address


def reader_addresses(info: TopicInfo, partition: int) -> list[str]:
    """The addresses at which *partition* can be read, the best first.

    Raises:
      RefusedError: UNKNOWN_PARTITION, if the topic doesn't have it.
      NotReadyError: if no broker serves it now.
    """
    place = place_of(info, partition)
    addresses = list(place.readers)
    if place.leader_address and place.leader_address not in addresses:
        addresses.append(place.leader_address)
    if not addresses:
        raise NotReadyError(f"no broker serves partition {partition} of {info.topic} now")
    return addresses
