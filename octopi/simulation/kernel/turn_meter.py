"""Measures how much is read from disks in one turn of a task: in virtual time reading is free, but
a real node can't afford much of it.

A turn lasts from one checkpoint of a task to its next.  A task that reads in its turn delays all
other tasks of the node, including those that send heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import trio

from octopi.environment import Disk, File
from octopi.limits import FETCH_BYTES_DEFAULT, MIB

TURN_BYTES_MAX: Final = 2 * MIB + 2 * FETCH_BYTES_DEFAULT
"""The most that a turn may read.  The longest turns are those of the fan-out, which sends 2 MiB,
and at most one delivery more, before other tasks run (`octopi.roles.broker.tail_broadcast`).
Look-ups take slices of `octopi.limits.SLICE_BYTES`, at most eight of them in one turn
(`octopi.storage.time_slices`)."""


class TurnMeter:
    """Counts the bytes that each turn reads, and keeps the largest number."""

    def __init__(self) -> None:
        self.bytes_max = 0
        """The largest number of bytes that one turn has read."""
        self.task = ""
        """The name of the task with that turn."""
        self.on_long_turn: Callable[[str, int], None] | None = None
        """Called once for each turn that reads more than `TURN_BYTES_MAX`, with the name of the
        task and the bytes that it has read so far."""
        self._turn: object = None
        self._bytes = 0
        self._is_told = False

    def note(self, size_bytes: int) -> None:
        """The running task has read *size_bytes*."""
        turn, name = _turn_now()
        if turn is None or turn != self._turn:
            self._turn, self._bytes, self._is_told = turn, 0, False
        self._bytes += size_bytes
        if self._bytes > self.bytes_max:
            self.bytes_max, self.task = self._bytes, name
        if self._bytes > TURN_BYTES_MAX and self.on_long_turn and not self._is_told:
            self._is_told = True
            self.on_long_turn(name, self._bytes)

    def forget(self) -> None:
        """Count from here on."""
        self.bytes_max, self.task, self._turn = 0, "", None


def counted(disk: Disk, turns: TurnMeter) -> Disk:
    """*disk*, with the bytes that are read from its files noted in *turns*."""
    return cast(Disk, _CountedDisk(disk, turns))


class _CountedDisk:
    def __init__(self, disk: Disk, turns: TurnMeter) -> None:
        self._disk = disk
        self._turns = turns

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever the disk has
        return getattr(self._disk, name)

    def open(self, path: str, *, create: bool = False) -> File:
        return cast(File, _CountedFile(self._disk.open(path, create=create), self._turns))

    def read_file(self, path: str) -> bytes:
        data = self._disk.read_file(path)
        self._turns.note(len(data))
        return data


class _CountedFile:
    def __init__(self, file: File, turns: TurnMeter) -> None:
        self._file = file
        self._turns = turns

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever the file has
        return getattr(self._file, name)

    def pread(self, size_bytes: int, position_bytes: int) -> bytes:
        data = self._file.pread(size_bytes, position_bytes)
        self._turns.note(len(data))
        return data


def _turn_now() -> tuple[object, str]:
    """A value that differs between turns (None: no task runs), and the task's name."""
    try:
        task = trio.lowlevel.current_task()
    except RuntimeError:
        return None, "no task"
    return (task, task._schedule_points), task.name
