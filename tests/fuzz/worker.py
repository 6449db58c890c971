"""Fuzzes one target in a process of its own: ``python -m tests.fuzz.worker ORDER``.

So one target can't use up the memory of another, nor end it, and what it covers is its own.  ORDER
is an `Order` in JSON; a `Report` in JSON is printed.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import coverage

_MEMORY_BYTES: Final = 1 << 30
"""More than this, beyond what the process has at the beginning, is a finding."""

_PROGRESS_S: Final = 10.0

say = print
tell = partial(print, file=sys.stderr, flush=True)


@attrs.frozen
class Order:
    """What to do."""

    target: str
    seconds: float
    seed: int
    corpus: str
    grow: bool
    """Whether to store inputs that reach what the corpus doesn't."""
    inputs_max: int | None = None
    """Stop after so many inputs, too."""


@attrs.frozen
class Report:
    """What was done."""

    target: str
    seconds: float
    inputs: int
    passed: int
    ways: int
    kept: int
    lines: tuple[int, int]
    """Covered, and all."""
    branches: tuple[int, int]
    grown: int
    """Inputs that were stored."""
    input: str = ""
    """In hexadecimal: for this one the property doesn't hold.  `error` says why; empty: none."""
    error: str = ""
    trace: str = ""
    file: str = ""
    """Where the input was stored."""

    @classmethod
    def read(cls, text: str) -> Report:
        """The inverse of `text`."""
        fields = json.loads(text)
        pairs = {name: tuple(fields[name]) for name in ("lines", "branches")}
        return cls(**{**fields, **pairs})

    @property
    def text(self) -> str:
        return json.dumps(attrs.asdict(self))


def main(order: Order) -> Report:
    warnings.simplefilter("ignore", coverage.exceptions.CoverageWarning)
    measured = coverage.Coverage(
        branch=True, data_file=None, config_file=False, source=["octopi", "sim"]
    )
    measured.start()
    try:
        from tests.fuzz.corpus import store, stored
        from tests.fuzz.registry import TARGETS
        from tests.fuzz.search import KEPT_BYTES_MAX, ROOT, Search
    finally:
        measured.stop()
    logging.disable(logging.CRITICAL)
    target = TARGETS[order.target]
    folder = Path(order.corpus)
    known = list(stored(folder, target.name).values())
    search = Search(target, known, order.seed)
    _bound_memory()
    began = told = time.monotonic()

    def goes_on() -> bool:
        nonlocal told
        now = time.monotonic()
        if now - told >= _PROGRESS_S:
            told = now
            counts = search.counts
            done = f"{counts.inputs:,} inputs, {counts.ways:,} ways, {now - began:.0f} s"
            tell(f"{target.name}: {done}")
        if order.inputs_max is not None and search.counts.inputs >= order.inputs_max:
            return False
        return now - began < order.seconds

    finding = None
    with suppress(KeyboardInterrupt):
        finding = search.run(goes_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what was done is told in any case
    seconds = time.monotonic() - began
    grown = 0
    if order.grow:
        new = [data for data in search.kept if data not in known and len(data) <= KEPT_BYTES_MAX]
        for data in search.worth_keeping(new):
            store(folder, target.name, data)
            grown += 1
    report = Report(
        target.name,
        seconds,
        search.counts.inputs,
        search.counts.passed,
        search.counts.ways,
        len(search.kept),
        *_covered(measured, search.replay, [str(ROOT / file) for file in target.files]),
        grown=grown,
    )
    if finding is None:
        return report
    return attrs.evolve(
        report,
        input=finding.data.hex(),
        error="".join(traceback.format_exception_only(finding.error)).strip(),
        trace="".join(traceback.format_exception(finding.error, chain=False)),
        file=os.path.relpath(store(folder, target.name, finding.data)),
    )


def _covered(
    measured: coverage.Coverage, replay: Callable[[], None], files: Sequence[str]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Lines and branches of *files* that were taken at the import and are by *replay*."""
    measured.start()
    try:
        replay()
    finally:
        measured.stop()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "report.json"
        measured.json_report(morfs=files, outfile=str(path))
        found = json.loads(path.read_text())["totals"]
    return (
        (found["covered_lines"], found["num_statements"]),
        (found["covered_branches"], found["num_branches"]),
    )


def _bound_memory() -> None:
    """Have allocations fail beyond `_MEMORY_BYTES`, where the system lets us."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        return
    bound = pages * os.sysconf("SC_PAGE_SIZE") + _MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (bound, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    try:
        say(main(Order(**json.loads(sys.argv[1]))).text)
    except KeyboardInterrupt:
        sys.exit(130)
