"""Trio's sockets and nothing else: a lower bound for the latencies of any Python program on Trio.

The server writes what it receives to a file, unbuffered, acknowledges it, and sends it to all
listeners.  It has neither offsets nor topics, checks nothing, and all messages have the same size.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from benchmarks.client import Gate, age_s, spread, stamped
from benchmarks.processes import running, wait_for_port
from benchmarks.systems import Serving
from octopi.cli.free_ports import free_ports

TITLE: Final = "bare Trio"
KINDS: Final = frozenset({"request", "latency"})
_ACKNOWLEDGEMENT: Final = bytes(16)
_RECEIVING: Final = b"r"
_SENDING: Final = b"s"


def missing() -> str | None:
    """Why this system can't be measured; None: it always can."""
    return None


@contextmanager
def serving(directory: Path, replicas: int, flush_before_ack: bool) -> Iterator[Serving]:
    """Run the server within the block."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "benchmarks.systems.bare", str(port), str(directory / "kept")]
    with running(command, directory / "server.log") as process:
        wait_for_port(port, process)
        yield Serving(str(port), {"server": process.pid}, trio.__version__, "one file, no checks")


def run(role: str, access: Gate, parameters: dict[str, Any]) -> dict[str, float] | None:
    """Run a client process in *role*; return its figures, if it has any."""
    roles: dict[str, Callable[..., Awaitable[dict[str, float] | None]]] = {
        "request": _request,
        "pace": _pace,
        "receive": _receive,
    }
    return trio.run(partial(roles[role], access, **parameters))


async def _connected(address: str, role: bytes, size: int) -> trio.SocketStream:
    stream = await trio.open_tcp_stream("127.0.0.1", int(address))
    await stream.send_all(role + size.to_bytes(4, "big"))
    return stream


async def _whole(stream: trio.SocketStream, size: int) -> bytes:
    """The next *size* bytes."""
    some = bytes(await stream.receive_some(size))
    while len(some) < size:
        more = await stream.receive_some(size - len(some))
        if not more:
            raise EOFError("the other side closed the connection")
        some += more
    return some


async def _request(
    access: Gate, address: str, topic: str, size: int, count: int
) -> dict[str, float]:
    value = bytes(size)
    latencies = []
    async with await _connected(address, _SENDING, size) as stream:
        access.wait()
        for _ in range(count):
            began = time.perf_counter()
            await stream.send_all(value)
            await _whole(stream, len(_ACKNOWLEDGEMENT))
            latencies.append(time.perf_counter() - began)
    return spread(latencies)


async def _pace(access: Gate, address: str, topic: str, size: int, count: int, rate: int) -> None:
    async with await _connected(address, _SENDING, size) as stream:
        access.wait()
        begin = trio.current_time()
        for number in range(count):
            await trio.sleep_until(begin + number / rate)
            await stream.send_all(stamped(size))
            await _whole(stream, len(_ACKNOWLEDGEMENT))


async def _receive(
    access: Gate, address: str, topic: str, size: int, count: int
) -> dict[str, float]:
    latencies: list[float] = []
    async with await _connected(address, _RECEIVING, size) as stream:
        access.wait()
        while len(latencies) < count:
            latencies.append(age_s(await _whole(stream, size)))
    return spread(latencies)


async def _serve(port: int, kept: Path) -> None:
    listeners: set[trio.SocketStream] = set()
    with kept.open("ab", buffering=0) as file:

        async def talk(stream: trio.SocketStream) -> None:
            with contextlib.suppress(EOFError, trio.BrokenResourceError):
                head = await _whole(stream, 5)
                size = int.from_bytes(head[1:], "big")
                if head[:1] == _RECEIVING:
                    listeners.add(stream)
                    await stream.receive_some(1)
                    listeners.discard(stream)
                    return
                while True:
                    message = await _whole(stream, size)
                    file.write(message)
                    await stream.send_all(_ACKNOWLEDGEMENT)
                    for listener in list(listeners):
                        await listener.send_all(message)

        await trio.serve_tcp(talk, port, host="127.0.0.1")


if __name__ == "__main__":
    trio.run(_serve, int(sys.argv[1]), Path(sys.argv[2]))
