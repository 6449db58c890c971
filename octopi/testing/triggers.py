"""Actions that wait for a step of a host."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Final

import trio

from octopi.simulation.faults.actions import STEPS
from octopi.testing.errors import MisuseError
from octopi.tracing.step import Step

_CODE: Final = re.compile(r"[A-Z]\d+[a-z]?( .*)?")
"""Matches the text of a step of `octopi.tracing.steps`."""

AtStep = Callable[[str], object]
"""The action at a step; called with the name of the host that takes the step."""


class Trigger:
    """An action that is to happen at a step."""

    def __init__(self, action: AtStep, who: str, occurrence: int) -> None:
        self.action = action
        self.who = who
        self.left = occurrence
        """How many times the step must still be taken."""
        self._happened = trio.Event()

    @property
    def happened(self) -> bool:
        """Whether the action has happened."""
        return self._happened.is_set()

    async def wait(self) -> None:
        """Return when the action has happened."""
        await self._happened.wait()

    def pull(self, host: str) -> None:
        """Run the action: the step was taken on *host*."""
        self._happened.set()
        self.action(host)


def step_text(step: type[Step] | str) -> str:
    """The text of the event of *step*.

    Raises:
      MisuseError: if *step* looks like the code of a step, and there is none of it.
    """
    if not isinstance(step, str):
        return step.text
    if step in STEPS:
        return STEPS[step]
    if step in STEPS.values() or not _CODE.fullmatch(step):
        return step
    code = step.partition(" ")[0]
    edges = [one for one in STEPS if one[:-1] == code]
    near = edges or difflib.get_close_matches(code, STEPS) or list(STEPS)[:3]
    raise MisuseError(
        f"there is no step {step!r}; did you mean {', '.join(near)}? "
        "octopi.tracing.steps has them all"
    )
