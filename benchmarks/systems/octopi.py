"""Octopi: a register and one broker, or three; the client is that of ordinary programs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

import octopi
import octopi.aio
import octopi.blocking
from benchmarks.client import Gate, age_s, spread, stamped
from benchmarks.processes import READY_TIMEOUT_S, running
from benchmarks.subscribers import Greeting, drain
from benchmarks.systems import Serving
from octopi.cli.node_processes import node_command, node_environment, ready_url
from octopi.identifiers import Offset, PartitionId
from octopi.wire.codec import encode
from octopi.wire.endpoints import CLIENT
from octopi.wire.messages import PROTOCOL_VERSION, SUBPROTOCOL, Heartbeat, Hello, Subscribe

TITLE: Final = "Octopi"
KINDS: Final = frozenset(
    {"produce", "consume", "queue", "request", "latency", "fan-out", "topics", "producers"}
)
_WINDOW_BYTES: Final = 1 << 40
_GROUP: Final = 1000
"""How many messages one call submits, in workloads with many messages."""
_CREATIONS_AT_A_TIME: Final = 32


def missing() -> str | None:
    """Why this system can't be measured; None: it always can."""
    return None


@contextmanager
def serving(directory: Path, replicas: int, flush_before_ack: bool) -> Iterator[Serving]:
    """Run the nodes within the block."""
    with ExitStack() as nodes:
        pids = {}

        def start(name: str, *options: str) -> str:
            log = directory / f"{name}.log"
            command = node_command(
                "--listen", "127.0.0.1:0", "--data-dir", str(directory / name), *options
            )
            process = nodes.enter_context(running(command, log, node_environment()))
            pids[name] = process.pid
            return _url_in(log)

        register = start("register", "--role", "register", "--gather", "0")
        for number in range(1, replicas + 1):
            secret = ("--join-secret", str(directory / "register" / "join-secret"))
            start(f"broker-{number}", "--role", "broker", "--register", register, *secret)
        if replicas > 1:
            trio.run(_all_in_sync, register, replicas)
        yield Serving(
            register,
            pids,
            octopi.__version__,
            "acknowledged from the page cache of all replicas, fdatasync every second"
            if not flush_before_ack
            else "acknowledged when it is durable",
        )


def _url_in(log: Path) -> str:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        for line in log.read_text(errors="replace").splitlines():
            url = ready_url(line)
            if url is not None:
                return url
        time.sleep(0.05)
    raise RuntimeError(f"the node doesn't serve: {log.read_text(errors='replace')[-500:]}")


async def _all_in_sync(register: str, replicas: int) -> None:
    async with octopi.connect(register) as client:
        with trio.fail_after(READY_TIMEOUT_S):
            for number in range(100):
                info = await client.create_topic(f"warm-{number}", exist_ok=True)
                if all(len(one.in_sync) == replicas for one in info.partitions):
                    return
                await trio.sleep(0.2)


def run(role: str, access: Gate, parameters: dict[str, Any]) -> dict[str, float] | None:
    """Run a client process in *role*; return its figures, if it has any."""
    if role == "subscribe":
        return trio.run(_locate_and_subscribe, access, parameters)
    roles: dict[str, Callable[..., Awaitable[dict[str, float] | None]]] = {
        "produce": _produce,
        "consume": _consume,
        "work_off": _work_off,
        "request": _request,
        "pace": _pace,
        "receive": _receive,
        "flush": _flush,
        "topics": _topics,
        "producers": _producers,
    }
    parameters.pop("replicas", None)  # each broker has a replica anyway
    if role == "request_blocking":
        return _request_blocking(access, **parameters)
    if role == "request_asyncio":
        return asyncio.run(_request_asyncio(access, **parameters))
    return trio.run(partial(roles[role], access, **parameters))


async def _produce(
    access: Gate, address: str, topic: str, size: int, count: int, flush_before_ack: bool = False
) -> None:
    value = bytes(size)
    async with octopi.connect(address) as client:
        await client.create_topic(topic, flush_before_ack=flush_before_ack, exist_ok=True)
        async with client.producer() as producer:
            await producer.send(topic, b"connect")
            access.wait()
            for begin in range(0, count, _GROUP):
                some = [value] * min(_GROUP, count - begin)
                await producer.submit_many(topic, some)
            await producer.flush()
            assert producer.acknowledged_count == count + 1


async def _consume(access: Gate, address: str, topic: str, size: int, count: int) -> None:
    async with octopi.connect(address) as client:
        access.wait()
        seen = 0
        async with client.consumer(topic, start="earliest") as consumer:
            async for batch in consumer.batches():
                for message in batch:
                    seen += len(message.value) == size
                if seen >= count:
                    return


async def _work_off(
    access: Gate, address: str, topic: str, size: int, count: int, group: str
) -> None:
    async with octopi.connect(address) as client:
        await client.admin.create_subscription(topic, group, mode="shared")
        access.wait()
        seen = 0
        async with client.subscription(topic, group, mode="shared", prefetch=1000) as queue:
            async for batch in queue.batches():
                async with batch:
                    for message in batch:
                        seen += len(message.value) == size
                if seen >= count:
                    break
            assert not await queue.commit()


