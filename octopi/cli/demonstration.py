"""The demonstration of `demo`: a cluster of processes, a stream of messages, and a killed leader.

While the lines of a file are produced to a replicated topic, the leader is killed with SIGKILL.
Another broker takes over; the killed one is started again and catches up.  Then all messages are
read back and compared with the file, and the log files of all replicas with each other.

What is started, and what is killed, is a `Trial`.  If a cluster has several registers, the active
one is killed at the same time, so another one has to be active before it can decide which broker
takes over.  `octopi.cli.demo_ring` has the trial of a cluster without a register.
"""

from __future__ import annotations

import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, TypeVar

import attrs
import trio

import octopi
from octopi.cli import output
from octopi.cli.demo_cluster import DemoBrokers, broker_name
from octopi.cli.failures import CommandError
from octopi.cli.node_processes import NodeProcesses, node_processes
from octopi.cli.producing import LineOptions, LineProducer
from octopi.cli.rate_meter import RateMeter
from octopi.cli.rendering import counted, print_table, size
from octopi.cli.replica_files import compare_files, compare_replicas
from octopi.cli.sample_lines import SampleLines, make_stream
from octopi.operating_system import open_private
from octopi.roles.broker.log_files import log_directory

_T = TypeVar("_T")

TOPIC: Final = "demo"
"""The topic that is produced to."""
STREAM_S_MIN: Final = 4.0
"""The stream is slowed down to last at least this long, so that it still runs when the leader
dies."""
_PATIENCE_S: Final = 30.0
_LOOK_INTERVAL_S: Final = 0.01
_PIECE_BYTES: Final = 1024 * 1024


class Trial(ABC):
    """A cluster, and what is killed of it while a stream is produced."""

    cluster: DemoBrokers
    killed: str
    """The nodes that were killed, in words."""
    stream_s_min: float = STREAM_S_MIN
    """How long the stream is to last at least."""

    @abstractmethod
    def members(self, brokers: str) -> str:
        """What the cluster consists of, in words; *brokers* says how many brokers."""

    @abstractmethod
    async def create_topic(self, client: octopi.Client) -> octopi.PartitionInfo:
        """Create the topic on one partition; return where that is."""

    @abstractmethod
    async def kill(self, load: DemoLoad) -> None:
        """Kill nodes, see others take over, and start the killed ones again.

        Raises:
          CommandError: if nobody takes over, or a node does not start again.
        """


