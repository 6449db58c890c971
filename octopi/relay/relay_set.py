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

    def __init__(
        self, partition: PartitionId, members: Iterable[BrokerId], version: int = 0
    ) -> None:
        self.partition = partition
        self.version = version
        """Counts the sets of a partition, which differ by one member each."""
        self.ranked: tuple[BrokerId, ...] = tuple(
            sorted(set(members), key=lambda one: (_rank(partition, one), one))
        )
        """The members in the order in which they are sequencers: by rendezvous hashing, so the
        first sequencers of many partitions are spread evenly."""
        assert 0 < len(self.ranked) <= RELAYS_MAX
        self.quorum = len(self.ranked) // 2 + 1
        """How many members a quorum has at least."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RelaySet) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"RelaySet({self.partition}, {sorted(self.ranked)}, {self.version})"

    @property
    def _key(self) -> tuple[PartitionId, int, tuple[BrokerId, ...]]:
        return self.partition, self.version, self.ranked

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

    def follows(self, other: RelaySet) -> bool:
        """Whether it is newer than *other*, with one member more or less.  Then any quorum of the
        one has a member in common with any quorum of the other."""
        return self.version > other.version and len({*self.ranked} ^ {*other.ranked}) == 1

    def change_epoch(self, broker: BrokerId, after: RelayEpoch, wanted: RelaySet) -> RelayEpoch:
        """The first epoch behind *after* of which *broker*, which is a member of both, is the
        sequencer by this set and by *wanted*, so that everybody knows it by that.

        There is one, since the numbers of their members have no common divisor.
        """
        epoch = after.next
        while not self.sequencer(epoch) == wanted.sequencer(epoch) == broker:
            epoch = epoch.next
        return epoch

    def others(self, broker: BrokerId) -> list[BrokerId]:
        """All members but *broker*, in order of their ids."""
        return sorted(one for one in self.ranked if one != broker)


def _rank(partition: PartitionId, broker: BrokerId) -> bytes:
    return blake2b(f"{partition}/{broker}".encode(), digest_size=8).digest()
