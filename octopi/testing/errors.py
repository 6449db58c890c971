"""Errors of a test itself, and of the run that it makes.

None of these is an `octopi.OctopiError`: a program under test may handle those, but must not handle
a mistake of the test that runs it.
"""

from __future__ import annotations

import trio

from octopi.simulation.history.anomalies import Anomaly
from octopi.simulation.history.events import History
from octopi.simulation.kernel.world import Violation


class MisuseError(Exception):
    """The test requests something impossible; the text says what to do instead."""


class NotStruckError(MisuseError):
    """The test has passed, but a fault that it plans has not struck."""


class StuckError(Exception):
    """A condition is not met within its virtual time; the text says which tasks wait, and where."""

    def __init__(self, text: str, promise: str = "") -> None:
        super().__init__(text)
        self.promise = promise
        """What should have happened, in words."""


class HistoryViolation(Violation):
    """The history of the clients breaks a guarantee of the cluster."""

    def __init__(self, fault: Anomaly, history: History) -> None:
        super().__init__(f"history {fault.rule.name}", fault.explain(history))
        self.fault = fault
        self.history = history


def is_verdict(error: BaseException) -> bool:
    """Whether *error* says that a test failed: it isn't skipped, and nobody has interrupted it.

    ``pytest.fail`` and ``pytest.skip`` raise no `Exception` but their own kinds of `BaseException`.
    """
    is_end = isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | trio.Cancelled)
    return not is_end and type(error).__name__ != "Skipped"


def alone(error: BaseException) -> BaseException:
    """The single exception in a group, with the group's notes; *error* itself if it isn't a group
    of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        notes = getattr(error, "__notes__", ())
        error = error.exceptions[0]
        for note in notes:
            error.add_note(note)
    return error
