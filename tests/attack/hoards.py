"""Connections that have a node keep things for them: replies that nobody takes, readings,
halves of messages.  The node does not grow by more than it has set aside for them."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import trio

import octopi
from harness.processes import NodeProcess, node_processes
from octopi.environment import Link
from octopi.identifiers import Offset, PartitionId
from octopi.limits import MESSAGE_BYTES_MAX, MIB
from octopi.transport.frame_reader import BINARY, frame_head
from octopi.wire import messages as m
from octopi.wire.codec import encode
from tests.attack.bystanders import Here, producing, start_cluster
from tests.attack.frame import Attack, Figure
from tests.kit.cluster import Cluster

GROWTH_BYTES: Final = 64 * MIB
P99_MS: Final = 2_000.0
"""Beside the reading of large records: a node does one after the other."""

_RECORD_BYTES: Final = 8 * MIB - 100
_SECONDS: Final = 4.0
_OPEN_S_MAX: Final = 10.0
"""For opening connections, as a node closes one that says nothing for 20 s."""
_AT_A_TIME: Final = 50
_LOOK_S: Final = 0.02
_HALF_BYTES: Final = 256 << 10
_TOPIC: Final = "large"


class Growth:
    """The most memory that a node had, beyond what it had at first."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node
        self._before_bytes = self._most_bytes = node.rss_bytes()

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self._most_bytes = max(self._most_bytes, self._node.rss_bytes())
            await trio.sleep(_LOOK_S)

    def figure(self, note: str) -> Figure:
        """In MiB."""
        grown = (self._most_bytes - self._before_bytes) / MIB
        return Figure("growth of the node", grown, "MiB", GROWTH_BYTES / MIB, note)


@asynccontextmanager
async def growing(node: NodeProcess) -> AsyncIterator[Growth]:
    """Watch *node* within the block."""
    growth = Growth(node)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(growth.watch)
        yield growth
        nursery.cancel_scope.cancel()


async def _large_records(here: Here) -> int:
    """Have a log of two records as large as records may be; return its partition."""
    async with octopi.connect(here.register.url) as client:
        partition = (await client.create_topic(_TOPIC, 1)).partitions[0].partition
        async with client.producer() as producer:
            for _ in range(2):
                await producer.send(_TOPIC, bytes(_RECORD_BYTES))
    return partition


async def _strangers(cluster: Cluster, node: NodeProcess, count: int) -> list[Link]:
    """Connections that read nothing."""
    links = []
    for _ in range(count):
        link = await cluster.environment.net.connect(node.url, "/v1/client")
        await link.send(encode(m.Hello(1, "hoarder", None)))
        links.append(link)
    return links


async def unread(
    connections: int, ask: Callable[[int, int], object], count: int, directory: Path
) -> list[Figure]:
    """Ask *count* things on each connection, by number and partition, and read nothing."""
    with node_processes(directory) as nodes:
        here = start_cluster(nodes, brokers=1)
        partition = await _large_records(here)
        async with trio.open_nursery() as nursery:
            links = await _strangers(Cluster(nursery, directory), here.brokers[0], connections)
            async with producing(here) as observed, growing(here.brokers[0]) as growth:
                sent_bytes = 0
                for link in links:
                    for number in range(1, count + 1):
                        data = encode(ask(number, partition))
                        sent_bytes += len(data)
                        await link.send(data)
                await trio.sleep(_SECONDS)
            nursery.cancel_scope.cancel()
    return [growth.figure(f"{sent_bytes:,} bytes sent"), *observed.figures(P99_MS)]


@contextmanager
def _welcomed(node: NodeProcess, count: int) -> Iterator[list[socket.socket]]:
    """Sockets of clients that have said hello: *count*, or as many as can be opened in
    `_OPEN_S_MAX`."""
    place = urlsplit(node.url)
    upgrade = (
        b"GET /v1/client HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: octopi.v1.cbor\r\n\r\n" % place.netloc.encode()
    )
    hello = encode(m.Hello(1, "hoarder", None))
    began = time.monotonic()
    with ExitStack() as opened:
        sockets: list[socket.socket] = []
        while len(sockets) < count and time.monotonic() - began < _OPEN_S_MAX:
            some = []
            for _ in range(min(_AT_A_TIME, count - len(sockets))):
                one = opened.enter_context(socket.create_connection((place.hostname, place.port)))
                one.sendall(upgrade + frame_head(BINARY, len(hello), bytes(4)) + hello)
                some.append(one)
            for one in some:
                answer = b""
                while b"welcome" not in answer:
                    data = one.recv(4096)
                    assert data, "the node has no place for so many"
                    answer += data
                one.setblocking(False)
            sockets += some
        yield sockets


async def half_sent(connections: int, directory: Path) -> list[Figure]:
    """Begin the largest message on each connection, and do not finish it."""
    begun = frame_head(BINARY, MESSAGE_BYTES_MAX, bytes(4)) + bytes(_HALF_BYTES)
    with node_processes(directory) as nodes:
        here = start_cluster(nodes, brokers=1)
        broker = here.brokers[0]
        with _welcomed(broker, connections) as sockets:
            async with producing(here) as observed, growing(broker) as growth:
                sent_bytes = 0
                for one in sockets:
                    sent_bytes += one.send(begun)
                    await trio.lowlevel.checkpoint()  # the producers are tasks of this process
                await trio.sleep(_SECONDS)
    note = f"{sent_bytes / MIB:,.0f} MiB sent over {len(sockets):,} connections"
    return [growth.figure(note), *observed.figures(P99_MS)]


def _attack(name: str, summary: str, run: Callable[[Path], Awaitable[list[Figure]]]) -> Attack:
    return Attack(name, summary, run, timeout_s=90, planned_s=12)


def _subscribe(number: int, partition: int) -> m.Subscribe:
    return m.Subscribe(number, _TOPIC, PartitionId(partition), Offset(0), 1 << 40)


def _fetch(number: int, partition: int) -> m.Fetch:
    return m.Fetch(number, _TOPIC, PartitionId(partition), Offset(0), 16 * MIB, 30_000)


ATTACKS: Final = [
    *(
        _attack(
            f"{count} readings, unread",
            f"one connection subscribes {count} times to large records and reads nothing",
            partial(unread, 1, _subscribe, count),
        )
        for count in (100, 1000)
    ),
    *(
        _attack(
            f"64 fetches on {connections}, unread",
            f"{connections} connections fetch large records {64 // connections} times each and "
            "read nothing",
            partial(unread, connections, _fetch, 64 // connections),
        )
        for connections in (1, 64)
    ),
    _attack(
        "half-sent messages, 1000",
        "1,000 connections begin a message of 16 MiB and do not finish it",
        partial(half_sent, 1000),
    ),
    Attack(
        "half-sent messages, 9000",
        "9,000 connections, or as many as can be opened in 10 s, do the same",
        partial(half_sent, 9000),
        timeout_s=120,
        planned_s=24,
    ),
]
