"""The demonstration of `demo`: a cluster of processes, a stream of messages, and a killed leader.

While the lines of a file are produced to a replicated topic, the leader is killed with SIGKILL.
Another broker takes over; the killed one is started again and catches up.  Then all messages are
read back and compared with the file, and the log files of all replicas with each other.

If the cluster has several registers, the active one is killed at the same time, so another one has
to be active before it can decide which broker takes over.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import attrs
import trio

import octopi
from octopi.cli import output
from octopi.cli.demo_cluster import DemoCluster, broker_name
from octopi.cli.failures import CommandError
from octopi.cli.node_processes import node_processes
from octopi.cli.producing import LineOptions, LineProducer
from octopi.cli.rate_meter import RateMeter
from octopi.cli.rendering import counted, print_table, size
from octopi.cli.replica_files import compare_files, compare_replicas
from octopi.cli.sample_lines import SampleLines, make_stream
from octopi.operating_system import open_private
from octopi.roles.broker.log_files import log_directory

_T = TypeVar("_T")

_TOPIC: Final = "demo"
_STREAM_S_MIN: Final = 4.0
"""The stream is slowed down to last at least this long, so that it still runs when the leader
dies."""
_KILL_AT: Final = 0.25
_RESTART_AT: Final = 0.5
"""The killed broker is started again when this part of the stream is acknowledged."""
_PATIENCE_S: Final = 30.0
_LOOK_INTERVAL_S: Final = 0.01
_PIECE_BYTES: Final = 1024 * 1024


class Demonstration:
    """One run of the demonstration, with its data in *directory*."""

    def __init__(
        self,
        directory: Path,
        broker_count: int,
        file: Path | None,
        register_count: int = 1,
        then: Callable[[DemoCluster], Awaitable[None]] | None = None,
    ) -> None:
        """*then* is called with the running cluster at the end, before the cluster is stopped."""
        self._directory = directory
        self._broker_count = broker_count
        self._file = file
        self._register_count = register_count
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
            cluster = DemoCluster(nodes, self._register_count)
            with self._step("start"):
                await cluster.start(self._broker_count)
            brokers = counted(self._broker_count, "broker")
            one_or_more = (
                "a register" if self._register_count == 1 else f"{self._register_count} registers"
            )
            say("started", f"{one_or_more} and {brokers}, each a process of its own")
            say("console", f"{pages_of(cluster)}/console/")
            with self._step("create topic"):
                place = await _create_topic(cluster.addresses)
            say(
                "created",
                f"topic {_TOPIC}, partition {place.partition}: led by broker {place.leader}, "
                f"replicas on brokers {_listed(place.replicas)}",
            )
            often = "" if stream.times == 1 else f", the file {stream.times:,} times"
            say("producing", f"{stream.line_count:,} messages, {size(stream.bytes)}{often}")
            with self._step("produce, kill, restart"):
                await _LeaderKill(cluster, place, stream).produce()
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
        register = "" if self._register_count == 1 else " and of the active register"
        self._verdict = (
            f"OK: {counted(stream.line_count, 'acknowledged message')} survived the death of "
            f"the leader{register}, each once, in order, on {counted(len(replicas), 'replica')}"
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
                (place,) = (await client.describe_topic(_TOPIC)).partitions
                logs = await client.admin.describe_logs(_TOPIC)
                ends = {end for one in logs for end in (one.log.log_end, one.log.highwater)}
                return logs if len(logs) == len(place.replicas) and len(ends) == 1 else None

            logs = await until("every replica has everything", all_committed)
        directories = {
            one.broker: Path(
                log_directory(
                    str(self._directory / broker_name(one.broker)), one.log.partition, _TOPIC
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
class _LeaderKill:
    """Produces a stream, and kills the leader in the middle of it."""

    _cluster: DemoCluster
    _place: octopi.PartitionInfo
    _stream: SampleLines

    async def produce(self) -> None:
        """Produce the stream and wait until each line is acknowledged; kill and restart the leader
        meanwhile."""
        rate = self._stream.line_count / _STREAM_S_MIN
        meter = RateMeter()
        descriptor = os.open(self._stream.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            servers = self._cluster.addresses
            async with octopi.connect(servers) as client, client.producer() as producer:
                lines = LineProducer(producer, _TOPIC, LineOptions(rate=rate), meter)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(lines.produce, descriptor)
                    await self._kill_and_restart(producer)
        finally:
            os.close(descriptor)
        say("produced", f"{meter.summary()}: all acknowledged")

    async def _kill_and_restart(self, producer: octopi.Producer) -> None:
        cluster, victim = self._cluster, self._place.leader
        assert victim is not None, "a topic that was just created has a leader"
        await self._acknowledged(producer, _KILL_AT)
        register = await self._active_register() if cluster.register_count > 1 else None
        async with octopi.connect(cluster.addresses) as client, trio.open_nursery() as nursery:
            pause = _Pause(producer)
            nursery.start_soon(pause.watch)
            before = producer.acknowledged_count
            killed_at = time.perf_counter()
            await cluster.kill_broker(victim)
            after = f"after {before:,} acknowledgements"
            say("killed", f"broker {victim}, the leader, {after}")
            if register is not None:
                await self._kill_register(register)

            async def successor() -> octopi.PartitionInfo | None:
                (place,) = (await client.describe_topic(_TOPIC)).partitions
                return place if place.leader not in {None, victim} else None

            place = await until("another leader", successor)
            elected_s = time.perf_counter() - killed_at
            say("elected", f"broker {place.leader}, epoch {place.epoch}, after {elected_s:.2f} s")
            await self._acknowledged(producer, _RESTART_AT)
            nursery.cancel_scope.cancel()
        say("went on", f"after {pause.longest_s:.2f} s without an acknowledgement")
        if register is not None:
            await self._restart_register(register)
        await self._restart(victim)

    async def _active_register(self, *, but: int | None = None) -> int:
        """The number of the active register, when *but* one isn't it any more."""
        probe = partial(self._cluster.active_register, but=but)
        return await until("an active register", probe)

    async def _kill_register(self, victim: int) -> None:
        """Kill the active register; return when another one is active."""
        killed_at = time.perf_counter()
        await self._cluster.kill_register(victim)
        say("killed", f"register {victim}, the active one, at the same time")
        active = await self._active_register(but=victim)
        say("active", f"register {active}, after {time.perf_counter() - killed_at:.2f} s")

    async def _restart_register(self, victim: int) -> None:
        began = time.perf_counter()
        await self._cluster.start_register(victim)
        says = (
            f"register {victim}: serves again {time.perf_counter() - began:.2f} s after its start"
        )
        say("restarted", says)

    async def _restart(self, victim: int) -> None:
        began = time.perf_counter()
        await self._cluster.start_broker(victim)
        async with octopi.connect(self._cluster.addresses) as client:

            async def in_sync() -> bool | None:
                (place,) = (await client.describe_topic(_TOPIC)).partitions
                return victim in place.in_sync or None

            await until(f"broker {victim} in sync again", in_sync)
        say(
            "restarted",
            f"broker {victim}: in sync again {time.perf_counter() - began:.2f} s after its start",
        )

    async def _acknowledged(self, producer: octopi.Producer, part: float) -> None:
        """Wait until the share *part* of the stream is acknowledged."""
        wanted = math.ceil(part * self._stream.line_count)

        async def enough() -> bool | None:
            return producer.acknowledged_count >= wanted or None

        await until(f"{wanted:,} acknowledgements", enough)


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


async def _create_topic(servers: Sequence[str]) -> octopi.PartitionInfo:
    async with octopi.connect(servers) as client:
        return (await client.create_topic(_TOPIC)).partitions[0]


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
            client.consumer(_TOPIC, start="earliest", stop_at_end=True) as consumer,
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


def pages_of(cluster: DemoCluster) -> str:
    """The address at which the first register serves its pages."""
    return cluster.addresses[0].replace("ws", "http", 1)


def _listed(numbers: Iterable[int]) -> str:
    return " ".join(map(str, sorted(numbers)))


def say(what: str, facts: str) -> None:
    """Print one line about the progress."""
    output.say(f"{what:<10} {facts}")
