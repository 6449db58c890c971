"""What it costs to catch up: a follower was away while the others took a lot of messages.

Starts a register and three brokers as processes, with default settings, and a topic on one
partition.  A follower is killed, and producers send `--megabytes` that it lacks.  Then it is
started and killed again by turns, and the producers' rate while it catches up is compared
with the rate just before and after in which it is away: a machine that has other things to
do, too, is quicker now and slower then.  The last time it may stay, and it is measured how
long it needs until it is in sync, what it writes to its log against what it lacked, and what
producers manage then.  At last, `--rounds` times, it is killed, lacks as much, and comes back
while nobody produces: each time that rate is compared with that of a plain copy of its files
right behind it, by one Python program that reads and sends and one that receives and writes.
Prints JSON on standard output.

By default producers send at half the rate that this machine can take.  `--load 1` takes
all: then all processors are busy, and a third replica costs producers something as soon as
it is in sync, too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

import attrs
import trio

import octopi
from harness.processes import NodeProcess, node_processes

TOPIC: Final = "measured"
BROKER_COUNT: Final = 3
VALUE: Final = b"x" * 1024
WARM_UP_S: Final = 4.0
"""How long it is measured what the machine can take, if producers shall not take all."""

TURN_S: Final = 5.0
"""How long the follower runs, or is away, in a turn."""

BEGINNING_S: Final = 0.5
"""So much of a turn doesn't count: buffers fill and empty."""

QUIET_S: Final = 2.0
"""For what producers sent to reach the devices."""

_PIECE_BYTES: Final = 256 * 1024
_RECEIVER: Final = f"""
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    with open(sys.argv[2], "wb", buffering=0) as file:
        while data := connection.recv({_PIECE_BYTES}):
            file.write(data)
"""


@attrs.frozen
class Window:
    """What a producer managed in a span."""

    megabytes_per_second: float
    latency_ms_median: float
    latency_ms_99: float


