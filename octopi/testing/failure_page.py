"""What the page of a failed test says first: what was promised, what was seen instead, the faults
that matter, and the events between which it went wrong.

An assertion of a test names no events of the run.  Its page has the faults that matter in their
place, and the moment at which the test failed.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs

from octopi.simulation.faults.injector import FAULT
from octopi.simulation.kernel.world import Event, Violation
from octopi.simulation.report.formatting import one_line
from octopi.simulation.report.recording import Broken, Happening, Note
from octopi.testing.errors import HistoryViolation, StuckError
from octopi.testing.histories.contradictions import ContradictionError
from octopi.testing.planned_faults import PlannedFault

FAULTS_MAX: Final = 3
"""The most faults that are named as those that matter."""


def broken_of(
    error: BaseException, at: float, happenings: Iterable[Happening], faults: Sequence[PlannedFault]
) -> Broken:
    """What the page says about *error*, with which a test failed at the virtual time *at*.

    *faults*: those of the smallest run that fails in this way; none are known: an empty sequence.
    """
    if isinstance(error, HistoryViolation):
        return Broken.of_history(error.fault, error.history)
    details = "".join(traceback.format_exception(error))
    if isinstance(error, Violation):
        found = Broken.of_violation(error, details)
        if not found.promise and error.events:  # a condition of the test
            what, _, where = found.seen.rpartition(", at ")
            found = attrs.evolve(found, promise=what, seen=f"not so at {where}")
    elif isinstance(error, ContradictionError):
        found = _of_contradiction(error, details)
    else:
        kind, text = type(error).__name__, str(error) or "(no text)"
        where = _line_of(error)
        promise = error.promise if isinstance(error, StuckError) else where
        note = Note(at, one_line(f"the test fails: {text.partition(chr(10))[0]}"), True, "the test")
        found = Broken(kind, promise, text, notes=(note,), details=details)
    struck = _struck(happenings, faults[:FAULTS_MAX])
    return attrs.evolve(found, events=tuple(sorted({*found.events, *struck})))


def _of_contradiction(error: ContradictionError, details: str) -> Broken:
    (first, *_) = error.judgement.contradictions
    notes = [
        Note(one.invoked_s, one_line(f"{one} begins"), True, "an operation of the test")
        for one in first.operations
    ]
    notes.sort(key=lambda note: note.at)
    return Broken(
        first.rule.name, first.rule.value, first.text, notes=tuple(notes), details=details
    )


def _line_of(error: BaseException) -> str:
    """The line of the program that raised *error*; for an assertion, what it asserts."""
    frames = traceback.extract_tb(error.__traceback__)
    if not isinstance(error, AssertionError) or not frames or not frames[-1].line:
        return ""
    last = frames[-1]
    return f"{last.line} ({Path(last.filename).name}, line {last.lineno})"


def _struck(happenings: Iterable[Happening], faults: Sequence[PlannedFault]) -> list[int]:
    """The numbers of the events at which *faults* struck, in their order."""
    left, found = list(faults), []
    for one in happenings:
        if isinstance(one, Event) and one.what == FAULT:
            for fault in left:
                if fault.host == one.host and fault.action == one.facts.get("action"):
                    left.remove(fault)
                    found.append(one.number)
                    break
    return found
