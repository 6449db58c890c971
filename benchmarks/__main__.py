"""``python -m benchmarks``: runs all workloads with Octopi and its peers, in turn.

Prints a table on standard error and JSON on standard output.  A peer that can't be measured here is
named and left out.  ``--quick`` runs the part of the workloads that fits in three minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import document, machine, table
from benchmarks.runner import Result, Runner, module_of
from benchmarks.systems import NAMES
from benchmarks.workloads import load

QUICK_S = 150.0
"""After this time ``--quick`` begins no other workload; the one that runs is finished."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="what fits in three minutes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="workloads with this text in their names")
    parser.add_argument("--systems", default=",".join(NAMES), help="comma-separated")
    arguments = parser.parse_args()
    systems = []
    for name in arguments.systems.split(","):
        why = module_of(name).missing()
        if why is None:
            systems.append(name)
        else:
            print(f"{name} is left out: {why}", file=sys.stderr)
    workloads = [
        one for one in load() if arguments.only in one.name and (one.quick or not arguments.quick)
    ]
    began = time.monotonic()
    results: list[Result] = []
    with (
        tempfile.TemporaryDirectory(prefix="octopi-bench-", ignore_cleanup_errors=True) as folder,
        Runner(Path(folder), systems) as runner,
    ):
        for workload in workloads:
            if arguments.quick and time.monotonic() - began > QUICK_S:
                print(f"{workload.name} is left out: the time is up", file=sys.stderr)
                continue
            results += runner.run(workload, 3 if arguments.quick else arguments.rounds)
            print(f"done: {workload.name}", file=sys.stderr)
    print(table(results), file=sys.stderr)
    json.dump({"machine": machine(), "results": document(results)}, sys.stdout, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
