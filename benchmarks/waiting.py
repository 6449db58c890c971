"""What is done about a busy machine, before a run and before each of its rounds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, get_args

from benchmarks.machine_load import OTHERS_MAX, Load, Program, reasons
from octopi.printable import printable

Way = Literal["refuse", "mark", "wait"]
WAYS: Final[tuple[Way, ...]] = get_args(Way)

WAIT_MAX_S: Final = 600.0
"""How long ``--busy wait`` waits for a quiet machine each time: longer than most builds and test
runs take, shorter than a run of all workloads."""

_COMMAND_LENGTH: Final = 70


class BusyError(Exception):
    """The machine is busy, and what is measured would say little; the text says what to do."""


def begin(way: Way, at_rest: Callable[[], Load]) -> tuple[Load, list[str]]:
    """Watch the machine before the first round; return the work of others, and why that is too
    much (empty: it isn't).

    Raises:
      BusyError: if it is busy and is not to be measured like that.
    """
    load, why = _watched(at_rest) if way != "wait" else _waited(at_rest)
    if why and way != "mark":
        raise BusyError(_refusal(load, why, way))
    return load, why


def before_round(way: Way, at_rest: Callable[[], Load]) -> None:
    """Wait until the machine is quiet, if that is asked for; measure after `WAIT_MAX_S` all the
    same, and let the round be marked."""
    if way == "wait":
        _waited(at_rest)


def _watched(at_rest: Callable[[], Load]) -> tuple[Load, list[str]]:
    load = at_rest()
    return load, reasons(load, at_rest=True)


def _waited(at_rest: Callable[[], Load]) -> tuple[Load, list[str]]:
    deadline = time.monotonic() + WAIT_MAX_S
    load, why = _watched(at_rest)
    if why:
        print(f"waiting for a quiet machine: {_listed(load, why)}", file=sys.stderr)
    while why and time.monotonic() < deadline:
        load, why = _watched(at_rest)
    return load, why


def _listed(load: Load, why: Sequence[str]) -> str:
    programs = ", ".join(f"{one.name} (pid {one.pid})" for one in load.busiest)
    return "; ".join(why) + (f"; {programs}" if programs else "")


def _refusal(load: Load, why: Sequence[str], way: Way) -> str:
    head = "The machine is busy" + (f", also after {WAIT_MAX_S / 60:g} minutes" * (way == "wait"))
    lines = [f"{head}, so nothing was measured:"]
    lines += [f"  {one} (a quiet machine: at most {OTHERS_MAX:.0%})" for one in why]
    lines += [
        f"  process {one.pid} takes {one.cores:.2f} of a processor: {_command(one)}"
        for one in load.busiest
    ]
    lines.append(
        "End these programs, or let them finish, and start again. `--busy wait` waits for that; "
        "`--busy mark` measures now and marks what it measured, which is good enough to see "
        "whether everything works."
    )
    return "\n".join(lines)


def _command(program: Program) -> str:
    """The command line of a program, as far as it fits; results have only its name, because a
    command line may have secrets."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{program.pid}/cmdline").read_bytes().split(b"\0")
        line = printable(" ".join(word.decode(errors="replace") for word in words).strip())
        if line:
            return line if len(line) <= _COMMAND_LENGTH else f"{line[:_COMMAND_LENGTH]}..."
    return program.name
