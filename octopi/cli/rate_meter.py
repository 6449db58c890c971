"""Counts messages, measures their rate, and displays both.

The display is on standard error, and only on a terminal; the summary is one line for any output.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from octopi.cli.output import is_watched, progress
from octopi.cli.rendering import counted, size

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class RateMeter:
    """Counts messages and their bytes from `start` to `stop`."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self._began: float | None = None
        self._ended: float | None = None
        self._display: tuple[Progress, TaskID] | None = None

    def start(self) -> None:
        """Start the clock."""
        self._began = time.perf_counter()

    def add(self, messages: int, count_bytes: int) -> None:
        """Count *messages* and *count_bytes* more."""
        self.messages += messages
        self.bytes += count_bytes
        if self._display is not None:
            display, task = self._display
            display.update(task, completed=self.bytes, rate=self.rates())

    def stop(self) -> None:
        """Stop the clock; the rates refer to this time."""
        self._ended = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds from `start` until `stop`, or until now."""
        if self._began is None:
            return 0.0
        return (self._ended or time.perf_counter()) - self._began

    def rates(self) -> str:
        """Messages and bytes per second."""
        seconds = self.seconds or math.inf
        return f"{self.messages / seconds:,.0f} msg/s, {size(self.bytes / seconds)}/s"

    def summary(self) -> str:
        """Messages, bytes and rates in one line."""
        return f"{counted(self.messages, 'message')}, {size(self.bytes)}, {self.rates()}"

    @contextmanager
    def shown(self, what: str, total_bytes: int | None = None) -> Iterator[None]:
        """Show the count on standard error during the block, if that is a terminal.

        With *total_bytes*, also show the share that is done.
        """
        if not is_watched():
            yield
            return
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn

        known = [BarColumn(), TaskProgressColumn()] if total_bytes else []
        columns = TextColumn("{task.description}"), *known, TextColumn("{task.fields[rate]}")
        with progress(*columns) as shown:
            self._display = (shown, shown.add_task(what, total=total_bytes, rate=""))
            try:
                yield
            finally:
                self._display = None
