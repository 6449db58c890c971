"""Who may lead next, who is preferred, and who is in sync then."""

from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from octopi.coordination.acceptance_pages import pages_of
from octopi.coordination.election import (
    NO_GOAL,
    Election,
    ElectionGoal,
    LogLoss,
    choose_leader,
)
from octopi.wire.messages import AcceptEpoch, LogEnd, PartitionRecord

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


TOPICS = ["a", "b", "c"]


def accept(broker: int, *, log_end: int = 100, **fields: Any) -> AcceptEpoch:  # noqa: ANN401
    ends = [LogEnd("a", log_end)]
    standard = AcceptEpoch(0, 5, broker, 10 + broker, last_epoch=4, log_epoch=4, ends=ends)
    return attrs.evolve(standard, **fields)


def ends(**held: int) -> list[LogEnd]:
    return [LogEnd(topic_id, end) for topic_id, end in held.items()]


def change(*accepts: AcceptEpoch) -> Election:
    machine = Election(5)
    for one in accepts:
        assert machine.accept(one)
    return machine


def test_nothing_is_decided_before_an_in_sync_member_has_accepted() -> None:
    machine = change(accept(3, log_end=999))
    assert machine.decide(RECORD, ALL, {}, topics=TOPICS) is None
    assert machine.accept(accept(2))
    decided = machine.decide(RECORD, ALL, {}, topics=TOPICS)
    assert decided == attrs.evolve(
        RECORD, epoch=5, version=0, leader=2, leader_incarnation=12, in_sync=[2]
    )


def test_an_acceptance_of_another_epoch_or_incarnation_does_not_count() -> None:
    machine = change(accept(2))
    assert not machine.accept(accept(1, epoch=4))
    machine.forget(2)
    assert machine.decide(RECORD, ALL, {}, topics=TOPICS) is None


def test_the_leader_is_chosen_by_epoch_then_log_end_then_leaderships_then_id() -> None:
    assert choose_leader([accept(1), accept(2, last_epoch=5, log_end=1)], {}).broker == 2
    assert choose_leader([accept(1), accept(2, log_end=101)], {}, TOPICS).broker == 2
    assert choose_leader([accept(1), accept(2)], {1: 3, 2: 2}).broker == 2
    assert choose_leader([accept(2), accept(1)], {}).broker == 1


@given(
    st.permutations([accept(broker, log_end=end) for broker in (1, 2, 3) for end in (7,)]),
    st.dictionaries(st.integers(1, 3), st.integers(0, 2)),
)
def test_the_choice_depends_on_nothing_but_the_reports(
    accepts: list[AcceptEpoch], elections: dict[int, int]
) -> None:
    assert choose_leader(accepts, elections) == choose_leader(accepts[::-1], elections)


def test_a_preferred_broker_leads_if_it_may() -> None:
    machine = change(accept(1), accept(2, log_end=1), accept(3))
    decided = machine.decide(RECORD, ALL, {}, goal=ElectionGoal(leader=2))
    assert decided is not None
    assert decided.leader == 2
    refused = machine.decide(RECORD, ALL, {}, goal=ElectionGoal(leader=3))
    assert refused is not None
    assert refused.leader == 1, "3 is not in sync"


def test_an_election_does_not_shrink_the_in_sync_set_below_min_insync() -> None:
    decided = change(accept(1)).decide(RECORD, ALL, {}, min_insync=2)
    assert decided is not None
    assert decided.in_sync == [1, 2], "2 has not accepted, it has to follow"


def test_a_broker_that_accepted_and_went_away_is_neither_leader_nor_in_sync() -> None:
    machine = change(accept(1), accept(2, log_end=999))
    for goal in (NO_GOAL, ElectionGoal(leader=2), ElectionGoal(avoid=frozenset({1}))):
        decided = machine.decide(RECORD, [1, 3], {}, goal=goal)
        assert decided is not None
        assert (decided.leader, decided.in_sync) == (1, [1])
    assert machine.decide(RECORD, [3], {}) is None
    back = machine.decide(RECORD, ALL, {}, topics=TOPICS)
    assert back is not None
    assert (back.leader, back.in_sync) == (2, [1, 2]), "the same life that is back counts again"


