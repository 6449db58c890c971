"""Reads of a counter lie between what was surely and what was possibly added."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from octopi.testing import (
    ContradictionError,
    CounterChecker,
    HistoryRule,
    MisuseError,
    OperationHistory,
)
from tests.testing.histories.executions import Execution, by_hand, done

CHECKER = CounterChecker()


class Shelf:
    """The reference: a number."""

    def __init__(self) -> None:
        self.total = 0

    def apply(self, function: str, value: object) -> object:
        if function == "add":
            assert isinstance(value, int)
            self.total += value
        return self.total


def history_of(shelf: Shelf, random: Random, least: int) -> OperationHistory:
    def ask(random: Random) -> tuple[str, object]:
        if random.random() < 0.4:
            return "read", None
        return "add", random.randint(least, 5)

    return Execution(random, shelf.apply).run(ask, 40)


@settings(max_examples=30)
@given(st.randoms(use_true_random=True), st.sampled_from([0, -5]))
def test_a_counter_that_counts_is_accepted(random: Random, least: int) -> None:
    CHECKER.check(history_of(Shelf(), random, least))


@settings(max_examples=30)
@given(st.randoms(use_true_random=True))
def test_an_addition_that_is_lost_is_found(random: Random) -> None:
    shelf = Shelf()
    history = history_of(shelf, random, 0)
    before = shelf.total
    possible = sum(
        one.value
        for one in history.operations
        if one.function == "add" and not one.is_ok and isinstance(one.value, int)
    )
    done(history, "c0", "add", possible + 1)
    done(history, "c1", "read", None, before)
    rules = {one.rule for one in CHECKER.judge(history).contradictions}
    assert HistoryRule.TOO_LOW in rules


def test_a_read_below_what_was_acknowledged_is_told_with_the_last_addition() -> None:
    history = by_hand()
    done(history, "a", "add", 10)
    done(history, "b", "add", 10)
    done(history, "a", "read", None, 10)
    with pytest.raises(ContradictionError) as caught:
        CHECKER.check(history)
    assert str(caught.value) == (
        "TOO_LOW: a read 10, and what was acknowledged before makes at least 20; "
        "but a counter is at least the sum of what was surely added\n"
        ">      2     2.000000 s to     3.000000 s  b: add 10\n"
        ">      4     4.000000 s to     5.000000 s  a: read gave 10"
    )
    assert caught.value.judgement.is_valid is False


def test_a_read_above_what_was_added_is_found() -> None:
    history = by_hand()
    done(history, "a", "add", 10)
    history.invoke("b", "add", 5).fail()
    done(history, "a", "read", None, 15)
    [found] = CHECKER.judge(history).contradictions
    assert found.rule is HistoryRule.TOO_HIGH
    assert found.text == "a read 15, and all that may have been added until then makes at most 10"


def test_an_addition_with_an_unknown_outcome_may_come_late_or_never() -> None:
    history = by_hand()
    history.invoke("a", "add", 10).info()
    for value in (0, 0, 10, 10):
        done(history, "b", "read", None, value)
    CHECKER.check(history)
    done(history, "b", "read", None, 0)
    [found] = CHECKER.judge(history).contradictions
    assert found.rule is HistoryRule.STALE
    assert found.text == "b read 0, after b had read 10, and nothing was subtracted"


def test_additions_that_go_on_during_a_read_may_count() -> None:
    history = by_hand()
    read = history.invoke("a", "read")
    done(history, "b", "add", 3)
    done(history, "b", "add", -1)
    read.ok(3)
    CHECKER.check(history)


def test_counters_are_judged_by_key_and_from_their_start() -> None:
    history = by_hand()
    done(history, "a", "add", 1, key="hats")
    done(history, "a", "read", None, 20, key="shoes")
    CounterChecker(start=20).check(history)
    done(history, "a", "read", None, 20, key="hats")
    [found] = CounterChecker(start=20).judge(history).contradictions
    assert str(found).startswith("TOO_LOW in 'hats': a read 20")


def test_what_a_counter_does_not_know_is_refused() -> None:
    history = by_hand()
    done(history, "a", "write", 1)
    with pytest.raises(MisuseError, match="knows the functions add, read, and not: a: write 1"):
        CHECKER.check(history)
    history = by_hand()
    done(history, "a", "add", "1")
    with pytest.raises(MisuseError, match="as a number, not as '1'"):
        CHECKER.check(history)
