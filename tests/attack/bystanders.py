"""Honest clients beside an attack, and what they saw of it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

import octopi
from harness.processes import NodeProcess, NodeProcesses
from octopi.errors import OctopiError
from octopi.wire import messages as m
from tests.attack.frame import Figure, quantile
from tests.kit.cluster import Cluster

TOPIC = "bystanders"
PAUSE_S = 0.02
"""Between a receipt and the next message of a producer: 50 a second, if they are served."""


@attrs.define
class Observed:
    """What the bystanders saw."""

    latencies_s: list[float] = attrs.Factory(list)
    """From handing over a message to its receipt."""
    failures: list[str] = attrs.Factory(list)
    waiting_since: dict[int, float] = attrs.Factory(dict)
    """When the messages were handed over that have no receipt yet, by partition."""

    def waited_s(self) -> float:
        """The longest time that a message has waited for its receipt so far.  Forgets these
        latencies, so that the figures are those of what comes next."""
        now = time.perf_counter()
        waiting_s = [now - since for since in self.waiting_since.values()]
        longest_s = max([*self.latencies_s, *waiting_s], default=0.0)
        self.latencies_s.clear()
        return longest_s

    def figures(self, p99_ms: float) -> list[Figure]:
        """The latencies against a bound, and failures against none."""
        median = quantile(self.latencies_s, 0.5) * 1000
        longest = max(self.latencies_s, default=float("inf")) * 1000
        note = f"median {median:.1f}, longest {longest:.0f}, of {len(self.latencies_s)}"
        return [
            Figure("p99 of producers", quantile(self.latencies_s, 0.99) * 1000, "ms", p99_ms, note),
            Figure("failed messages", len(self.failures), "", 0, "; ".join(self.failures[:1])),
        ]


@attrs.frozen
class Here:
    """A cluster of processes."""

    register: NodeProcess
    brokers: list[NodeProcess]

    @property
    def nodes(self) -> list[NodeProcess]:
        """All of them."""
        return [self.register, *self.brokers]


def start_cluster(
    nodes: NodeProcesses, *options: str, brokers: int = 3, files_max: int | None = None
) -> Here:
    """A register and *brokers* brokers, all serving; *options* are those of every node, and each
    may open *files_max* files."""
    register = nodes.register("register", *options, files_max=files_max)
    return Here(
        register,
        [
            nodes.broker(register, f"broker-{number + 1}", *options, files_max=files_max)
            for number in range(brokers)
        ],
    )


@asynccontextmanager
async def producing(
    here: Here, token: str | None = None, segment_bytes: int | None = None
) -> AsyncIterator[Observed]:
    """A producer for each of three partitions, whose leaders differ, within the block."""
    observed = Observed()
    async with trio.open_nursery() as nursery:
        async with octopi.connect(here.register.url, token=token) as client:
            info = await client.create_topic(TOPIC, len(here.brokers), segment_bytes=segment_bytes)
        for one in info.partitions:
            await nursery.start(_produce, here, one.partition, observed, token)
        yield observed
        now = time.perf_counter()
        observed.latencies_s += [now - since for since in observed.waiting_since.values()]
        nursery.cancel_scope.cancel()


async def _produce(
    here: Here,
    partition: int,
    observed: Observed,
    token: str | None,
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    async with (
        octopi.connect(here.register.url, token=token) as client,
        client.producer() as producer,
    ):
        await producer.send(TOPIC, b"first", partition=partition)
        task_status.started()
        while True:
            before = observed.waiting_since[partition] = time.perf_counter()
            try:
                with trio.fail_after(30):
                    await producer.send(TOPIC, b"bystander" * 10, partition=partition)
                observed.latencies_s.append(time.perf_counter() - before)
            except (OctopiError, trio.TooSlowError) as error:
                observed.failures.append(repr(error))
            del observed.waiting_since[partition]
            await trio.sleep(PAUSE_S)


async def brokers_left(here: Here, directory: Path, token: str | None = None) -> int:
    """How often the register has considered a broker gone since it was started."""
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, directory)
        async with cluster.connection(here.register.url, token=token) as connection:
            question = m.DescribeEvents(connection.next_request(), 0)
            events = (await connection.request(question, m.EventList, 15)).events
        nursery.cancel_scope.cancel()
    return sum(one.kind == "broker_left" for one in events)


@attrs.define
class Probe:
    """Round trips of one connection that asks the least a node can be asked, without pause."""

    trips_s: list[float] = attrs.Factory(list)
    answered: trio.Event = attrs.Factory(trio.Event)
    """For the first time."""

    @property
    def longest_ms(self) -> float:
        """The longest of them."""
        return max(self.trips_s, default=float("inf")) * 1000


@asynccontextmanager
async def probing(url: str, directory: Path) -> AsyncIterator[Probe]:
    """Probe the node at *url* within the block."""
    probe = Probe()
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, directory)
        async with cluster.connection(url) as connection:
            nursery.start_soon(_probe, connection, probe)
            yield probe
            nursery.cancel_scope.cancel()


async def _probe(connection: object, probe: Probe) -> None:
    from octopi.transport.connection import Connection

    assert isinstance(connection, Connection)
    while True:
        before = time.perf_counter()
        question = m.Authenticate(connection.next_request(), "")
        await connection.request(question, m.Authenticated, 30)
        probe.trips_s.append(time.perf_counter() - before)
        probe.answered.set()
        await trio.sleep(0.002)
