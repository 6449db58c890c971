"""Checks histories of registers: variables that are read, written, and compared and set.

These have nothing to do with the register of a cluster.  The word is that of the literature on
linearizability, of Knossos and of Porcupine.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final, Literal, cast

import attrs

from octopi.testing.errors import MisuseError
from octopi.testing.histories.contradictions import (
    Contradiction,
    HistoryChecker,
    HistoryRule,
    Judgement,
    by_key,
    contradiction,
    frozen,
    judged,
)
from octopi.testing.histories.linearizability import (
    Impossible,
    RegisterStep,
    TooLargeError,
    find_impossible,
)
from octopi.testing.histories.operation_history import ClientOperation, OperationHistory, shown

_FUNCTIONS: Final = ("read", "write", "cas")

STEPS_MAX: Final = 2_000_000
"""For each key.  So many take two to seven seconds."""


@attrs.frozen
class RegisterChecker(HistoryChecker):
    """Each register is linearizable: its operations have an order, each between its beginning and
    its end, in which each read returns what was written last.

    Functions: ``read``, which returns the value; ``write`` with a value; and ``cas``, compare and
    set, with a pair: what the register has to hold, and what it holds afterwards.  A ``cas`` that
    found something else has failed.  A program that reads a value and then writes one that depends
    on it is noted as one ``cas``: as a read and a write by themselves they may be far apart.

    Each key is searched by itself.  One that takes more than *steps_max* steps is undecided.  The
    number of steps grows with the number of writes that go on at the same time, not with the length
    of the history.
    """

    initial: Hashable = None
    """What a register holds at first."""
    steps_max: int = STEPS_MAX
    """The number of steps, for each key, after which the search is given up."""

    def judge(self, history: OperationHistory) -> Judgement:
        found: list[Contradiction] = []
        undecided: list[str] = []
        for key, operations in by_key(history, _FUNCTIONS, "RegisterChecker").items():
            steps = [step for one in operations if (step := _step(one)) is not None]
            unwritten = list(self._unwritten(key, steps))
            found += unwritten
            if unwritten:
                continue
            try:
                impossible = find_impossible(_needed(steps), frozen(self.initial), self.steps_max)
            except TooLargeError:
                where = "" if key is None else f" in {shown(key)}"
                undecided.append(
                    f"undecided{where}: {len(steps)} operations take more than {self.steps_max} "
                    "steps; use more keys, let fewer operations go on at the same time, write "
                    "values that differ, or raise steps_max"
                )
                continue
            if impossible is not None:
                found.append(self._explained(key, impossible, steps))
        return judged(found, undecided)

    def _unwritten(self, key: Hashable, steps: list[RegisterStep]) -> Iterator[Contradiction]:
        """What was found in the register, and nobody had begun to write."""
        possible: dict[Hashable, list[ClientOperation]] = {}
        failed: dict[Hashable, ClientOperation] = {}
        for step in steps:
            if step.function != "read" and step.operation.may_have_happened:
                possible.setdefault(step.written, []).append(step.operation)
            elif step.function != "read":
                failed.setdefault(step.written, step.operation)
        for step in steps:
            one, value = step.operation, step.expected
            if step.function == "write" or not one.is_ok or value == frozen(self.initial):
                continue
            writer = next((other for other in possible.get(value, ()) if other is not one), None)
            if writer is not None and writer.invoked < one.ended:
                continue
            text = f"{one.process} {_found(step)}, which nobody had begun to write"
            rule = HistoryRule.INVENTED
            if value in failed:
                rule = HistoryRule.ABORTED
                text = f"{one.process} {_found(step)}, which {failed[value].process} failed to "
                text += "write"
            yield contradiction(rule, text, failed.get(value, writer), one, key=key)

    def _explained(
        self, key: Hashable, impossible: Impossible, steps: list[RegisterStep]
    ) -> Contradiction:
        step, held = impossible.step, impossible.held
        one = step.operation
        writers = [
            other.operation
            for other in steps
            if other.function != "read"
            and other.written == step.expected
            and other.operation is not one
            and other.operation.invoked < one.ended
        ]
        writer = writers[-1] if writers else None
        values = sorted({shown(value) for value in held})
        text = f"{one.process} {_found(step)}, "
        text += f"written by {writer.process}" if writer else "its initial value"
        text += f", and in every order of what was before it holds {' or '.join(values)}"
        other = next((one for one in held.values() if one is not None), None)
        if other is not None:
            text += f", written by {other.process}"
        return contradiction(HistoryRule.NOT_LINEARIZABLE, text, writer, other, one, key=key)


def _found(step: RegisterStep) -> str:
    if step.function == "read":
        return f"read {shown(step.expected)}"
    return f"replaced {shown(step.expected)} by {shown(step.written)}"


def _step(operation: ClientOperation) -> RegisterStep | None:
    """What *operation* does; None for a read that returned nothing."""
    function = cast("Literal['read', 'write', 'cas']", operation.function)
    if function == "read":
        result = frozen(operation.result)
        return RegisterStep(operation, function, result, None) if operation.is_ok else None
    if function == "write":
        return RegisterStep(operation, function, None, frozen(operation.value))
    value = operation.value
    pair = cast("list[object]", list(value)) if isinstance(value, list | tuple) else []
    if len(pair) != 2:
        raise MisuseError(
            f"{operation}: cas takes a pair, what the register has to hold and what it holds then"
        )
    return RegisterStep(operation, function, frozen(pair[0]), frozen(pair[1]))


def _needed(steps: list[RegisterStep]) -> list[RegisterStep]:
    """*steps* without those that failed, and without writes that need not have happened because
    nobody found what they wrote."""
    possible = [one for one in steps if one.operation.may_have_happened]
    found = {one.expected for one in possible if one.function != "write"}
    return [one for one in possible if one.operation.is_ok or one.written in found]