class Demonstration:
    """One run of the demonstration, with its data in *directory*."""

    def __init__(
        self,
        directory: Path,
        broker_count: int,
        file: Path | None,
        trial: Callable[[NodeProcesses], Trial],
        then: Callable[[DemoBrokers], Awaitable[None]] | None = None,
    ) -> None:
        """*then* is called with the running cluster at the end, before the cluster is stopped."""
        self._directory = directory
        self._broker_count = broker_count
        self._file = file
        self._trial = trial
        self._then = then
        self._steps: list[tuple[str, float]] = []
        self._verdict = ""

    async def run(self) -> None:
        """Run the whole demonstration; all processes have ended when this returns or raises.

        Raises:
          CommandError: if a node failed, or the messages read differ from those sent.
          OctopiError: any error of producing or consuming.
        """
        stream = make_stream(self._file, self._directory)
        async with node_processes(self._directory) as nodes:
            trial = self._trial(nodes)
            cluster = trial.cluster
            with self._step("start"):
                await cluster.start(self._broker_count)
            members = trial.members(counted(self._broker_count, "broker"))
            say("started", f"{members}, each a process of its own")
            say("console", f"{pages_of(cluster)}/console/")
            with self._step("create topic"):
                async with octopi.connect(cluster.addresses) as client:
                    place = await trial.create_topic(client)
            say(
                "created",
                f"topic {TOPIC}, partition {place.partition}: led by broker {place.leader}, "
                f"replicas on brokers {_listed(place.replicas)}",
            )
            often = "" if stream.times == 1 else f", the file {stream.times:,} times"
            say("producing", f"{stream.line_count:,} messages, {size(stream.bytes)}{often}")
            with self._step("produce, kill, restart"):
                await DemoLoad(cluster, stream, trial.stream_s_min).produce(trial.kill)
            with self._step("consume"):
                copy = self._directory / "copy"
                meter = await _consume(cluster.addresses, copy, stream.bytes)
            say("consumed", meter.summary())
            with self._step("compare"):
                await trio.to_thread.run_sync(compare_files, stream.path, copy)
                say("compared", "what was sent and what came back: each message once, in order")
                replicas, highwater = await self._compare_replicas(cluster.addresses)
            say(
                "compared",
                f"the log files of brokers {_listed(replicas)} up to the highwater mark "
                f"{highwater:,}: the same bytes",
            )
            if self._then is not None:
                await self._then(cluster)
            with self._step("stop"):
                await nodes.stop()
        say("stopped", "every process")
        self._verdict = (
            f"OK: {counted(stream.line_count, 'acknowledged message')} survived the death of "
            f"{trial.killed}, each once, in order, on {counted(len(replicas), 'replica')}"
        )

    def report(self) -> None:
        """Print how long each step took, and the verdict."""
        total = sum(seconds for _, seconds in self._steps)
        output.say()
        print_table(
            ["STEP", "SECONDS", "SHARE"],
            [
                [name, round(seconds, 3), f"{seconds / total:4.0%}"]
                for name, seconds in [*self._steps, ("total", total)]
            ],
        )
        output.say()
        output.say(self._verdict)

    async def _compare_replicas(self, servers: Sequence[str]) -> tuple[list[int], int]:
        """Compare the files of all replicas; return the brokers that have them, and the end of the
        compared part."""
        async with octopi.connect(servers) as client:

            async def all_committed() -> list[octopi.BrokerLog] | None:
                (place,) = (await client.describe_topic(TOPIC)).partitions
                logs = await client.admin.describe_logs(TOPIC)
                ends = {end for one in logs for end in (one.log.log_end, one.log.highwater)}
                return logs if len(logs) == len(place.replicas) and len(ends) == 1 else None

            logs = await until("every replica has everything", all_committed)
        directories = {
            one.broker: Path(
                log_directory(
                    str(self._directory / broker_name(one.broker)), one.log.partition, TOPIC
                )
            )
            for one in logs
        }
        highwater = logs[0].log.highwater
        await trio.to_thread.run_sync(compare_replicas, directories, highwater)
        return list(directories), highwater

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._steps.append((name, time.perf_counter() - began))


