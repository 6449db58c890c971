"""What contradicts what in a history, and the interface of all checkers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from enum import Enum
from math import inf
from typing import Final, cast

import attrs

from octopi.testing.errors import MisuseError
from octopi.testing.histories.operation_history import (
    ClientOperation,
    OperationHistory,
    OperationStatus,
    shown,
)

_SHOWN_CONTRADICTIONS_MAX: Final = 5
_PLAIN: Final = frozenset({bool, int, float, str, bytes, type(None)})
"""Types whose values are frozen already."""


class HistoryRule(Enum):
    """The rule that a contradiction breaks.  The text says what holds if the rule is kept."""

    LOST = "what was acknowledged is there afterwards"
    STALE = "what was acknowledged, or was seen, is seen by whoever looks afterwards"
    INVENTED = "what is seen was written by an operation that had begun"
    ABORTED = "what surely failed is seen nowhere"
    DUPLICATE = "what was written once is there once"
    OUT_OF_ORDER = "what was written after something else was acknowledged lies behind that"
    TOO_LOW = "a counter is at least the sum of what was surely added"
    TOO_HIGH = "a counter is at most the sum of what was possibly added"
    NOT_LINEARIZABLE = (
        "there is an order of all operations, each between its beginning and its end, in which "
        "each one reads what was written last before it"
    )
    INCOMPATIBLE = "of two reads of a list one is the beginning of the other"
    INTERMEDIATE = "a transaction is seen as a whole or not at all"
    INTERLEAVED = "nothing happens between two parts of a transaction"


@attrs.frozen
class Contradiction:
    """Operations of which one can't be true if the others are."""

    rule: HistoryRule
    text: str
    """What was observed, in words."""
    operations: tuple[ClientOperation, ...]
    """The operations in conflict, in the order in which they began."""
    key: Hashable = None
    """The object that they are about, if there are several."""

    def __str__(self) -> str:
        where = "" if self.key is None else f" in {shown(self.key)}"
        return f"{self.rule.name}{where}: {self.text}; but {self.rule.value}"

    def explain(self) -> str:
        """The contradiction, then its operations, one in each line: the number of its first event,
        when it began and ended, and what it was."""
        lines = [str(self)]
        for one in self.operations:
            is_over = one.status in (OperationStatus.OK, OperationStatus.FAIL)
            end = f"{one.ended_s:12.6f} s" if is_over else "       unknown"
            lines.append(f"> {one.invoked:6} {one.invoked_s:12.6f} s to {end}  {one}")
        return "\n".join(lines)


def contradiction(
    rule: HistoryRule, text: str, *operations: ClientOperation | None, key: Hashable = None
) -> Contradiction:
    """A contradiction between *operations*, without those that are None, each once."""
    ordered = sorted({one.invoked: one for one in operations if one is not None}.items())
    return Contradiction(rule, text, tuple(one for _, one in ordered), key)


@attrs.frozen
class Judgement:
    """What a checker found in a history."""

    contradictions: tuple[Contradiction, ...]
    """In the order in which they became visible."""
    undecided: tuple[str, ...] = ()
    """Parts of the history that the checker gave up, and why."""

    @property
    def is_valid(self) -> bool | None:
        """Whether the history is as the checker expects; None if that is undecided."""
        if self.contradictions:
            return False
        return None if self.undecided else True

    def __str__(self) -> str:
        explained = [one.explain() for one in self.contradictions[:_SHOWN_CONTRADICTIONS_MAX]]
        left = len(self.contradictions) - len(explained)
        more = [f"and {left} more contradictions"] if left > 0 else []
        return "\n".join([*explained, *more, *self.undecided]) or "there is no contradiction"


class ContradictionError(AssertionError):
    """A history contradicts itself; the text has the operations in conflict."""

    def __init__(self, judgement: Judgement) -> None:
        super().__init__(str(judgement))
        self.judgement = judgement


class UndecidedError(Exception):
    """A history is too large to be judged; the text says what to do.  The program under test may be
    right or wrong."""

    def __init__(self, judgement: Judgement) -> None:
        super().__init__(str(judgement))
        self.judgement = judgement


class HistoryChecker(ABC):
    """Judges histories of one kind of object.  A checker keeps no state between histories."""

    @abstractmethod
    def judge(self, history: OperationHistory) -> Judgement:
        """What contradicts what in *history*.

        Raises:
          MisuseError: if *history* has an operation that this checker doesn't know.
        """

    def check(self, history: OperationHistory) -> None:
        """Judge *history*, and fail the test if it is not as expected.

        Raises:
          ContradictionError: an assertion error, if there are contradictions.
          UndecidedError: if there are none, and a part of the history is too large to be judged.
          MisuseError: if *history* has an operation that this checker doesn't know.
        """
        judgement = self.judge(history)
        if judgement.contradictions:
            raise ContradictionError(judgement)
        if judgement.undecided:
            raise UndecidedError(judgement)


def judged(found: Iterable[Contradiction], undecided: Iterable[str] = ()) -> Judgement:
    """A judgement with the contradictions *found*, in the order in which they became visible."""
    ordered = sorted(found, key=lambda one: _visible(one.operations))
    return Judgement(tuple(ordered), tuple(undecided))


def _visible(operations: tuple[ClientOperation, ...]) -> tuple[float, ...]:
    """When the last of *operations* ended or, if its outcome is unknown, began."""
    ends = (one.invoked if one.ended == inf else one.ended for one in operations)
    return max(ends, default=-1), *(one.invoked for one in operations)


def by_key(
    history: OperationHistory, functions: Iterable[str], checker: str
) -> dict[Hashable, list[ClientOperation]]:
    """The operations of *history* that may have happened or failed, by key, in the order in which
    they began.

    Raises:
      MisuseError: if the function of one is not among *functions*, those of *checker*.
    """
    known = set(functions)
    found: dict[Hashable, list[ClientOperation]] = {}
    for one in history.operations:
        if one.function not in known:
            raise MisuseError(
                f"{checker} knows the functions {', '.join(sorted(known))}, and not: {one}"
            )
        found.setdefault(one.key, []).append(one)
    return found


def elements(operation: ClientOperation) -> list[Hashable]:
    """The elements that *operation* read, each as `frozen` makes it.  Don't change the list.

    Raises:
      MisuseError: if its result is no collection.
    """
    return elements_of(operation, operation.result)


def elements_of(operation: ClientOperation, value: object) -> list[Hashable]:
    """The elements in *value*, which is a part of what *operation* read.  Don't change the list.

    Raises:
      MisuseError: if it is no collection.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise MisuseError(f"{operation}: its result has to be a collection of what was read")
    found = cast("list[object]", value if isinstance(value, list) else list(value))
    if _PLAIN.issuperset(map(type, found)):
        return found
    return [frozen(one) for one in found]


def frozen(value: object) -> Hashable:
    """*value* in a form that can be compared and be a key: lists become tuples.

    Raises:
      MisuseError: if there is no such form.
    """
    if isinstance(value, list | tuple):
        return tuple(frozen(one) for one in cast("Iterable[object]", value))
    if isinstance(value, set):
        return frozenset(frozen(one) for one in cast("Iterable[object]", value))
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value).items()
        return frozenset((frozen(name), frozen(one)) for name, one in pairs)
    try:
        hash(value)
    except TypeError:
        raise MisuseError(
            f"{shown(value)} can't be told from others: note values that have a hash"
        ) from None
    return value
