"""Which member of a group has which log: even, sticky, and the same after a restart.

Pure: the target depends on the members, the present owners and the logs alone.  Members' counts
differ by at most one, and no assignment with that property keeps more logs where they are (the
"sticky" assignment of Kafka's KIP-54 and KIP-429, for one topic).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from octopi.identifiers import MemberId, PartitionId


@attrs.frozen
class GroupMember:
    """A member of a group, as the target sees it."""

    member: MemberId
    """Its id; a static member chose it and has it again after a restart."""
    static: bool = False

    @property
    def rank(self) -> tuple[bool, str]:
        """Static members come first, by name, so that restarts change nothing."""
        return not self.static, self.member


def target(
    members: Collection[GroupMember],
    owners: Mapping[PartitionId, MemberId],
    logs: Collection[PartitionId],
) -> dict[PartitionId, MemberId]:
    """The member that each of *logs* belongs to; empty without members.

    *owners*: who has which log now.  Those that are no members any more, and logs that are not in
    *logs*, are ignored.
    """
    order = sorted(members, key=lambda one: one.rank)
    if not order:
        return {}
    owned: dict[MemberId, list[PartitionId]] = {one.member: [] for one in order}
    for log in sorted(logs):
        owner = owners.get(log)
        if owner is not None and owner in owned:
            owned[owner].append(log)
    least, rest = divmod(len(logs), len(order))
    # Who has most keeps most: then as few logs as possible move.
    by_count = sorted(order, key=lambda one: (-len(owned[one.member]), one.rank))
    size = {one.member: least + (place < rest) for place, one in enumerate(by_count)}
    result = {log: member for member, kept in owned.items() for log in kept[: size[member]]}
    free = iter(sorted(set(logs) - set(result)))
    for one in order:
        for _ in range(size[one.member] - min(size[one.member], len(owned[one.member]))):
            result[next(free)] = one.member
    return result
