"""NATS with JetStream: a log in a file, with one replica or three; the client is nats-py.

Producing is as fast as that client allows: plain publishes with one inbox for all answers and many
in flight, instead of a future for each message.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.client import Gate, age_s, spread, stamped
from benchmarks.processes import running, wait_for_port
from benchmarks.subscribers import Greeting, drain
from benchmarks.systems import Serving, not_installed
from octopi.cli.free_ports import free_ports

TITLE: Final = "NATS JetStream"
KINDS: Final = frozenset({"produce", "consume", "queue", "request", "latency", "fan-out"})
IN_FLIGHT: Final = 8_000
_EVERY: Final = 100
_TIMEOUT_S: Final = 60.0


def missing() -> str | None:
    """Why this system can't be measured; None: it can."""
    return not_installed("nats-server", {"nats": "nats-py"}, "Debian: apt-get install nats-server")


@contextmanager
def serving(directory: Path, replicas: int, flush_before_ack: bool) -> Iterator[Serving]:
    """Run the servers within the block."""
    version = subprocess.run(
        ["nats-server", "--version"], capture_output=True, text=True, check=True
    ).stdout.split()[-1]
    ports = free_ports(3 * replicas)
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports[2 * replicas :])
    flushing = ", sync_interval: always" if flush_before_ack else ""
    with ExitStack() as servers:
        pids = {}
        started = []
        for number in range(replicas):
            name = f"nats-{number + 1}"
            port, websocket, route = ports[number::replicas]
            cluster = (
                f'cluster {{ name: bench, listen: "127.0.0.1:{route}", routes: [{routes}] }}\n'
                if replicas > 1
                else ""
            )
            configuration = directory / f"{name}.conf"
            configuration.write_text(
                f'listen: "127.0.0.1:{port}"\nserver_name: {name}\n'
                f'jetstream {{ store_dir: "{directory / name}"{flushing} }}\n'
                f'websocket {{ listen: "127.0.0.1:{websocket}", no_tls: true }}\n{cluster}'
            )
            process = servers.enter_context(
                running(["nats-server", "-c", str(configuration)], directory / f"{name}.log")
            )
            pids[name] = process.pid
            started.append((port, process))
        for port, process in started:
            wait_for_port(port, process)
        address = f"nats://127.0.0.1:{ports[0]}"
        asyncio.run(_wait_for_streams(address, replicas))
        yield Serving(
            address,
            pids,
            version,
            f"file storage{flushing}; plain publishes, {IN_FLIGHT} in flight; push consumers",
            f"ws://127.0.0.1:{ports[replicas]}",
        )


async def _wait_for_streams(address: str, replicas: int) -> None:
    """Wait until a stream can be created, which takes a leader in a cluster."""
    import nats

    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        connection = await nats.connect(address)
        try:
            await connection.jetstream().add_stream(
                name="warm", subjects=["warm"], num_replicas=replicas
            )
            return
        except Exception:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)
        finally:
            await connection.close()


def run(role: str, access: Gate, parameters: dict[str, Any]) -> dict[str, float] | None:
    """Run a client process in *role*; return its figures, if it has any."""
    if role == "subscribe":
        return subscribe(access, parameters)
    roles: dict[str, Callable[..., Awaitable[dict[str, float] | None]]] = {
        "produce": produce,
        "consume": consume,
        "work_off": work_off,
        "request": request,
        "pace": pace,
        "receive": receive,
        "flush": flush,
    }
    parameters.pop("flush_before_ack", None)  # this is a setting of the server
    return asyncio.run(roles[role](access, **parameters))  # type: ignore[arg-type]


async def _connect(address: str, topic: str, replicas: int, storage: str = "file") -> Any:
    """Connect, and make sure that there is a stream for *topic*."""
    import nats
    from nats.js.errors import BadRequestError

    connection = await nats.connect(address, pending_size=64 << 20)
    with contextlib.suppress(BadRequestError):  # another process has created it
        await connection.jetstream().add_stream(
            name=topic, subjects=[topic], num_replicas=replicas, storage=storage
        )
    return connection


