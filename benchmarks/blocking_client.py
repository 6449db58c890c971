"""Compares the client for blocking programs with others: ``python -m benchmarks.blocking_client``.

One by one: messages of 1 KiB, each of which waits until it is acknowledged.  In each round the
clients of Octopi (blocking, Trio, asyncio), NATS and Redis have their turn, each in a process of
its own, against a server of their own with default settings; a peer that is not installed is left
out.  A ratio compares medians of the same round: below 1, the blocking client takes less time.

Many: the blocking and the Trio client produce and consume messages of 100 B in this process, by
turns.  A ratio compares the rates of a pair: above 1, the blocking client is faster.

Prints JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

import octopi
import octopi.blocking
from benchmarks.machine import machine
from benchmarks.processes import Client
from benchmarks.systems import Serving, module_of

READ: Final = "read"
WRITTEN: Final = "written"
VALUE: Final = bytes(100)
_GROUP: Final = 1000

ONE_BY_ONE: Final = {
    "octopi.blocking": ("octopi", "request_blocking"),
    "octopi": ("octopi", "request"),
    "octopi.aio": ("octopi", "request_asyncio"),
    "nats": ("nats", "request"),
    "redis": ("redis", "request"),
}
"""The system and the role of each client."""


def one_by_one(directory: Path, rounds: int, count: int, replicas: int) -> dict[str, Any]:
    """The latencies of each client in each round, in microseconds, and the ratios."""
    names = [
        name for name, (system, _) in ONE_BY_ONE.items() if module_of(system).missing() is None
    ]
    p50: dict[str, list[float]] = {name: [] for name in names}
    p99: dict[str, list[float]] = {name: [] for name in names}
    with ExitStack() as servers:
        serving: dict[str, Serving] = {}
        for system in dict.fromkeys(ONE_BY_ONE[name][0] for name in names):
            folder = directory / f"{system}-{replicas}"
            folder.mkdir()
            one = module_of(system).serving(folder, replicas, False)
            serving[system] = servers.enter_context(one)
        for number in range(rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                system, role = ONE_BY_ONE[name]
                figures = _figures(serving[system].address, system, role, number, count, replicas)
                p50[name].append(figures["p50_us"])
                p99[name].append(figures["p99_us"])
        versions = {system: one.version for system, one in serving.items()}
    ours = p50["octopi.blocking"]
    return {
        "p50_us": {name: round(statistics.median(found)) for name, found in p50.items()},
        "p99_us": {name: round(statistics.median(found)) for name, found in p99.items()},
        "p50_ratio": {
            name: _ratio([a / b for a, b in zip(ours, theirs, strict=True)])
            for name, theirs in p50.items()
            if theirs is not ours
        },
        "versions": versions,
    }


def _figures(
    address: str, system: str, role: str, number: int, count: int, replicas: int
) -> dict[str, float]:
    topic = f"one-by-one-{role.replace('_', '-')}-{number}"
    parameters = {"address": address, "topic": topic, "size": 1024, "count": count}
    if replicas > 1:
        parameters["replicas"] = replicas
    client = Client(system, role, parameters)
    try:
        client.wait_ready()
        client.go()
        return client.figures()
    finally:
        client.close()


def _ratio(ratios: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(ratios), 3),
        "smallest": round(min(ratios), 3),
        "greatest": round(max(ratios), 3),
    }


Rate = Callable[[], float]
"""Does the work, and returns its rate in messages per second."""


def _rates(url: str, count: int) -> dict[str, tuple[Rate, Rate]]:
    """Each kind of work, for the Trio and for the blocking client."""
    return {
        "produced, a thousand a call": (
            lambda: trio.run(_produce_in_trio, url, count, True),
            lambda: _produce(url, count, many=True),
        ),
        "produced singly": (
            lambda: trio.run(_produce_in_trio, url, count, False),
            lambda: _produce(url, count, many=False),
        ),
        "consumed in batches": (
            lambda: trio.run(_consume_in_trio, url, count, True),
            lambda: _consume(url, count, in_batches=True),
        ),
        "consumed singly": (
            lambda: trio.run(_consume_in_trio, url, count, False),
            lambda: _consume(url, count, in_batches=False),
        ),
    }


def _produce(url: str, count: int, *, many: bool) -> float:
    with octopi.blocking.connect(url) as client, client.producer() as producer:
        producer.send(WRITTEN, VALUE)
        began = time.perf_counter()
        for _ in range(0, count, _GROUP):
            if many:
                producer.submit_many(WRITTEN, [VALUE] * _GROUP)
            else:
                for _ in range(_GROUP):
                    producer.submit(WRITTEN, VALUE)
        producer.flush()
        return count / (time.perf_counter() - began)


async def _produce_in_trio(url: str, count: int, many: bool) -> float:
    async with octopi.connect(url) as client, client.producer() as producer:
        await producer.send(WRITTEN, VALUE)
        began = time.perf_counter()
        for _ in range(0, count, _GROUP):
            if many:
                await producer.submit_many(WRITTEN, [VALUE] * _GROUP)
            else:
                for _ in range(_GROUP):
                    await producer.submit(WRITTEN, VALUE)
        await producer.flush()
        return count / (time.perf_counter() - began)


def _consume(url: str, count: int, *, in_batches: bool) -> float:
    with (
        octopi.blocking.connect(url) as client,
        client.consumer(READ, start="earliest", stop_at_end=True) as consumer,
    ):
        began = time.perf_counter()
        if in_batches:
            seen = sum(len(batch.messages()) for batch in consumer.batches())
        else:
            seen = sum(1 for _ in consumer)
        assert seen == count
        return count / (time.perf_counter() - began)


async def _consume_in_trio(url: str, count: int, in_batches: bool) -> float:
    async with (
        octopi.connect(url) as client,
        client.consumer(READ, start="earliest", stop_at_end=True) as consumer,
    ):
        began, seen = time.perf_counter(), 0
        if in_batches:
            async for batch in consumer.batches():
                seen += len(batch.messages())
        else:
            async for _ in consumer:
                seen += 1
        assert seen == count
        return count / (time.perf_counter() - began)


def many(directory: Path, rounds: int, count: int) -> dict[str, Any]:
    """The rates of both clients, and their ratios."""
    folder = directory / "many"
    folder.mkdir()
    with module_of("octopi").serving(folder, 1, False) as serving:
        with octopi.blocking.connect(serving.address) as client, client.producer() as producer:
            for _ in range(0, count, _GROUP):
                producer.submit_many(READ, [VALUE] * _GROUP)
        works = _rates(serving.address, count)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
        for number in range(rounds):
            for name, (in_trio, blocking) in works.items():
                if number % 2:
                    ours, theirs = blocking(), in_trio()
                else:
                    theirs, ours = in_trio(), blocking()
                found[name].append((ours, theirs))
    return {
        name: {
            "blocking_per_s": round(statistics.median(ours for ours, _ in pairs)),
            "trio_per_s": round(statistics.median(theirs for _, theirs in pairs)),
            "ratio": _ratio([ours / theirs for ours, theirs in pairs]),
        }
        for name, pairs in found.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sends", type=int, default=3_000, help="of each run, one by one")
    parser.add_argument("--messages", type=int, default=200_000, help="of each run with many")
    parser.add_argument("--replicas", type=int, default=1, help="of the messages one by one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run = partial(one_by_one, Path(folder), arguments.rounds, arguments.sends)
        figures = {
            "one by one": run(arguments.replicas),
            "many": many(Path(folder), arguments.rounds, arguments.messages),
        }
    print(json.dumps({"machine": machine(), "octopi": octopi.__version__, **figures}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
