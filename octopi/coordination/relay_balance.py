"""Which member of each relay partition is wished to be its sequencer, so that no broker is the
sequencer of many while others are of none.

Pure, and a function of the members alone: whoever knows the same sets wishes the same, and a wish
changes only when a set does.  So nothing goes to and fro.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from octopi.identifiers import BrokerId, PartitionId


def wished_sequencers(
    members: Mapping[PartitionId, Collection[BrokerId]],
) -> dict[PartitionId, BrokerId]:
    """The wished sequencer of each partition, one of its *members*; partitions without any are left
    out.

    One after the other, in the order of their numbers, gets the member that has the fewest so far;
    then one that has too many gives to one that has at least two less, as long as there is such a
    pair that shares a set.
    """
    wished: dict[PartitionId, BrokerId] = {}
    counts: Counter[BrokerId] = Counter()
    numbers = [one for one in sorted(members) if members[one]]
    for partition in numbers:
        wished[partition] = min(members[partition], key=lambda one: (counts[one], one))
        counts[wished[partition]] += 1
    is_changed = True
    while is_changed:
        is_changed = False
        for partition in numbers:
            has = wished[partition]
            least = min(members[partition], key=lambda one: (counts[one], one))
            if counts[has] - counts[least] >= 2:  # so the sum of squares falls, and this ends
                wished[partition] = least
                counts[has] -= 1
                counts[least] += 1
                is_changed = True
    return wished
