"""The search for faults on the command line: ``python -m sim run``, ``python -m sim replay``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from sim.marks import MARKS
from sim.plan import from_token, is_stale, to_token
from sim.simulation import Verdict, simulate
from sim.swarm import describe, draw

_TEXT_SHOWN = 300


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the plans of many seeds")
    run.add_argument("--seeds", type=int, default=100, help="how many")
    run.add_argument("--first", type=int, default=1)
    run.add_argument("--tier", choices=("message", "websocket"))
    replay = commands.add_parser("replay", help="run one plan again")
    replay.add_argument("token", help="what a run printed, or a seed")
    replay.add_argument("--events", type=int, default=0, help="print so many of the last events")
    arguments = parser.parse_args()
    if arguments.command == "run":
        return _run(arguments.first, arguments.seeds, arguments.tier)
    return _replay(arguments.token, arguments.events)


def _run(first: int, count: int, tier: str | None) -> int:
    began, failed = time.monotonic(), 0
    marks: Counter[str] = Counter()
    for seed in range(first, first + count):
        plan = draw(seed, tier)  # type: ignore[arg-type]  # argparse allows no other
        try:
            verdict = simulate(plan, events_kept=100)
        except BaseException:
            print(f"seed {seed}: the simulator itself failed: {to_token(plan)}", flush=True)
            raise
        marks.update(verdict.marks.keys())
        if verdict.violation is not None:
            failed += 1
            print(f"seed {seed}: {str(verdict.violation)[:_TEXT_SHOWN]}")
            print(f"  python -m sim replay '{to_token(plan)}'", flush=True)
    seconds = time.monotonic() - began
    print(f"{count} seeds, {failed} failed, {seconds:.1f} s, {count / seconds * 60:.0f} a minute")
    print("never seen:", ", ".join(one for one in MARKS if one not in marks) or "nothing")
    return 1 if failed else 0


def _replay(token: str, events: int) -> int:
    plan = draw(int(token)) if token.isdecimal() else from_token(token)
    if not token.isdecimal() and is_stale(token):
        print("made with other versions of Trio or the WebSocket stack: it may run otherwise")
    print(describe(plan))
    verdict = simulate(plan)
    for event in verdict.events[-events:] if events else ():
        print(event)
    _show(verdict)
    return 1 if verdict.violation else 0


def _show(verdict: Verdict) -> None:
    print(f"{verdict.seconds:.3f} s, digest {verdict.digest}, {verdict.counts}")
    if verdict.violation is None:
        print("all is well")
        return
    print(verdict.violation)
    print(verdict.details)


if __name__ == "__main__":
    sys.exit(main())
