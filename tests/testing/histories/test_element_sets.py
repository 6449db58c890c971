"""What was added to a set stays there, and nothing else is there."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from octopi.testing import (
    ContradictionError,
    HistoryRule,
    MisuseError,
    OperationHistory,
    SetChecker,
)
from tests.testing.histories.executions import Execution, by_hand, done, numbers

CHECKER = SetChecker()


class Basket:
    """The reference: a set, which is read as a list."""

    def __init__(self) -> None:
        self.elements: list[object] = []

    def apply(self, function: str, value: object) -> object:
        if function == "add":
            self.elements.append(value)
        return list(self.elements)


def history_of(basket: Basket, random: Random) -> OperationHistory:
    number = numbers()

    def ask(random: Random) -> tuple[str, object]:
        return ("read", None) if random.random() < 0.4 else ("add", next(number))

    return Execution(random, basket.apply).run(ask, 40)


@settings(max_examples=30)
@given(st.randoms(use_true_random=True))
def test_a_set_that_keeps_all_is_accepted(random: Random) -> None:
    CHECKER.check(history_of(Basket(), random))


@settings(max_examples=30)
@given(st.randoms(use_true_random=True))
def test_an_element_that_is_lost_is_found(random: Random) -> None:
    basket = Basket()
    history = history_of(basket, random)
    done(history, "c0", "add", "x")
    done(history, "c0", "read", None, basket.elements)
    [found] = CHECKER.judge(history).contradictions
    assert found.rule is HistoryRule.LOST
    assert found.text.startswith("'x' was acknowledged to c0, then c0 read the set without it")


@settings(max_examples=30)
@given(st.randoms(use_true_random=True))
def test_an_element_that_was_missing_for_a_time_is_found(random: Random) -> None:
    basket = Basket()
    history = history_of(basket, random)
    done(history, "c0", "read", None, [*basket.elements, "x"])
    done(history, "c1", "read", None, basket.elements)
    done(history, "c2", "read", None, [*basket.elements, "x"])
    rules = [one.rule for one in CHECKER.judge(history).contradictions]
    assert rules == [HistoryRule.INVENTED, HistoryRule.STALE]
    rules = [one.rule for one in SetChecker(allow_stale=True).judge(history).contradictions]
    assert rules == [HistoryRule.INVENTED]


def test_a_lost_element_is_told_with_who_added_it_and_who_missed_it() -> None:
    history = by_hand()
    done(history, "a", "add", "x")
    done(history, "b", "read", None, set[str]())
    done(history, "c", "read", None, set[str]())
    with pytest.raises(ContradictionError) as caught:
        CHECKER.check(history)
    assert str(caught.value) == (
        "LOST: 'x' was acknowledged to a, then c read the set without it, the last of 2 reads "
        "that lack it, and no later read has it; but what was acknowledged is there afterwards\n"
        ">      0     0.000000 s to     1.000000 s  a: add 'x'\n"
        ">      4     4.000000 s to     5.000000 s  c: read gave set()"
    )


def test_what_failed_or_nobody_added_is_not_in_a_set() -> None:
    history = by_hand()
    history.invoke("a", "add", 1).fail()
    done(history, "b", "read", None, {1, 2})
    aborted, invented = CHECKER.judge(history).contradictions
    assert (aborted.rule, aborted.text) == (
        HistoryRule.ABORTED, "b read 1, which failed to be added",
    )  # fmt: skip
    assert (invented.rule, invented.text) == (
        HistoryRule.INVENTED, "b read 2, which nobody had begun to add",
    )  # fmt: skip


def test_an_element_that_is_read_before_it_is_added_is_invented() -> None:
    history = by_hand()
    done(history, "a", "read", None, [1])
    done(history, "b", "add", 1)
    [found] = CHECKER.judge(history).contradictions
    assert found.rule is HistoryRule.INVENTED


def test_an_element_that_is_there_twice_is_found() -> None:
    history = by_hand()
    done(history, "a", "add", b"x")
    done(history, "a", "read", None, [b"x", b"x"])
    [found] = CHECKER.judge(history).contradictions
    assert found.rule is HistoryRule.DUPLICATE
    assert found.text == "a read b'x' 2 times"


def test_a_read_that_began_before_the_acknowledgement_may_lack_the_element() -> None:
    history = by_hand()
    read = history.invoke("b", "read")
    done(history, "a", "add", 1)
    read.ok([])
    history.invoke("a", "add", 2).info()
    done(history, "b", "read", None, [1])
    done(history, "b", "read", None, [1, 2])
    CHECKER.check(history)


def test_a_result_that_is_no_collection_is_refused() -> None:
    history = by_hand()
    done(history, "a", "read", None, "x")
    with pytest.raises(MisuseError, match="has to be a collection"):
        CHECKER.check(history)
