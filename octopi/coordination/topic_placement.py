"""Which partitions a new topic gets, if its creator names none.

`PlacementRule` says how.  With the hash, the topic's name decides (`octopi.coordination.
consistent_hash`).  Otherwise the partitions are drawn by *weighted rendezvous hashing* (Thaler and
Ravishankar, 1998; with weights: Efraimidis and Spirakis, "Weighted random sampling with a
reservoir", 2006): partition p has the key u ** (1 / w), where w is its weight and u a number
between 0 and 1 that the hash of the topic's id and of p gives; those with the greatest keys are
drawn.  Topics get random ids, so this is a draw without replacement, and the same id gives the same
partitions everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Final

import attrs

from octopi.coordination.loads import IDLE_LOAD
from octopi.identifiers import BrokerId, PartitionId

_HASHES: Final = 2**64
"""So many values has the hash."""


class PlacementRule(StrEnum):
    """How the partitions of a new topic are chosen."""

    HASH = "hash"
    """By consistent hashing of its name: a topic that is made again gets the same ones."""
    RANDOM = "random"
    """At random."""
    LEAST_LOADED = "least_loaded"
    """At random, and the less likely, the more work the leader of a partition has."""


@attrs.frozen
class TopicPlacement:
    """A rule, and what it goes by."""

    rule: PlacementRule = PlacementRule.HASH
    loads: Mapping[BrokerId, float] = attrs.field(factory=dict)
    """With `PlacementRule.LEAST_LOADED`: how much the live brokers have to do
    (`octopi.coordination.loads`).  Those whose load is not known are not in it."""

    def weights(
        self, partition_count: int, leaders: Mapping[PartitionId, BrokerId]
    ) -> list[float] | None:
        """The weights with which partitions 0 to *partition_count* - 1 are drawn; None: the hash of
        the topic's name decides.  *leaders*: of the partitions that lie on brokers already; one
        that doesn't will be led by the broker that has least to do."""
        if self.rule is PlacementRule.HASH:
            return None
        if self.rule is PlacementRule.RANDOM or not self.loads:
            return [1.0] * partition_count
        least, most = min(self.loads.values()), max(self.loads.values())
        found = []
        for number in range(partition_count):
            leader = leaders.get(PartitionId(number))
            load = least if leader is None else self.loads.get(leader, most)
            found.append(1.0 / (load + IDLE_LOAD))
        return found


def drawn(topic_id: str, count: int, weights: list[float]) -> list[PartitionId]:
    """*count* different partitions for the topic of that id, drawn with *weights*, one for each
    partition; those with the greatest keys first."""
    assert 0 < count <= len(weights)
    keys = [
        (-math.log(_uniform(f"{topic_id}/{number}")) / weight, number)
        for number, weight in enumerate(weights)
    ]
    return [PartitionId(number) for _, number in sorted(keys)[:count]]


def _uniform(text: str) -> float:
    """A number above 0, and at most 1, that the hash of *text* gives."""
    value = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    return (value + 1) / _HASHES
