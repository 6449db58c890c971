"""RabbitMQ Streams: one broker; the client is rstream, with raw messages."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.client import Gate, age_s, spread, stamped
from benchmarks.processes import running, wait_for_port
from benchmarks.systems import Serving, not_installed
from octopi.cli.free_ports import free_ports

TITLE: Final = "RabbitMQ Streams"
KINDS: Final = frozenset({"produce", "consume", "request", "latency"})
_IN_FLIGHT: Final = 20_000
_BATCH_BYTES: Final = 256 * 1024
_CREDIT: Final = 50
_TIMEOUT_S: Final = 60.0


def missing() -> str | None:
    """Why this system can't be measured; None: it can."""
    return not_installed(
        "rabbitmq-server", {"rstream": "rstream"}, "Debian: apt-get install rabbitmq-server"
    )


@contextmanager
def serving(directory: Path, replicas: int, flush_before_ack: bool) -> Iterator[Serving]:
    """Run the server within the block."""
    assert replicas == 1
    assert not flush_before_ack
    amqp, port, distribution = free_ports(3)
    configuration = directory / "rabbitmq.conf"
    configuration.write_text(
        f"listeners.tcp.default = 127.0.0.1:{amqp}\nstream.listeners.tcp.1 = 127.0.0.1:{port}\n"
        f"stream.advertised_host = 127.0.0.1\nstream.advertised_port = {port}\n"
    )
    plugins = directory / "enabled_plugins"
    plugins.write_text("[rabbitmq_stream].\n")
    environment = {
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_CONFIG_FILE": str(configuration),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_PID_FILE": str(directory / "rabbitmq.pid"),
        "HOME": str(directory),
    }
    with running([_program()], directory / "rabbitmq.log", environment) as process:
        wait_for_port(port, process)
        pid = int((directory / "rabbitmq.pid").read_text())
        yield Serving(
            f"127.0.0.1:{port}",
            {"rabbitmq": pid},
            _version(),
            f"batches of {_BATCH_BYTES >> 10} KiB, {_IN_FLIGHT} in flight; credit {_CREDIT}",
        )


def _program() -> str:
    """The path of the server's own script.  Debian's script in the PATH changes to another user."""
    for path in Path("/usr/lib/rabbitmq/lib").glob("*/sbin/rabbitmq-server"):
        return str(path)
    found = shutil.which("rabbitmq-server")
    assert found is not None
    return found


def _version() -> str:
    asked = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"],
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout or "unknown"


def run(role: str, access: Gate, parameters: dict[str, Any]) -> dict[str, float] | None:
    """Run a client process in *role*; return its figures, if it has any."""
    roles: dict[str, Callable[..., Awaitable[dict[str, float] | None]]] = {
        "produce": _produce,
        "consume": _consume,
        "request": _request,
        "pace": _pace,
        "receive": _receive,
    }
    host, _, port = parameters.pop("address").partition(":")
    at = {"host": host, "port": int(port), "username": "guest", "password": "guest"}
    return asyncio.run(roles[role](access, at, **parameters))  # type: ignore[arg-type]


class _Confirmations:
    """Counts the confirmations of published messages."""

    def __init__(self) -> None:
        self.count = 0
        self._wanted = 0
        self._reached = asyncio.Event()

    async def wait(self, count: int) -> None:
        """Wait until *count* messages are confirmed."""
        if self.count < count:
            self._wanted = count
            self._reached.clear()
            await asyncio.wait_for(self._reached.wait(), _TIMEOUT_S)

    def take(self, status: Any) -> None:
        self.count += 1
        if self.count >= self._wanted:
            self._reached.set()


async def _produce(access: Gate, at: dict[str, Any], topic: str, size: int, count: int) -> None:
    from rstream import Producer, RawMessage

    value, confirmed = bytes(size), _Confirmations()
    group = max(1, min(1000, _BATCH_BYTES // size))
    async with Producer(**at) as producer:
        await producer.create_stream(topic, exists_ok=True)
        await producer.send_wait(topic, b"connect")
        access.wait()
        for begin in range(0, count, group):
            some = min(group, count - begin)
            await producer.send_batch(
                topic, [RawMessage(value) for _ in range(some)], on_publish_confirm=confirmed.take
            )
            await confirmed.wait(begin + some - _IN_FLIGHT)
        await confirmed.wait(count)


async def _consume(access: Gate, at: dict[str, Any], topic: str, size: int, count: int) -> None:
    seen, done = 0, asyncio.Event()

    def take(message: bytes, context: Any) -> None:
        nonlocal seen
        seen += len(message) == size
        if seen == count:
            done.set()

    consumer = await _consumer(at, topic)
    access.wait()
    await consumer.subscribe(topic, take, decoder=bytes, initial_credit=_CREDIT)
    await asyncio.wait_for(done.wait(), _TIMEOUT_S)
    await consumer.close()


async def _consumer(at: dict[str, Any], topic: str) -> Any:
    from rstream import Consumer

    consumer = Consumer(**at)
    await consumer.start()
    await consumer.create_stream(topic, exists_ok=True)
    return consumer


async def _request(
    access: Gate, at: dict[str, Any], topic: str, size: int, count: int
) -> dict[str, float]:
    from rstream import Producer

    value, latencies = bytes(size), []
    async with Producer(**at) as producer:
        await producer.create_stream(topic, exists_ok=True)
        await producer.send_wait(topic, value)
        access.wait()
        for _ in range(count):
            began = time.perf_counter()
            await producer.send_wait(topic, value)
            latencies.append(time.perf_counter() - began)
    return spread(latencies)


async def _pace(
    access: Gate, at: dict[str, Any], topic: str, size: int, count: int, rate: int
) -> None:
    from rstream import Producer, RawMessage

    confirmed = _Confirmations()
    async with Producer(**at) as producer:
        await producer.create_stream(topic, exists_ok=True)
        access.wait()
        begin = time.perf_counter()
        for number in range(count):
            wait_s = begin + number / rate - time.perf_counter()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            await producer.send_batch(
                topic, [RawMessage(stamped(size))], on_publish_confirm=confirmed.take
            )
        await confirmed.wait(count)


async def _receive(
    access: Gate, at: dict[str, Any], topic: str, size: int, count: int
) -> dict[str, float]:
    latencies: list[float] = []
    done = asyncio.Event()

    def take(message: bytes, context: Any) -> None:
        latencies.append(age_s(message))
        if len(latencies) == count:
            done.set()

    consumer = await _consumer(at, topic)
    await consumer.subscribe(topic, take, decoder=bytes, initial_credit=_CREDIT)
    access.wait()
    await asyncio.wait_for(done.wait(), _TIMEOUT_S)
    await consumer.close()
    return spread(latencies)
