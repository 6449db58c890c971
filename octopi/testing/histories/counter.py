"""Checks histories of counters: Jepsen's ``checker/counter``, for each counter by itself."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

import attrs

from octopi.testing.errors import MisuseError
from octopi.testing.histories.contradictions import (
    Contradiction,
    HistoryChecker,
    HistoryRule,
    Judgement,
    by_key,
    contradiction,
    judged,
)
from octopi.testing.histories.operation_history import ClientOperation, OperationHistory

_FUNCTIONS: Final = ("add", "read")


@attrs.frozen
class CounterChecker(HistoryChecker):
    """Each read of a counter lies between what was surely and what was possibly added.

    Functions: ``add`` with a number, which may be negative, and ``read``, which returns the sum.
    A counter that only grows is never read with less than an earlier read has seen.  Whether the
    sum is one of some of the numbers is not checked: this takes time in proportion to the history.
    """

    start: float = 0
    """What a counter has at first."""

    def judge(self, history: OperationHistory) -> Judgement:
        found: list[Contradiction] = []
        for key, operations in by_key(history, _FUNCTIONS, "CounterChecker").items():
            found += _Sweep(key, self.start, operations).contradictions()
        return judged(found)


@attrs.define
class _SignedSums:
    """Sums of the positive and of the negative numbers."""

    positive: float = 0
    negative: float = 0

    def add(self, number: float) -> None:
        if number > 0:
            self.positive += number
        else:
            self.negative += number


class _Sweep:
    """Goes through the events of one counter in their order."""

    def __init__(self, key: Hashable, start: float, operations: list[ClientOperation]) -> None:
        self._key = key
        self._start = start
        self._sure = _SignedSums()
        """What was added by operations that are over."""
        self._possible = _SignedSums()
        """What was added by operations that have begun."""
        self._acknowledged: ClientOperation | None = None
        """The addition that was over last."""
        self._greatest: ClientOperation | None = None
        """Of the reads that are over, the one with the greatest result."""
        self._begun: dict[
            int, tuple[_SignedSums, ClientOperation | None, ClientOperation | None]
        ] = {}
        """For each read that is going on what was known when it began."""
        self._operations = [one for one in operations if one.may_have_happened]
        adds = [one for one in self._operations if one.function == "add"]
        self._only_grows = all(_number(one, one.value) >= 0 for one in adds)

    def contradictions(self) -> Iterator[Contradiction]:
        events = [(float(one.invoked), one) for one in self._operations]
        events += [(one.ended, one) for one in self._operations if one.is_ok]
        for number, one in sorted(events, key=lambda event: event[0]):
            is_beginning = number == one.invoked
            if one.function == "add":
                self._add(one, is_beginning=is_beginning)
            elif is_beginning:
                self._begun[one.invoked] = (
                    attrs.evolve(self._sure),
                    self._acknowledged,
                    self._greatest,
                )
            else:
                yield from self._read(one)

    def _add(self, one: ClientOperation, *, is_beginning: bool) -> None:
        (self._possible if is_beginning else self._sure).add(_number(one, one.value))
        if not is_beginning:
            self._acknowledged = one

    def _read(self, one: ClientOperation) -> Iterator[Contradiction]:
        sure, acknowledged, greatest = self._begun.pop(one.invoked)
        value = _number(one, one.result)
        least = self._start + sure.positive + self._possible.negative
        most = self._start + self._possible.positive + sure.negative
        what = f"{one.process} read {value:g}"
        if value < least:
            text = f"{what}, and what was acknowledged before makes at least {least:g}"
            yield self._of(HistoryRule.TOO_LOW, text, one, acknowledged)
        elif value > most:
            text = f"{what}, and all that may have been added until then makes at most {most:g}"
            yield self._of(HistoryRule.TOO_HIGH, text, one, acknowledged)
        elif (
            self._only_grows and greatest is not None and value < _number(greatest, greatest.result)
        ):
            text = f"{what}, after {greatest.process} had read {greatest.result}, and nothing was "
            text += "subtracted"
            yield self._of(HistoryRule.STALE, text, greatest, one)
        before = self._greatest
        if before is None or value > _number(before, before.result):
            self._greatest = one

    def _of(
        self, rule: HistoryRule, text: str, *operations: ClientOperation | None
    ) -> Contradiction:
        return contradiction(rule, text, *operations, key=self._key)


def _number(operation: ClientOperation, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MisuseError(f"{operation}: a counter is added and read as a number, not as {value!r}")
    return value
