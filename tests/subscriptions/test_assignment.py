"""Which member of a group gets which log."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given, strategies as st

from octopi.identifiers import MemberId, PartitionId
from octopi.subscriptions.assignment import GroupMember, target

LOGS = st.sets(st.integers(0, 40).map(PartitionId), max_size=24)
MEMBERS = st.lists(
    st.builds(GroupMember, st.sampled_from([MemberId(f"m{n}") for n in range(9)]), st.booleans()),
    max_size=9,
    unique_by=lambda one: one.member,
)
OWNERS = st.dictionaries(
    st.integers(0, 40).map(PartitionId), st.sampled_from([MemberId(f"m{n}") for n in range(12)])
)

NAMES = st.sampled_from("abc").map(MemberId)


@given(MEMBERS, OWNERS, LOGS)
def test_each_log_has_one_member_and_the_counts_of_members_differ_by_at_most_one(
    members: list[GroupMember], owners: dict[PartitionId, MemberId], logs: set[PartitionId]
) -> None:
    found = target(members, owners, logs)
    if not members:
        assert found == {}
        return
    assert found.keys() == logs
    counts = Counter(found.values())
    held = [counts[one.member] for one in members]
    assert set(counts) <= {one.member for one in members}
    assert max(held) - min(held) <= 1


@given(MEMBERS, OWNERS, LOGS)
def test_a_finished_assignment_does_not_change_again(
    members: list[GroupMember], owners: dict[PartitionId, MemberId], logs: set[PartitionId]
) -> None:
    found = target(members, owners, logs)
    assert target(members, found, logs) == found
    assert target(list(reversed(members)), found, logs) == found


@given(
    st.lists(NAMES.map(GroupMember), min_size=1, max_size=3, unique=True),
    st.dictionaries(st.integers(0, 4).map(PartitionId), NAMES, max_size=5),
    st.sets(st.integers(0, 4).map(PartitionId), max_size=5),
)
def test_no_even_assignment_moves_fewer_logs(
    members: list[GroupMember], owners: dict[PartitionId, MemberId], logs: set[PartitionId]
) -> None:
    def kept(one: dict[PartitionId, MemberId]) -> int:
        return sum(owners.get(log) == member for log, member in one.items())

    names = [one.member for one in members]
    ordered = sorted(logs)
    best = 0
    for choice in product(names, repeat=len(ordered)):
        counts = Counter(choice)
        if max(counts[n] for n in names) - min(counts[n] for n in names) <= 1:
            best = max(best, kept(dict(zip(ordered, choice, strict=True))))
    assert kept(target(members, owners, logs)) == best


def test_a_static_member_keeps_its_logs_through_a_restart() -> None:
    members = [GroupMember(MemberId(f"worker-{n}"), static=True) for n in (2, 1)]
    logs = [PartitionId(n) for n in range(4)]
    first = target(members, {}, logs)
    assert first == {0: "worker-1", 1: "worker-1", 2: "worker-2", 3: "worker-2"}
    assert target([*members, GroupMember(MemberId("a"))], first, logs)[PartitionId(0)] == "worker-1"