class _Acknowledgements:
    """Counts the answers to publishes, which all go to one inbox."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.inbox = connection.new_inbox()
        self._count = 0
        self._wanted = 0
        self._reached = asyncio.Event()

    async def start(self) -> None:
        await self._connection.subscribe(self.inbox, cb=self._take)

    async def wait(self, count: int) -> None:
        """Wait until *count* answers have arrived."""
        if self._count < count:
            self._wanted = count
            self._reached.clear()
            await self._connection.flush()
            await asyncio.wait_for(self._reached.wait(), _TIMEOUT_S)

    async def _take(self, message: Any) -> None:
        assert b'"error"' not in message.data, message.data
        self._count += 1
        if self._count >= self._wanted:
            self._reached.set()


async def produce(
    access: Gate,
    address: str,
    topic: str,
    size: int,
    count: int,
    replicas: int = 1,
    storage: str = "file",
) -> None:
    value = bytes(size)
    connection = await _connect(address, topic, replicas, storage)
    acknowledged = _Acknowledgements(connection)
    await acknowledged.start()
    access.wait()
    for number in range(count):
        await connection.publish(topic, value, reply=acknowledged.inbox)
        if number % _EVERY == 0 and number > IN_FLIGHT:
            await acknowledged.wait(number - IN_FLIGHT)
    await acknowledged.wait(count)
    await connection.close()


async def consume(access: Gate, address: str, topic: str, size: int, count: int) -> None:
    connection = await _connect(address, topic, 1)
    seen, done = 0, asyncio.Event()

    async def take(message: Any) -> None:
        nonlocal seen
        seen += len(message.data) == size
        if seen == count:
            done.set()

    access.wait()
    await connection.jetstream().subscribe(
        topic, cb=take, ordered_consumer=True, pending_msgs_limit=-1, pending_bytes_limit=-1
    )
    await asyncio.wait_for(done.wait(), _TIMEOUT_S)
    await connection.close()


async def work_off(
    access: Gate,
    address: str,
    topic: str,
    size: int,
    count: int,
    group: str,
    replicas: int = 1,
) -> None:
    """Consume as a pull consumer with explicit acknowledgements.  Wait only for the answer to the
    last one."""
    from nats.js.api import AckPolicy, ConsumerConfig

    connection = await _connect(address, topic, replicas)
    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=10_000)
    queue = await connection.jetstream().pull_subscribe(
        topic, durable=group, config=config, pending_msgs_limit=-1, pending_bytes_limit=-1
    )
    access.wait()
    seen = 0
    while seen < count:
        for message in await queue.fetch(1000, timeout=_TIMEOUT_S):
            seen += len(message.data) == size
            if seen < count:
                await message.ack()
            else:
                await message.ack_sync(timeout=_TIMEOUT_S)
    await connection.close()


async def request(
    access: Gate,
    address: str,
    topic: str,
    size: int,
    count: int,
    replicas: int = 1,
    storage: str = "file",
) -> dict[str, float]:
    value, latencies = bytes(size), []
    connection = await _connect(address, topic, replicas, storage)
    stream = connection.jetstream()
    await stream.publish(topic, value)
    access.wait()
    for _ in range(count):
        began = time.perf_counter()
        await stream.publish(topic, value)
        latencies.append(time.perf_counter() - began)
    await connection.close()
    return spread(latencies)


async def pace(access: Gate, address: str, topic: str, size: int, count: int, rate: int) -> None:
    connection = await _connect(address, topic, 1)
    acknowledged = _Acknowledgements(connection)
    await acknowledged.start()
    access.wait()
    begin = time.perf_counter()
    for number in range(count):
        wait_s = begin + number / rate - time.perf_counter()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        await connection.publish(topic, stamped(size), reply=acknowledged.inbox)
    await acknowledged.wait(count)
    await connection.close()


async def receive(
    access: Gate, address: str, topic: str, size: int, count: int
) -> dict[str, float]:
    connection = await _connect(address, topic, 1)
    latencies: list[float] = []
    done = asyncio.Event()

    async def take(message: Any) -> None:
        latencies.append(age_s(message.data))
        if len(latencies) == count:
            done.set()

    await connection.jetstream().subscribe(topic, cb=take, ordered_consumer=True)
    access.wait()
    await asyncio.wait_for(done.wait(), _TIMEOUT_S)
    await connection.close()
    return spread(latencies)


async def flush(
    access: Gate, address: str, topic: str, size: int, count: int, flush_count: int, end: str
) -> None:
    value, last = bytes(size), end.encode().rjust(size, b"\0")
    connection = await _connect(address, topic, 1)
    acknowledged = _Acknowledgements(connection)
    await acknowledged.start()
    access.wait()
    for number in range(count):
        one = value if number + 1 < count else last
        await connection.publish(topic, one, reply=acknowledged.inbox)
        if (number + 1) % flush_count == 0:
            await acknowledged.wait(number + 1)
    await acknowledged.wait(count)
    await connection.close()


def subscribe(access: Gate, parameters: dict[str, Any]) -> dict[str, float]:
    count = parameters["subscribers"]
    asyncio.run(_make_consumers(parameters["address"], parameters["topic"], count))
    greeting = Greeting("/", "", greet_at("deliver.{}".format))
    return drain(access, parameters["websocket"], greeting, count, parameters["end"].encode())


async def _make_consumers(address: str, topic: str, count: int) -> None:
    """Create a consumer for each subscriber, as an ordered consumer of nats-py would."""
    from nats.js.api import AckPolicy, ConsumerConfig

    connection = await _connect(address, topic, 1)
    for number in range(count):
        await connection.jetstream().add_consumer(
            topic,
            ConsumerConfig(
                deliver_subject=f"deliver.{number}",
                ack_policy=AckPolicy.NONE,
                max_deliver=1,
                mem_storage=True,
                num_replicas=1,
            ),
        )
    await connection.close()


def greet_at(subject: Callable[[int], str]) -> Callable[[int], list[bytes]]:
    """The messages with which each subscriber begins in NATS's protocol.  *subject* returns the
    subject of the subscriber with a number."""
    return lambda number: [
        b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n',
        f"SUB {subject(number)} 1\r\nPING\r\n".encode(),
    ]
