"""Runs of three relays, step by step: each leads to a broken rule if a certain rule is left out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from octopi.relay.member import RelayMember
from octopi.relay.messages import RelayAnswer, RelayStart, RelayVote
from octopi.relay.timelines import RelayEpoch
from tests.relay.parts import BrokenRule
from tests.relay.small_scope import (
    LINE,
    SET,
    Bounds as Bounds,
    Fault as Fault,
    Scope,
    ScopeState,
    change_step,
    come_step,
    crash_step,
    empty_step,
    first_state,
    join_step,
    order_step,
    vote_step,
)

FIRST, SECOND, THIRD = SET.ranked
"""The sequencers of epochs 0, 1 and 2."""
E1, E2 = RelayEpoch(LINE, 1), RelayEpoch(LINE, 2)

Act = Callable[[ScopeState], None]


def run(*steps: Act, repeats: bool = False) -> None:
    """Make *steps* one after the other, and check the rules after each."""
    state = first_state(Bounds(orders=9, changes=9, crashes=9, repeats=repeats), RelayMember)
    for step in steps:
        takes = {"orders": 1} if step.__qualname__.startswith("order_step") else {}
        state = state.copy(**takes)
        step(state)
        state.check()
        state.tidy()


def late(kind: type, *, of: object = None) -> Act:
    """Everything of one kind that is on its way arrives."""

    def act(state: ScopeState) -> None:
        for one in sorted(state.late, key=lambda late: (late.sender, late.to)):
            if isinstance(one.message, kind) and of in {None, one.sender}:
                come_step(one)(state)

    return act


def the_longest_history_is_not_the_newest() -> None:
    run(
        order_step(FIRST, frozenset()),
        order_step(FIRST, frozenset()),
        change_step(SECOND, E1, frozenset({THIRD}), follows=True),
        order_step(SECOND, frozenset({THIRD}), hears=False),
        change_step(THIRD, E2, frozenset({FIRST}), follows=True),
    )


def the_same_is_sent_to_two_sequencers() -> None:
    run(
        order_step(FIRST, frozenset()),
        change_step(SECOND, E1, frozenset({THIRD}), follows=True),
        order_step(SECOND, frozenset({THIRD})),
        change_step(THIRD, E2, frozenset({FIRST}), follows=True),
        repeats=True,
    )


def the_same_is_sent_twice() -> None:
    run(order_step(FIRST, frozenset()), order_step(FIRST, frozenset()), repeats=True)


def an_empty_relay_is_sent_what_it_does_not_have_later() -> None:
    run(
        crash_step(SECOND),
        join_step(SECOND, frozenset({FIRST, THIRD}), is_answered=False),
        order_step(FIRST, frozenset({SECOND})),
        late(RelayAnswer),
        change_step(SECOND, E1, frozenset({THIRD}), follows=True),
    )


def an_empty_relay_asks_one_that_missed_a_change() -> None:
    run(
        change_step(SECOND, E1, frozenset({THIRD}), follows=True),
        order_step(SECOND, frozenset({THIRD})),
        crash_step(THIRD),
        join_step(THIRD, frozenset({FIRST})),
        change_step(THIRD, E2, frozenset({FIRST}), follows=True),
    )


def an_empty_relay_asks_one_that_missed_a_transaction() -> None:
    run(
        order_step(FIRST, frozenset({THIRD})),
        crash_step(THIRD),
        join_step(THIRD, frozenset({FIRST, SECOND})),
        change_step(SECOND, E1, frozenset({THIRD}), follows=True),
    )


def a_vote_from_before_a_crash_comes_late() -> None:
    run(
        vote_step(THIRD, E1),
        crash_step(THIRD),
        join_step(THIRD, frozenset({FIRST, SECOND})),
        order_step(FIRST, frozenset({THIRD})),
        vote_step(SECOND, E1),
        late(RelayVote, of=THIRD),
    )


def a_vote_from_before_it_gave_up_what_it_held_comes_late() -> None:
    run(
        vote_step(THIRD, E1),
        empty_step(THIRD),
        join_step(THIRD, frozenset({FIRST, SECOND})),
        order_step(FIRST, frozenset({THIRD})),
        vote_step(SECOND, E1),
        late(RelayVote, of=THIRD),
    )


def an_empty_relay_is_sent_the_start_of_an_epoch() -> None:
    """It voted for a later one before it crashed."""
    run(
        vote_step(FIRST, E2),
        crash_step(FIRST),
        change_step(SECOND, E1, frozenset({THIRD}), follows=False),
        late(RelayVote, of=THIRD),
        late(RelayStart),
        order_step(SECOND, frozenset({FIRST})),
        vote_step(THIRD, E2),
        late(RelayVote, of=FIRST),
    )


RUNS = [
    the_longest_history_is_not_the_newest,
    the_same_is_sent_to_two_sequencers,
    the_same_is_sent_twice,
    an_empty_relay_is_sent_what_it_does_not_have_later,
    an_empty_relay_asks_one_that_missed_a_change,
    an_empty_relay_asks_one_that_missed_a_transaction,
    a_vote_from_before_a_crash_comes_late,
    a_vote_from_before_it_gave_up_what_it_held_comes_late,
    an_empty_relay_is_sent_the_start_of_an_epoch,
]


def every_run(bounds: Bounds) -> int:
    """Search all runs within *bounds*; return how many states there are."""
    found = Scope(bounds).run()
    if found.fault:
        raise BrokenRule(f"{found.fault}: {found.steps}")
    return found.states


every_run_of_one_order_and_one_change = partial(every_run, Bounds(orders=1, changes=1))
