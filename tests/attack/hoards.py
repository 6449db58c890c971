"""Connections that have a node keep things for them: replies that nobody takes, readings,
halves of messages.  The node does not grow by more than it has set aside for them."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import trio

import octopi
from harness.processes import NodeProcess, node_processes
from octopi.environment import Link
from octopi.identifiers import Offset, PartitionId
from octopi.limits import CONNECTIONS_MAX, HEARTBEAT_TIMEOUT_S, MESSAGE_BYTES_MAX, MIB
from octopi.operating_system import connections_possible
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
_OPEN_S_MAX: Final = 90.0
"""For opening connections."""
_ANSWER_S_MAX: Final = 30.0
"""For each of them."""
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


def _open(node: NodeProcess, count: int) -> tuple[list[socket.socket], int]:
    """Have *count* clients connect to *node* and say hello; return the sockets of those that are
    welcome, and how many are refused.  Blocks.

    The node closes a connection that says nothing for 20 s, so the first ones send heartbeats
    while others connect.
    """
    place = urlsplit(node.url)
    upgrade = (
        b"GET /v1/client HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: octopi.v1.cbor\r\n\r\n" % place.netloc.encode()
    )
    hello, heartbeat = encode(m.Hello(1, "hoarder", None)), encode(m.Heartbeat())
    said = upgrade + frame_head(BINARY, len(hello), bytes(4)) + hello
    sign_of_life = frame_head(BINARY, len(heartbeat), bytes(4)) + heartbeat
    sockets: list[socket.socket] = []
    refused_count = 0
    # When each was heard last, the longest silent one first.
    heard_at: deque[tuple[float, socket.socket]] = deque()
    began = time.monotonic()
    while (left := count - len(sockets) - refused_count) > 0:
        assert time.monotonic() - began < _OPEN_S_MAX, f"{left:,} connections have no answer"
        some = [
            socket.create_connection((place.hostname, place.port), _ANSWER_S_MAX)
            for _ in range(min(_AT_A_TIME, left))
        ]
        for one in some:
            one.sendall(said)
        for one in some:
            if _is_welcome(one):
                one.setblocking(False)
                sockets.append(one)
                heard_at.append((time.monotonic(), one))
            else:
                one.close()
                refused_count += 1
        now = time.monotonic()
        while heard_at and now - heard_at[0][0] > HEARTBEAT_TIMEOUT_S / 2:
            _, one = heard_at.popleft()
            one.send(sign_of_life)
            heard_at.append((now, one))
    return sockets, refused_count


def _is_welcome(one: socket.socket) -> bool:
    answer = b""
    with contextlib.suppress(ConnectionError):
        while b"welcome" not in answer and (data := one.recv(4096)):
            answer += data
    return b"welcome" in answer


async def half_sent(connections: int, directory: Path) -> list[Figure]:
    """Begin the largest message on each connection that the node accepts, and do not finish it."""
    begun = frame_head(BINARY, MESSAGE_BYTES_MAX, bytes(4)) + bytes(_HALF_BYTES)
    with node_processes(directory) as nodes, contextlib.ExitStack() as opened:
        here = start_cluster(nodes, brokers=1)
        broker = here.brokers[0]
        async with producing(here) as observed:  # before the crowd: a full node takes no others
            sockets, refused_count = await trio.to_thread.run_sync(_open, broker, connections)
            for one in sockets:
                opened.enter_context(one)
            meanwhile_s = observed.waited_s()
            async with growing(broker) as growth:
                sent_bytes = 0
                for one in sockets:
                    sent_bytes += one.send(begun)
                    await trio.lowlevel.checkpoint()  # the producers are tasks of this process
                await trio.sleep(_SECONDS)
    note = f"{sent_bytes / MIB:,.0f} MiB sent"
    accepted = (
        f"of {connections:,}, the other {refused_count:,} refused; a producer waited "
        f"{meanwhile_s:.1f} s at most while they connected"
    )
    return [
        Figure("connections accepted", len(sockets), "", connections_possible(), accepted),
        growth.figure(note),
        *observed.figures(P99_MS),
    ]


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
        "half-sent messages, 10000",
        "10,000 connect, and those that a node accepts do the same",
        partial(half_sent, CONNECTIONS_MAX),
        timeout_s=150,
        planned_s=30,
    ),
]
