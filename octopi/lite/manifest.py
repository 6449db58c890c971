"""Who of a group reads which partitions."""

from __future__ import annotations

from collections.abc import Sequence


def deal(partition_ids: Sequence[int], member_count: int) -> list[list[int]]:
    """The partitions of each member.  Each one has its turn, so sizes differ by one at most; of
    ids that are named twice the first counts."""
    ids = list(dict.fromkeys(partition_ids))
    return [ids[member::member_count] for member in range(member_count)]
