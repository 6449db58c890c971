"""The generations of a topic, as it was described (`octopi.coordination.generations`)."""

from __future__ import annotations

from octopi.identifiers import Offset, PartitionId
from octopi.wire.messages import GenerationInfo, TopicInfo


def generations_of(info: TopicInfo) -> list[GenerationInfo]:
    """The generations of a topic that are or were in force, also if there was only ever one."""
    only = GenerationInfo(1, [one.partition for one in info.partitions], [])
    return list(info.generations) or [only]


def sealed_for_good(info: TopicInfo) -> dict[PartitionId, Offset]:
    """The ends of the logs that take no messages of the topic any more."""
    ends = {
        PartitionId(partition): Offset(end)
        for one in info.generations
        for partition, end in zip(one.partitions, one.sealed, strict=False)
    }
    return {one: end for one, end in ends.items() if one not in generations_of(info)[-1].partitions}
