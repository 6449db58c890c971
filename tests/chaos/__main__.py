"""Chaos on the command line: ``python -m tests.chaos --brokers 5 --seconds 600 --seed 7``.

With ``--registers 0`` the brokers decide without a register, and at most a minority of them is
disturbed at a time.

Progress goes to standard error.  The exit code is 1 if a fault was found, 2 if a kind of
faults was asked for that can't be had here.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

import trio

from tests.chaos.cluster import CannotMountError, check_mounting
from tests.chaos.runner import run_chaos
from tests.chaos.schedule import KINDS, RING_KINDS


def kinds_of(text: str) -> list[str]:
    """The kinds that a list with commas names; ``all``: every one; ``-kind``: without it."""
    named = text.split(",")
    chosen = list(KINDS) if "all" in named else [one for one in named if not one.startswith("-")]
    left_out = {one[1:] for one in named if one.startswith("-")}
    unknown = (set(chosen) | left_out) - set(KINDS)
    if unknown:
        raise argparse.ArgumentTypeError(f"no kinds: {', '.join(sorted(unknown))}")
    return [one for one in chosen if one not in left_out]


def main() -> int:
    kinds = "\n".join(f"  {name:8} {meaning}" for name, meaning in KINDS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        epilog=f"kinds of faults:\n{kinds}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--registers", type=int, default=1, help="0, 1 or 3; more need a majority")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--kinds",
        type=kinds_of,
        help="kinds of faults, with commas; all: every kind; all,-full: without that one "
        "[default: all that may happen]",
    )
    parser.add_argument("--keep", type=Path, help="folder that is kept, for the nodes' files")
    arguments = parser.parse_args()
    possible = KINDS if arguments.registers else RING_KINDS
    if arguments.kinds is None:
        arguments.kinds = list(possible)
    say = partial(print, file=sys.stderr, flush=True)
    if not set(arguments.kinds) <= set(possible):
        say(f"without a register, there are these kinds: {', '.join(RING_KINDS)}")
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        directory: Path = arguments.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        if "full" in arguments.kinds:
            try:
                check_mounting(directory)
            except CannotMountError as error:
                say(f"no disk can be full here, a small one can't be mounted: {error}")
                say("run as root, or leave that kind out: --kinds all,-full")
                return 2
        run = partial(
            run_chaos,
            directory,
            brokers=arguments.brokers,
            registers=arguments.registers,
            seconds=arguments.seconds,
            seed=arguments.seed,
            kinds=arguments.kinds,
            say=say,
        )
        report = trio.run(run)
    say(str(report))
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
