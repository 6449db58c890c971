"""Each input of a pipeline has each of its outputs, once, and in order by key."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from octopi.testing import (
    ContradictionError,
    ExactlyOnceChecker,
    HistoryRule,
    OperationHistory,
)
from tests.testing.histories.executions import Execution, by_hand, done, numbers

Order = tuple[str, int]
"""Who orders, and the number of the order."""


def invoice_and_parcel(order: Order) -> list[str]:
    return [f"invoice {order[1]}", f"parcel {order[1]}"]


def named(output: str) -> str:
    return output.partition(":")[0]


def customer(order: Order) -> str:
    return order[0]


CHECKER = ExactlyOnceChecker(outputs_of=invoice_and_parcel, name_of=named, order_by=customer)


def history_of(random: Random, edit: Callable[[list[str]], None]) -> OperationHistory:
    """The outputs of a pipeline, which *edit* changes before they are read."""
    number = numbers()
    outputs: list[str] = []

    def apply(function: str, value: object) -> object:
        assert isinstance(value, tuple)
        outputs.extend(f"{one}: for {value[0]}" for one in invoice_and_parcel(value))
        return value

    def ask(random: Random) -> tuple[str, object]:
        return "input", (random.choice("xyz"), next(number))

    execution = Execution(random, apply)
    execution.run(ask, 20)
    for last in (1001, 1002):
        done(execution.history, "c0", "input", ("x", last))
        apply("input", ("x", last))
    edit(outputs)
    done(execution.history, "reader", "outputs", None, outputs)
    return execution.history


@settings(max_examples=30)
@given(st.randoms(use_true_random=True))
def test_a_pipeline_that_does_each_thing_once_is_accepted(random: Random) -> None:
    CHECKER.check(history_of(random, lambda outputs: None))


def lose(outputs: list[str]) -> None:
    outputs.remove("parcel 1002: for x")


def double(outputs: list[str]) -> None:
    outputs.append("invoice 1001: for x")


def invent(outputs: list[str]) -> None:
    outputs.append("invoice 2000: for x")


def reverse_inputs(outputs: list[str]) -> None:
    outputs[-4:] = [*outputs[-2:], *outputs[-4:-2]]


def reverse_outputs(outputs: list[str]) -> None:
    outputs[-2:] = reversed(outputs[-2:])


@pytest.mark.parametrize(
    ("edit", "rule"),
    [
        (lose, HistoryRule.LOST),
        (double, HistoryRule.DUPLICATE),
        (invent, HistoryRule.INVENTED),
        (reverse_inputs, HistoryRule.OUT_OF_ORDER),
        (reverse_outputs, HistoryRule.OUT_OF_ORDER),
    ],
)
@settings(max_examples=30)
@given(random=st.randoms(use_true_random=True))
def test_each_planted_fault_is_found(
    edit: Callable[[list[str]], None], rule: HistoryRule, random: Random
) -> None:
    assert rule in {one.rule for one in CHECKER.judge(history_of(random, edit)).contradictions}


def test_an_input_with_an_unknown_outcome_has_all_of_its_outputs_or_none() -> None:
    history = by_hand()
    history.invoke("a", "input", ("x", 1)).info("no answer")
    CHECKER.check(history)
    done(history, "b", "output", None, "invoice 1: for x")
    with pytest.raises(ContradictionError) as caught:
        CHECKER.check(history)
    assert str(caught.value) == (
        "LOST: the input of a has the output 'invoice 1', and not 'parcel 1'; "
        "but what was acknowledged is there afterwards\n"
        ">      0     0.000000 s to        unknown  a: input ('x', 1), info (no answer)\n"
        ">      2     2.000000 s to     3.000000 s  b: output gave 'invoice 1: for x'"
    )
    done(history, "b", "output", None, "parcel 1: for x")
    CHECKER.check(history)


def test_an_input_that_failed_has_no_output() -> None:
    history = by_hand()
    history.invoke("a", "input", "x").fail()
    done(history, "b", "output", None, "x")
    [found] = ExactlyOnceChecker().judge(history).contradictions
    assert found.rule is HistoryRule.ABORTED
    assert found.text == "b read 'x', and the attempt of a failed"


def test_a_missing_output_is_told_with_its_input() -> None:
    history = by_hand()
    done(history, "a", "input", "x")
    [found] = ExactlyOnceChecker().judge(history).contradictions
    assert found.text == ("a sent the input of 'x', it was acknowledged, and nobody read it")


def test_outputs_of_several_readers_are_in_order_where_one_was_surely_first() -> None:
    history = by_hand()
    checker = ExactlyOnceChecker(order_by=lambda _: "all")
    for value in (1, 2):
        done(history, "a", "input", value)
    first = history.invoke("b", "output")
    done(history, "c", "output", None, 2)
    first.ok(1)
    checker.check(history)
    for value in (3, 4):
        done(history, "a", "input", value)
    for value in (4, 3):
        done(history, "c", "output", None, value)
    [found] = checker.judge(history).contradictions
    assert found.rule is HistoryRule.OUT_OF_ORDER
