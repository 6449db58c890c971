"""How long a partition takes no messages after its leader was killed.

Starts a register and brokers as processes, with default settings.  One producer a partition
sends a message every few milliseconds and waits for none of them.  Again and again the
leader of one partition gets SIGKILL (or SIGSTOP: it hangs, and its connections stay open).
A partition is unavailable for the longest time between two acknowledgements of its messages.
Measured at once: the same for the partitions that other brokers led, and for all partitions
in a quiet span of the same length just before, which says what this machine adds by itself.
Prints JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
from functools import partial
from itertools import pairwise
from pathlib import Path

import trio

import octopi
from octopi.limits import MEMBERSHIP_HEARTBEAT_TIMEOUT_S
from tests.processes import NodeProcess, node_processes

TOPIC = "measured"
SPAN_S = 3.0
"""Watched before a kill, and at least so long behind it."""
REST_S = 2.0
"""The register evens out leaderships when a broker is back; not within this: it is done."""


class Stream:
    """Messages to one partition, and when each was acknowledged."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.acknowledged_at: list[float] = []

    async def run(self, url: str, interval_s: float) -> None:
        async with (
            octopi.connect(url) as client,
            client.producer(linger_s=0) as producer,
            trio.open_nursery() as nursery,
        ):
            due = trio.current_time()
            while True:
                due = max(due + interval_s, trio.current_time() - 1)
                pending = await producer.submit(TOPIC, b"x" * 100, partition=self.partition)
                nursery.start_soon(self._wait, pending)
                await trio.sleep_until(due)

    async def _wait(self, pending: octopi.PendingReceipt) -> None:
        await pending
        self.acknowledged_at.append(trio.current_time())

    def longest_gap_s(self, begin: float, end: float) -> float:
        """The longest time without acknowledgement between two times."""
        times = [at for at in self.acknowledged_at if begin <= at <= end]
        return max(after - before for before, after in pairwise([begin, *times, end]))

    async def acknowledges(self, since: float) -> None:
        """Wait for an acknowledgement."""
        while not self.acknowledged_at or self.acknowledged_at[-1] < since:  # noqa: ASYNC110
            await trio.sleep(0.02)


async def measure(arguments: argparse.Namespace, directory: Path) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {"killed": [], "others": [], "before": []}
    with node_processes(directory) as nodes:
        register = nodes.register()
        brokers = {
            n: nodes.broker(register, f"broker-{n}") for n in range(1, arguments.brokers + 1)
        }
        async with octopi.connect(register.url) as client, trio.open_nursery() as nursery:
            info = await client.create_topic(TOPIC, arguments.partitions)
            streams = {one.partition: Stream(one.partition) for one in info.partitions}
            for stream in streams.values():
                nursery.start_soon(stream.run, register.url, arguments.interval_ms / 1000)
            for kill in range(arguments.kills):
                leaders = await leaders_at_rest(client)
                begin = trio.current_time()
                await trio.sleep(SPAN_S)
                victim = leaders[next(iter(streams))]
                killed_at = trio.current_time()
                figures["before"].append(
                    max(one.longest_gap_s(begin, killed_at) for one in streams.values())
                )
                brokers[victim].signal(arguments.signal)
                await trio.sleep(SPAN_S)
                for stream in streams.values():
                    await stream.acknowledges(killed_at + SPAN_S - 0.5)
                end = trio.current_time()
                for partition, stream in streams.items():
                    kind = "killed" if leaders[partition] == victim else "others"
                    figures[kind].append(stream.longest_gap_s(killed_at, end))
                figures.setdefault("measured", []).append(
                    streams[next(iter(streams))].longest_gap_s(killed_at, end)
                )
                print(f"{kill + 1}: {figures['measured'][-1]:.3f} s", file=sys.stderr)
                await trio.to_thread.run_sync(partial(revive, brokers[victim]))
            nursery.cancel_scope.cancel()
    return figures


def revive(broker: NodeProcess) -> None:
    """Have it serve again, whichever way it was ended."""
    broker.signal(signal.SIGCONT)
    broker.kill9()
    broker.restart()


async def leaders_at_rest(client: octopi.Client) -> dict[int, int]:
    """Wait until all replicas are in sync, and nothing is evened out any more; return the
    leader of each partition."""
    leaders: dict[int, int] = {}
    while True:
        seen = (await client.describe_cluster()).partitions
        before = leaders
        leaders = {one.partition: one.leader for one in seen if one.leader is not None}
        in_sync = all(len(one.in_sync) == len(one.replicas) for one in seen)
        if leaders == before and in_sync and len(leaders) == len(seen):
            return leaders
        await trio.sleep(REST_S)


def summary(seconds: list[float]) -> dict[str, float]:
    return {
        "count": len(seconds),
        "median_s": round(statistics.median(seconds), 3),
        "max_s": round(max(seconds), 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--interval-ms", type=float, default=5.0, help="between messages")
    parser.add_argument(
        "--signal", type=lambda name: signal.Signals[name], default=signal.SIGKILL, metavar="NAME"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = trio.run(measure, arguments, Path(directory))
    measured = summary(figures["measured"])
    bound_s = min(2 * MEMBERSHIP_HEARTBEAT_TIMEOUT_S, 1.5)
    print(
        json.dumps(
            {
                "machine": {
                    "cpus": os.cpu_count(),
                    "system": platform.platform(),
                    "python": platform.python_version(),
                },
                "octopi": octopi.__version__,
                "signal": arguments.signal.name,
                "kills": arguments.kills,
                "failure_detection_s": MEMBERSHIP_HEARTBEAT_TIMEOUT_S,
                "one_partition": measured,
                "all_partitions_of_killed_leaders": summary(figures["killed"]),
                "partitions_of_other_leaders": summary(figures["others"]),
                "all_partitions_before": summary(figures["before"]),
                "bound_s": bound_s,
                "within_bound": measured["max_s"] <= bound_s,
            },
            indent=2,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
