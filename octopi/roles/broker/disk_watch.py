"""Detects when a broker's disk is full: one check, and one line in the log, for all its replicas.

A single write that found no space proves little: it may have been a large one, and the next may
fit.  So the watch writes a file of its own, of `DISK_ROOM_BYTES_MIN`, and removes it.  While this
write fails, the disk counts as full, and the watch tries again until the write succeeds.

Task: `run`, which sleeps until a write finds the disk full.
"""

from __future__ import annotations

import math
from typing import Final

import trio

from octopi.environment import DiskSpace, Environment
from octopi.errors import StorageError
from octopi.limits import (
    DISK_LINE_INTERVAL_S,
    DISK_LOOK_INTERVAL_S,
    DISK_ROOM_BYTES_MIN,
)
from octopi.logger import get_logger
from octopi.storage.full_disk import FULL

_log = get_logger(__name__)

_FILE: Final = "room.probe"

NEXT: Final = (
    "make space on that file system, have topics keep less, or move replicas to another broker: "
    "octopi-node partitions move"
)
"""The advice for a broker whose disk is full."""


class DiskWatch:
    """Watches the disk of *data_directory*."""

    def __init__(self, environment: Environment, data_directory: str) -> None:
        self._environment = environment
        self._data_directory = data_directory
        self._suspected = trio.Event()
        self._filled = trio.Event()
        self._said_full_at = -math.inf
        self._is_full_said = False
        self._said_failed_at = -math.inf
        self._failures_unsaid = 0
        self.trouble = ""
        """Why no replica of the broker takes records; empty: the disk has space."""

    # --- reports of failed writes ----------------------------------------------------

    def suspect(self) -> None:
        """Have `run` check the disk, because a write found no space."""
        self._suspected.set()

    def failed(self, error: StorageError) -> None:
        """Log that a write or a flush failed for another reason; not once for each log."""
        now = self._environment.clock.now()
        if now - self._said_failed_at < DISK_LINE_INTERVAL_S:
            self._failures_unsaid += 1
            return
        _log.error(
            "disk failed",
            directory=self._data_directory,
            why=str(error),
            more_failures=self._failures_unsaid,
            next="restart the broker when the disk is well",
        )
        self._said_failed_at, self._failures_unsaid = now, 0

    # --- checking --------------------------------------------------------------------

    def room(self) -> DiskSpace | None:
        """The size and the free space of the disk; None if unknown."""
        return self._environment.disk.room(self._data_directory)

    async def run(self) -> None:
        """Check the disk whenever a write has found no space, until cancelled."""
        clock = self._environment.clock
        while True:
            await self._suspected.wait()
            self._suspected = trio.Event()
            while why := await self._why_full():
                self._note(why)
                await clock.sleep_until(clock.now() + DISK_LOOK_INTERVAL_S)
            self._ended()
            # The number of writes that fail doesn't change how often the disk is checked.
            await clock.sleep_until(clock.now() + DISK_LOOK_INTERVAL_S)

    async def next_trouble(self) -> None:
        """Wait until the disk is found full the next time."""
        await self._filled.wait()

    async def _why_full(self) -> str:
        """Why a small file doesn't fit; empty if it does."""
        room = self.room()
        if room is not None and room.free_bytes < DISK_ROOM_BYTES_MIN:
            return "No space left on device"
        disk, path = self._environment.disk, f"{self._data_directory}/{_FILE}"
        try:
            await disk.replace_file(path, bytes(DISK_ROOM_BYTES_MIN))
            disk.remove(path)
        except OSError as error:
            return f"{error.strerror}" if error.errno in FULL else ""
        return ""

    def _note(self, why: str) -> None:
        room = self.room()
        size = f", {room.free_bytes} of {room.total_bytes} bytes are free" if room else ""
        is_news = not self.trouble
        self.trouble = f"the data directory takes nothing: {why}{size}"
        if is_news:
            self._filled.set()
            self._filled = trio.Event()
        now = self._environment.clock.now()
        if is_news and now - self._said_full_at >= DISK_LINE_INTERVAL_S:
            _log.error("disk full", directory=self._data_directory, why=self.trouble, next=NEXT)
            self._said_full_at, self._is_full_said = now, True

    def _ended(self) -> None:
        if self.trouble and self._is_full_said:
            _log.info("disk has space again", directory=self._data_directory)
        self.trouble, self._is_full_said = "", False
