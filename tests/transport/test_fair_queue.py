"""Which of the members that share the rounds of an event loop has the next turn."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from octopi.limits import (
    FAIR_HEAD_START_S,
    ROUND_S,
    TURN_S,
    USELESS_FRAME_S,
    USELESS_FRAMES_FREE,
    USELESS_FRAMES_PER_S,
    USELESS_FRAMES_PER_S_ALL,
    USELESS_FRAMES_PER_TURN,
)
from octopi.transport.fair_queue import FairQueue, MemberUsage, Ticket, UselessFramePauses


def contended() -> FairQueue:
    """A queue whose round is used up."""
    queue = FairQueue()
    assert queue.charge(MemberUsage(), ROUND_S)
    return queue


def next_ones(queue: FairQueue) -> list[MemberUsage]:
    return [ticket.account for ticket in queue.next_round()]


def test_no_connection_waits_while_a_round_has_time_left() -> None:
    queue, one, other = FairQueue(), MemberUsage(), MemberUsage()
    assert not queue.charge(one, ROUND_S / 2)
    assert queue.may_go(one)
    assert queue.may_go(other)
    assert not queue.is_contended


def test_members_wait_for_a_later_round_when_a_round_is_used_up() -> None:
    queue, one, other = FairQueue(), MemberUsage(), MemberUsage()
    queue.charge(other, ROUND_S / 2)
    assert queue.charge(one, ROUND_S / 2)
    assert not queue.may_go(one)
    assert not queue.may_go(other)
    tickets = [queue.wait(one), queue.wait(other)]
    assert set(queue.next_round()) == set(tickets)


def test_turns_of_different_rounds_do_not_add_up() -> None:
    queue, one = FairQueue(), MemberUsage()
    for _ in range(10):
        assert not queue.charge(one, ROUND_S * 0.9)
        queue.round_is_over()
    assert queue.may_go(one)


def test_turns_that_do_not_fit_into_a_round_wait_for_later_rounds() -> None:
    queue = contended()
    for _ in range(10):
        queue.wait(MemberUsage())
    sizes = [len(queue.next_round()) for _ in range(7)]
    assert max(sizes) * TURN_S <= ROUND_S
    assert sum(sizes) == 10


def test_a_member_with_long_turns_has_a_round_for_itself() -> None:
    queue = contended()
    long, short = MemberUsage(), MemberUsage()
    for account, length_s in ((long, 10 * ROUND_S), (short, ROUND_S / 10)):
        queue.charge(account, length_s)
    queue.wait(long)
    queue.wait(short)
    assert next_ones(queue) == [short]
    queue.wait(short)
    assert next_ones(queue) == [short]
    assert next_ones(queue) == [long]


def test_all_members_run_again_once_none_waits() -> None:
    queue, one = contended(), MemberUsage()
    queue.wait(one)
    assert next_ones(queue) == [one]
    assert queue.is_contended
    assert queue.next_round() == []
    assert not queue.is_contended
    assert queue.may_go(one)


def test_a_member_that_uses_little_goes_before_a_hundred_that_use_much() -> None:
    queue, small = contended(), MemberUsage()
    crowd = [MemberUsage() for _ in range(100)]
    for one in crowd:
        queue.wait(one)
    for _ in range(200):
        for one in next_ones(queue):
            queue.charge(one, TURN_S)
            queue.wait(one)
    queue.next_round()
    assert queue.may_go(small), "it asks in the middle of a round and need not wait at all"
    queue.charge(small, TURN_S / 10)
    assert queue.may_go(small)


def test_a_member_does_not_save_up_time_that_it_did_not_use() -> None:
    queue, late, busy = contended(), MemberUsage(), MemberUsage()
    queue.wait(busy)
    for _ in range(1000):
        for one in next_ones(queue):
            queue.charge(one, TURN_S)
            queue.wait(one)
    queue.wait(late)
    used = {late: 0.0, busy: 0.0}
    for _ in range(100):
        for one in next_ones(queue):
            queue.charge(one, TURN_S)
            used[one] += TURN_S
            queue.wait(one)
    assert 0 <= used[late] - used[busy] <= FAIR_HEAD_START_S + 2 * TURN_S


def test_time_used_before_others_had_to_wait_is_not_counted() -> None:
    queue, old, new = FairQueue(), MemberUsage(), MemberUsage()
    for _ in range(100):
        queue.charge(old, ROUND_S / 2)
        queue.round_is_over()
    assert queue.charge(MemberUsage(), ROUND_S)
    queue.wait(old)
    queue.wait(new)
    assert next_ones(queue)[0] is old


def test_an_account_that_stopped_waiting_is_not_called() -> None:
    queue, one, other = contended(), MemberUsage(), MemberUsage()
    queue.withdraw(queue.wait(one))
    queue.wait(other)
    assert next_ones(queue) == [other]
    assert queue.next_round() == []


def test_many_tasks_of_one_member_get_no_more_than_one_of_another() -> None:
    queue, many, one = contended(), MemberUsage(), MemberUsage()
    for _ in range(50):
        queue.wait(many)
    queue.wait(one)
    used = {many: 0.0, one: 0.0}
    for _ in range(20):
        for each in next_ones(queue):
            queue.charge(each, TURN_S)
            used[each] += TURN_S
            queue.wait(each)
    assert used[many] == pytest.approx(used[one], abs=2 * ROUND_S)


@given(
    st.lists(st.floats(TURN_S / 2, TURN_S * 10), min_size=9, max_size=30),
    st.integers(20, 300),
)
def test_members_that_always_want_more_get_equal_shares(
    lengths_s: list[float], rounds: int
) -> None:
    queue = contended()
    members = {MemberUsage(): length_s for length_s in lengths_s}
    used = dict.fromkeys(members, 0.0)
    for member in members:
        queue.wait(member)
    for _ in range(rounds):
        chosen = next_ones(queue)
        assert chosen, "somebody waits, so somebody goes"
        for member in chosen:
            queue.charge(member, members[member])
            used[member] += members[member]
            queue.wait(member)
    assert max(used.values()) - min(used.values()) <= 2 * max(lengths_s) + 1e-9


@given(st.data())
def test_every_waiting_member_gets_its_turn_unless_it_gives_up(data: st.DataObject) -> None:
    queue = contended()
    waiting: set[Ticket] = set()
    accounts = [MemberUsage() for _ in range(5)]
    for _ in range(data.draw(st.integers(1, 50))):
        account = data.draw(st.sampled_from(accounts))
        match data.draw(st.sampled_from(["wait", "charge", "withdraw", "round"])):
            case "wait":
                waiting.add(queue.wait(account))
            case "charge":
                queue.charge(account, data.draw(st.floats(0, ROUND_S * 2)))
            case "withdraw" if waiting:
                queue.withdraw(waiting.pop())
            case "round":
                chosen = queue.next_round()
                assert waiting.issuperset(chosen)
                waiting.difference_update(chosen)
    while chosen := queue.next_round():
        assert waiting.issuperset(chosen)
        waiting.difference_update(chosen)
    assert not waiting


# --- frames of no use --------------------------------------------------------------------


def test_a_few_useless_frames_are_free_and_more_of_them_cost_a_pause() -> None:
    pauses, one = UselessFramePauses(), MemberUsage()
    assert pauses.charge(one, USELESS_FRAMES_FREE, 10.0) == 0
    assert pauses.charge(one, 50, 10.0) == pytest.approx(50 / USELESS_FRAMES_PER_S)


def test_useless_frames_are_free_again_after_a_while() -> None:
    pauses, one = UselessFramePauses(), MemberUsage()
    pauses.charge(one, USELESS_FRAMES_FREE, 10.0)
    later = 10.0 + USELESS_FRAMES_FREE / USELESS_FRAMES_PER_S
    assert pauses.charge(one, USELESS_FRAMES_FREE, later) == 0
    assert pauses.charge(one, USELESS_FRAMES_FREE, later + 3600) == 0, "they are not saved up"
    assert pauses.charge(one, 1, later + 3600) > 0


@pytest.mark.parametrize("count", [1, 100, 5_000])
def test_all_senders_of_useless_frames_together_are_read_at_a_bounded_rate(count: int) -> None:
    pauses = UselessFramePauses()
    members = [MemberUsage() for _ in range(count)]
    ready_at = dict.fromkeys(members, 0.0)
    read, seconds = 0, 60
    now = 0.0
    while now < seconds:
        for member in members:
            if ready_at[member] <= now:
                pauses.pausing_count = sum(at > now for at in ready_at.values())
                pause_s = pauses.charge(member, USELESS_FRAMES_FREE, now)
                read += USELESS_FRAMES_FREE
                ready_at[member] = now + pause_s
        now = max(min(ready_at.values()), now + 0.01)
        if count > 100 and now > 1:
            break
    free = 2 * count * USELESS_FRAMES_FREE
    rate = min(count * USELESS_FRAMES_PER_S, USELESS_FRAMES_PER_S_ALL)
    assert read <= free + 1.2 * rate * seconds


def test_a_member_with_requests_goes_before_any_number_that_send_useless_frames() -> None:
    """Each of a hundred uses less of the node than the one that asks, as they are so many."""
    queue = contended()
    flooders, one = [MemberUsage() for _ in range(100)], MemberUsage()
    for flooder in flooders:
        queue.wait(flooder)
    waited_count, asked_count = 0, 1_000
    for _ in range(asked_count):
        queue.wait(one)
        while one not in (chosen := next_ones(queue)):
            waited_count += 1
            flood(queue, chosen)
        queue.charge(one, TURN_S / 4)
        flood(queue, [account for account in chosen if account is not one])
    assert waited_count < 2 * asked_count, "rounds; with equal shares there would be a dozen each"


def flood(queue: FairQueue, accounts: list[MemberUsage]) -> None:
    """Each of them has a short turn, and wants another one."""
    for account in accounts:
        queue.charge(account, TURN_S / 4, USELESS_FRAMES_PER_TURN)
        queue.wait(account)


def test_useless_frames_sent_before_count_when_members_have_to_wait() -> None:
    pauses, flooders, one = UselessFramePauses(), [MemberUsage() for _ in range(100)], MemberUsage()
    for flooder in flooders:
        pauses.charge(flooder, USELESS_FRAMES_FREE, 0.0)
    queue = contended()
    for flooder in flooders:
        queue.wait(flooder)
    queue.wait(one)
    assert one in next_ones(queue)
    assert not queue.may_go(flooders[0])
    assert queue.may_go(MemberUsage())


def test_an_occasional_useless_frame_does_not_delay_its_connection_for_long() -> None:
    pauses, honest = UselessFramePauses(), MemberUsage()
    for number in range(100):
        pauses.charge(honest, 1, number * 5.0)
    assert honest._useless_count * USELESS_FRAME_S <= TURN_S
