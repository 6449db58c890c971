"""Checks histories of sets that only grow: Jepsen's ``checker/set-full``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Final

import attrs

from octopi.testing.histories.contradictions import (
    Contradiction,
    HistoryChecker,
    HistoryRule,
    Judgement,
    by_key,
    contradiction,
    elements,
    frozen,
    judged,
)
from octopi.testing.histories.operation_history import ClientOperation, OperationHistory, shown

_FUNCTIONS: Final = ("add", "read")


@attrs.frozen
class SetChecker(HistoryChecker):
    """What was added to a set stays there, and nothing else is there.

    Functions: ``add`` with an element, and ``read``, which returns all elements: as a list, if the
    check should find an element that is there twice.  An element is known from the moment when its
    ``add``, or a read that has it, is over.  A read that begins later and lacks it is *stale* if a
    later read has it again, else the element is *lost*.
    """

    allow_stale: bool = False
    """Whether a read may lack elements that a later one has."""

    def judge(self, history: OperationHistory) -> Judgement:
        found: list[Contradiction] = []
        for key, operations in by_key(history, _FUNCTIONS, "SetChecker").items():
            found += _SetSweep(key, operations, allow_stale=self.allow_stale).contradictions()
        return judged(found)


class _SetSweep:
    """Goes through the events of one set in their order."""

    def __init__(
        self, key: Hashable, operations: list[ClientOperation], *, allow_stale: bool
    ) -> None:
        self._key = key
        self._allow_stale = allow_stale
        self._adds: dict[Hashable, list[ClientOperation]] = {}
        self._reads: list[tuple[ClientOperation, list[Hashable]]] = []
        """All reads, in the order in which they began."""
        self._known: dict[Hashable, ClientOperation] = {}
        """Elements by the operation that made them known, in that order."""
        self._missing: dict[Hashable, list[int]] = {}
        """For elements that are missing in reads, the positions of these reads."""
        self._operations = operations

    def contradictions(self) -> Iterator[Contradiction]:
        events: list[tuple[float, bool, int, ClientOperation]] = []
        for one in self._operations:
            if one.function == "add":
                self._adds.setdefault(frozen(one.value), []).append(one)
                if one.is_ok:
                    events.append((one.ended, False, -1, one))
            elif one.is_ok:
                read = elements(one)
                if len(set(read)) < len(read):
                    yield from self._duplicates(one, read)
                events.append((one.invoked, True, len(self._reads), one))
                events.append((one.ended, False, len(self._reads), one))
                self._reads.append((one, read))
        known_counts: dict[int, int] = {}
        order: list[Hashable] = []
        for _, is_beginning, position, one in sorted(events, key=lambda event: event[0]):
            if is_beginning:
                known_counts[position] = len(order)
                continue
            if position < 0:
                found = {frozen(one.value)}
            else:
                found = set(self._reads[position][1])
                for element in set(order[: known_counts[position]]) - found:
                    self._missing.setdefault(element, []).append(position)
            new = found - self._known.keys()
            for element in new:
                self._known[element] = one
            order += new
            if position >= 0:
                yield from self._unexpected(one, new)
        for element in sorted(self._missing, key=lambda one: (self._known[one].ended, repr(one))):
            yield from self._absent(element, sorted(self._missing[element]))

    def _duplicates(self, one: ClientOperation, read: list[Hashable]) -> Iterator[Contradiction]:
        for element, count in Counter(read).items():
            if count > 1:
                text = f"{one.process} read {shown(element)} {count} times"
                adds = self._adds.get(element, [])[:1]
                yield contradiction(HistoryRule.DUPLICATE, text, *adds, one, key=self._key)

    def _unexpected(self, one: ClientOperation, new: set[Hashable]) -> Iterator[Contradiction]:
        """Check the elements that a read is the first to show."""
        for element in sorted(new, key=repr):
            adds = self._adds.get(element, [])
            if any(add.may_have_happened and add.invoked < one.ended for add in adds):
                continue
            failed = [add for add in adds if not add.may_have_happened][:1]
            rule = HistoryRule.ABORTED if failed else HistoryRule.INVENTED
            why = "which failed to be added" if failed else "which nobody had begun to add"
            text = f"{one.process} read {shown(element)}, {why}"
            yield contradiction(rule, text, *(failed or adds[:1]), one, key=self._key)

    def _absent(self, element: Hashable, positions: list[int]) -> Iterator[Contradiction]:
        """Tell whether *element*, which is missing in the reads at *positions*, is lost or was
        missing for a time."""
        known, last = self._known[element], self._reads[positions[-1]][0]
        again = next(
            (read for read, seen in self._reads if read.ended > last.invoked and element in seen),
            None,
        )
        verb = "acknowledged to" if known.function == "add" else "read by"
        text = f"{shown(element)} was {verb} {known.process}, then {last.process} read the set "
        text += "without it"
        if len(positions) > 1:
            text += f", the last of {len(positions)} reads that lack it"
        if again is None:
            text += ", and no later read has it"
            yield contradiction(HistoryRule.LOST, text, known, last, key=self._key)
        elif not self._allow_stale:
            text += f", and {again.process} read it again"
            yield contradiction(HistoryRule.STALE, text, known, last, again, key=self._key)
