"""What was put into a queue comes out of it, as often and in the order as promised."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from octopi.testing import ContradictionError, HistoryRule, OperationHistory, QueueChecker
from tests.testing.histories.executions import Execution, by_hand, done, numbers


def parity(message: object) -> object:
    assert isinstance(message, int)
    return message % 2


CHECKER = QueueChecker(order_by=parity)


class Belt:
    """The reference: a queue."""

    def __init__(self) -> None:
        self.messages: list[object] = []

    def apply(self, function: str, value: object) -> object:
        if function == "enqueue":
            self.messages.append(value)
            return value
        return self.messages.pop(0) if self.messages else None


def history_of(belt: Belt, random: Random) -> OperationHistory:
    """All that was enqueued is drained in the end."""
    number = numbers()

    def ask(random: Random) -> tuple[str, object]:
        return ("dequeue", None) if random.random() < 0.4 else ("enqueue", next(number))

    history = Execution(random, belt.apply).run(ask, 40)
    done(history, "c0", "drain", None, belt.messages)
    return history


def rules(checker: QueueChecker, history: OperationHistory) -> list[HistoryRule]:
    return [one.rule for one in checker.judge(history).contradictions]


@settings(max_examples=30)
@given(st.randoms(use_true_random=True))
def test_a_queue_that_loses_and_doubles_nothing_is_accepted(random: Random) -> None:
    CHECKER.check(history_of(Belt(), random))


@settings(max_examples=30)
@given(st.randoms(use_true_random=True), st.sampled_from(HistoryRule))
def test_each_planted_fault_is_found(random: Random, rule: HistoryRule) -> None:
    history = history_of(Belt(), random)
    unknown = sum(one.function == "dequeue" and not one.is_ok for one in history.operations)
    first, second = 1001, 1003
    match rule:
        case HistoryRule.LOST:
            for number in range(unknown + 1):
                done(history, "c0", "enqueue", first + number)
        case HistoryRule.DUPLICATE:
            done(history, "c0", "enqueue", first)
            done(history, "c1", "dequeue", None, first)
            done(history, "c2", "dequeue", None, first)
        case HistoryRule.INVENTED:
            done(history, "c0", "dequeue", None, first)
        case HistoryRule.ABORTED:
            history.invoke("c0", "enqueue", first).fail()
            done(history, "c0", "dequeue", None, first)
        case HistoryRule.OUT_OF_ORDER:
            for number in (first, second):
                done(history, "c0", "enqueue", number)
            for number in (second, first):
                done(history, "c1", "dequeue", None, number)
        case _:
            return
    assert rule in rules(CHECKER, history)


def test_a_message_that_comes_out_twice_is_told_with_both_times() -> None:
    history = by_hand()
    done(history, "a", "enqueue", "mail")
    done(history, "b", "dequeue", None, "mail")
    done(history, "c", "dequeue", None, "mail")
    with pytest.raises(ContradictionError) as caught:
        QueueChecker().check(history)
    assert str(caught.value) == (
        "DUPLICATE: b dequeued 'mail', and then c dequeued it, which was enqueued once; "
        "but what was written once is there once\n"
        ">      0     0.000000 s to     1.000000 s  a: enqueue 'mail'\n"
        ">      2     2.000000 s to     3.000000 s  b: dequeue gave 'mail'\n"
        ">      4     4.000000 s to     5.000000 s  c: dequeue gave 'mail'"
    )
    QueueChecker(at_most_once=False).check(history)


def test_a_message_is_missing_only_where_it_has_to_come_out() -> None:
    history = by_hand()
    done(history, "a", "enqueue", 1)
    done(history, "b", "dequeue", None, None)
    assert rules(QueueChecker(), history) == [HistoryRule.LOST]
    QueueChecker(at_least_once=False).check(history)
    history.invoke("b", "dequeue").info()
    QueueChecker().check(history)
    done(history, "a", "enqueue", 2)
    first, _ = QueueChecker().judge(history).contradictions
    assert first.text == (
        "a enqueued 1, it was acknowledged, and nobody dequeued it; 2 are missing, and operations "
        "with an unknown outcome can have taken only 1"
    )
    history.invoke("b", "drain").info()
    QueueChecker().check(history)


def test_a_message_that_is_sent_again_may_come_out_once_for_each_attempt() -> None:
    history = by_hand()
    history.invoke("a", "enqueue", 1).info()
    history.invoke("a", "enqueue", 1).fail()
    done(history, "a", "enqueue", 1)
    for _ in range(2):
        done(history, "b", "dequeue", None, 1)
    QueueChecker().check(history)
    done(history, "b", "dequeue", None, 1)
    [found] = QueueChecker().judge(history).contradictions
    assert found.text == "b dequeued 1 twice, which was enqueued 2 times"


def test_order_counts_within_a_key_and_where_one_was_surely_first() -> None:
    history = by_hand()
    done(history, "a", "enqueue", 1)
    done(history, "a", "enqueue", 2)
    together = history.invoke("a", "enqueue", 3)
    done(history, "b", "enqueue", 5)
    together.ok()
    done(history, "c", "drain", None, [2, 1, 5, 3])
    CHECKER.check(history)
    done(history, "a", "enqueue", 4)
    done(history, "a", "enqueue", 6)
    done(history, "c", "drain", None, [6, 4])
    [found] = CHECKER.judge(history).contradictions
    assert found.text == (
        "4 was enqueued before 6, with the same key 0, and c dequeued 6 before c dequeued 4"
    )


def test_a_message_that_comes_out_before_it_is_put_in_is_invented() -> None:
    history = by_hand()
    done(history, "b", "dequeue", None, 1)
    done(history, "a", "enqueue", 1)
    [found] = QueueChecker().judge(history).contradictions
    assert found.text == "b dequeued 1 before a enqueued it"