async def _request(
    access: Gate, address: str, topic: str, size: int, count: int
) -> dict[str, float]:
    value = bytes(size)
    latencies = []
    async with octopi.connect(address) as client, client.producer() as producer:
        await producer.send(topic, value)
        access.wait()
        for _ in range(count):
            began = time.perf_counter()
            await producer.send(topic, value)
            latencies.append(time.perf_counter() - began)
    return spread(latencies)


def _request_blocking(
    access: Gate, address: str, topic: str, size: int, count: int
) -> dict[str, float]:
    value = bytes(size)
    latencies = []
    with octopi.blocking.connect(address) as client, client.producer() as producer:
        producer.send(topic, value)
        access.wait()
        for _ in range(count):
            began = time.perf_counter()
            producer.send(topic, value)
            latencies.append(time.perf_counter() - began)
    return spread(latencies)


async def _request_asyncio(
    access: Gate, address: str, topic: str, size: int, count: int
) -> dict[str, float]:
    value = bytes(size)
    latencies = []
    async with octopi.aio.connect(address) as client, client.producer() as producer:
        await producer.send(topic, value)
        access.wait()
        for _ in range(count):
            began = time.perf_counter()
            await producer.send(topic, value)
            latencies.append(time.perf_counter() - began)
    return spread(latencies)


async def _pace(access: Gate, address: str, topic: str, size: int, count: int, rate: int) -> None:
    async with octopi.connect(address) as client, client.producer(linger_s=0) as producer:
        await producer.send(topic, b"connect")
        access.wait()
        begin = trio.current_time()
        for number in range(count):
            await trio.sleep_until(begin + number / rate)
            await producer.submit(topic, stamped(size))


async def _receive(
    access: Gate, address: str, topic: str, size: int, count: int
) -> dict[str, float]:
    latencies: list[float] = []
    async with octopi.connect(address) as client:
        await client.create_topic(topic, exist_ok=True)
        async with client.consumer(topic, start="latest") as consumer:
            access.wait()
            while len(latencies) < count:
                batch = list(await consumer.next_batch() or ())
                latencies += [age_s(one.value) for one in batch if len(one.value) == size]
    return spread(latencies)


async def _flush(
    access: Gate, address: str, topic: str, size: int, count: int, flush_count: int, end: str
) -> None:
    value, last = bytes(size), end.encode().rjust(size, b"\0")
    async with octopi.connect(address) as client, client.producer() as producer:
        await producer.send(topic, b"connect")
        access.wait()
        for number in range(0, count, flush_count):
            await producer.submit_many(topic, [value] * (flush_count - 1))
            await producer.send(topic, value if number + flush_count < count else last)


async def _topics(
    access: Gate, address: str, topic: str, size: int, count: int, topics: int, linger_s: float
) -> None:
    value = bytes(size)
    names = [f"{topic}-{number}" for number in range(topics)]
    async with (
        octopi.connect(address) as client,
        client.producer(linger_s=linger_s) as producer,
    ):
        for begin in range(0, topics, _CREATIONS_AT_A_TIME):
            async with trio.open_nursery() as nursery:
                for name in names[begin : begin + _CREATIONS_AT_A_TIME]:
                    nursery.start_soon(producer.submit, name, b"create")
            await producer.flush()  # doesn't linger
        access.wait()
        for number in range(count):
            await producer.submit(names[number % topics], value)
        await producer.flush()


async def _producers(
    access: Gate, address: str, topic: str, size: int, count: int, producers: int
) -> None:
    value = bytes(size)
    ready, go = [], trio.Event()

    async def produce() -> None:
        async with octopi.connect(address) as client, client.producer() as producer:
            await producer.send(topic, b"connect")
            ready.append(True)
            if len(ready) == producers:
                access.wait()
                go.set()
            await go.wait()
            for _ in range(count // producers):
                await producer.submit(topic, value)

    async with trio.open_nursery() as nursery:
        for _ in range(producers):
            nursery.start_soon(produce)


async def _locate_and_subscribe(access: Gate, parameters: dict[str, Any]) -> dict[str, float]:
    topic = parameters["topic"]
    async with octopi.connect(parameters["address"]) as client:
        info = await client.create_topic(topic, exist_ok=True)
        [place] = info.partitions
        cluster = await client.admin.describe_cluster()
        [url] = [one.address for one in cluster.brokers if one.broker == place.leader]
    greet = partial(_greet, topic, place.partition)
    greeting = Greeting(CLIENT.path, SUBPROTOCOL, greet, encode(Heartbeat()))
    return drain(access, url, greeting, parameters["subscribers"], parameters["end"].encode())


def _greet(topic: str, partition: PartitionId, number: int) -> list[bytes]:
    return [
        encode(Hello(PROTOCOL_VERSION, "benchmark")),
        encode(Subscribe(1, topic, partition, Offset(0), _WINDOW_BYTES)),
    ]
