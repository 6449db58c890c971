"""A list has what was appended to it, in one order that all reads agree about."""

from __future__ import annotations

from random import Random
from typing import cast

import pytest
from hypothesis import given, settings, strategies as st

from octopi.testing import (
    AppendListChecker,
    ClientOperation,
    ContradictionError,
    HistoryRule,
    MisuseError,
    OperationHistory,
)
from tests.testing.histories.executions import Execution, by_hand, done, numbers

CHECKER = AppendListChecker()
Steps = list[tuple[str, object]]


class Log:
    """The reference: a list, and transactions on it."""

    def __init__(self) -> None:
        self.elements: list[object] = []

    def apply(self, function: str, value: object) -> object:
        if function == "append":
            self.elements.append(value)
            return value
        if function == "read":
            return list(self.elements)
        return [(name, self.apply(name, one)) for name, one in cast("Steps", value)]


class Asking:
    """Chooses operations with elements that differ."""

    def __init__(self) -> None:
        self._number = numbers()

    def ask(self, random: Random) -> tuple[str, object]:
        function = random.choice(["append", "read", "txn"])
        if function != "txn":
            return self._step(function)
        return "txn", [
            self._step(random.choice(["append", "read"])) for _ in range(random.randint(1, 3))
        ]

    def _step(self, function: str) -> tuple[str, object]:
        return function, next(self._number) if function == "append" else None


def history_of(log: Log, random: Random, count: int) -> OperationHistory:
    return Execution(random, log.apply).run(Asking().ask, count)


@settings(max_examples=40)
@given(st.randoms(use_true_random=True))
def test_a_list_in_one_order_is_accepted(random: Random) -> None:
    CHECKER.check(history_of(Log(), random, 40))


def has_order(operations: list[ClientOperation], elements: list[object]) -> bool:
    """Whether any order of *operations* is right on a list with *elements*, by trying all."""
    if not any(one.is_ok for one in operations):
        return True
    first_end = min(one.completed for one in operations)
    for number, one in enumerate(operations):
        if one.invoked > first_end:
            continue
        log = Log()
        log.elements = list(elements)
        result = log.apply(one.function, one.value)
        rest = operations[:number] + operations[number + 1 :]
        if (not one.is_ok or result == one.result) and has_order(rest, log.elements):
            return True
    return False


def spoil(history: OperationHistory, random: Random) -> None:
    """Change what one operation has read."""
    read = [one for one in history.operations if one.is_ok and one.function != "append"]
    if not read:
        return
    one = random.choice(read)
    steps = cast("Steps", one.result) if one.function == "txn" else [("read", one.result)]
    reads = [value for name, value in steps if name == "read"]
    if not reads:
        return
    chosen = cast("list[object]", random.choice(reads))
    match random.randrange(3):
        case 0 if chosen:
            chosen.pop(random.randrange(len(chosen)))
        case 1:
            chosen.insert(random.randint(0, len(chosen)), random.randint(1, 8))
        case _:
            random.shuffle(chosen)


@settings(max_examples=300)
@given(st.randoms(use_true_random=True), st.integers(2, 7), st.integers(0, 2))
def test_small_histories_are_judged_as_all_their_orders_are(
    random: Random, count: int, faults: int
) -> None:
    history = history_of(Log(), random, count)
    for _ in range(faults):
        spoil(history, random)
    possible = [one for one in history.operations if one.may_have_happened]
    judgement = CHECKER.judge(history)
    assert judgement.is_valid is has_order(possible, []), judgement


def rules(history: OperationHistory) -> list[HistoryRule]:
    return [one.rule for one in CHECKER.judge(history).contradictions]


def test_a_lost_append_is_told_with_the_read_that_lacks_it() -> None:
    history = by_hand()
    done(history, "a", "append", 1, key="log")
    done(history, "b", "append", 2, key="log")
    done(history, "c", "read", None, [1], key="log")
    with pytest.raises(ContradictionError) as caught:
        CHECKER.check(history)
    assert str(caught.value) == (
        "LOST in 'log': b appended 2, then c read the list without it, and no read has it; "
        "but what was acknowledged is there afterwards\n"
        ">      2     2.000000 s to     3.000000 s  b: append of 'log' 2\n"
        ">      4     4.000000 s to     5.000000 s  c: read of 'log' gave [1]"
    )


