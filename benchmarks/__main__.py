"""Measure Octopi beside its peers: ``python -m benchmarks``, or ``make bench``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import results
from benchmarks.machine import machine
from benchmarks.machine_load import load_at_rest
from benchmarks.page import write_page
from benchmarks.progress import RunProgress
from benchmarks.results import LeftOut, Run
from benchmarks.runner import Plan, Runner
from benchmarks.systems import NAMES, OWN_TOOLS, module_of, takes_part
from benchmarks.table import table
from benchmarks.waiting import WAYS, BusyError, before_round, begin
from benchmarks.workloads import Workload, load

QUICK_S: Final = 150.0
"""After this time ``--quick`` begins no other workload; the one that runs is finished."""
QUICK_ROUNDS: Final = 3
FOLDER: Final = Path(__file__).parent
PAGE: Final = FOLDER / "report.html"

_HELP: Final = f"""\
examples:
  python -m benchmarks --list
      name all workloads and systems, and say what is missing for a peer
  python -m benchmarks --quick
      the part of the workloads that fits in three minutes, {QUICK_ROUNDS} rounds
  python -m benchmarks --only 'consume' --systems octopi,redis --rounds 9
      all workloads with "consume" in their names, Octopi beside Redis
  python -m benchmarks --busy wait
      begin, and begin each round, when the machine is quiet
  python -m benchmarks --only '100 B' --rounds 1 --busy mark
      see whether everything works, on a machine that does other things

In each round each system runs the workload once; systems are compared within a round.  The table is
printed on standard output.  All figures are in a file of JSON, written anew after each turn, so
that Ctrl-C loses nothing; `python -m benchmarks.report FILE` makes a page of them.

