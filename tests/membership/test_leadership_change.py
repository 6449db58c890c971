"""Who may lead next, who is preferred, and who is in sync then."""

import attrs
from hypothesis import given, strategies as st

from octopi.membership.leadership_change import NO_WISH, LeadershipChange, Wish, choose_leader
from octopi.wire.messages import AcceptEpoch, PartitionRecord

RECORD = PartitionRecord(
    partition=0,
    epoch=4,
    version=2,
    leader=1,
    leader_incarnation=1,
    replicas=[1, 2, 3],
    in_sync=[1, 2],
)
ALL = [1, 2, 3]


def accept(broker: int, **fields: int) -> AcceptEpoch:
    standard = AcceptEpoch(0, 5, broker, 10 + broker, last_epoch=4, log_epoch=4, log_end=100)
    return attrs.evolve(standard, **fields)


def change(*accepts: AcceptEpoch) -> LeadershipChange:
    machine = LeadershipChange(5)
    for one in accepts:
        assert machine.accept(one)
    return machine


def test_nothing_is_decided_before_an_in_sync_member_has_accepted() -> None:
    machine = change(accept(3, log_end=999))
    assert machine.decide(RECORD, ALL, {}) is None
    assert machine.accept(accept(2))
    decided = machine.decide(RECORD, ALL, {})
    assert decided == attrs.evolve(
        RECORD, epoch=5, version=0, leader=2, leader_incarnation=12, in_sync=[2]
    )


def test_an_acceptance_of_another_epoch_or_of_an_earlier_life_does_not_count() -> None:
    machine = change(accept(2))
    assert not machine.accept(accept(1, epoch=4))
    machine.forget(2)
    assert machine.decide(RECORD, ALL, {}) is None


def test_newest_epoch_then_longest_log_then_fewest_leaderships_then_smallest_id() -> None:
    assert choose_leader([accept(1), accept(2, last_epoch=5, log_end=1)], {}).broker == 2
    assert choose_leader([accept(1), accept(2, log_end=101)], {}).broker == 2
    assert choose_leader([accept(1), accept(2)], {1: 3, 2: 2}).broker == 2
    assert choose_leader([accept(2), accept(1)], {}).broker == 1


@given(
    st.permutations([accept(broker, log_end=end) for broker in (1, 2, 3) for end in (7,)]),
    st.dictionaries(st.integers(1, 3), st.integers(0, 2)),
)
def test_the_choice_depends_on_nothing_but_the_reports(
    accepts: list[AcceptEpoch], leaderships: dict[int, int]
) -> None:
    assert choose_leader(accepts, leaderships) == choose_leader(accepts[::-1], leaderships)


def test_a_preferred_broker_leads_if_it_may() -> None:
    machine = change(accept(1), accept(2, log_end=1), accept(3))
    decided = machine.decide(RECORD, ALL, {}, wish=Wish(leader=2))
    assert decided is not None
    assert decided.leader == 2
    refused = machine.decide(RECORD, ALL, {}, wish=Wish(leader=3))
    assert refused is not None
    assert refused.leader == 1, "3 is not in sync"


def test_the_set_does_not_fall_below_min_insync_by_a_change() -> None:
    decided = change(accept(1)).decide(RECORD, ALL, {}, min_insync=2)
    assert decided is not None
    assert decided.in_sync == [1, 2], "2 has not accepted, it has to follow"


def test_who_accepted_and_went_away_is_neither_appointed_nor_in_sync() -> None:
    machine = change(accept(1), accept(2, log_end=999))
    for wish in (NO_WISH, Wish(leader=2), Wish(avoid=frozenset({1}))):
        decided = machine.decide(RECORD, [1, 3], {}, wish=wish)
        assert decided is not None
        assert (decided.leader, decided.in_sync) == (1, [1])
    assert machine.decide(RECORD, [3], {}) is None
    back = machine.decide(RECORD, ALL, {})
    assert back is not None
    assert (back.leader, back.in_sync) == (2, [1, 2]), "the same life that is back counts again"


def test_nobody_in_sync_gives_its_replica_up_while_one_that_stays_is_away() -> None:
    machine = change(accept(1), accept(2))
    moved = machine.decide(RECORD, ALL, {}, wish=Wish(leader=2, replicas=[2, 3]))
    assert moved is not None
    assert (moved.leader, moved.replicas, moved.in_sync) == (2, [2, 3], [2])
    for replicas in ([2, 3], [3]):
        kept = machine.decide(RECORD, [1, 3], {}, wish=Wish(leader=2, replicas=replicas))
        assert kept is not None
        assert (kept.leader, kept.replicas, kept.in_sync) == (1, [1, 2, 3], [1])


def test_who_is_away_anyway_is_replaced() -> None:
    behind = attrs.evolve(RECORD, in_sync=[1])
    decided = change(accept(1)).decide(behind, [1, 4], {}, wish=Wish(replicas=[1, 3, 4]))
    assert decided is not None
    assert (decided.leader, decided.replicas, decided.in_sync) == (1, [1, 3, 4], [1])


def test_waiting_ends_when_all_live_candidates_have_accepted() -> None:
    machine = change(accept(1))
    assert machine.is_complete(RECORD, [1, 3])
    assert not machine.is_complete(RECORD, [1, 2])
    assert not machine.is_complete(RECORD, [3])


def test_when_nobody_is_in_sync_all_replicas_have_to_report_or_an_operator_decides() -> None:
    lost = attrs.evolve(RECORD, in_sync=[])
    machine = change(accept(1), accept(2))
    assert machine.recover(lost, {}, ordered=False) is None
    assert machine.recover(lost, {}, ordered=True) is not None
    assert machine.accept(accept(3, log_end=300))
    decided = machine.recover(lost, {}, ordered=False)
    assert decided is not None
    assert (decided.leader, decided.in_sync) == (3, [3])


def test_recovery_asks_who_agreed_last_with_a_leader_not_who_wrote_last() -> None:
    lost = attrs.evolve(RECORD, in_sync=[])
    machine = change(
        accept(1, log_epoch=4, last_epoch=2, log_end=50),
        accept(2, log_epoch=3, last_epoch=3, log_end=90),
        accept(3, log_epoch=3, last_epoch=3, log_end=90),
    )
    decided = machine.recover(lost, {}, ordered=False)
    assert decided is not None
    assert decided.leader == 1