def test_no_in_sync_replica_is_given_up_while_a_staying_one_is_away() -> None:
    machine = change(accept(1), accept(2))
    moved = machine.decide(RECORD, ALL, {}, goal=ElectionGoal(leader=2, replicas=[2, 3]))
    assert moved is not None
    assert (moved.leader, moved.replicas, moved.in_sync) == (2, [2, 3], [2])
    for replicas in ([2, 3], [3]):
        kept = machine.decide(RECORD, [1, 3], {}, goal=ElectionGoal(leader=2, replicas=replicas))
        assert kept is not None
        assert (kept.leader, kept.replicas, kept.in_sync) == (1, [1, 2, 3], [1])


def test_a_stopping_broker_leads_last_and_leaves_the_in_sync_set_if_others_suffice() -> None:
    everywhere = attrs.evolve(RECORD, in_sync=ALL)
    machine = change(accept(1, log_end=999), accept(2), accept(3))
    stops = ElectionGoal(leader=1, avoid=frozenset({1, 2}), leaving=frozenset({1}))
    decided = machine.decide(everywhere, ALL, {}, goal=stops)
    assert decided is not None
    assert (decided.leader, decided.in_sync) == (3, [2, 3])
    decided = machine.decide(everywhere, ALL, {}, goal=stops, min_insync=3)
    assert decided is not None
    assert (decided.leader, decided.in_sync) == (3, [1, 2, 3]), "two would be too few"
    two = change(accept(1, log_end=999), accept(2)).decide(everywhere, ALL, {}, goal=stops)
    assert two is not None
    assert (two.leader, two.in_sync) == (2, [2]), "rather one that is to be drained"


@pytest.mark.parametrize(
    "goal",
    [
        ElectionGoal(avoid=frozenset({1})),
        ElectionGoal(leader=2),
        ElectionGoal(avoid=frozenset({1}), leaving=frozenset({1})),
    ],
)
def test_the_old_leader_leads_on_with_all_live_in_sync_replicas(goal: ElectionGoal) -> None:
    everywhere = attrs.evolve(RECORD, in_sync=ALL, leader_incarnation=11)
    decided = change(accept(1)).decide(everywhere, [1, 2], {}, goal=goal)
    assert decided is not None
    assert (decided.leader, decided.in_sync) == (1, [1, 2])
    restarted = attrs.evolve(everywhere, leader_incarnation=10)
    decided = change(accept(1)).decide(restarted, [1, 2], {}, goal=goal)
    if goal.leaving:
        assert decided is None, "alone in sync, it would stop, and nobody could lead"
    else:
        assert decided is not None
        assert decided.in_sync == [1], "another incarnation of it commits nothing in their name"


def test_a_stopping_leader_without_a_live_successor_is_not_left_alone_in_sync() -> None:
    two = attrs.evolve(RECORD, in_sync=[1, 2], leader_incarnation=11)
    stops = ElectionGoal(avoid=frozenset({1}), leaving=frozenset({1}))
    decided = change(accept(1)).decide(two, [1, 3], {}, goal=stops)
    assert decided is not None
    assert (decided.leader, decided.in_sync) == (1, [1, 2]), "2 may be back before 1 is"


def test_a_stopping_broker_does_not_take_over_from_one_that_may_be_back_before_it() -> None:
    two = attrs.evolve(RECORD, in_sync=[1, 2])
    stops = ElectionGoal(avoid=frozenset({2}), leaving=frozenset({2}))
    assert change(accept(2)).decide(two, [2, 3], {}, goal=stops) is None
    both = ElectionGoal(avoid=frozenset({1, 2}), leaving=frozenset({1, 2}))
    decided = change(accept(2)).decide(two, [2, 3], {}, goal=both)
    assert decided is not None
    assert decided.leader == 2, "all of them stop"


def test_an_absent_replica_out_of_sync_is_replaced() -> None:
    behind = attrs.evolve(RECORD, in_sync=[1])
    decided = change(accept(1)).decide(behind, [1, 4], {}, goal=ElectionGoal(replicas=[1, 3, 4]))
    assert decided is not None
    assert (decided.leader, decided.replicas, decided.in_sync) == (1, [1, 3, 4], [1])


