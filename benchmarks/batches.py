"""Compares ways to take messages: ``python -m benchmarks.batches``.

Starts a register and one broker as processes, with default settings, and stores messages of 100 B
and of 1 KiB.  In each round this process reads all of them several times, in each way once: message
by message, as the messages of batches, as the values of batches, and as values and offsets in a
record batch of Arrow (if pyarrow is installed).  The order of the ways turns from round to round.

What is compared is the client's processor time for a message; nodes don't count.  A ratio compares
two runs of one round with each other: above 1, the way costs less than message by message.  Minor
page faults for a message (`ru_minflt`) are counted, too.  Prints JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any, Final, NamedTuple

import trio

import octopi
from benchmarks.machine import machine
from harness.processes import node_processes

SIZES: Final = (100, 1024)
_GROUP: Final = 1000

Way = Callable[[octopi.Consumer], Awaitable[int]]
"""Takes everything that a consumer has, and returns the size of the values in bytes."""


async def _messages(consumer: octopi.Consumer) -> int:
    size_bytes = 0
    async for message in consumer:
        size_bytes += len(message.value)
    return size_bytes


async def _messages_of_batches(consumer: octopi.Consumer) -> int:
    size_bytes = 0
    async for batch in consumer.batches():
        for message in batch:
            size_bytes += len(message.value)
    return size_bytes


async def _values(consumer: octopi.Consumer) -> int:
    size_bytes = 0
    async for batch in consumer.batches():
        for value in batch.values():
            size_bytes += len(value)
    return size_bytes


async def _arrow(consumer: octopi.Consumer) -> int:
    import pyarrow as pa

    size_bytes = 0
    async for batch in consumer.batches():
        rows: Any = pa.record_batch(
            [pa.array(batch.offsets, pa.int64()), pa.array(batch.values(), pa.binary())],
            names=["offset", "value"],
        )
        size_bytes += rows.column("value").buffers()[2].size
    return size_bytes


WAYS: Final[dict[str, Way]] = {
    "messages, one by one": _messages,
    "messages of batches": _messages_of_batches,
    "values of batches": _values,
    "values and offsets in Arrow": _arrow,
}


async def _fill(url: str, count: int) -> None:
    async with octopi.connect(url) as client:
        for size in SIZES:
            await client.create_topic(f"of-{size}")
            async with client.producer() as producer:
                for _ in range(0, count, _GROUP):
                    await producer.submit_many(f"of-{size}", [bytes(size)] * _GROUP)


class _Cost(NamedTuple):
    """What a message costs this process."""

    cpu_us: float
    faults: float
    """Minor page faults."""


async def _cost(url: str, size: int, count: int, way: Way) -> _Cost:
    async with (
        octopi.connect(url) as client,
        client.consumer(f"of-{size}", start="earliest", stop_at_end=True) as consumer,
    ):
        before, faults_before = time.process_time(), getrusage(RUSAGE_SELF).ru_minflt
        taken = await way(consumer)
        used_s = time.process_time() - before
        faults = getrusage(RUSAGE_SELF).ru_minflt - faults_before
    assert taken >= size * count
    return _Cost(used_s / count * 1e6, faults / count)


def measure(directory: Path, count: int, round_count: int) -> dict[str, object]:
    """Take *count* messages of each size in each way, in all rounds; return the figures."""
    ways = dict(WAYS)
    if find_spec("pyarrow") is None:
        del ways["values and offsets in Arrow"]
    found: defaultdict[int, defaultdict[str, list[_Cost]]] = defaultdict(lambda: defaultdict(list))
    with node_processes(directory) as processes:
        register = processes.register()
        processes.broker(register)
        trio.run(_fill, register.url, count)
        for number in range(round_count):
            turned = list(ways)[number % len(ways) :] + list(ways)[: number % len(ways)]
            for size in SIZES:
                for name in turned:
                    found[size][name].append(trio.run(_cost, register.url, size, count, ways[name]))
    return {f"{size} B": _report(of_size) for size, of_size in found.items()}


def _report(found: dict[str, list[_Cost]]) -> dict[str, object]:
    """Of each way the median processor time and page faults, and the ratio of each round."""
    plain = found["messages, one by one"]
    ratios = {
        name: [round(one.cpu_us / other.cpu_us, 2) for one, other in zip(plain, runs, strict=True)]
        for name, runs in found.items()
    }
    return {
        name: {
            "cpu_us": round(statistics.median(one.cpu_us for one in runs), 2),
            "faults": round(statistics.median(one.faults for one in runs), 4),
            "ratio": round(statistics.median(ratios[name]), 2),
            "ratios": ratios[name],
        }
        for name, runs in found.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000, help="of each size")
    parser.add_argument("--rounds", type=int, default=8)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = measure(Path(directory), arguments.messages, arguments.rounds)
    print(json.dumps({"machine": machine(), "octopi": octopi.__version__, **figures}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
