"""Faults of a simulated disk, as data: which calls fail, and how.

A `DiskFault` is frozen, so that a plan of faults can be printed, stored and shrunk. `ArmedFaults`
counts the calls until a fault strikes, and `octopi.simulation.disk.disk` carries the fault out.

Operations have the names of the methods of `octopi.environment.Disk` and `File`.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from math import inf

import attrs


@attrs.frozen
class Fail:
    """The call raises `OSError`."""

    error_number: int = errno.EIO
    written_fraction: float = 0.0
    """The part of its data that an append still writes: a short write."""
    done: bool = False
    """Whether the call has its whole effect and still raises."""


@attrs.frozen
class Tear:
    """An append writes a part, then reaches its edge ``during``, where its process may be killed:
    Linux abandons a long write on a fatal signal.  If the process survives, the rest follows."""

    written_fraction: float = 0.5


@attrs.frozen
class Delay:
    """A sync takes longer."""

    seconds: float = inf
    """Infinite: until the process ends."""


@attrs.frozen
class MisdirectedRead:
    """A pread returns bytes from another place in the file, and zeros beyond its ends."""

    shift_bytes: int = 4096


@attrs.frozen
class StaleRead:
    """A pread returns the bytes that were synced last, and zeros where none were."""


How = Fail | Tear | Delay | MisdirectedRead | StaleRead


@attrs.frozen
class DiskFault:
    """The fault *how* strikes calls of *operation* (empty: any) on paths that end in *path_end*:
    *times* in a row, after *calls_before* such calls."""

    operation: str
    how: How = Fail()
    path_end: str = ""
    calls_before: int = 0
    times: int = 1


@attrs.define
class _Armed:
    fault: DiskFault
    calls_before: int
    times: int


class ArmedFaults:
    """The faults that may still strike."""

    def __init__(self) -> None:
        self._armed: list[_Armed] = []

    def __bool__(self) -> bool:
        return bool(self._armed)

    def add(self, fault: DiskFault) -> None:
        """Have *fault* strike from now on."""
        self._armed.append(_Armed(fault, fault.calls_before, fault.times))

    def clear(self) -> None:
        """Have no faults strike any more."""
        self._armed.clear()

    def strike(self, operation: str, path: str) -> list[How]:
        """Count a call; return the faults that strike it, in the order in which they were added."""
        met: list[How] = []
        for one in self._armed:
            fault = one.fault
            if fault.operation not in {"", operation} or not path.endswith(fault.path_end):
                continue
            if one.calls_before:
                one.calls_before -= 1
            else:
                one.times -= 1
                met.append(fault.how)
        if met:
            self._armed = [one for one in self._armed if one.times]
        return met


def first_failure(met: Sequence[How]) -> Fail | None:
    """The first of the faults that a call has *met* by which it fails; None: it doesn't."""
    return next((how for how in met if isinstance(how, Fail)), None)