def test_waiting_ends_when_all_live_candidates_have_accepted() -> None:
    machine = change(accept(1))
    assert machine.is_complete(RECORD, [1, 3])
    assert not machine.is_complete(RECORD, [1, 2])
    assert not machine.is_complete(RECORD, [3])


LOST = attrs.evolve(RECORD, in_sync=[], lost=[1, 2])


def recover(machine: Election, record: PartitionRecord = LOST, **options: Any) -> Any:  # noqa: ANN401
    live = options.pop("live", ALL)
    return machine.recover(record, live, {}, topics=TOPICS, **options)


def test_logs_are_compared_one_by_one_and_not_by_their_sum() -> None:
    """Broker 1 has most bytes, but of topics that others have more of, or that are gone."""
    accepted = [
        accept(1, ends=ends(a=1000, b=4, c=4, deleted=9999)),
        accept(2, ends=ends(a=10, b=5, c=5)),
        accept(3, ends=ends(a=900, b=5, c=4)),
    ]
    assert choose_leader(accepted, {}, TOPICS).broker == 2
    same_count = [accept(1, ends=ends(a=10, b=5)), accept(2, ends=ends(a=900, b=4))]
    assert choose_leader(same_count, {}, TOPICS).broker == 2


def test_a_missing_log_counts_as_an_empty_one() -> None:
    accepted = [accept(1, ends=ends(a=5)), accept(2, ends=ends(a=5, b=1))]
    assert choose_leader(accepted, {}, TOPICS).broker == 2
    assert choose_leader(accepted, {}, ["a"]).broker == 1


def test_a_replica_that_lacks_flushed_records_leads_last() -> None:
    damaged = accept(1, last_epoch=9, ends=[LogEnd("a", 900, sound=False)])
    assert choose_leader([damaged, accept(2)], {}, TOPICS).broker == 2
    assert choose_leader([damaged], {}, TOPICS).broker == 1


def test_all_former_in_sync_replicas_have_to_accept_before_a_loss_is_accepted() -> None:
    machine = change(accept(1), accept(3, log_end=999))
    assert recover(machine) is None
    assert machine.missing(LOST, ALL) == [2]
    assert machine.accept(accept(2, log_end=300))
    assert machine.missing(LOST, ALL) == []
    assert machine.missing(LOST, [1, 3]) == [2]
    assert recover(machine, live=[1, 3]) is None, "2 went away again"
    decided = recover(machine)
    assert decided == attrs.evolve(
        LOST,
        epoch=5,
        version=0,
        leader=2,
        leader_incarnation=12,
        in_sync=[2],
        lost=[],
        recovered_epoch=5,
    ), "3 was not in sync, and may lack what was flushed before it was acknowledged"


def test_all_replicas_have_to_accept_if_the_former_in_sync_set_is_unknown() -> None:
    unknown = attrs.evolve(LOST, lost=[])
    machine = change(accept(1), accept(2))
    assert recover(machine, unknown) is None
    assert machine.accept(accept(3, log_end=300))
    assert recover(machine, unknown).leader == 3


def test_a_recovery_prefers_the_last_to_agree_with_a_leader_over_the_newest_record() -> None:
    machine = change(
        accept(1, log_epoch=4, last_epoch=2, log_end=50),
        accept(2, log_epoch=3, last_epoch=3, log_end=90),
    )
    assert recover(machine).leader == 1


def test_a_recovery_compares_log_ends_and_not_the_epochs_of_the_last_records() -> None:
    machine = change(accept(1, last_epoch=4, log_end=5), accept(2, last_epoch=3, log_end=6))
    assert recover(machine).leader == 2


@pytest.mark.parametrize("ordered", [False, True])
def test_a_damaged_or_replaced_replica_leads_only_if_an_operator_orders_it(ordered: bool) -> None:
    damaged = accept(1, ends=[LogEnd("a", 900, sound=False)])
    machine = change(damaged, accept(2, log_end=5))
    assert recover(machine, ordered=ordered).leader == 2, "what is sound is left"
    decided = recover(machine, replaced=[2], ordered=ordered)
    assert (decided is not None) == ordered
    alone = recover(change(damaged), attrs.evolve(LOST, lost=[1]), ordered=ordered)
    assert (alone is not None) == ordered