class Load:
    """One producer, as quick as it can or at a steady *rate*."""

    def __init__(self, producer: octopi.Producer) -> None:
        self.rate: float | None = None
        """Bytes/s; None: all it can."""
        self.acknowledged_bytes = 0
        self.latencies_s: list[float] = []
        self._producer = producer
        self._awaited_bytes = math.inf
        self._arrived = trio.Event()
        self._may_produce = trio.Event()
        self._may_produce.set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            due = trio.current_time()
            while True:
                await self._may_produce.wait()
                for _ in range(16):
                    pending = await self._producer.submit(TOPIC, VALUE)
                nursery.start_soon(self._wait, pending, trio.current_time())
                if self.rate is not None:
                    due = max(due + 16 * len(VALUE) / self.rate, trio.current_time() - 0.1)
                    await trio.sleep_until(due)

    async def acknowledged(self, megabytes: float) -> None:
        """Return when so much more is acknowledged."""
        self._awaited_bytes = self.acknowledged_bytes + megabytes * 1e6
        self._arrived = trio.Event()
        await self._arrived.wait()

    async def pause(self) -> None:
        """Produce nothing until `go_on`."""
        self._may_produce = trio.Event()
        await self._producer.flush()

    def go_on(self) -> None:
        """Produce."""
        self._may_produce.set()

    async def _wait(self, pending: octopi.PendingReceipt, sent_at: float) -> None:
        await pending
        self.latencies_s.append(trio.current_time() - sent_at)
        self.acknowledged_bytes += 16 * len(VALUE)
        if self.acknowledged_bytes >= self._awaited_bytes:
            self._arrived.set()

    def begin(self) -> tuple[float, int, int]:
        """The beginning of a window."""
        return trio.current_time(), self.acknowledged_bytes, len(self.latencies_s)

    def end(self, begin: tuple[float, int, int]) -> Window:
        """That window, until now."""
        at, acknowledged_bytes, count = begin
        seconds = trio.current_time() - at
        latencies = sorted(self.latencies_s[count:]) or [float("inf")]
        return Window(
            round((self.acknowledged_bytes - acknowledged_bytes) / 1e6 / seconds, 2),
            round(statistics.median(latencies) * 1000, 1),
            round(latencies[len(latencies) * 99 // 100] * 1000, 1),
        )


@attrs.frozen
class Return:
    """A time that the follower came back and stayed."""

    missing_megabytes: float
    written_for_missing: float
    seconds: float
    """From the moment that the broker served until it was in sync."""
    seconds_to_begin: float
    """Of these: until the first of what it lacked was in its log."""
    seconds_copying: float
    """Of these: from there until it held what the leader had, but for a megabyte."""
    megabytes_per_second: float
    """What it got, over all seconds."""


@attrs.frozen
class Figures:
    """All that was measured."""

    away: list[Window]
    """The first of them is before, and the last one after, all turns in `catching_up`."""
    catching_up: list[Window]
    in_sync: Window
    returned: Return
    returned_alone: list[Return]
    """The same while nobody produces."""
    copied_megabytes_per_second: list[float]
    """What a plain copy of the same bytes got right behind each of them."""

    @property
    def ratios(self) -> list[float]:
        """The producers' rate in each turn for that in the two around it."""
        return [
            2 * turn.megabytes_per_second / (one.megabytes_per_second + other.megabytes_per_second)
            for turn, (one, other) in zip(self.catching_up, pairwise(self.away), strict=True)
        ]

    @property
    def alone_for_copied(self) -> list[float]:
        """The rate of each return while nobody produces for that of the copy."""
        return [
            alone.megabytes_per_second / copied
            for alone, copied in zip(
                self.returned_alone, self.copied_megabytes_per_second, strict=True
            )
        ]


async def measure(arguments: argparse.Namespace, directory: Path) -> Figures:
    with node_processes(directory) as nodes:
        register = nodes.register()
        options = ["--catch-up-slowdown", str(arguments.slowdown)] if arguments.slowdown else []
        brokers = {
            number: nodes.broker(register, f"broker-{number}", *options)
            for number in range(1, BROKER_COUNT + 1)
        }
        async with (
            octopi.connect(register.url) as client,
            client.producer() as producer,
            trio.open_nursery() as nursery,
        ):
            await client.create_topic(TOPIC)
            load = Load(producer)
            nursery.start_soon(load.run)
            follower = await in_sync(client)
            await trio.sleep(1)
            begin = load.begin()
            await trio.sleep(WARM_UP_S)
            possible = load.end(begin).megabytes_per_second * 1e6
            brokers[follower].kill9()
            # In each turn it gets something of that.
            await load.acknowledged(arguments.megabytes * (1 + arguments.turns / 2))
            load.rate = possible * arguments.load if arguments.load < 1 else None
            figures = await take_turns(client, load, brokers, follower, arguments)
            nursery.cancel_scope.cancel()
    return figures


async def take_turns(
    client: octopi.Client,
    load: Load,
    brokers: dict[int, NodeProcess],
    number: int,
    arguments: argparse.Namespace,
) -> Figures:
    """Have the follower of that *number*, which is away, come back so many times, and stay the
    last time; then have it come back while nobody produces."""
    follower = brokers[number]
    away, catching_up = [await take_turn(load)], []
    for _ in range(arguments.turns):
        await trio.to_thread.run_sync(follower.start)
        catching_up.append(await take_turn(load))
        if len((await describe(client)).in_sync) == BROKER_COUNT:
            raise SystemExit("it caught up within a turn: let it miss more --megabytes")
        follower.kill9()
        away.append(await take_turn(load))
    returned = await come_back(client, brokers, follower)
    in_sync_then = await take_turn(load)
    load.rate = None
    alone, copied = [], []
    for _ in range(arguments.rounds):
        follower.kill9()
        load.go_on()
        await load.acknowledged(arguments.megabytes)
        await load.pause()
        await trio.sleep(QUIET_S)
        alone.append(await come_back(client, brokers, follower))
        paths = log_files(follower, (await describe(client)).partition)
        missing = alone[-1].missing_megabytes
        copied.append(await trio.to_thread.run_sync(copied_rate, paths, missing))
    return Figures(away, catching_up, in_sync_then, returned, alone, copied)


async def come_back(
    client: octopi.Client, brokers: dict[int, NodeProcess], follower: NodeProcess
) -> Return:
    """Start *follower*, which is away, and wait until it is in sync."""
    place = await describe(client)
    assert place.leader is not None
    leader, partition = brokers[place.leader], place.partition
    held = log_bytes(follower, partition)
    await trio.to_thread.run_sync(follower.start)
    served = trio.current_time()
    began = await when(lambda: log_bytes(follower, partition) > held)
    copied = await when(lambda: log_bytes(follower, partition) > log_bytes(leader, partition) - 1e6)
    await in_sync(client)
    seconds = trio.current_time() - served
    lacked, wrote = log_bytes(follower, partition) - held, written_bytes(follower)
    return Return(
        round(lacked / 1e6, 1),
        round(wrote / lacked, 3),
        round(seconds, 2),
        round(began - served, 2),
        round(copied - began, 2),
        round(lacked / 1e6 / seconds, 1),
    )


def copied_rate(paths: list[Path], megabytes: float) -> float:
    """Send so much of the ends of *paths* over the loopback to a process that writes it to a
    file; return the rate (MB/s)."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        tempfile.NamedTemporaryFile() as target,
        subprocess.Popen(
            [sys.executable, "-c", _RECEIVER, str(listener.getsockname()[1]), target.name],
            stdout=subprocess.PIPE,
        ) as receiver,
    ):
        connection, _ = listener.accept()
        began, left = time.perf_counter(), int(megabytes * 1e6)
        with connection:
            for path in reversed(paths):
                with path.open("rb") as file:
                    while left > 0 and (data := file.read(min(left, _PIECE_BYTES))):
                        connection.sendall(data)
                        left -= len(data)
        receiver.communicate()
        return round((megabytes - left / 1e6) / (time.perf_counter() - began), 1)


async def take_turn(load: Load) -> Window:
    """What producers manage in a turn."""
    await trio.sleep(BEGINNING_S)
    begin = load.begin()
    await trio.sleep(TURN_S - BEGINNING_S)
    return load.end(begin)


async def in_sync(client: octopi.Client) -> int:
    """Wait until all replicas are in sync; return one of the followers."""
    while True:
        place = await describe(client)
        if place.leader is not None and len(place.in_sync) == BROKER_COUNT:
            return next(one for one in place.in_sync if one != place.leader)
        await trio.sleep(0.02)


async def when(holds: Callable[[], bool]) -> float:
    """Wait until it holds; return the time."""
    while True:
        if holds():
            return trio.current_time()
        await trio.sleep(0.005)


async def describe(client: octopi.Client) -> octopi.PartitionInfo:
    """Where the topic's one partition is."""
    [place] = (await client.describe_topic(TOPIC)).partitions
    return place


def log_files(broker: NodeProcess, partition: int) -> list[Path]:
    """The files of that broker's log, in order."""
    return sorted((broker.data_dir / "logs" / str(partition) / TOPIC).glob("*.log"))


def log_bytes(broker: NodeProcess, partition: int) -> int:
    """How long that broker's log is on its disk."""
    return sum(path.stat().st_size for path in log_files(broker, partition))


def written_bytes(broker: NodeProcess) -> int:
    """What that process has written to files since it was started."""
    for line in Path(f"/proc/{broker.pid}/io").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "wchar":
            return int(value)
    raise AssertionError("the system counts no writes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--megabytes",
        type=float,
        default=1000.0,
        help="that the follower lacks, before turns half as much more for each of them",
    )
    parser.add_argument("--turns", type=int, default=5, help="0: only how it comes back")
    parser.add_argument("--rounds", type=int, default=5, help="0: only while others produce")
    parser.add_argument("--load", type=float, default=0.5, help="share of what is possible")
    parser.add_argument("--slowdown", type=float, help="the brokers' --catch-up-slowdown")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = trio.run(measure, arguments, Path(directory))
    print(
        json.dumps(
            {
                "machine": {
                    "cpus": os.cpu_count(),
                    "system": platform.platform(),
                    "python": platform.python_version(),
                },
                "octopi": octopi.__version__,
                "load": arguments.load,
                "producers_catching_up_for_away": (
                    round(statistics.median(figures.ratios), 3) if figures.ratios else None
                ),
                "alone_for_copied": (
                    round(statistics.median(figures.alone_for_copied), 3)
                    if figures.alone_for_copied
                    else None
                ),
                "ratios": [round(one, 3) for one in figures.ratios],
                **attrs.asdict(figures),
            },
            indent=2,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
