"""How busy the machine is with the work of others, from ``/proc``.

A `Reading` is what the system has counted so far; two of them give a `Load`, the shares of the time
between them.  `reasons` judges a load.  The benchmark's own processes (this one, its children and
theirs) and the threads of the kernel, which mostly work for the benchmark, are not others.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import attrs

OTHERS_MAX: Final = 0.05
"""On a quiet machine other programs and other machines of the host take at most this share of the
processors, in a round as before it.  A rate falls by about as much, and `tests/performance` takes
twice as much for a regression."""
WAITING_MAX: Final = 0.05
"""On a quiet machine, before a round, a program waits for a processor for at most this share of the
time.  That also finds programs that run so briefly that few ticks are counted for them."""
SAMPLE_S: Final = 2.0
"""How long the machine is watched before it is called quiet: 400 ticks of 10 ms on two processors,
so that `OTHERS_MAX` is 20 of them."""

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_KERNEL_THREAD: Final = 0x00200000
"""``PF_KTHREAD`` among the flags of a process (``include/linux/sched.h``)."""
_BUSIEST: Final = 3


@attrs.frozen
class ProcessTimes:
    """A line of ``/proc/PID/stat``; times are in ticks."""

    pid: int
    parent: int
    name: str
    is_kernel: bool
    own: int
    """The processor time of the process itself."""
    whole: int
    """The same, and that of its children that have ended and were waited for."""
    minor_faults: int
    """How many pages the system mapped for the process without reading them from a device."""


@attrs.frozen
class Reading:
    """What the system has counted at one moment."""

    at_s: float
    busy: int
    idle: int
    stolen: int
    """Ticks in which the host gave the processors to other machines."""
    waiting_us: int | None
    """How long some program has waited for a processor; None: the system doesn't count it."""
    processes: Mapping[int, ProcessTimes]


@attrs.frozen
class Program:
    """A program that is not part of the benchmark."""

    name: str
    pid: int
    cores: float
    """How many processors it took, on average."""


@attrs.frozen
class Load:
    """The work of others between two readings; shares are of all processors, from 0 to 1."""

    others: float
    stolen: float
    waiting: float | None
    """The share of the time for which some program waited for a processor, also one of the
    benchmark; None: the system doesn't count it."""
    busiest: tuple[Program, ...] = ()
    """The programs that took most; programs that ended meanwhile are not among them."""


def process_times(stat: str) -> ProcessTimes:
    """Read the text of ``/proc/PID/stat``, whose fields proc(5) describes."""
    pid, _, rest = stat.partition(" (")
    name, _, rest = rest.rpartition(") ")
    fields = rest.split()
    user, system, children_user, children_system = map(int, fields[11:15])
    return ProcessTimes(
        pid=int(pid),
        parent=int(fields[1]),
        name=name,
        is_kernel=bool(int(fields[6]) & _KERNEL_THREAD),
        own=user + system,
        whole=user + system + children_user + children_system,
        minor_faults=int(fields[7]),
    )


def reading(
    at_s: float, stat: str, pressure: str | None, processes: Iterable[ProcessTimes]
) -> Reading:
    """A reading of the texts of ``/proc/stat`` and ``/proc/pressure/cpu`` (None: there is none)."""
    # user nice system idle iowait irq softirq steal; what follows is counted in these already.
    ticks = [int(one) for one in stat.splitlines()[0].split()[1:9]]
    user, nice, system, idle, waiting_for_devices, interrupts, soft_interrupts, stolen = ticks
    waiting_us = None
    if pressure is not None:
        some = next(line for line in pressure.splitlines() if line.startswith("some "))
        waiting_us = int(some.rpartition("total=")[2])
    return Reading(
        at_s=at_s,
        busy=user + nice + system + interrupts + soft_interrupts,
        idle=idle + waiting_for_devices,
        stolen=stolen,
        waiting_us=waiting_us,
        processes={one.pid: one for one in processes},
    )


def load_between(before: Reading, after: Reading, ours: Iterable[int]) -> Load:
    """The load between two readings.

    *ours* are the ids of the benchmark's processes; those that they started are found.
    """
    roots = set(ours)
    own = _family(before, roots) | _family(after, roots)
    ours_before = sum(one.whole for pid, one in before.processes.items() if pid in own)
    ours_after = sum(one.whole for pid, one in after.processes.items() if pid in own)
    kernel, programs = 0, []
    for pid, one in after.processes.items():
        was = before.processes.get(pid)
        used = one.own - (was.own if was is not None else 0)
        if one.is_kernel:
            kernel += used
        elif pid not in own and used > 0:
            programs.append((used, one))
    busy, stolen = after.busy - before.busy, after.stolen - before.stolen
    total = max(1, busy + stolen + after.idle - before.idle)
    wall_s = max(1e-9, after.at_s - before.at_s)
    waiting = None
    if before.waiting_us is not None and after.waiting_us is not None:
        waiting = min(1.0, (after.waiting_us - before.waiting_us) / 1e6 / wall_s)
    programs.sort(key=lambda pair: -pair[0])
    return Load(
        others=max(0, busy - kernel - (ours_after - ours_before)) / total,
        stolen=stolen / total,
        waiting=waiting,
        busiest=tuple(
            Program(one.name, one.pid, used / _TICKS_PER_S / wall_s)
            for used, one in programs[:_BUSIEST]
        ),
    )


def _family(of: Reading, roots: set[int]) -> set[int]:
    """The processes *roots* and all that they have started, and so on."""
    found = {pid for pid in of.processes if pid in roots}
    while True:
        more = {pid for pid, one in of.processes.items() if one.parent in found} - found
        if not more:
            return found
        found |= more


def reasons(load: Load, *, at_rest: bool) -> list[str]:
    """Why the machine is called busy; empty: it is quiet.

    *at_rest* says that the benchmark itself did nothing meanwhile; only then does it count that
    programs waited, because in a round the benchmark's own do.
    """
    found = []
    if load.others > OTHERS_MAX:
        found.append(f"other programs take {load.others:.0%} of the processors")
    if load.stolen > OTHERS_MAX:
        found.append(f"other machines of the host take {load.stolen:.0%} of the processors")
    if not found and load.others + load.stolen > OTHERS_MAX:
        both = load.others + load.stolen
        found.append(f"other programs and machines take {both:.0%} of the processors")
    if at_rest and load.waiting is not None and load.waiting > WAITING_MAX:
        found.append(f"programs wait for a processor {load.waiting:.0%} of the time")
    return found


def read_now() -> Reading:
    """Read what the system has counted."""
    pressure: str | None = None
    with contextlib.suppress(OSError):  # the system lacks it, or has it switched off
        pressure = Path("/proc/pressure/cpu").read_text()
    return reading(time.monotonic(), Path("/proc/stat").read_text(), pressure, _all_processes())


def load_at_rest(ours: Iterable[int]) -> Load:
    """Watch the machine for `SAMPLE_S`, while the benchmark does nothing."""
    before = read_now()
    time.sleep(SAMPLE_S)
    return load_between(before, read_now(), ours)


def _all_processes() -> Iterable[ProcessTimes]:
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                text = (path / "stat").read_text(errors="replace")
            except OSError:  # it has ended
                continue
            yield process_times(text)
