"""Requests sent without waiting for answers: 4 MiB of each kind, over one connection.  Another
connection to the same node, which asks next to nothing, is answered as ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

import octopi
from harness.processes import node_processes
from octopi.identifiers import Offset, PartitionId
from octopi.limits import MIB, RECORDS_PER_PRODUCE_MAX
from octopi.record import NO_REQUEST, encode_opaque
from octopi.wire import messages as m
from octopi.wire.codec import encode
from tests.attack.bystanders import Here, probing, start_cluster
from tests.attack.flooder import Target, flooding, frame
from tests.attack.frame import Attack, Figure

STALL_MS: Final = 50.0
SECONDS: Final = 3.0
SENT_BYTES: Final = 4 * MIB

_TOPIC: Final = "stored"
_RECORDS: Final = 100_000
_SMALLEST: Final = encode_opaque(NO_REQUEST, b"") * RECORDS_PER_PRODUCE_MAX
"""As many of the smallest records as a produce may have."""


@attrs.frozen
class Asked:
    """One kind of request."""

    name: str
    message: Callable[[int, int], object]
    """Of a request number and a partition of `_TOPIC`."""
    of_register: bool = False


ASKED: Final = [
    Asked(
        "fetches inside a record",
        lambda n, at: m.Fetch(n, _TOPIC, PartitionId(at), Offset(2_000_001), 1, 0),
    ),
    Asked("fetches", lambda n, at: m.Fetch(n, _TOPIC, PartitionId(at), Offset(0), 16 * MIB, 0)),
    Asked(
        "produces of the smallest records",
        lambda n, at: m.Produce(n, _TOPIC, PartitionId(at), _SMALLEST),
    ),
    Asked("find_offset", lambda n, at: m.FindOffset(n, _TOPIC, PartitionId(at), "last", 50_000)),
    Asked("describe_logs", lambda n, at: m.DescribeLogs(n, "", "", -1)),
    Asked("describe_readings", lambda n, at: m.DescribeReadings(n, "")),
    Asked("authenticate", lambda n, at: m.Authenticate(n, "no token")),
    Asked("list_topics", lambda n, at: m.ListTopics(n, "", 10_000), of_register=True),
    Asked("describe_topic", lambda n, at: m.DescribeTopic(n, _TOPIC, False), of_register=True),
    Asked("describe_cluster", lambda n, at: m.DescribeCluster(n), of_register=True),
    Asked("describe_events", lambda n, at: m.DescribeEvents(n, 0), of_register=True),
]
"""What is asked."""


def _requests(asked: Asked, partition: int) -> Iterator[bytes]:
    size_bytes = number = 0
    while size_bytes < SENT_BYTES:
        number += 1
        data = frame(encode(asked.message(number, partition)))
        size_bytes += len(data)
        yield data


async def pipeline(kinds: list[Asked], directory: Path) -> list[Figure]:
    """Ask each of *kinds*, one after the other, of one cluster."""
    figures: list[Figure] = []
    with node_processes(directory) as nodes:
        here = start_cluster(nodes, brokers=1)
        partition = await _stored(here)
        for asked in kinds:
            url = (here.register if asked.of_register else here.brokers[0]).url
            payload = b"".join(_requests(asked, partition))
            async with probing(url, directory) as probe:
                await trio.sleep(0.5)
                quiet_ms = probe.longest_ms
                probe.trips_s.clear()
                async with flooding([Target(url, 1, payload, once=True)]):
                    probe.trips_s.clear()
                    await trio.sleep(SECONDS)
                note = f"{quiet_ms:.0f} while nobody asks, {len(probe.trips_s)} round trips"
                stall = Figure(f"stall by {asked.name}", probe.longest_ms, "ms", STALL_MS, note)
                figures.append(stall)
    return figures


async def _stored(here: Here) -> int:
    """Store many small records; return their partition."""
    async with octopi.connect(here.register.url) as client:
        info = await client.create_topic(_TOPIC)
        async with client.producer() as producer:
            for _ in range(0, _RECORDS, 1000):
                await producer.submit_many(_TOPIC, [b"x"] * 1000)
    return info.partitions[0].partition


ATTACKS: Final = [
    Attack(
        "pipelining",
        "one connection sends 4 MiB of one kind of request without waiting for answers",
        partial(pipeline, ASKED),
        timeout_s=120.0,
        planned_s=45.0,
    )
]
