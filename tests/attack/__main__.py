"""Attacks on real nodes: ``python -m tests.attack``, or ``make attack``.

Prints what each attack does and a table of what was measured.  The exit code is 1 if a goal was
missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final

import trio

from octopi.operating_system import allow_many_files
from tests.attack import descriptors, floods, hoards, pipelining
from tests.attack.frame import Attack, Result, table

ATTACKS: Final[list[Attack]] = [
    *floods.ATTACKS,
    *pipelining.ATTACKS,
    *hoards.ATTACKS,
    *descriptors.ATTACKS,
]


async def measured(attack: Attack) -> Result:
    """Run *attack*; whatever goes wrong is its fault."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            with trio.fail_after(attack.timeout_s):
                return Result(attack.name, await attack.run(Path(directory)))
        except trio.TooSlowError:
            return Result(attack.name, [], f"not done after {attack.timeout_s:g} s")
        except Exception as error:
            return Result(attack.name, [], repr(error))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="attacks with this in the name")
    parser.add_argument("--list", action="store_true", help="only say which there are")
    arguments = parser.parse_args()
    say, tell = print, partial(print, file=sys.stderr, flush=True)
    chosen = [one for one in ATTACKS if any(part in one.name for part in arguments.only or [""])]
    if arguments.list or not chosen:
        say("\n".join(f"{one.name}: {one.summary}" for one in (chosen or ATTACKS)))
        return 0 if chosen else 2
    allow_many_files()
    began, results = time.monotonic(), []
    for attack in chosen:
        tell(f"{attack.name}: {attack.summary}")
        began_this = time.monotonic()
        results.append(trio.run(measured, attack))
        tell(table(results[-1:]))
        tell(f"{time.monotonic() - began_this:.0f} s, planned for {attack.planned_s:.0f} s\n")
    say(table(results))
    missed = sum(not one.is_met for one in results)
    took_s, planned_s = time.monotonic() - began, sum(one.planned_s for one in chosen)
    say(
        f"\n{len(results)} attacks in {took_s:.0f} s (planned for {planned_s:.0f} s on two idle "
        f"cores), {missed} with a goal missed"
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