def test_an_ordered_recovery_takes_the_best_of_the_replicas_that_answer() -> None:
    assert recover(change(), ordered=True) is None, "somebody has to answer"
    assert recover(change(accept(3)), ordered=True).leader == 3
    assert recover(change(accept(3, log_end=999), accept(2)), ordered=True).leader == 2
    damaged = accept(2, ends=[LogEnd("a", 900, sound=False)])
    assert recover(change(accept(3, log_end=5), damaged), ordered=True).leader == 3
    last = attrs.evolve(RECORD, in_sync=[1], lost=[2])
    behind = accept(3, log_epoch=9, log_end=999)
    assert recover(change(accept(2), behind), last, ordered=True).leader == 2
    away = attrs.evolve(RECORD, in_sync=[1])
    assert recover(change(accept(2), accept(3)), away, ordered=True).leader == 2


def test_the_lost_offsets_of_each_log_are_told() -> None:
    machine = change(
        accept(1, ends=[LogEnd("a", 10), LogEnd("b", 7), LogEnd("deleted", 50)]),
        accept(2, ends=[LogEnd("a", 4, sound=False, held_end=12), LogEnd("c", 3)]),
    )
    assert machine.losses(1, TOPICS) == [LogLoss("a", 10, 12), LogLoss("c", 0, 3)]
    assert machine.losses(2, TOPICS) == [LogLoss("a", 4, 12), LogLoss("b", 0, 7)]


def test_if_no_in_sync_replica_accepted_all_of_them_are_missing() -> None:
    assert change().missing(RECORD, ALL) == [1, 2]
    assert change(accept(3)).missing(RECORD, ALL) == [1, 2]
    assert change(accept(1)).missing(RECORD, ALL) == []
    assert change(accept(1)).missing(RECORD, [2, 3]) == [1, 2]


# --- acceptances in pages --------------------------------------------------------------


@given(st.integers(0, 7), st.integers(1, 3))
def test_an_acceptance_in_pages_counts_when_the_last_one_is_there(
    log_count: int, page_count_max: int
) -> None:
    whole = accept(1, ends=[LogEnd(str(number), number) for number in range(log_count)])
    machine = Election(5)
    *pages, last = pages_of(whole, page_count_max)
    assert all(len(page.ends) == page_count_max for page in pages)
    for page in pages:
        assert machine.accept(page) is None
    assert machine.accept(last) == whole
    assert machine.accepts == {1: whole}


def test_pages_that_do_not_follow_one_another_count_for_nothing() -> None:
    first, second, third = pages_of(accept(1, ends=ends(a=1, b=2, c=3)), 1)
    other_life = attrs.evolve(second, incarnation=99)
    for broken in ([second], [first, third], [first, other_life, second, third]):
        machine = Election(5)
        for page in broken:
            assert machine.accept(page) is None
        assert not machine.accepts
    machine = Election(5)
    assert machine.accept(first) is None
    machine.forget(1)
    assert machine.accept(second) is None
    again = [machine.accept(page) for page in (first, second, third)]
    assert again == [None, None, accept(1, ends=ends(a=1, b=2, c=3))]


def test_an_in_sync_replica_that_takes_records_leads_rather_than_the_preferred_one() -> None:
    record = attrs.evolve(RECORD, in_sync=[1, 2, 3])
    machine = change(accept(1, log_end=200), accept(2), accept(3, log_end=150))
    for goal in (NO_GOAL, ElectionGoal(leader=1), ElectionGoal(avoid=frozenset({2}))):
        decided = machine.decide(record, ALL, {}, goal=goal, serves=lambda one: one == 2)
        assert decided is not None
        assert (decided.leader, decided.in_sync) == (2, [1, 2, 3])


def test_a_replica_that_takes_no_records_leads_rather_than_one_that_is_not_in_sync() -> None:
    machine = change(accept(1), accept(3, log_end=999))
    decided = machine.decide(RECORD, ALL, {}, serves=lambda one: one == 3)
    assert decided is not None
    assert (decided.leader, decided.in_sync) == (1, [1])
