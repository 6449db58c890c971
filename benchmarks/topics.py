"""Measures how long it takes to create topics: many at once, as `octopi-node topics create` does
with several names, and the same number one after the other.

Starts a register and brokers as processes, with default settings.  In each round both ways create
topics of new names in the same cluster, in turn, the other first in every second round.  The ratio
is that of a round's two times.

Prints JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Final

import attrs
import trio

import octopi
from benchmarks.pauses import machine, summary
from benchmarks.processes import cpu_s
from harness.processes import NodeProcess, node_processes

GOAL_S: Final = 1.0
"""The time in which 200 topics are to be there on three brokers."""


@attrs.frozen
class Run:
    """What the creation of a round's topics took."""

    wall_s: float
    cpu_s: dict[str, float]
    """Processor time of each process."""


async def measure(directory: Path, arguments: argparse.Namespace) -> dict[str, list[Run]]:
    """All runs of each way."""
    runs: dict[str, list[Run]] = {"at once": [], "one by one": []}
    with node_processes(directory) as processes:
        register = processes.register()
        brokers = [
            processes.broker(register, f"broker-{n}") for n in range(1, arguments.brokers + 1)
        ]
        nodes = [register, *brokers]
        async with octopi.connect(register.url) as client:
            await client.create_topic("first")  # connections are open, and partitions have leaders
            for number in range(arguments.rounds):
                for way in sorted(runs, reverse=bool(number % 2)):
                    names = [
                        f"{way.replace(' ', '-')}-{number}-{n}" for n in range(arguments.topics)
                    ]
                    run = await created(client, names, nodes, at_once=way == "at once")
                    runs[way].append(run)
                    print(f"{way}: {run.wall_s:.3f} s", file=sys.stderr)
    return runs


async def created(
    client: octopi.Client, names: list[str], nodes: list[NodeProcess], *, at_once: bool
) -> Run:
    """Create topics of these *names*."""
    before = {node.name: cpu_s(node.pid) for node in nodes}
    began = trio.current_time()
    if at_once:
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(client.create_topic, name)
    else:
        for name in names:
            await client.create_topic(name)
    wall_s = trio.current_time() - began
    return Run(wall_s, {node.name: cpu_s(node.pid) - before[node.name] for node in nodes})


def report(runs: list[Run]) -> dict[str, object]:
    """The median of *runs*, in all and for each process."""
    return {
        **summary([one.wall_s for one in runs]),
        "cpu_s": {
            name: round(statistics.median(one.cpu_s[name] for one in runs), 2)
            for name in runs[0].cpu_s
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        runs = trio.run(measure, Path(directory), arguments)
    ratios = [
        one.wall_s / other.wall_s
        for one, other in zip(runs["one by one"], runs["at once"], strict=True)
    ]
    at_once = report(runs["at once"])
    print(
        json.dumps(
            {
                "machine": machine(),
                "octopi": octopi.__version__,
                "topics": arguments.topics,
                "brokers": arguments.brokers,
                "rounds": arguments.rounds,
                "at once": at_once,
                "one by one": report(runs["one by one"]),
                "one by one / at once": {
                    "median": round(statistics.median(ratios), 2),
                    "smallest": round(min(ratios), 2),
                    "greatest": round(max(ratios), 2),
                },
                "goal_s": GOAL_S,
                "within_goal": statistics.median(one.wall_s for one in runs["at once"]) <= GOAL_S,
            },
            indent=2,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
