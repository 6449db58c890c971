"""Measures what durable subscriptions cost: ``python -m benchmarks.subscriptions``.

Starts a register and one broker as processes, with default settings.  In each round the same
messages of 100 B are consumed by a plain consumer and through a subscription that marks each batch
(or message) and commits at the end.  Then as many are produced to a topic without subscriptions,
and to one with many subscriptions that have no member.

The two runs of a pair follow each other directly, and their order changes from round to round.  A
ratio compares the rates of a pair: above 1, the run with subscriptions is faster.  The processor
time is that of client, register and broker together, per message.  Prints JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

import octopi
from benchmarks.machine import machine
from benchmarks.processes import main_thread_s
from harness.processes import NodeProcess, node_processes

READ: Final = "read"
WITHOUT: Final = "without"
WITH: Final = "with"
VALUE: Final = bytes(100)
_GROUP: Final = 1000
_AT_A_TIME: Final = 20
"""How many subscriptions are created at once."""


@attrs.frozen
class Run:
    """One measured run."""

    rate: float
    """Messages per second."""
    cpu_us: float
    """The processor time of all processes per message, in microseconds."""


@attrs.define
class Meter:
    """Measures runs in which *count* messages pass between *nodes* and this process."""

    nodes: list[NodeProcess]
    count: int
    run: Run | None = None
    """The last measured run."""

    @contextmanager
    def on(self) -> Iterator[None]:
        """Measure the block as a run."""
        cpu_s, began = self._cpu_s(), time.perf_counter()
        yield
        wall_s, used_s = time.perf_counter() - began, self._cpu_s() - cpu_s
        self.run = Run(self.count / wall_s, used_s / self.count * 1e6)

    def _cpu_s(self) -> float:
        return time.process_time() + sum(main_thread_s(one.pid) for one in self.nodes)


Way = Callable[[Meter], Awaitable[None]]


@attrs.define
class Pair:
    """Two ways that are compared, and their runs."""

    name: str
    plain: Way
    other: Way
    runs: list[tuple[Run, Run]] = attrs.field(factory=list)

    def report(self) -> dict[str, object]:
        """The medians of both ways, and the ratio of each pair of runs."""
        ratios = [other.rate / plain.rate for plain, other in self.runs]
        median = statistics.median
        return {
            "ratio": round(median(ratios), 3),
            "ratios": [round(one, 3) for one in ratios],
            "plain_per_s": round(median(plain.rate for plain, _ in self.runs)),
            "other_per_s": round(median(other.rate for _, other in self.runs)),
            "plain_cpu_us": round(median(plain.cpu_us for plain, _ in self.runs), 2),
            "other_cpu_us": round(median(other.cpu_us for _, other in self.runs), 2),
        }


async def _measured(way: Way, meter: Meter) -> Run:
    await way(meter)
    assert meter.run is not None
    return meter.run


async def _produce(client: octopi.Client, topic: str, meter: Meter) -> None:
    async with client.producer() as producer:
        await producer.send(topic, VALUE)
        with meter.on():
            for _ in range(0, meter.count, _GROUP):
                await producer.submit_many(topic, [VALUE] * _GROUP)
            await producer.flush()


async def _consume(client: octopi.Client, meter: Meter, *, in_batches: bool) -> None:
    async with client.consumer(READ, start="earliest") as consumer:
        seen = 0
        with meter.on():
            while seen < meter.count:
                if in_batches:
                    seen += len(list(await consumer.next_batch() or ()))
                else:
                    await anext(consumer)
                    seen += 1


async def _consume_marking(client: octopi.Client, meter: Meter, *, in_batches: bool) -> None:
    name = f"reader-{time.monotonic_ns()}"
    async with client.subscription(READ, name, start="earliest") as subscription:
        seen = 0
        with meter.on():
            while seen < meter.count:
                if in_batches:
                    seen += len(await subscription.next_batch())
                else:
                    await anext(subscription)
                    seen += 1
            await subscription.commit()
    await client.admin.delete_subscription(READ, name)


async def _subscribe(client: octopi.Client, topic: str, count: int) -> None:
    """Create *count* subscriptions without members."""
    async with trio.open_nursery() as nursery:
        limit = trio.CapacityLimiter(_AT_A_TIME)

        async def make(number: int) -> None:
            async with limit:
                await client.admin.create_subscription(topic, f"idle-{number}", start="latest")

        for number in range(count):
            nursery.start_soon(make, number)


async def measure(directory: Path, arguments: argparse.Namespace) -> dict[str, object]:
    """Measure all pairs in all rounds; return the report of each by its name."""
    with node_processes(directory) as processes:
        register = processes.register()
        meter = Meter([register, processes.broker(register)], arguments.messages)
        async with octopi.connect(register.url) as client:
            for topic in (READ, WITHOUT, WITH):
                await client.create_topic(topic, 1)
            await _produce(client, READ, meter)
            pairs = [
                Pair(
                    name,
                    partial(_consume, client, in_batches=in_batches),
                    partial(_consume_marking, client, in_batches=in_batches),
                )
                for name, in_batches in (("consumed in batches", True), ("consumed singly", False))
            ]
            await _rounds(pairs, meter, arguments.rounds)
            await _subscribe(client, WITH, arguments.subscriptions)
            produced = Pair(
                f"produced beside {arguments.subscriptions} idle subscriptions",
                partial(_produce, client, WITHOUT),
                partial(_produce, client, WITH),
            )
            await _rounds([produced], meter, arguments.rounds)
    return {one.name: one.report() for one in (*pairs, produced)}


async def _rounds(pairs: list[Pair], meter: Meter, rounds: int) -> None:
    for number in range(rounds):
        for pair in pairs:
            if number % 2:
                other = await _measured(pair.other, meter)
                plain = await _measured(pair.plain, meter)
            else:
                plain = await _measured(pair.plain, meter)
                other = await _measured(pair.other, meter)
            pair.runs.append((plain, other))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000, help="of each run")
    parser.add_argument("--subscriptions", type=int, default=1_000, help="without members")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = trio.run(measure, Path(directory), arguments)
    print(json.dumps({"machine": machine(), "octopi": octopi.__version__, **figures}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