@attrs.define
class DemoLoad:
    """A stream that is produced while nodes are killed."""

    cluster: DemoBrokers
    _stream: SampleLines
    _stream_s_min: float
    _producer: octopi.Producer | None = None

    async def produce(self, kill: Callable[[DemoLoad], Awaitable[None]]) -> None:
        """Produce the stream and wait until each line is acknowledged; call *kill* meanwhile."""
        rate = self._stream.line_count / self._stream_s_min
        meter = RateMeter()
        descriptor = os.open(self._stream.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            servers = self.cluster.addresses
            async with octopi.connect(servers) as client, client.producer() as self._producer:
                lines = LineProducer(self._producer, TOPIC, LineOptions(rate=rate), meter)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(lines.produce, descriptor)
                    await kill(self)
        finally:
            os.close(descriptor)
        say("produced", f"{meter.summary()}: all acknowledged")

    @property
    def producer(self) -> octopi.Producer:
        assert self._producer is not None, "it is producing"
        return self._producer

    async def acknowledged(self, part: float) -> None:
        """Wait until the share *part* of the stream is acknowledged."""
        wanted = math.ceil(part * self._stream.line_count)

        async def enough() -> bool | None:
            return self.producer.acknowledged_count >= wanted or None

        await until(f"{wanted:,} acknowledgements", enough)

    @asynccontextmanager
    async def pause_told(self) -> AsyncIterator[None]:
        """Say, after the block, for how long nothing was acknowledged in it."""
        pause = _Pause(self.producer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pause.watch)
            yield
            nursery.cancel_scope.cancel()
        say("went on", f"after {pause.longest_s:.2f} s without an acknowledgement")

    async def kill_leader(
        self, victim: int, also: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Kill broker *victim*, which leads the topic's partition, then do what *also* does; return
        when another broker leads."""
        async with octopi.connect(self.cluster.addresses) as client:
            before = self.producer.acknowledged_count
            killed_at = time.perf_counter()
            await self.cluster.kill_broker(victim)
            say("killed", f"broker {victim}, the leader, after {before:,} acknowledgements")
            if also is not None:
                await also()

            async def successor() -> octopi.PartitionInfo | None:
                (place,) = (await client.describe_topic(TOPIC)).partitions
                return place if place.leader not in {None, victim} else None

            place = await until("another leader", successor)
        elected_s = time.perf_counter() - killed_at
        say("elected", f"broker {place.leader}, epoch {place.epoch}, after {elected_s:.2f} s")

    async def restart(self, victim: int) -> None:
        """Start broker *victim* again, which has a replica of the topic; return when that is in
        sync again."""
        began = time.perf_counter()
        await self.cluster.start_broker(victim)
        async with octopi.connect(self.cluster.addresses) as client:

            async def in_sync() -> bool | None:
                (place,) = (await client.describe_topic(TOPIC)).partitions
                return victim in place.in_sync or None

            await until(f"broker {victim} in sync again", in_sync)
        say(
            "restarted",
            f"broker {victim}: in sync again {time.perf_counter() - began:.2f} s after its start",
        )


@attrs.define
class _Pause:
    """The longest time in which no message of a producer was committed."""

    _producer: octopi.Producer
    longest_s: float = 0.0

    async def watch(self) -> None:
        """Measure repeatedly, until cancelled."""
        count, since = self._producer.acknowledged_count, time.perf_counter()
        while True:
            await trio.sleep(_LOOK_INTERVAL_S)
            if self._producer.acknowledged_count > count:
                now = time.perf_counter()
                self.longest_s = max(self.longest_s, now - since)
                count, since = self._producer.acknowledged_count, now


async def _consume(servers: Sequence[str], copy: Path, total_bytes: int) -> RateMeter:
    """Write the values of the topic's messages to *copy*, each with a newline after it."""
    meter = RateMeter()
    meter.start()  # the consumer begins to read when it is made
    with (
        meter.shown("consuming", total_bytes),
        open_private(copy, "wb", _PIECE_BYTES) as file,
    ):
        async with (
            octopi.connect(servers) as client,
            client.consumer(TOPIC, start="earliest", stop_at_end=True) as consumer,
        ):
            async for batch in consumer.batches():
                values = batch.values()
                data = b"".join([value + b"\n" for value in values])
                file.write(data)
                meter.add(len(values), len(data))
        meter.stop()
    return meter


async def until(what: str, probe: Callable[[], Awaitable[_T | None]]) -> _T:
    """Call *probe* repeatedly until it returns a result; return that.

    Raises:
      CommandError: if that takes longer than `_PATIENCE_S`.
    """
    with trio.move_on_after(_PATIENCE_S):
        while True:
            found = await probe()
            if found is not None:
                return found
            await trio.sleep(_LOOK_INTERVAL_S)  # there is no event to wait for
    raise CommandError(f"{what}: not within {_PATIENCE_S:g} s")


def pages_of(cluster: DemoBrokers) -> str:
    """The address at which the first of the cluster's nodes to ask serves its pages."""
    return cluster.addresses[0].replace("ws", "http", 1)


def _listed(numbers: Iterable[int]) -> str:
    return " ".join(map(str, sorted(numbers)))


def say(what: str, facts: str) -> None:
    """Print one line about the progress."""
    output.say(f"{what:<10} {facts}")
