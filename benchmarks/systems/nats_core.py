"""NATS without JetStream: it forwards messages and stores none, so only fan-out is compared."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.client import Gate
from benchmarks.subscribers import Greeting, drain
from benchmarks.systems import Serving, nats

TITLE: Final = "NATS, no log"
KINDS: Final = frozenset({"fan-out"})
missing = nats.missing


@contextmanager
def serving(directory: Path, replicas: int, flush_before_ack: bool) -> Iterator[Serving]:
    """Run the server within the block."""
    with nats.serving(directory, replicas, flush_before_ack) as server:
        yield server


def run(role: str, access: Gate, parameters: dict[str, Any]) -> dict[str, float] | None:
    """Run a client process in *role*; return its figures, if it has any."""
    if role == "flush":
        return asyncio.run(_flush(access, **parameters))
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
