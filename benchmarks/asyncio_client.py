"""Compares the client for asyncio with that for Trio: ``python -m benchmarks.asyncio_client``.

Starts a register and one broker as processes, with default settings.  In each round both clients do
the same in this process: they produce messages of 100 B in calls of a thousand, or one by one
without waiting for receipts, or one by one with its receipt each; and they consume as many, in
batches or singly.

The two runs of a pair follow each other directly, and their order changes from round to round.  A
ratio compares the rates of a pair: above 1, the client for asyncio is faster.  The processor time
is that of client, register and broker together, per message.  Prints JSON on standard output.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

import octopi
import octopi.aio
from benchmarks.machine import machine
from benchmarks.subscriptions import Meter, Run
from harness.processes import node_processes

READ: Final = "read"
WRITTEN: Final = "written"
VALUE: Final = bytes(100)
_GROUP: Final = 1000
_ACKNOWLEDGED_SHARE: Final = 100
"""The workload that waits for each receipt sends one hundredth of the messages."""

Program = Callable[[octopi.Client | octopi.aio.Client, Meter], Awaitable[None]]


@attrs.frozen
class Comparison:
    """One program for both clients: they have the same methods."""

    name: str
    program: Program
    meter: Meter
    runs: list[tuple[Run, Run]] = attrs.field(factory=list)
    """Of the client for Trio, and of that for asyncio."""

    def measure(self, url: str, *, asyncio_first: bool) -> None:
        """Add a pair of runs."""
        if asyncio_first:
            other, plain = self._in_asyncio(url), self._in_trio(url)
        else:
            plain, other = self._in_trio(url), self._in_asyncio(url)
        self.runs.append((plain, other))

    def _in_trio(self, url: str) -> Run:
        async def main() -> None:
            async with octopi.connect(url) as client:
                await self.program(client, self.meter)

        trio.run(main)
        return self._last()

    def _in_asyncio(self, url: str) -> Run:
        async def main() -> None:
            async with octopi.aio.connect(url) as client:
                await self.program(client, self.meter)

        asyncio.run(main())
        return self._last()

    def _last(self) -> Run:
        assert self.meter.run is not None
        return self.meter.run

    def report(self) -> dict[str, object]:
        """The medians of both clients, and the ratio of each pair of runs."""
        ratios = [other.rate / plain.rate for plain, other in self.runs]
        median = statistics.median
        return {
            "ratio": round(median(ratios), 3),
            "ratios": [round(one, 3) for one in ratios],
            "trio_per_s": round(median(plain.rate for plain, _ in self.runs)),
            "asyncio_per_s": round(median(other.rate for _, other in self.runs)),
            "trio_cpu_us": round(median(plain.cpu_us for plain, _ in self.runs), 2),
            "asyncio_cpu_us": round(median(other.cpu_us for _, other in self.runs), 2),
        }


async def _produce_many(client: octopi.Client | octopi.aio.Client, meter: Meter) -> None:
    async with client.producer() as producer:
        await producer.send(WRITTEN, VALUE)
        with meter.on():
            for _ in range(0, meter.count, _GROUP):
                await producer.submit_many(WRITTEN, [VALUE] * _GROUP)
            await producer.flush()


async def _produce(client: octopi.Client | octopi.aio.Client, meter: Meter) -> None:
    async with client.producer() as producer:
        await producer.send(WRITTEN, VALUE)
        with meter.on():
            for _ in range(meter.count):
                await producer.submit(WRITTEN, VALUE)
            await producer.flush()


async def _send(client: octopi.Client | octopi.aio.Client, meter: Meter) -> None:
    async with client.producer() as producer:
        await producer.send(WRITTEN, VALUE)
        with meter.on():
            for _ in range(meter.count):
                await producer.send(WRITTEN, VALUE)


async def _consume_batches(client: octopi.Client | octopi.aio.Client, meter: Meter) -> None:
    async with client.consumer(READ, start="earliest") as consumer:
        seen = 0
        with meter.on():
            while seen < meter.count:
                seen += len(list(await consumer.next_batch() or ()))


async def _consume(client: octopi.Client | octopi.aio.Client, meter: Meter) -> None:
    async with client.consumer(READ, start="earliest") as consumer:
        with meter.on():
            for _ in range(meter.count):
                await anext(consumer)


async def _fill(url: str, count: int) -> None:
    async with octopi.connect(url) as client:
        for topic in (READ, WRITTEN):
            await client.create_topic(topic)
        async with client.producer() as producer:
            for _ in range(0, count, _GROUP):
                await producer.submit_many(READ, [VALUE] * _GROUP)


def measure(directory: Path, arguments: argparse.Namespace) -> dict[str, object]:
    """Measure all pairs in all rounds; return the report of each by its name."""
    with node_processes(directory) as processes:
        register = processes.register()
        nodes = [register, processes.broker(register)]
        many = partial(Meter, nodes, arguments.messages)
        some = partial(Meter, nodes, arguments.messages // _ACKNOWLEDGED_SHARE)
        trio.run(_fill, register.url, arguments.messages)
        comparisons = [
            Comparison("produced, a thousand a call", _produce_many, many()),
            Comparison("produced singly", _produce, many()),
            Comparison("produced and acknowledged one by one", _send, some()),
            Comparison("consumed in batches", _consume_batches, many()),
            Comparison("consumed singly", _consume, many()),
        ]
        for number in range(arguments.rounds):
            for one in comparisons:
                one.measure(register.url, asyncio_first=number % 2 == 1)
    return {one.name: one.report() for one in comparisons}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=300_000, help="of each run")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = measure(Path(directory), arguments)
    print(json.dumps({"machine": machine(), "octopi": octopi.__version__, **figures}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
