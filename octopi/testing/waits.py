"""Makes steps of the waits of a program, so that faults can strike there.

A wait is an ``await``, ``async for`` or ``async with`` in the program's own code at which a task of
its host has to wait.  It is named by its line, without the number, so that the name stays when
other lines change:

``before LINE``   the task begins to wait
``sends in LINE`` the task itself is about to send something, at that line
``after LINE``    something has happened for which the task waited, and it is about to run again.
                  It may have to wait more than once until its line is done

If the process is ended at ``after``, its task doesn't run on: it ends at its line.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Final

import attrs

from octopi.simulation.kernel import driver
from octopi.simulation.kernel.host import NodeDead, ProcessLife, SimulatedHost
from octopi.simulation.kernel.owners import OWNER
from octopi.simulation.kernel.world import World
from octopi.testing.errors import MisuseError
from octopi.testing.stuck_tasks import is_of_test

if TYPE_CHECKING:
    from trio.lowlevel import Task

BEFORE: Final = "before "
SENDS: Final = "sends in "
AFTER: Final = "after "
PREFIXES: Final = (BEFORE, SENDS, AFTER)
_LINE_LENGTH: Final = 60


def is_wait(step: str) -> bool:
    """Whether *step* is the text of a wait."""
    return step.startswith(PREFIXES)


@attrs.frozen(eq=False)
class _Wait:
    """A task waits at a line of its program."""

    line: str
    frame: FrameType
    instruction: int
    inner: FrameType | None
    """The call that is waited for."""

    def is_same(self, other: _Wait) -> bool:
        """Whether it is the same wait, and not the next one at the same line."""
        return (
            self.frame is other.frame
            and self.inner is other.inner
            and self.instruction == other.instruction
        )


class WaitSteps:
    """Notes the waits of the programs on some hosts in the world, as steps of these programs."""

    def __init__(self, world: World, is_watched: Callable[[str], bool]) -> None:
        self._world = world
        self._is_watched = is_watched
        self._waiting: dict[Task, _Wait] = {}
        self._watched: set[str] = set()
        self.on_done: Callable[[str, str], object] = lambda host, step: None
        """Called with a host, and its step ``after LINE`` that was the last one of its wait."""
        try:
            driver.watch_tasks(self)
        except driver.NoPausesError:
            raise MisuseError(
                "the waits of programs are known only where the simulator turns Trio's loop: use "
                "octopi.testing.run, simulated or crash_points"
            ) from None

    def watch_sends(self, host: SimulatedHost) -> None:
        """Note what the program's own tasks send from *host*, too."""
        if host.name not in self._watched:
            self._watched.add(host.name)
            host.effect_observers.append(self._effect)

    # --- what the driver tells ----------------------------------------------------------

    def will_run(self, task: Task) -> BaseException | None:
        """See `TaskWatcher`."""
        wait = self._waiting.get(task)
        if wait is None:
            return None
        life = task.context[OWNER]
        assert isinstance(life, ProcessLife)
        if not life.is_over:
            self._note(life, f"{AFTER}{wait.line}")
        return NodeDead(life.host.name) if life.is_over else None

    def has_run(self, task: Task) -> None:
        """See `TaskWatcher`."""
        life = task.context.get(OWNER)
        if not isinstance(life, ProcessLife) or not self._is_watched(life.host.name):
            return
        known, wait = self._waiting.get(task), _wait_of(task)
        if known is not None and (wait is None or not wait.is_same(known)):
            self.on_done(life.host.name, f"{AFTER}{known.line}")
        if wait is None:
            self._waiting.pop(task, None)
            return
        self._waiting[task] = wait
        if not life.is_over and (known is None or not wait.is_same(known)):
            self._note(life, f"{BEFORE}{wait.line}")

    def _effect(self, life: ProcessLife, operation: str, edge: str, path: str) -> None:
        if operation == "send" and edge == "before" and self._is_watched(life.host.name):
            frame: FrameType | None = sys._getframe(1)
            while frame is not None and not is_of_test(frame):
                if frame.f_globals.get("__name__") == driver.__name__:
                    return  # of the client's own tasks
                frame = frame.f_back
            if frame is not None:
                self._note(life, f"{SENDS}{_line(frame, frame.f_lineno)}")

    def _note(self, life: ProcessLife, what: str) -> None:
        self._world.note(what, life.host.name, life.number)


def _wait_of(task: Task) -> _Wait | None:
    """Where *task* waits in the code of its program; None if it has none, or has ended."""
    found: tuple[FrameType, int] | None = None
    inner: FrameType | None = None
    for frame, number in task.iter_await_frames():
        if is_of_test(frame):
            found, inner = (frame, number), None
        elif found is not None and inner is None:
            inner = frame
    if found is None:
        return None
    frame, number = found
    return _Wait(_line(frame, number), frame, frame.f_lasti, inner)


def _line(frame: FrameType, number: int) -> str:
    """A line of a program, as it is shown."""
    text = linecache.getline(frame.f_code.co_filename, number).strip()
    text = text.rstrip(":(").strip() or f"line {number} of {frame.f_code.co_name}"
    return text if len(text) <= _LINE_LENGTH else f"{text[: _LINE_LENGTH - 1]}…"
