"""How far a run is, on standard error: a bar on a terminal, a line for each workload elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import attrs

from octopi.cli.output import is_watched, progress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@attrs.define
class RunProgress:
    """Counts turns of systems, within a block."""

    total: int
    """The turns of all systems in all rounds of all workloads."""
    _began: float = attrs.field(factory=time.monotonic)
    _done: int = 0
    _stack: ExitStack = attrs.field(factory=ExitStack)
    _bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> RunProgress:
        if is_watched():
            from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn

            bar = self._stack.enter_context(
                progress(
                    "{task.description}",
                    BarColumn(),
                    MofNCompleteColumn(),
                    TimeElapsedColumn(),
                    "{task.fields[left]}",
                )
            )
            self._bar = bar, bar.add_task("starting", total=self.total, left="")
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def begin(self, workload: str) -> None:
        """Name the workload whose turns follow."""
        if self._bar is not None:
            bar, task = self._bar
            bar.update(task, description=workload)

    def advance(self) -> None:
        """Count a turn that has passed."""
        self._set(self._done + 1)

    def finish(self, workload: str, done: int) -> None:
        """Say that a workload has ended, and with it *done* turns in all: some of them may not have
        come, because a system failed to start."""
        self._set(done)
        if self._bar is None:
            print(f"{workload}: {self._done} of {self.total}, {self.left()}", file=sys.stderr)

    def _set(self, done: int) -> None:
        self._done = done
        if self._bar is not None:
            bar, task = self._bar
            bar.update(task, completed=self._done, left=self.left())

    def left(self) -> str:
        """How long the rest takes, if it goes on as before."""
        each_s = (time.monotonic() - self._began) / max(1, self._done)
        minutes, seconds = divmod(round(each_s * max(0, self.total - self._done)), 60)
        return f"about {minutes}:{seconds:02} left"
