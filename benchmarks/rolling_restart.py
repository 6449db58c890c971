"""Measures how long producers wait when brokers are restarted one after another, stopped or killed.

Starts a register and brokers as processes, with default settings.  Each partition has a producer,
which sends a message every few milliseconds without waiting for receipts.  Then each broker in turn
is ended and started again, once all replicas are in sync.  Rounds with SIGTERM and rounds with
SIGKILL alternate, so that both meet the same conditions.

A pause is the longest time between two acknowledgements of one partition's messages, from the
moment at which a broker is ended until all replicas are in sync again.  So it includes everything
that a restart costs, also the return of the broker and the balancing of leaders.  The same is
measured in a quiet span just before, which shows what the machine itself adds.  Messages that were
refused for good are counted; there must be none.

Prints JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import trio

import octopi
from benchmarks.pauses import TOPIC, Stream, leaders_at_rest, longest_gap_s, machine, summary
from harness.processes import NodeProcess, node_processes

QUIET_S = 3.0
"""How long partitions are watched before each restart."""
GOAL_S = 0.3
"""The longest pause that a planned stop may cause on a quiet machine."""


def pauses_s(streams: list[Stream], begin: float, end: float) -> list[float]:
    """The longest pause of each partition between *begin* and *end*."""
    return [longest_gap_s(one.acknowledged_at, begin, end) for one in streams]


async def measure(arguments: argparse.Namespace, directory: Path) -> dict[str, list[float]]:
    figures: defaultdict[str, list[float]] = defaultdict(list)
    with node_processes(directory) as nodes:
        register = nodes.register()
        brokers = {
            n: nodes.broker(register, f"broker-{n}") for n in range(1, arguments.brokers + 1)
        }
        async with octopi.connect(register.url) as client, trio.open_nursery() as nursery:
            info = await client.create_topic(
                TOPIC, arguments.partitions, min_insync=arguments.min_insync
            )
            streams = [Stream(one.partition) for one in info.partitions]
            for stream in streams:
                nursery.start_soon(stream.produce, register.url, arguments.interval_ms / 1000)
            for number in range(2 * arguments.rounds):
                kind = ("SIGTERM", "SIGKILL")[number % 2]
                for broker, process in brokers.items():
                    leaders = await leaders_at_rest(client)
                    begin = trio.current_time()
                    await trio.sleep(QUIET_S)
                    ended_at = trio.current_time()
                    figures["quiet"] += pauses_s(streams, begin, ended_at)
                    await trio.to_thread.run_sync(restart, process, signal.Signals[kind])
                    await leaders_at_rest(client)
                    back_at = trio.current_time()
                    pauses = pauses_s(streams, ended_at, back_at)
                    figures[kind] += pauses
                    led = [one for one in streams if leaders[one.partition] == broker]
                    figures[f"{kind}, led"] += pauses_s(led, ended_at, back_at)
                    print(f"{kind} of broker {broker}: {max(pauses):.3f} s", file=sys.stderr)
            figures["refused"] = [float(sum(len(one.refusals) for one in streams))]
            nursery.cancel_scope.cancel()
    return figures


def restart(process: NodeProcess, how: signal.Signals) -> None:
    """End the broker with *how*, wait until it is gone, and start it again."""
    if how is signal.SIGKILL:
        process.kill9()
    else:
        process.terminate()
    process.restart()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="with each signal")
    parser.add_argument("--brokers", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--min-insync", type=int, default=2)
    parser.add_argument("--interval-ms", type=float, default=5.0, help="between messages")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = trio.run(measure, arguments, Path(directory))
    stopped, killed = figures["SIGTERM, led"], figures["SIGKILL, led"]
    worst_s = max(figures["SIGTERM"])
    print(
        json.dumps(
            {
                "machine": machine(),
                "octopi": octopi.__version__,
                "rounds": arguments.rounds,
                "brokers": arguments.brokers,
                "partitions": arguments.partitions,
                "min_insync": arguments.min_insync,
                "quiet": summary(figures["quiet"]),
                "stopped_leaders": summary(stopped),
                "killed_leaders": summary(killed),
                "all_partitions_stopped": summary(figures["SIGTERM"]),
                "all_partitions_killed": summary(figures["SIGKILL"]),
                "ratio_of_medians": round(
                    statistics.median(stopped) / statistics.median(killed), 2
                ),
                "refused_for_good": int(figures["refused"][0]),
                "goal_s": GOAL_S,
                "within_goal": worst_s <= GOAL_S,
            },
            indent=2,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
