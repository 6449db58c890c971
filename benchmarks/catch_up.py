"""Measures the catch-up of a follower that was away, and what it costs producers meanwhile.

Starts a register and three brokers as processes, with default settings, and a topic on one
partition.  A follower is killed, and a producer sends `--megabytes` that it lacks.  Then:

1. The follower is started and killed again in turn.  The producer's rate while the follower catches
   up is compared with the rates just before and after, while it is away, because a machine with
   other work is faster at one time than at another.
2. The follower is started and stays.  Measured are the time until it is in sync, the bytes that it
   writes compared with the bytes that it lacked, and the producer's rate afterwards.
3. `--rounds` times, the follower is killed, lacks as much again, and comes back while nothing is
   produced.  Each time its rate is compared with that of a plain copy of its files directly
   afterwards, by one Python program that reads and sends and one that receives and writes.

Prints JSON on standard output.

By default the producer sends at half the rate that this machine can take.  With `--load 1` it sends
as fast as it can: then all processors are busy, and a third replica also slows the producer as soon
as it is in sync.
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
"""How long the rate that the machine can take is measured at the beginning."""

TURN_S: Final = 5.0
"""The duration of a turn, in which the follower runs or is away."""

BEGINNING_S: Final = 0.5
"""The beginning of a turn, which doesn't count because buffers fill and empty."""

QUIET_S: Final = 2.0
"""How long to wait until the devices have what the producer sent."""

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
    """The rate and the latencies of the producer in a span of time."""

    megabytes_per_second: float
    latency_ms_median: float
    latency_ms_99: float


class Load:
    """One producer that sends as fast as it can, or at a steady rate."""

    def __init__(self, producer: octopi.Producer) -> None:
        self.rate: float | None = None
        """Bytes per second; None: as fast as it can."""
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
        """Wait until *megabytes* more are acknowledged."""
        self._awaited_bytes = self.acknowledged_bytes + megabytes * 1e6
        self._arrived = trio.Event()
        await self._arrived.wait()

    async def pause(self) -> None:
        """Stop producing until `go_on`, and wait until all that was sent is acknowledged."""
        self._may_produce = trio.Event()
        await self._producer.flush()

    def go_on(self) -> None:
        """Go on producing after `pause`."""
        self._may_produce.set()

    async def _wait(self, pending: octopi.PendingReceipt, sent_at: float) -> None:
        await pending
        self.latencies_s.append(trio.current_time() - sent_at)
        self.acknowledged_bytes += 16 * len(VALUE)
        if self.acknowledged_bytes >= self._awaited_bytes:
            self._arrived.set()

    def begin(self) -> tuple[float, int, int]:
        """Begin a window: return the time, the acknowledged bytes and the number of latencies."""
        return trio.current_time(), self.acknowledged_bytes, len(self.latencies_s)

    def end(self, begin: tuple[float, int, int]) -> Window:
        """The window from *begin*, which the method `begin` returned, until now."""
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
    """One return of the follower, after which it stayed until it was in sync."""

    missing_megabytes: float
    written_for_missing: float
    """The bytes that it wrote, divided by the bytes that it lacked."""
    seconds: float
    """The time from when the broker served until its replica was in sync."""
    seconds_to_begin: float
    """The part of `seconds` until the first of the missing bytes were in its log."""
    seconds_copying: float
    """The part of `seconds` from there until its log was within a megabyte of the leader's."""
    megabytes_per_second: float
    """The missing megabytes, divided by `seconds`."""


@attrs.frozen
class Figures:
    """All measurements."""

    away: list[Window]
    """One window more than in `catching_up`: each turn lies between two of these."""
    catching_up: list[Window]
    in_sync: Window
    returned: Return
    returned_alone: list[Return]
    """The same while nothing is produced."""
    copied_megabytes_per_second: list[float]
    """The rate of a plain copy of as many bytes, directly after each return in `returned_alone`."""

    @property
    def ratios(self) -> list[float]:
        """For each turn, the producer's rate while the follower catches up, divided by the mean of
        its rates in the two turns around it."""
        return [
            2 * turn.megabytes_per_second / (one.megabytes_per_second + other.megabytes_per_second)
            for turn, (one, other) in zip(self.catching_up, pairwise(self.away), strict=True)
        ]

    @property
    def alone_for_copied(self) -> list[float]:
        """For each return while nothing is produced, its rate divided by that of the copy."""
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
            # The follower catches up a part of this in each turn.
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
    """Have follower *number*, which is away, come back in the three parts of the measurement."""
    follower = brokers[number]
    away, catching_up = [await take_turn(load)], []
    for _ in range(arguments.turns):
        await trio.to_thread.run_sync(follower.start)
        catching_up.append(await take_turn(load))
        if len((await describe(client)).in_sync) == BROKER_COUNT:
            raise SystemExit("the follower caught up within a turn: choose more --megabytes")
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
    """Start *follower*, which is away, wait until it is in sync, and describe its return."""
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
    """Send *megabytes* of *paths*, from the last file on, over the loopback interface to a process
    that writes them to a file; return the rate (MB/s)."""
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
    """Wait for a turn; return what the producer managed in it."""
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
    """Wait until *holds* returns true; return the time."""
    while True:
        if holds():
            return trio.current_time()
        await trio.sleep(0.005)


async def describe(client: octopi.Client) -> octopi.PartitionInfo:
    """The topic's only partition."""
    [place] = (await client.describe_topic(TOPIC)).partitions
    return place


def log_files(broker: NodeProcess, partition: int) -> list[Path]:
    """The segments of *broker*'s log, in order."""
    return sorted((broker.data_dir / "logs" / str(partition) / TOPIC).glob("*.log"))


def log_bytes(broker: NodeProcess, partition: int) -> int:
    """The size of *broker*'s log on disk, in bytes."""
    return sum(path.stat().st_size for path in log_files(broker, partition))


def written_bytes(broker: NodeProcess) -> int:
    """The bytes that *broker*'s process has written to files since it was started."""
    for line in Path(f"/proc/{broker.pid}/io").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "wchar":
            return int(value)
    raise AssertionError("the system doesn't count the bytes that a process writes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--megabytes",
        type=float,
        default=1000.0,
        help="what the follower lacks; before the turns, half as much more for each of them",
    )
    parser.add_argument("--turns", type=int, default=5, help="in part 1; may be 0")
    parser.add_argument("--rounds", type=int, default=5, help="in part 3; may be 0")
    parser.add_argument("--load", type=float, default=0.5, help="share of the possible rate")
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
