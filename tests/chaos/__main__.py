"""Chaos on the command line: ``python -m tests.chaos --brokers 5 --seconds 600 --seed 7``.

Progress goes to standard error.  The exit code is 1 if a fault was found.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from functools import partial
from pathlib import Path

import trio

from octopi.simulation import history_lines
from tests.chaos.runner import run_chaos


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--keep", type=Path, help="folder that is kept, for the nodes' files and the history"
    )
    arguments = parser.parse_args()
    say = partial(print, file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        directory: Path = arguments.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        run = partial(
            run_chaos,
            directory,
            brokers=arguments.brokers,
            seconds=arguments.seconds,
            seed=arguments.seed,
            say=say,
        )
        report = trio.run(run)
        if report.faults and arguments.keep:
            with gzip.open(directory / "history.jsonl.gz", "wt") as file:
                file.writelines(f"{line}\n" for line in history_lines.dump(report.history))
    say(str(report))
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
