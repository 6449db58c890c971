"""Chaos for durable subscriptions: ``python -m tests.chaos.subscriptions --seconds 600``.

Three brokers, and members of one subscription in each mode, all processes of their own.  Members
are killed and paused, brokers are killed and stopped, at random.  Progress goes to standard error.
The exit code is 1 if a message was passed over, or came again without a failure that explains it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

import trio

from tests.chaos.subscriptions.runner import MODES, run_chaos


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.subscriptions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", type=lambda text: text.split(","), default=list(MODES))
    parser.add_argument("--keep", type=Path, help="folder that is kept, for the files of all")
    arguments = parser.parse_args()
    say = partial(print, file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        directory: Path = arguments.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        report = trio.run(
            partial(
                run_chaos,
                directory,
                modes=arguments.modes,
                seconds=arguments.seconds,
                seed=arguments.seed,
                say=say,
            )
        )
    say(str(report))
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
