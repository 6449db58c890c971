"""A register is linearizable: read, written, compared and set in one order."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from octopi.testing import (
    ClientOperation,
    ContradictionError,
    HistoryRule,
    MisuseError,
    OperationHistory,
    RegisterChecker,
    UndecidedError,
)
from tests.testing.histories.executions import Execution, by_hand, done

CHECKER = RegisterChecker(initial=0)


class Variable:
    """The reference.  The result of a ``cas`` that found something else is "refused"."""

    def __init__(self) -> None:
        self.value: object = 0

    def apply(self, function: str, value: object) -> object:
        match function, value:
            case "write", _:
                self.value = value
            case "cas", (expected, written) if self.value == expected:
                self.value = written
            case "cas", _:
                return "refused"
        return self.value if function == "read" else value


def refuse(history: OperationHistory) -> OperationHistory:
    """*history*, in which each ``cas`` that was refused has failed."""
    copied = OperationHistory(lambda: 0.0)
    ends: list[tuple[float, int, ClientOperation]] = []
    for one in history.operations:
        ends += [(one.invoked, 0, one), (one.ended, 1, one)]
    twins: dict[int, ClientOperation] = {}
    for _, is_end, one in sorted(ends, key=lambda event: event[:2]):
        if not is_end:
            twins[one.invoked] = copied.invoke(one.process, one.function, one.value)
        elif one.is_ok and one.result != "refused":
            twins[one.invoked].ok(one.result)
        elif one.status in ("ok", "fail"):
            twins[one.invoked].fail()
    return copied


def history_of(
    random: Random, count: int, *, values: int, clients: int = 3, unknown: float = 0.1
) -> OperationHistory:
    variable = Variable()

    def ask(random: Random) -> tuple[str, object]:
        match random.choice(["read", "write", "cas"]):
            case "cas":
                return "cas", (random.randrange(values), random.randrange(values))
            case "write":
                return "write", random.randrange(values)
            case _:
                return "read", None

    execution = Execution(random, variable.apply, clients=clients)
    return refuse(execution.run(ask, count, unknown=unknown))


@settings(max_examples=40)
@given(st.randoms(use_true_random=True), st.integers(2, 20))
def test_a_register_in_one_order_is_accepted(random: Random, values: int) -> None:
    CHECKER.check(history_of(random, 60, values=values))


@settings(max_examples=40)
@given(st.randoms(use_true_random=True))
def test_a_read_of_what_was_overwritten_is_found(random: Random) -> None:
    history = history_of(random, 30, values=5)
    done(history, "c0", "write", 98)
    done(history, "c1", "write", 99)
    done(history, "c0", "read", None, 98)
    [found] = CHECKER.judge(history).contradictions
    assert found.rule is HistoryRule.NOT_LINEARIZABLE
    assert [one.function for one in found.operations] == ["write", "write", "read"]


def has_order(operations: list[ClientOperation], value: object) -> bool:
    """Whether any order of *operations* is right on a register with *value*, by trying all."""
    if not any(one.is_ok for one in operations):
        return True
    first_end = min(one.completed for one in operations)
    for number, one in enumerate(operations):
        if one.invoked > first_end:
            continue
        rest = operations[:number] + operations[number + 1 :]
        match one.function, one.value:
            case "write", written:
                after = written
            case "cas", (expected, written) if expected == value:
                after = written
            case "read", _ if one.result == value or not one.is_ok:
                after = value
            case _:
                continue
        if has_order(rest, after):
            return True
    return False


def random_history(random: Random, count: int) -> OperationHistory:
    """Operations that overlap at random, with results that may be wrong."""
    history = by_hand()
    running: list[ClientOperation] = []
    while count or running:
        if count and (not running or random.random() < 0.5):
            count -= 1
            function = random.choice(["read", "read", "write", "cas"])
            value: object = {
                "read": None,
                "write": random.randrange(3),
                "cas": (random.randrange(3), random.randrange(3)),
            }[function]
            running.append(history.invoke(f"c{count}", function, value))
            continue
        one = running.pop(random.randrange(len(running)))
        ending = random.random()
        if ending < 0.1:
            one.fail()
        elif ending < 0.3:
            one.info()
        elif one.function == "read":
            one.ok(random.randrange(3))
        else:
            one.ok()
    return history


@settings(max_examples=300)
@given(st.randoms(use_true_random=True), st.integers(2, 7))
def test_small_histories_are_judged_as_all_their_orders_are(random: Random, count: int) -> None:
    history = random_history(random, count)
    possible = [one for one in history.operations if one.may_have_happened]
    assert CHECKER.judge(history).is_valid is has_order(possible, 0)


def test_a_stale_read_is_told_with_both_writes() -> None:
    history = by_hand()
    done(history, "a", "write", 1, key="hats")
    done(history, "b", "write", 2, key="hats")
    done(history, "c", "read", None, 1, key="hats")
    with pytest.raises(ContradictionError) as caught:
        CHECKER.check(history)
    assert str(caught.value) == (
        "NOT_LINEARIZABLE in 'hats': c read 1, written by a, and in every order of what was "
        "before it holds 2, written by b; but there is an order of all operations, each between "
        "its beginning and its end, in which each one reads what was written last before it\n"
        ">      0     0.000000 s to     1.000000 s  a: write of 'hats' 1\n"
        ">      2     2.000000 s to     3.000000 s  b: write of 'hats' 2\n"
        ">      4     4.000000 s to     5.000000 s  c: read of 'hats' gave 1"
    )


def test_two_programs_that_replace_the_same_value_have_lost_an_update() -> None:
    history = by_hand()
    one, two = history.invoke("a", "cas", (0, 1)), history.invoke("b", "cas", (0, 2))
    one.ok()
    two.ok()
    [found] = CHECKER.judge(history).contradictions
    assert found.text == (
        "b replaced 0 by 2, its initial value, and in every order of what was before it holds 1, "
        "written by a"
    )


def test_what_nobody_wrote_is_not_read() -> None:
    history = by_hand()
    history.invoke("a", "write", 1).fail()
    done(history, "b", "read", None, 1)
    done(history, "b", "read", None, 7)
    aborted, invented = CHECKER.judge(history).contradictions
    assert (aborted.rule, aborted.text) == (
        HistoryRule.ABORTED, "b read 1, which a failed to write",
    )  # fmt: skip
    assert (invented.rule, invented.text) == (
        HistoryRule.INVENTED, "b read 7, which nobody had begun to write",
    )  # fmt: skip


def test_a_write_with_an_unknown_outcome_may_come_at_any_later_time_but_once() -> None:
    history = by_hand()
    history.invoke("a", "write", 1).info("no answer")
    for value in (0, 1):
        done(history, "b", "read", None, value)
    done(history, "b", "write", 0)
    CHECKER.check(history)
    done(history, "b", "read", None, 1)
    with pytest.raises(ContradictionError, match="b read 1, written by a"):
        CHECKER.check(history)


def test_keys_are_searched_by_themselves() -> None:
    history = by_hand()
    done(history, "a", "write", 1, key="hats")
    done(history, "a", "read", None, 0, key="shoes")
    CHECKER.check(history)


def test_a_search_that_grows_too_large_is_undecided_and_says_so() -> None:
    history = by_hand()
    writes = [history.invoke(f"c{one}", "write", one) for one in range(20)]
    for one in writes:
        one.ok()
    done(history, "reader", "read", None, 1)
    done(history, "reader", "read", None, 2)
    judgement = RegisterChecker(steps_max=10_000).judge(history)
    assert judgement.is_valid is None
    with pytest.raises(UndecidedError, match="undecided: 22 operations take more than 10000 steps"):
        RegisterChecker(steps_max=10_000).check(history)


def test_a_compare_and_set_takes_a_pair() -> None:
    history = by_hand()
    done(history, "a", "cas", 3)
    with pytest.raises(MisuseError, match="cas takes a pair"):
        CHECKER.check(history)


def test_a_thousand_operations_of_five_clients_take_few_steps() -> None:
    for unknown, values in ((0.0, 5), (0.0, 1000), (0.05, 1000), (0.02, 50)):
        history = history_of(Random(7), 1_000, values=values, clients=5, unknown=unknown)
        RegisterChecker(initial=0, steps_max=100_000).check(history)