exit codes: 0 measured, 1 a system failed, 2 a wrong option, 3 the machine is busy, 130 Ctrl-C
"""


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments = _parser().parse_args()
    workloads = [
        one for one in load() if arguments.only in one.name and (one.quick or not arguments.quick)
    ]
    if not workloads:
        return _wrong(f"no workload has {arguments.only!r} in its name")
    chosen = [one.strip() for one in arguments.systems.split(",")] if arguments.systems else NAMES
    if arguments.quick and not arguments.systems:
        chosen = [one for one in NAMES if one not in OWN_TOOLS]
    unknown = [one for one in chosen if one not in NAMES]
    if unknown:
        return _wrong(f"there is no system {unknown[0]!r}")
    left_out = [LeftOut(name, why) for name in chosen if (why := module_of(name).missing())]
    _say_left_out(left_out)
    if arguments.list:
        return _list(workloads, chosen, left_out)
    systems = tuple(one for one in chosen if one not in {other.system for other in left_out})
    if not systems:
        return _wrong("none of these systems can be measured here", "see above what is missing")
    rounds = arguments.rounds or (QUICK_ROUNDS if arguments.quick else 5)
    plan = Plan(systems, rounds, arguments.seed)
    try:
        at_rest, busy = begin(arguments.busy, partial(load_at_rest, [os.getpid()]))
    except BusyError as error:
        print(error, file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("stopped before anything was measured", file=sys.stderr)
        return 130
    run = Run(
        began_at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine(),
        settings={
            "rounds": rounds,
            "seed": plan.seed,
            "busy": arguments.busy,
            "quick": arguments.quick,
        },
        at_rest=at_rest,
        busy_at_rest=tuple(busy),
        workloads=workloads,
        left_out=left_out,
    )
    stamp = run.began_at.partition("+")[0].replace(":", "-")
    output = arguments.output or FOLDER / "results" / f"{stamp}.json"
    return _measure_and_report(run, plan, output, arguments)


def _measure_and_report(run: Run, plan: Plan, output: Path, arguments: argparse.Namespace) -> int:
    try:
        results.save(run, output)
    except OSError as error:
        return _wrong(f"{output} can't be written: {error.strerror}", "name another file with -o")
    code = 0
    try:
        _measure(run, plan, output, arguments)
        run.ended = "complete"
    except KeyboardInterrupt:
        run.ended = "interrupted"
        code = 130
    finally:
        results.save(run, output)
    _say_left_out([one for one in run.left_out if one.workload])
    print(table(run))
    stopped = "stopped; what was measured until then" if code else "all figures"
    print(f"{stopped}: {output}", file=sys.stderr)
    try:
        write_page(run, arguments.page)
        print(f"the same as a page: {arguments.page}", file=sys.stderr)
    except OSError as error:
        print(
            f"the page can't be written ({error.strerror}): `python -m benchmarks.report {output} "
            "-o FILE` writes it elsewhere",
            file=sys.stderr,
        )
        code = code or 1
    failed = any(one.problem for one in run.measurements) or not run.measurements
    return code or int(failed)


def _measure(run: Run, plan: Plan, output: Path, arguments: argparse.Namespace) -> None:
    turns = {
        one.name: plan.rounds * sum(takes_part(name, one) for name in plan.systems)
        for one in run.workloads
    }
    began, done = time.monotonic(), 0
    with (
        tempfile.TemporaryDirectory(prefix="octopi-bench-", ignore_cleanup_errors=True) as folder,
        RunProgress(sum(turns.values())) as progress,
    ):

        def keep() -> None:
            results.save(run, output)
            progress.advance()

        with Runner(Path(folder), plan, run, keep) as runner:
            for workload in run.workloads:
                if arguments.quick and time.monotonic() - began > QUICK_S:
                    print(f"{workload.name} is left out: the time is up", file=sys.stderr)
                    continue
                progress.begin(workload.name)
                runner.measure(workload, partial(before_round, arguments.busy, runner.load_at_rest))
                done += turns[workload.name]
                progress.finish(workload.name, done)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="name workloads and systems, and end")
    parser.add_argument("--quick", action="store_true", help="what fits in three minutes")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="workloads with this text in their names"
    )
    parser.add_argument(
        "--systems",
        default="",
        metavar="NAME,NAME",
        help="the systems to compare; without it all that are installed (with --quick without the "
        f"peers' own tools): {', '.join(NAMES)}",
    )
    parser.add_argument(
        "--rounds",
        type=_count,
        metavar="N",
        help=f"how often each system runs each workload (5, or {QUICK_ROUNDS} with --quick)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="of the order of systems in the rounds (%(default)s)"
    )
    parser.add_argument(
        "--busy",
        choices=WAYS,
        default="refuse",
        help="what to do on a busy machine: refuse to begin (the default), wait for a quiet one "
        "before each round, or mark the figures; a round that becomes busy is always marked",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="where to write the figures (benchmarks/results/DATE.json)",
    )
    parser.add_argument(
        "--page",
        type=Path,
        default=PAGE,
        metavar="FILE",
        help="where to write the page of plots (benchmarks/report.html)",
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rounds: 1 or more")
    return int(text)


def _wrong(what: str, advice: str = "`python -m benchmarks --list` has all") -> int:
    print(f"{what}: {advice}", file=sys.stderr)
    return 2


def _say_left_out(left_out: list[LeftOut]) -> None:
    together: dict[tuple[str, str], list[str]] = {}
    for one in left_out:
        together.setdefault((one.workload, one.reason), []).append(one.system)
    for (workload, reason), systems in together.items():
        where = f" of {workload!r}" if workload else ""
        print(f"left out{where}: {', '.join(systems)}: {reason}", file=sys.stderr)


def _list(workloads: Sequence[Workload], systems: Sequence[str], left_out: list[LeftOut]) -> int:
    missing = {one.system for one in left_out}
    for name in systems:
        print(f"{name:<16} {module_of(name).TITLE}{', missing here' if name in missing else ''}")
    print()
    for workload in workloads:
        taking = [name for name in systems if takes_part(name, workload)]
        print(f"{workload.name}: {', '.join(taking)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
