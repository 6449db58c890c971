"""What `demo` does: a cluster of processes, a file through it, and the comparison.

Line number i goes to the partition at place i modulo their number, and one consumer a
partition brings it back; taking from them in turn restores the order of the file.  So the
comparison holds every log to its order, and memory stays bounded whatever the file's size.
"""

from __future__ import annotations

import gzip
import itertools
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from importlib import resources
from pathlib import Path
from typing import Final

import click
import trio

import octopi
from octopi.cli.failures import CommandError
from octopi.cli.lines import LineSplitter, pieces
from octopi.cli.meter import Meter
from octopi.cli.node_processes import NodeProcesses, node_processes
from octopi.cli.rendering import counted, print_table, size
from octopi.limits import RECORD_BYTES_MAX
from octopi.record import STRUCTURED_BYTES_MIN, Message

_TOPIC: Final = "demo"
_SAMPLE: Final = "flights-10k.csv"
_PARTITIONS_PER_BROKER: Final = 2
_PIECE_BYTES: Final = 1024 * 1024


class Demonstration:
    """One run, with its data in *directory*."""

    def __init__(self, directory: Path, broker_count: int, file: Path | None) -> None:
        self._directory = directory
        self._broker_count = broker_count
        self._file = file
        self._steps: list[tuple[str, float]] = []
        self._verdict = ""

    async def run(self) -> None:
        """Do it all; nothing runs any more when this returns or raises.

        Raises:
          CommandError: if a node failed, or what came back is not what was sent.
          OctopiError: whatever producing and consuming raise.
        """
        source = self._file or _unpack_sample(self._directory)
        copy = self._directory / "copy"
        async with node_processes(self._directory) as nodes:
            with self._step("start"):
                url = await self._start(nodes)
            brokers = counted(self._broker_count, "broker")
            click.echo(f"started   a register and {brokers}, each a process of its own")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(nodes.raise_when_one_ends)
                with self._step("create topic"):
                    partitions = await _create_topic(url, self._partition_count)
                meter = Meter()
                with self._step("produce"), meter.shown("producing", source.stat().st_size):
                    await _produce(url, source, partitions, meter)
                click.echo(f"produced  {meter.summary()}")
                meter = Meter()
                with self._step("consume"), meter.shown("consuming", source.stat().st_size):
                    leaders = await _consume(url, copy, _ends_with_newline(source), meter)
                click.echo(f"consumed  {meter.summary()}")
                nursery.cancel_scope.cancel()
            with self._step("compare"):
                await trio.to_thread.run_sync(compare, source, copy)
            click.echo(f"compared  {source.stat().st_size:,} bytes: the same")
            with self._step("stop"):
                await nodes.stop()
        click.echo("stopped   every process")
        self._verdict = (
            f"OK: {counted(meter.messages, 'line')} ({size(source.stat().st_size)}) through "
            f"{counted(leaders, 'broker')} came back byte for byte"
        )

    def report(self) -> None:
        """Print where the time went, and the verdict."""
        total = sum(seconds for _, seconds in self._steps)
        click.echo()
        print_table(
            ["STEP", "SECONDS", "SHARE"],
            [
                [name, round(seconds, 3), f"{seconds / total:4.0%}"]
                for name, seconds in [*self._steps, ("total", total)]
            ],
        )
        click.echo()
        click.echo(self._verdict)

    @property
    def _partition_count(self) -> int:
        return self._broker_count * _PARTITIONS_PER_BROKER

    async def _start(self, nodes: NodeProcesses) -> str:
        url = await nodes.start(
            "register",
            "register",
            "--gather",
            "0",
            "--partitions",
            str(self._partition_count),
        )
        async with trio.open_nursery() as nursery:
            for number in range(1, self._broker_count + 1):
                nursery.start_soon(nodes.start, f"broker-{number}", "broker", "--register", url)
        return url

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._steps.append((name, time.perf_counter() - began))


