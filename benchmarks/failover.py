"""Measures how long a partition accepts and delivers no messages after its leader was killed.

Starts a register and brokers as processes, with default settings.  Each partition has one producer,
which sends a message every few milliseconds without waiting for receipts, and one consumer.
Repeatedly, the leader of one partition gets SIGKILL.  With `--signal SIGSTOP` it hangs instead, and
its connections stay open.

A partition is unavailable to its producer for the longest time between two acknowledgements, and to
its consumer for the longest time between two deliveries.  The same is measured for the partitions
that other brokers led, and for all partitions in a quiet span just before, which shows what the
machine itself adds.  With SIGSTOP the partitions of other leaders stand still, too, for as long as
their leaders wait for an in-sync follower that hangs.

Prints JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections import defaultdict
from functools import partial
from pathlib import Path

import trio

import octopi
from benchmarks.pauses import TOPIC, Stream, leaders_at_rest, longest_gap_s, machine, summary
from harness.processes import NodeProcess, node_processes
from octopi.limits import MEMBERSHIP_HEARTBEAT_TIMEOUT_S

SPAN_S = 3.0
"""How long partitions are watched before a kill, and at least how long after it."""


class WatchedStream(Stream):
    """A stream with a consumer, and when it got each batch."""

    def __init__(self, partition: int) -> None:
        super().__init__(partition)
        self.delivered_at: list[float] = []

    async def consume(self, url: str) -> None:
        async with (
            octopi.connect(url) as client,
            client.consumer(TOPIC, partitions=[self.partition]) as consumer,
        ):
            async for _batch in consumer.batches():
                self.delivered_at.append(trio.current_time())

    async def flows(self, since: float) -> None:
        """Wait until there was an acknowledgement and a delivery at *since* or later."""
        for times in (self.acknowledged_at, self.delivered_at):
            while not times or times[-1] < since:  # noqa: ASYNC110
                await trio.sleep(0.02)


async def measure(arguments: argparse.Namespace, directory: Path) -> dict[str, list[float]]:
    figures: defaultdict[str, list[float]] = defaultdict(list)
    with node_processes(directory) as nodes:
        register = nodes.register()
        brokers = {
            n: nodes.broker(register, f"broker-{n}") for n in range(1, arguments.brokers + 1)
        }
        async with octopi.connect(register.url) as client, trio.open_nursery() as nursery:
            info = await client.create_topic(TOPIC, arguments.partitions)
            streams = {one.partition: WatchedStream(one.partition) for one in info.partitions}
            for stream in streams.values():
                nursery.start_soon(stream.produce, register.url, arguments.interval_ms / 1000)
                nursery.start_soon(stream.consume, register.url)
            for kill in range(arguments.kills):
                leaders = await leaders_at_rest(client)
                begin = trio.current_time()
                await trio.sleep(SPAN_S)
                victim = leaders[next(iter(streams))]
                killed_at = trio.current_time()
                figures["before"].append(
                    max(
                        longest_gap_s(one.acknowledged_at, begin, killed_at)
                        for one in streams.values()
                    )
                )
                brokers[victim].signal(arguments.signal)
                await trio.sleep(SPAN_S)
                for stream in streams.values():
                    await stream.flows(killed_at + SPAN_S - 0.5)
                end = trio.current_time()
                for partition, stream in streams.items():
                    kind = "killed" if leaders[partition] == victim else "others"
                    figures[kind].append(longest_gap_s(stream.acknowledged_at, killed_at, end))
                    figures[f"{kind}, deliveries"].append(
                        longest_gap_s(stream.delivered_at, killed_at, end)
                    )
                first = streams[next(iter(streams))]
                figures["measured"].append(longest_gap_s(first.acknowledged_at, killed_at, end))
                print(f"{kill + 1}: {figures['measured'][-1]:.3f} s", file=sys.stderr)
                await trio.to_thread.run_sync(partial(revive, brokers[victim]))
            figures["refused"] = [float(sum(len(one.refusals) for one in streams.values()))]
            nursery.cancel_scope.cancel()
    return figures


def revive(broker: NodeProcess) -> None:
    """Restart a broker that was killed or suspended."""
    broker.signal(signal.SIGCONT)
    broker.kill9()
    broker.restart()


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
                "machine": machine(),
                "octopi": octopi.__version__,
                "signal": arguments.signal.name,
                "kills": arguments.kills,
                "failure_detection_s": MEMBERSHIP_HEARTBEAT_TIMEOUT_S,
                "one_partition": measured,
                "all_partitions_of_killed_leaders": summary(figures["killed"]),
                "their_consumers": summary(figures["killed, deliveries"]),
                "partitions_of_other_leaders": summary(figures["others"]),
                "consumers_of_other_partitions": summary(figures["others, deliveries"]),
                "all_partitions_before": summary(figures["before"]),
                "refused_for_good": int(figures["refused"][0]),
                "bound_s": bound_s,
                "within_bound": measured["max_s"] <= bound_s,
            },
            indent=2,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
