"""What can go wrong with a test rather than in it.

None of these is an `octopi.OctopiError`: a program under test may handle those, and must not
handle a mistake of the test that runs it.
"""

from __future__ import annotations

from octopi.simulation.history.anomalies import Anomaly
from octopi.simulation.history.events import History
from octopi.simulation.kernel.world import Violation


class MisuseError(Exception):
    """The test asks for what can't be; the text says what to do instead."""


class StuckError(Exception):
    """Something doesn't come about in the virtual time that it was given; the text says who
    waits, and where."""


class HistoryViolation(Violation):
    """What clients noted breaks a promise that the cluster makes."""

    def __init__(self, fault: Anomaly, history: History) -> None:
        super().__init__(f"history {fault.rule.name}", fault.explain(history))
        self.fault = fault
        self.history = history


def alone(error: BaseException) -> BaseException:
    """What is in a group of exceptions, if there is one thing in it, with the group's notes;
    else *error* itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        notes = getattr(error, "__notes__", ())
        error = error.exceptions[0]
        for note in notes:
            error.add_note(note)
    return error
