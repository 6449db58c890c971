"""NATS without JetStream: it forwards messages and stores none, so it is compared in fan-out, and
with what others keep in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.client import Gate, age_s, spread, stamped
from benchmarks.subscribers import Greeting, drain
from benchmarks.systems import Serving, nats
from benchmarks.workloads import Workload

TITLE: Final = "NATS, no log"
KINDS: Final = frozenset({"fan-out", "produce", "latency"})
DIFFERS: Final = (
    "It acknowledges nothing, so a producer waits until the server has read everything."
)
missing = nats.missing


def runs(workload: Workload) -> bool:
    """Whether it takes part: in fan-out, and where it is named."""
    return workload.kind == "fan-out" or "nats_core" in workload.systems


@contextmanager
def serving(directory: Path, replicas: int, flush_before_ack: bool) -> Iterator[Serving]:
    """Run the server within the block."""
    with nats.serving(directory, replicas, flush_before_ack) as server:
        yield server


def run(role: str, access: Gate, parameters: dict[str, Any]) -> dict[str, float] | None:
    """Run a client process in *role*; return its figures, if it has any."""
    if role != "subscribe":
        roles: dict[str, Callable[..., Awaitable[dict[str, float] | None]]] = {
            "flush": _flush,
            "produce": _produce,
            "pace": _pace,
            "receive": _receive,
        }
        return asyncio.run(roles[role](access, **parameters))  # type: ignore[arg-type]
    greeting = Greeting("/", "", nats.greet_at(lambda number: parameters["topic"]))
    mark = parameters["end"].encode()
    return drain(access, parameters["websocket"], greeting, parameters["subscribers"], mark)


async def _flush(
    access: Gate, address: str, topic: str, size: int, count: int, flush_count: int, end: str
) -> None:
    """Publish messages.  The server doesn't acknowledge them, so each flush waits for its answer to
    a ping."""
    from nats import connect

    value, last = bytes(size), end.encode().rjust(size, b"\0")
    connection = await connect(address)
    access.wait()
    for number in range(count):
        await connection.publish(topic, value if number + 1 < count else last)
        if (number + 1) % flush_count == 0:
            await connection.flush()
    await connection.close()


async def _produce(
    access: Gate, address: str, topic: str, size: int, count: int, replicas: int = 1
) -> None:
    from nats import connect

    value = bytes(size)
    connection = await connect(address, pending_size=64 << 20)
    access.wait()
    for _ in range(count):
        await connection.publish(topic, value)
    await connection.flush(timeout=60)
    await connection.close()


async def _pace(access: Gate, address: str, topic: str, size: int, count: int, rate: int) -> None:
    from nats import connect

    connection = await connect(address)
    access.wait()
    begin = time.perf_counter()
    for number in range(count):
        wait_s = begin + number / rate - time.perf_counter()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        await connection.publish(topic, stamped(size))
    await connection.flush()
    await connection.close()


async def _receive(
    access: Gate, address: str, topic: str, size: int, count: int
) -> dict[str, float]:
    from nats import connect

    connection = await connect(address)
    latencies: list[float] = []
    done = asyncio.Event()

    async def take(message: Any) -> None:
        latencies.append(age_s(message.data))
        if len(latencies) == count:
            done.set()

    await connection.subscribe(topic, cb=take)
    await connection.flush()  # the server knows of the subscription
    access.wait()
    await asyncio.wait_for(done.wait(), 60)
    await connection.close()
    return spread(latencies)
