"""What it costs to catch up: a follower was away while the others took a lot of messages.

Starts a register and three brokers as processes, with default settings, and a topic on one
partition.  A follower is killed; the others take `--megabytes`; it is started again while
producers go on.  Measured: how long until it is in sync, what it wrote to its log for that
against what it lacked, and the producers' rate and latency while it was away, while it
caught up, and afterwards, in one run.  Prints JSON on standard output.

By default producers send at half the rate that this machine managed while the follower was
away: a machine whose processors are all busy has nothing left to catch up with.  `--load 1`
takes all.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Final

import attrs
import trio

import octopi
from tests.processes import NodeProcess, node_processes

TOPIC: Final = "measured"
VALUE: Final = b"x" * 1024
SETTLED_S: Final = 10.0
"""How long the rate is measured before and after."""


@attrs.frozen
class Window:
    """What a producer managed in a span."""

    megabytes_per_second: float
    latency_ms_median: float
    latency_ms_99: float


class Load:
    """One producer at a steady *rate* (bytes/s; None: all it can)."""

    def __init__(self, producer: octopi.Producer, rate: float | None) -> None:
        self.acknowledged_bytes = 0
        self.latencies_s: list[float] = []
        self._producer = producer
        self._rate = rate

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            due = trio.current_time()
            while True:
                for _ in range(16):
                    pending = await self._producer.submit(TOPIC, VALUE)
                nursery.start_soon(self._wait, pending, trio.current_time())
                if self._rate is not None:
                    due = max(due + 16 * len(VALUE) / self._rate, trio.current_time() - 0.1)
                    await trio.sleep_until(due)

    async def _wait(self, pending: octopi.PendingReceipt, sent_at: float) -> None:
        await pending
        self.latencies_s.append(trio.current_time() - sent_at)
        self.acknowledged_bytes += 16 * len(VALUE)

    def begin(self) -> tuple[float, int, int]:
        """The beginning of a window."""
        return trio.current_time(), self.acknowledged_bytes, len(self.latencies_s)

    def end(self, begin: tuple[float, int, int]) -> Window:
        """That window, until now."""
        at, acknowledged_bytes, count = begin
        seconds = trio.current_time() - at
        latencies = sorted(self.latencies_s[count:]) or [float("inf")]
        return Window(
            round((self.acknowledged_bytes - acknowledged_bytes) / 1e6 / seconds, 2),
            round(statistics.median(latencies) * 1000, 1),
            round(latencies[len(latencies) * 99 // 100] * 1000, 1),
        )


async def measure(arguments: argparse.Namespace, directory: Path) -> dict[str, object]:
    with node_processes(directory) as nodes:
        register = nodes.register()
        brokers = {n: nodes.broker(register, f"broker-{n}") for n in (1, 2, 3)}
        async with (
            octopi.connect(register.url) as client,
            client.producer() as producer,
            trio.open_nursery() as nursery,
        ):
            [place] = (await client.create_topic(TOPIC)).partitions
            partition = place.partition
            await fill(producer, arguments.megabytes / 10)
            leader, followers = await in_sync(client, 3)
            away = brokers[followers[0]]
            away.kill9()
            held = log_bytes(away, partition)
            began = trio.current_time()
            await fill(producer, arguments.megabytes)
            rate = arguments.megabytes * 1e6 / (trio.current_time() - began)
            print(f"filled at {rate / 1e6:.1f} MB/s", file=sys.stderr)
            load = Load(producer, None if arguments.load >= 1 else rate * arguments.load)
            nursery.start_soon(load.run)
            await trio.sleep(1)
            begin = load.begin()
            await trio.sleep(SETTLED_S)
            before = load.end(begin)
            await trio.to_thread.run_sync(away.start)
            began, begin = trio.current_time(), load.begin()
            await in_sync(client, 3)
            catch_up_s = trio.current_time() - began
            during = load.end(begin)
            lacked = log_bytes(away, partition) - held
            wrote = written_bytes(away)
            begin = load.begin()
            await trio.sleep(SETTLED_S)
            after = load.end(begin)
            nursery.cancel_scope.cancel()
    return {
        "leader": leader,
        "missing_megabytes": round(lacked / 1e6, 1),
        "written_megabytes": round(wrote / 1e6, 1),
        "written_for_missing": round(wrote / lacked, 3),
        "catch_up_s": round(catch_up_s, 1),
        "catch_up_megabytes_per_second": round(lacked / 1e6 / catch_up_s, 1),
        "producer_before": attrs.asdict(before),
        "producer_during": attrs.asdict(during),
        "producer_after": attrs.asdict(after),
        "rate_during_for_before": round(
            during.megabytes_per_second / before.megabytes_per_second, 3
        ),
    }


async def fill(producer: octopi.Producer, megabytes: float) -> None:
    for _ in range(round(megabytes * 1e6) // len(VALUE)):
        await producer.submit(TOPIC, VALUE)
    await producer.flush()


async def in_sync(client: octopi.Client, count: int) -> tuple[int, list[int]]:
    """Wait until so many replicas are in sync; return the leader and its followers."""
    while True:
        [place] = (await client.describe_topic(TOPIC)).partitions
        if place.leader is not None and len(place.in_sync) == count:
            return place.leader, [one for one in place.in_sync if one != place.leader]
        await trio.sleep(0.05)


def log_bytes(broker: NodeProcess, partition: int) -> int:
    """How long that broker's log is on its disk."""
    directory = broker.data_dir / "logs" / str(partition) / TOPIC
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def written_bytes(broker: NodeProcess) -> int:
    """What that process has written to files since it was started."""
    for line in Path(f"/proc/{broker.pid}/io").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "wchar":
            return int(value)
    raise AssertionError("the system counts no writes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=1000.0)
    parser.add_argument("--load", type=float, default=0.5, help="share of what is possible")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = trio.run(measure, arguments, Path(directory))
    print(
        json.dumps(
            {
                "machine": {
                    "cpus": os.cpu_count(),
                    "system": platform.platform(),
                    "python": platform.python_version(),
                },
                "octopi": octopi.__version__,
                "load": arguments.load,
                **figures,
            },
            indent=2,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