def test_an_append_is_lost_if_a_later_one_is_read_without_it() -> None:
    history = by_hand()
    read = history.invoke("c", "read")
    done(history, "a", "append", 1)
    done(history, "b", "append", 2)
    read.ok([2])
    [found] = CHECKER.judge(history).contradictions
    assert (
        found.text
        == "a appended 1, then b appended 2, which was read, and no read has the first one"
    )


def test_reads_of_a_list_are_beginnings_of_each_other() -> None:
    history = by_hand()
    for value in (1, 2):
        history.invoke("a", "append", value).info()
    done(history, "b", "read", None, [1, 2])
    done(history, "c", "read", None, [2])
    [found] = CHECKER.judge(history).contradictions
    assert found.rule is HistoryRule.INCOMPATIBLE
    assert found.text == "behind 0 elements c read 2, and b read 1"


def test_a_read_that_lags_is_stale_unless_that_is_allowed() -> None:
    history = by_hand()
    done(history, "a", "append", 1)
    done(history, "b", "read", None, [])
    done(history, "b", "read", None, [1])
    [found] = CHECKER.judge(history).contradictions
    assert (found.rule, found.text) == (
        HistoryRule.STALE, "a appended 1, then b read the list without it",
    )  # fmt: skip
    AppendListChecker(allow_stale=True).check(history)


def test_what_failed_or_nobody_appended_is_not_read() -> None:
    history = by_hand()
    history.invoke("a", "append", 1).fail()
    done(history, "b", "read", None, [1, 7])
    assert rules(history) == [HistoryRule.ABORTED, HistoryRule.INVENTED]


def test_a_transaction_is_not_read_in_its_middle() -> None:
    history = by_hand()
    steps: Steps = [("append", 1), ("append", 2)]
    writing = history.invoke("a", "txn", steps)
    done(history, "b", "read", None, [1])
    writing.ok()
    done(history, "b", "read", None, [1, 2])
    [found] = CHECKER.judge(history).contradictions
    assert (found.rule, found.text) == (
        HistoryRule.INTERMEDIATE, "b read a part of what a appended in one transaction",
    )  # fmt: skip


def test_two_transactions_that_read_the_same_and_append_have_lost_an_update() -> None:
    history = by_hand()
    for name, element in (("a", 1), ("b", 2)):
        steps: Steps = [("read", None), ("append", element)]
        done(history, name, "txn", steps, [("read", []), ("append", element)])
    assert HistoryRule.INTERLEAVED in rules(history)
    done(history, "c", "read", None, [1, 2])
    [found] = CHECKER.judge(history).contradictions
    assert found.text == "a appended 1 between two steps of b"


def test_appends_keep_the_order_of_time() -> None:
    history = by_hand()
    done(history, "a", "append", 1)
    done(history, "b", "append", 2)
    done(history, "c", "read", None, [2, 1])
    [found] = CHECKER.judge(history).contradictions
    assert (found.rule, found.text) == (
        HistoryRule.OUT_OF_ORDER, "a appended 1, then b appended 2, which lies before it",
    )  # fmt: skip


def test_an_element_that_is_read_twice_in_one_list_is_found() -> None:
    history = by_hand()
    done(history, "a", "append", 1)
    done(history, "b", "read", None, [1, 1])
    assert rules(history) == [HistoryRule.DUPLICATE]


def test_an_element_is_appended_once() -> None:
    history = by_hand()
    for _ in range(2):
        done(history, "a", "append", 1)
    with pytest.raises(MisuseError, match="append each element once"):
        CHECKER.check(history)
    history = by_hand()
    done(history, "a", "txn", [("pop", 1)])
    with pytest.raises(MisuseError, match="a transaction is a list of pairs"):
        CHECKER.check(history)
