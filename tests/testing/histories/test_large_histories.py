"""Checkers take time in proportion to the history: ten thousand operations take a second or so."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from octopi.testing import (
    AppendListChecker,
    CounterChecker,
    ExactlyOnceChecker,
    HistoryChecker,
    OperationHistory,
    QueueChecker,
    SetChecker,
)
from tests.testing.histories.executions import Ask, Execution, by_hand, done
from tests.testing.histories.test_append_lists import Asking, Log
from tests.testing.histories.test_counters import Shelf
from tests.testing.histories.test_element_sets import Basket
from tests.testing.histories.test_message_queues import Belt, parity

COUNT = 10_000


def mixed(first: str, second: str, share: float) -> Ask:
    """Asks for *first* with numbers and, in a *share* of cases, for *second* without a value."""
    numbers = iter(range(COUNT))
    return lambda random: (second, None) if random.random() < share else (first, next(numbers))


def of_counter() -> OperationHistory:
    return Execution(Random(1), Shelf().apply).run(mixed("add", "read", 0.5), COUNT)


def of_set() -> OperationHistory:
    return Execution(Random(1), Basket().apply).run(mixed("add", "read", 0.02), COUNT)


def of_queue() -> OperationHistory:
    belt = Belt()
    history = Execution(Random(1), belt.apply).run(mixed("enqueue", "dequeue", 0.5), COUNT)
    done(history, "c0", "drain", None, belt.messages)
    return history


def of_list() -> OperationHistory:
    asking = Asking()

    def ask(random: Random) -> tuple[str, object]:
        return asking.ask(random) if random.random() < 0.1 else asking._step("append")

    return Execution(Random(1), Log().apply).run(ask, COUNT)


def of_pipeline() -> OperationHistory:
    history = by_hand()
    for number in range(COUNT // 2):
        done(history, "a", "input", number)
    for number in range(COUNT // 2):
        done(history, "b", "output", None, number)
    return history


@pytest.mark.parametrize(
    ("checker", "made"),
    [
        (CounterChecker(), of_counter),
        (SetChecker(), of_set),
        (QueueChecker(order_by=parity), of_queue),
        (AppendListChecker(), of_list),
        (ExactlyOnceChecker(order_by=parity), of_pipeline),
    ],
    ids=["counter", "set", "queue", "list", "pipeline"],
)
@pytest.mark.timeout(60)
def test_ten_thousand_operations_are_judged_in_seconds(
    checker: HistoryChecker, made: Callable[[], OperationHistory]
) -> None:
    checker.check(made())
