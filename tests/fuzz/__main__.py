"""Look for inputs that decoders, grammars and file formats don't stand.

Takes valid inputs, changes them again and again, and prefers those that took a new way through the
code.  Each target has a property that must hold for any bytes.  If one doesn't hold, the shortest
input that was found is stored in the corpus, where the tests find it, too, and is printed with the
command that tries it again.

  python -m tests.fuzz                        all targets, two minutes together
  python -m tests.fuzz --only codec --seconds 60
  python -m tests.fuzz --only codec --input a0     one input; also @FILE
  make fuzz FUZZ_SECONDS=3600                 an hour

The exit code is 1 if a property didn't hold, and 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from tests.fuzz.corpus import CORPUS
from tests.fuzz.registry import SAME_INPUTS, TARGETS
from tests.fuzz.worker import Order, Report

_SAME_S_MAX: Final = 600.0
"""For one target, with `--same`, on a machine however slow."""
_OVERTIME_S: Final = 120.0
"""For shortening what was found, and for measuring what was covered."""

say = print
tell = partial(print, file=sys.stderr, flush=True)


class Runs:
    """Processes of targets."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        self._is_over = False

    def run(self, order: Order) -> Report | None:
        """Fuzz one target; None if that was interrupted."""
        if self._is_over:
            return None
        tell(f"{order.target}: {TARGETS[order.target].summary}")
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker", json.dumps(attrs.asdict(order))],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        began = time.monotonic()
        try:
            text, _ = process.communicate(timeout=2 * order.seconds + _OVERTIME_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return _failed(order, time.monotonic() - began, "one input takes for ever")
        if process.returncode == 0:
            return Report.read(text)
        if process.returncode in {130, -signal.SIGINT}:
            return None
        how = f"the process ended with {process.returncode}"
        return _failed(order, time.monotonic() - began, how)

    def stop(self) -> None:
        """Begin no other, and end those that run; they tell what they did."""
        self._is_over = True
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)


def _failed(order: Order, seconds: float, how: str) -> Report:
    again = f"{how}; the same again: --only {order.target} --seed {order.seed}"
    return Report(order.target, seconds, 0, 0, 0, 0, (0, 0), (0, 0), 0, error=again)


def fuzz(names: Sequence[str], arguments: argparse.Namespace) -> int:
    """Fuzz the targets *names*; the exit code."""
    share_s = max(1.0, arguments.seconds * min(arguments.jobs, len(names)) / len(names))
    if arguments.same:
        share_s = _SAME_S_MAX
        tell(f"{len(names)} targets, as many inputs of each as ever, seed {arguments.seed}")
    else:
        tell(f"{len(names)} targets, {share_s:.0f} s each, seed {arguments.seed}")
    runs = Runs()
    orders = [
        Order(
            name,
            share_s,
            arguments.seed,
            str(arguments.corpus),
            arguments.grow,
            SAME_INPUTS[name] if arguments.same else None,
        )
        for name in names
    ]
    code = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        running = [pool.submit(runs.run, order) for order in orders]
        try:
            for one in running:
                one.result()
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            runs.stop()
            code = 130
    reports = [report for one in running if (report := one.result()) is not None]
    say(table(reports))
    for report in reports:
        if report.error:
            say(told(report))
            code = code or 1
    return code


def table(reports: Sequence[Report]) -> str:
    """What was done, a target a line."""
    names = ("target", "inputs", "a second", "past the 1st check", "ways", "lines", "branches", "")
    rows = [names, *map(_row, reports)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at in {0, len(row) - 1} else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _row(one: Report) -> tuple[str, ...]:
    return (
        one.target,
        f"{one.inputs:,}",
        f"{one.inputs / max(one.seconds, 0.001):,.0f}",
        _share((one.passed, one.inputs)),
        f"{one.ways:,}",
        _share(one.lines),
        _share(one.branches),
        "FAILED" if one.error else f"{one.grown} stored" if one.grown else "",
    )


def _share(pair: tuple[int, int]) -> str:
    return f"{100 * pair[0] / pair[1]:.0f} %" if pair[1] else "-"


def told(report: Report) -> str:
    """What didn't hold, and how to see it again."""
    lines = [f"\n{report.target}: {report.error}"]
    if report.file:
        command = f"{sys.executable} -m tests.fuzz --only {report.target} --input"
        given = report.input if len(report.input) <= 400 else f"@{report.file}"
        lines += [
            report.trace.rstrip(),
            f"the shortest input has {len(report.input) // 2} bytes: "
            f"{bytes.fromhex(report.input)[:200]!r}",
            f"it is in {report.file}; the tests fail until it is mended",
            f"again: {command} {given or repr('')}",
        ]
    return "\n".join(lines)


def try_one(name: str, given: str) -> int:
    """Try one input; the traceback is what anybody wants to see."""
    data = Path(given[1:]).read_bytes() if given.startswith("@") else bytes.fromhex(given)
    passed = TARGETS[name].check(data)
    say(f"{name}: it holds; the input {'passed' if passed else 'did not pass'} the first check")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    seed = 0 if os.environ.get("CI") else random.randrange(1 << 32)
    add = parser.add_argument
    add("--seconds", type=float, default=120, help="for all targets together (default: 120)")
    add(
        "--same",
        action="store_true",
        help="try a fixed number of inputs, with seed 0: the same on each machine, for CI",
    )
    add("--only", action="append", choices=list(TARGETS), help="this target; may be repeated")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    add("--corpus", type=Path, default=CORPUS, help="folder with a folder for each target")
    add("--grow", action="store_true", help="store small inputs that reach what the corpus doesn't")
    add("--seed", type=int, default=seed, help="the same seed and corpus give the same inputs")
    add("--input", metavar="HEX", help="try this input alone; @FILE: that of a file")
    add("--list", action="store_true", help="only say which targets there are")
    arguments = parser.parse_args()
    names = arguments.only or list(TARGETS)
    if arguments.list:
        width = min(shutil.get_terminal_size().columns, 200)
        say("\n".join(f"{name}: {TARGETS[name].summary}"[:width] for name in names))
        return 0
    if arguments.input is not None:
        if len(names) != 1:
            parser.error("say which target: --only NAME --input HEX")
        return try_one(names[0], arguments.input)
    if arguments.same:
        arguments.seed = 0
    if arguments.jobs < 1 or arguments.seconds <= 0:
        parser.error("--jobs and --seconds have to be positive")
    return fuzz(names, arguments)


if __name__ == "__main__":
    sys.exit(main())
