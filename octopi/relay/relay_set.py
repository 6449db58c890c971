"""The members of a relay partition, and who of them is the sequencer in which epoch."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from octopi.identifiers import BrokerId, PartitionId
from octopi.limits import RELAYS_MAX
from octopi.relay.timelines import RelayEpoch


class RelaySet:
    """The relays that hold a partition.

    Invariant: any two quorums have a member in common.
    """

    def __init__(self, partition: PartitionId, members: Iterable[BrokerId]) -> None:
        self.partition = partition
        self.ranked: tuple[BrokerId, ...] = tuple(
            sorted(set(members), key=lambda one: (_rank(partition, one), one))
        )
        """The members in the order in which they are sequencers: by rendezvous hashing, so the
        first sequencers of many partitions are spread evenly."""
        assert 0 < len(self.ranked) <= RELAYS_MAX
        self.quorum = len(self.ranked) // 2 + 1
        """How many members a quorum has at least."""

    def __contains__(self, broker: BrokerId) -> bool:
        return broker in self.ranked

    def __len__(self) -> int:
        return len(self.ranked)

    def sequencer(self, epoch: RelayEpoch) -> BrokerId:
        """Who puts transactions in order in *epoch*."""
        return self.ranked[epoch.number % len(self.ranked)]

    def first_number(self, broker: BrokerId) -> int:
        """The number of the first epoch of which *broker* is the sequencer."""
        return self.ranked.index(broker)

    def others(self, broker: BrokerId) -> list[BrokerId]:
        """All members but *broker*, in order of their ids."""
        return sorted(one for one in self.ranked if one != broker)


def _rank(partition: PartitionId, broker: BrokerId) -> bytes:
    return blake2b(f"{partition}/{broker}".encode(), digest_size=8).digest()
