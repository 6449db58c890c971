"""Checks histories of lists that are appended to: what Elle finds in its ``list-append`` histories
(Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations", 2020),
for transactions on one list.

The longest read of a list is the order of its appends, and each read is the beginning of it.  So
each part of a transaction has a *slot* in one line: the append of the n-th element has slot 2n, a
read of n elements has slot 2n+1, and appends that no read has share a slot behind all others.  In a
history of transactions on one list, each dependency of Elle's graph (ww, wr and rw) leads from a
lower slot to a higher one.  A cycle therefore shows in one of two ways:

- Between the first and the last slot of a transaction there is one of another.
- A transaction with higher slots was over before one with lower slots began (an edge of real time).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Final, cast

import attrs

from octopi.testing.errors import MisuseError
from octopi.testing.histories.contradictions import (
    Contradiction,
    HistoryChecker,
    HistoryRule,
    Judgement,
    by_key,
    contradiction,
    elements_of,
    frozen,
    judged,
)
from octopi.testing.histories.operation_history import ClientOperation, OperationHistory, shown

_FUNCTIONS: Final = ("append", "read", "txn")


@attrs.frozen
class AppendListChecker(HistoryChecker):
    """Each list has what was appended to it, in one order that all reads agree about.

    Functions: ``append`` with an element; ``read``, which returns the list; and ``txn``, a
    transaction on one list: pairs, ``("append", element)`` and ``("read", None)``, and as its
    result the same pairs with what the reads returned.  Each element of a list is appended once.
    """

    allow_stale: bool = False
    """Whether a read may lack elements that a later one has, as from a replica that lags."""

    def judge(self, history: OperationHistory) -> Judgement:
        found: list[Contradiction] = []
        for key, operations in by_key(history, _FUNCTIONS, "AppendListChecker").items():
            found += _ListCheck(key, operations, allow_stale=self.allow_stale).contradictions()
        return judged(found)


@attrs.define(eq=False)
class _Transaction:
    operation: ClientOperation
    steps: list[tuple[str, object]]
    """Functions and values: elements that were appended, lists that were read."""
    slots: list[int] = attrs.field(factory=list[int])
    """Of all steps that surely happened, in their order."""

    appended: list[Hashable] = attrs.field(init=False)
    """The elements that it appends."""
    reads: list[list[Hashable]] = attrs.field(init=False)
    """What it has read."""

    def __attrs_post_init__(self) -> None:
        self.appended = [frozen(value) for name, value in self.steps if name == "append"]
        read = [value for name, value in self.steps if name == "read" and self.operation.is_ok]
        self.reads = [elements_of(self.operation, value) for value in read]

    @property
    def span(self) -> tuple[int, int]:
        """Its first and its last slot."""
        return min(self.slots), max(self.slots)


class _ListCheck:
    """The check of one list."""

    def __init__(
        self, key: Hashable, operations: list[ClientOperation], *, allow_stale: bool
    ) -> None:
        self._key = key
        self._allow_stale = allow_stale
        self._transactions = [_Transaction(one, _steps(one)) for one in operations]
        self._writers: dict[Hashable, _Transaction] = {}
        for one in self._transactions:
            for element in one.appended:
                if element in self._writers:
                    raise MisuseError(
                        f"{one.operation}: {shown(element)} was appended before by "
                        f"{self._writers[element].operation}; append each element once, so that "
                        "a read tells which appends it has seen"
                    )
                self._writers[element] = one
        self._order: list[Hashable] = []
        """The longest read."""
        self._longest: ClientOperation | None = None
        self._unseen_slot = 0

    def contradictions(self) -> Iterator[Contradiction]:
        broken = list(self._reads())
        yield from broken
        if any(one.rule in (HistoryRule.INCOMPATIBLE, HistoryRule.DUPLICATE) for one in broken):
            return  # there is no order to compare others with
        self._place()
        placed = [one for one in self._transactions if one.slots]
        interleaved = list(self._interleaved(placed))
        yield from interleaved
        yield from self._lost(placed)
        if not interleaved:
            yield from self._out_of_order(placed)

    def _reads(self) -> Iterator[Contradiction]:
        """Check that reads agree, and show only what was appended."""
        checked: set[Hashable] = set()
        for one in sorted(self._transactions, key=lambda one: one.operation.ended):
            for read in one.reads:
                if read[: len(self._order)] == self._order:
                    new = read[len(self._order) :]
                    self._order, self._longest = read, one.operation
                    yield from self._duplicates(one, read, new)
                elif read != self._order[: len(read)]:
                    yield self._incompatible(one, read)
                    new = read
                else:
                    continue
                for element in new:
                    if element not in checked:
                        checked.add(element)
                        yield from self._unexpected(one, element)

    def _duplicates(
        self, one: _Transaction, read: list[Hashable], new: list[Hashable]
    ) -> Iterator[Contradiction]:
        counts = Counter(read) if len(set(read)) < len(read) else {}
        for element in dict.fromkeys(new):
            if counts.get(element, 0) > 1:
                text = f"{one.operation.process} read {shown(element)} {counts[element]} times"
                yield self._of(HistoryRule.DUPLICATE, text, self._writer(element), one.operation)

    def _incompatible(self, one: _Transaction, read: list[Hashable]) -> Contradiction:
        assert self._longest is not None
        pairs = enumerate(zip(read, self._order, strict=False))
        place, (here, there) = next(pair for pair in pairs if pair[1][0] != pair[1][1])
        text = f"behind {place} elements {one.operation.process} read {shown(here)}, and "
        text += f"{self._longest.process} read {shown(there)}"
        return self._of(HistoryRule.INCOMPATIBLE, text, self._longest, one.operation)

    def _unexpected(self, one: _Transaction, element: Hashable) -> Iterator[Contradiction]:
        reader, writer = one.operation, self._writer(element)
        what = f"{reader.process} read {shown(element)}"
        if writer is None or writer.invoked > reader.ended:
            text = f"{what}, which nobody had begun to append"
            yield self._of(HistoryRule.INVENTED, text, writer, reader)
        elif not writer.may_have_happened:
            text = f"{what}, which {writer.process} failed to append"
            yield self._of(HistoryRule.ABORTED, text, writer, reader)

    def _place(self) -> None:
        """Give each step its slot."""
        places = {element: 2 * (at + 1) for at, element in enumerate(self._order)}
        self._unseen_slot = 2 * (len(self._order) + 1)
        for one in self._transactions:
            is_seen = any(element in places for element in one.appended)
            if not one.operation.is_ok and not is_seen:
                continue
            appended, reads = iter(one.appended), iter(one.reads)
            for function, _ in one.steps:
                if function == "append":
                    one.slots.append(places.get(next(appended), self._unseen_slot))
                elif one.operation.is_ok:
                    one.slots.append(2 * len(next(reads)) + 1)

    def _interleaved(self, placed: list[_Transaction]) -> Iterator[Contradiction]:
        """Check that nothing lies between two steps of a transaction."""
        taken: list[tuple[int, ...]] = sorted(
            (slot, one.operation.invoked) for one in placed for slot in one.slots
        )
        by_number = {one.operation.invoked: one for one in placed}
        first_unseen: _Transaction | None = None
        for one in placed:
            low, high = one.span
            if low == high:
                continue
            begin, end = bisect_left(taken, (low + 1,)), bisect_left(taken, (high,))
            inner = [
                (slot, by_number[number])
                for slot, number in taken[begin:end]
                if number != one.operation.invoked
            ]
            if inner:
                yield self._between(one, *inner[0])
            elif one.slots != sorted(one.slots):
                text = f"{one.operation.process} doesn't see its own steps in their order: "
                text += shown(one.steps)
                yield self._of(HistoryRule.INTERLEAVED, text, one.operation)
            elif high == self._unseen_slot and low == high - 1:
                if first_unseen is not None:
                    first, second = first_unseen.operation, one.operation
                    text = f"{first.process} and {second.process} both read the "
                    text += f"{len(self._order)} elements before they appended"
                    yield self._of(HistoryRule.INTERLEAVED, text, first, second)
                first_unseen = first_unseen or one

    def _between(self, one: _Transaction, slot: int, other: _Transaction) -> Contradiction:
        who, whom = other.operation.process, one.operation.process
        if slot % 2:
            text = f"{who} read a part of what {whom} appended in one transaction"
            return self._of(HistoryRule.INTERMEDIATE, text, one.operation, other.operation)
        element = (
            shown(self._order[slot // 2 - 1])
            if slot != self._unseen_slot
            else shown(other.appended)
        )
        text = f"{who} appended {element} between two steps of {whom}"
        return self._of(HistoryRule.INTERLEAVED, text, one.operation, other.operation)

    def _lost(self, placed: list[_Transaction]) -> Iterator[Contradiction]:
        """Check that appends that no read has were not acknowledged before a read, or before an
        append that was read."""
        seen = [one for one in placed if one.span[0] < self._unseen_slot]
        seen.sort(key=lambda one: one.operation.invoked)
        seen_elements = set(self._order)
        begins = [one.operation.invoked for one in seen]
        for one in placed:
            if one.span[1] < self._unseen_slot or not one.operation.is_ok:
                continue
            for other in seen[bisect_right(begins, one.operation.ended) :][:1]:
                lost = [element for element in one.appended if element not in seen_elements]
                text = f"{one.operation.process} appended {shown(lost[0])}, then "
                if other.reads:
                    text += (
                        f"{other.operation.process} read the list without it, and no read has it"
                    )
                else:
                    text += f"{other.operation.process} appended {shown(other.appended[0])}, which "
                    text += "was read, and no read has the first one"
                yield self._of(HistoryRule.LOST, text, one.operation, other.operation)

    def _out_of_order(self, placed: list[_Transaction]) -> Iterator[Contradiction]:
        """Check that no transaction was over before one began that lies before it."""
        seen = [one for one in placed if one.span[1] < self._unseen_slot]
        by_end = sorted(
            (one for one in seen if one.operation.is_ok), key=lambda one: one.operation.ended
        )
        taken = 0
        farthest: _Transaction | None = None
        for one in sorted(seen, key=lambda one: one.operation.invoked):
            while taken < len(by_end) and by_end[taken].operation.ended < one.operation.invoked:
                if farthest is None or by_end[taken].span > farthest.span:
                    farthest = by_end[taken]
                taken += 1
            if farthest is None or one.span >= farthest.span:
                continue
            if not one.appended and not self._allow_stale:
                yield self._stale(farthest, one)
            elif one.appended and farthest.appended:
                # If the first one only read, `_unexpected` has told.
                yield self._reversed(farthest, one)

    def _stale(self, first: _Transaction, second: _Transaction) -> Contradiction:
        before, after = first.operation, second.operation
        verb = "appended" if first.appended else "read"
        last = self._order[first.span[1] // 2 - 1]
        text = f"{before.process} {verb} {shown(last)}, then {after.process} read the list "
        text += "without it"
        return self._of(HistoryRule.STALE, text, before, after)

    def _reversed(self, first: _Transaction, second: _Transaction) -> Contradiction:
        before, after = first.operation, second.operation
        text = f"{before.process} appended {shown(first.appended[0])}, then {after.process} "
        text += f"appended {shown(second.appended[0])}, which lies before it"
        return self._of(HistoryRule.OUT_OF_ORDER, text, before, after)

    def _writer(self, element: Hashable) -> ClientOperation | None:
        writer = self._writers.get(element)
        return None if writer is None else writer.operation

    def _of(
        self, rule: HistoryRule, text: str, *operations: ClientOperation | None
    ) -> Contradiction:
        return contradiction(rule, text, *operations, key=self._key)


def _steps(operation: ClientOperation) -> list[tuple[str, object]]:
    """What *operation* does, step by step; values are those of its result, if it has one."""
    value = operation.result if operation.is_ok else operation.value
    if operation.function == "append":
        return [("append", operation.value)]
    if operation.function == "read":
        return [("read", value)]
    pairs = cast("list[object]", list(value)) if isinstance(value, list | tuple) else []
    return [_step(operation, pair) for pair in pairs]


def _step(operation: ClientOperation, pair: object) -> tuple[str, object]:
    match pair:
        case (("append" | "read") as function, value):
            return str(function), value
        case _:
            raise MisuseError(
                f'{operation}: a transaction is a list of pairs, ("append", element) or '
                f'("read", None), not {shown(pair)}'
            )
