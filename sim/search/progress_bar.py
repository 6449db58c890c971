"""The progress of a campaign: a bar on a terminal, a line now and then elsewhere.

It is printed to standard error; results are printed to standard output.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Final

from octopi.cli.output import is_watched, progress, say
from octopi.cli.rendering import counted

if TYPE_CHECKING:
    from rich.progress import Progress as Bar, TaskID

LINE_INTERVAL_S: Final = 10.0
"""The time between lines where there is no terminal."""


class ProgressBar:
    """Counts what was done, within a block.  *total* is how much there is to do; None: as much as
    the time allows."""

    def __init__(self, thing: str, total: int | None) -> None:
        self.count = self.failed_count = 0
        self._thing = thing
        self._total = total
        self._began = time.monotonic()
        self._said = self._began
        self._stack = ExitStack()
        self._bar: tuple[Bar, TaskID] | None = None

    def __enter__(self) -> ProgressBar:
        if is_watched():
            self._bar = self._open_bar()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def seconds(self) -> float:
        """The time since the block began."""
        return time.monotonic() - self._began

    def set(self, count: int, failed_count: int) -> None:
        """Set how many things are done, and how many of them failed."""
        self.count, self.failed_count = count, failed_count
        if self._bar is not None:
            bar, task = self._bar
            bar.update(task, completed=self.count, rate=self.rate())
        elif time.monotonic() - self._said >= LINE_INTERVAL_S:
            self._said = time.monotonic()
            say(self.line(), err=True)

    def rate(self) -> str:
        """The rate, and the number of failures, as text."""
        text = f"{self.count / max(self.seconds, 1e-3):.1f}/s"
        return f"{text}, {self.failed_count:,} failed" if self.failed_count else text

    def line(self) -> str:
        """The progress in one line."""
        if self._total is None:
            return f"{counted(self.count, self._thing)}, {self.rate()}"
        left_s = self.seconds / max(self.count, 1) * (self._total - self.count)
        minutes, seconds = divmod(round(left_s), 60)
        of_all = f"{self.count:,} of {counted(self._total, self._thing)}"
        return f"{of_all}, {self.rate()}, {minutes}:{seconds:02} left"

    def _open_bar(self) -> tuple[Bar, TaskID]:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        known = [BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()] if self._total else []
        bar = progress(
            TextColumn("{task.description}"),
            *known,
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            # Text that is printed meanwhile goes above the bar, unless it goes to a file.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._stack.enter_context(bar)
        return bar, bar.add_task(f"{self._thing}s", total=self._total, rate="")