async def _create_topic(url: str, partition_count: int) -> list[int]:
    async with octopi.connect(url) as client:
        info = await client.create_topic(_TOPIC, partition_count)
    return [one.partition for one in info.partitions]


async def _produce(url: str, source: Path, partitions: list[int], meter: Meter) -> None:
    splitter = LineSplitter(RECORD_BYTES_MAX - STRUCTURED_BYTES_MIN)
    meter.start()
    descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        turns = itertools.cycle(partitions)
        async with (
            aclosing(pieces(descriptor)) as source_pieces,
            octopi.connect(url) as client,
            client.producer() as producer,
        ):
            async for piece in source_pieces:
                known = splitter.count
                for line, partition in zip(splitter.feed(piece), turns, strict=False):
                    await producer.submit(_TOPIC, line, partition=partition)
                meter.add(splitter.count - known, len(piece))
            for line, partition in zip(splitter.finish(), turns, strict=False):
                await producer.submit(_TOPIC, line, partition=partition)
                meter.add(1, 0)
            await producer.flush()
            meter.stop()
    finally:
        os.close(descriptor)


async def _consume(url: str, copy: Path, ends_with_newline: bool, meter: Meter) -> int:
    """Write the topic's lines to *copy*; return how many brokers they came from."""
    meter.start()  # consumers read ahead from when they are made
    async with octopi.connect(url) as client, AsyncExitStack() as stack:
        info = await client.describe_topic(_TOPIC)
        batches: list[AsyncIterator[list[Message]]] = []
        for one in info.partitions:
            consumer = await stack.enter_async_context(
                client.consumer(
                    _TOPIC, start="earliest", partitions=[one.partition], stop_at_end=True
                )
            )
            batches.append(consumer.batches())
        with copy.open("wb", buffering=_PIECE_BYTES) as file:
            separator = b""
            lines = await stack.enter_async_context(aclosing(in_turns(batches)))
            async for values in lines:
                data = separator + b"\n".join(values)
                file.write(data)
                meter.add(len(values), len(data))
                separator = b"\n"
            if ends_with_newline:
                file.write(separator)
        meter.stop()
        return len({one.leader for one in info.partitions})


async def in_turns(
    batches: list[AsyncIterator[list[Message]]],
) -> AsyncGenerator[list[bytes], None]:
    """The values of all *batches*, one from each in turn, until the one whose turn it is
    has ended."""
    waiting: list[deque[Message]] = [deque() for _ in batches]
    place = 0
    taken: list[bytes] = []
    while True:
        if not waiting[place]:
            if taken:
                yield taken
                taken = []
            more = await anext(batches[place], None)
            if more is None:
                return
            waiting[place].extend(more)
        taken.append(waiting[place].popleft().value)
        place = (place + 1) % len(batches)


def compare(source: Path, copy: Path) -> None:
    """Compare two files.

    Raises:
      CommandError: naming the first byte that differs.
    """
    position = 0
    with source.open("rb") as one, copy.open("rb") as other:
        while True:
            expected, actual = one.read(_PIECE_BYTES), other.read(_PIECE_BYTES)
            if expected != actual:
                shared = itertools.takewhile(
                    lambda pair: pair[0] == pair[1], zip(expected, actual, strict=False)
                )
                position += sum(1 for _ in shared)
                raise CommandError(
                    f"what came back differs from byte {position} on: "
                    "that must never be; please report it"
                )
            if not expected:
                return
            position += len(expected)


def _unpack_sample(directory: Path) -> Path:
    packed = resources.files("octopi.cli").joinpath("samples", f"{_SAMPLE}.gz")
    sample = directory / _SAMPLE
    sample.write_bytes(gzip.decompress(packed.read_bytes()))
    return sample


def _ends_with_newline(file: Path) -> bool:
    with file.open("rb") as opened:
        opened.seek(0, os.SEEK_END)
        if opened.tell() == 0:
            return False
        opened.seek(-1, os.SEEK_END)
        return opened.read() == b"\n"
