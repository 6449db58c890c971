"""Streams whose driver, and whose brokers, are killed again and again: is each message there once?

A producer goes on all the time.  One Spark driver, a process with its JVM and its workers,
runs two streams: an archive, and a copy into another topic.  It is killed with all that
belongs to it at random moments and started again; then the broker that leads is.  In the end
what was produced, what was archived and what was copied are compared.

Too long for `make test`, since a driver takes many seconds to start: ``make spark-kills``, or
``python -m tests.spark.kills``, which prints JSON on standard output, and ends with an error if a
message is lost, doubled, changed or out of order.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import attrs
import pyarrow.parquet as pq
import trio

import octopi
from harness.processes import NodeProcess, node_processes
from harness.spark_cluster import Cluster, by_partition, flights
from octopi.spark.jobs.archive_files import archived_logs

SOURCE, COPY = "source", "copy"
_OFFSETS = ("archive/_checkpoint/offsets/[0-9]*", "copying/offsets/[0-9]*")
"""A file for each batch of each stream."""
_DEADLINE_S = 400.0


@attrs.frozen
class Outcome:
    """What came of it."""

    produced: int
    driver_kills: int
    broker_kills: int
    batches: int
    """That were begun, of both streams."""
    late_starts: int
    """Drivers that ended by themselves, because Spark gives a worker ten seconds to start."""


def run(
    directory: Path,
    *,
    driver_kills: int,
    broker_kills: int,
    seed: int,
    rate: int,
    tell: Callable[[str], object] = lambda _: None,
) -> Outcome:
    """Kill so often, at moments drawn from *seed*, while *rate* messages come a second; *tell*
    is told of each kill.

    Raises:
      AssertionError: if a message is lost, doubled, changed or out of order.
    """
    moments = random.Random(seed)
    with node_processes(directory) as nodes, _Drivers(directory) as drivers:
        register = nodes.register()
        brokers = [nodes.broker(register, f"broker-{n}") for n in (1, 2, 3)]
        cluster = Cluster(register, brokers[0])
        cluster.topic(3, name=SOURCE)
        cluster.topic(3, name=COPY)
        with _Producing(cluster.url, rate) as producing:
            for number in range(driver_kills):
                driver = drivers.start_following(cluster.url, 1 + number % 2)
                time.sleep(moments.uniform(0, 2))
                driver.kill()
                tell(f"driver {number + 1} of {driver_kills} is killed")
            driver = drivers.start_following(cluster.url, 2)
            for number in range(broker_kills):
                driver.wait_for_batches(1)
                time.sleep(moments.uniform(0, 2))
                killed = _kill_a_leader(cluster, brokers, moments)
                tell(f"{killed} is killed: {number + 1} of {broker_kills}")
            driver.wait_for_batches(2)
            driver.kill()
        drivers.start(cluster.url, "drain").wait()
        produced = cluster.messages(SOURCE)
        assert len(produced) == producing.count, "the producer's own messages"
        _check(produced, cluster.messages(COPY), directory)
        return Outcome(
            len(produced), driver_kills, broker_kills, len(_batches(directory)), drivers.late_starts
        )


def _check(produced: list[octopi.Message], copied: list[octopi.Message], directory: Path) -> None:
    expected = Counter((one.partition, one.offset, one.request_id) for one in produced)
    assert max(expected.values()) == 1
    found: Counter[tuple[int, int, bytes]] = Counter()
    for log in archived_logs(directory / "archive"):
        assert log.gaps() == []
        for stretch in log.stretches():
            table = pq.read_table(stretch.path, columns=["offset", "request_id"])
            for offset, request_id in zip(*table.to_pydict().values(), strict=True):
                found[log.partition, offset, request_id] += 1
    assert found == expected, "lost or doubled in the archive"
    values = Counter(one.value for one in produced)
    assert Counter(one.value for one in copied) == values, "lost or doubled in the copy"
    # A key's place in the list of partitions is the same in both topics, and so is the order.
    there, here = (sorted(by_partition(one).values()) for one in (copied, produced))
    assert there == here, "the order of the copy"


def _batches(directory: Path) -> list[Path]:
    return [path for pattern in _OFFSETS for path in directory.glob(pattern)]


class _Driver:
    """A Spark driver of both streams, as a process that can be killed with its children."""

    def __init__(self, directory: Path, url: str, mode: str) -> None:
        self._directory = directory
        command = [sys.executable, "-m", "tests.spark.streams", str(directory), url, mode]
        with (directory / "driver.log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=Path(__file__).parents[2],
            )

    def wait_for_batches(self, count: int) -> None:
        """Wait until each stream has begun so many more batches."""
        for pattern in _OFFSETS:
            wanted = len(list(self._directory.glob(pattern))) + count
            deadline = time.monotonic() + _DEADLINE_S
            while len(list(self._directory.glob(pattern))) < wanted:
                assert self._process.poll() is None, self._text()
                assert time.monotonic() < deadline, (
                    f"no batch within {_DEADLINE_S:g} s\n{self._text()}"
                )
                time.sleep(0.05)

    def kill(self) -> None:
        """End it, its JVM and its workers without any grace."""
        if self._process.poll() is None:  # else its number may be somebody else's by now
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self) -> None:
        """Wait until it ends by itself."""
        assert self._process.wait(_DEADLINE_S) == 0, self._text()

    def _text(self) -> str:
        return (self._directory / "driver.log").read_text(errors="replace")[-4000:]


class _Drivers:
    """All that were started; none outlives the block."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[_Driver] = []
        self.late_starts = 0

    def __enter__(self) -> _Drivers:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._started:
            one.kill()

    def start_following(self, url: str, batches: int) -> _Driver:
        """Start one, and wait until each of its streams has begun so many batches."""
        while True:
            driver = self.start(url, "follow")
            try:
                driver.wait_for_batches(batches)
            except AssertionError as error:
                if "failed to connect back" not in str(error):
                    raise
                driver.kill()
                self.late_starts += 1
            else:
                return driver

    def start(self, url: str, mode: str) -> _Driver:
        driver = _Driver(self._directory, url, mode)
        self._started.append(driver)
        return driver


class _Producing:
    """A thread that produces until the block ends."""

    def __init__(self, url: str, rate: int) -> None:
        self._url = url
        self._rate = rate
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: trio.run(self._produce))
        self.count = 0

    def __enter__(self) -> _Producing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    async def _produce(self) -> None:
        lines = flights(10_000)
        async with octopi.connect(self._url) as client, client.producer() as producer:
            while not self._over.is_set():
                for _ in range(max(1, self._rate // 20)):
                    value = b"%d:%s" % (self.count, lines[self.count % len(lines)])
                    await producer.submit(SOURCE, value, key=value[-3:])
                    self.count += 1
                await trio.sleep(0.05)


def _kill_a_leader(cluster: Cluster, brokers: list[NodeProcess], moments: random.Random) -> str:
    """Kill the broker that leads one of the logs, and start it again a moment later; its name."""
    info = cluster.ask(lambda client: client.describe_topic(moments.choice([SOURCE, COPY])))
    address = moments.choice(info.partitions).leader_address
    broker = next((one for one in brokers if one.url == address), moments.choice(brokers))
    broker.kill9()
    time.sleep(moments.uniform(0, 2))
    broker.restart()
    _wait_until_in_sync(cluster)
    return broker.name


def _wait_until_in_sync(cluster: Cluster) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while True:
        topics = cluster.ask(lambda client: client.topics())
        if all(len(one.in_sync) == 3 for topic in topics for one in topic.partitions):
            return
        assert time.monotonic() < deadline, "replicas don't come back"
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kills", description=__doc__)
    parser.add_argument("--driver-kills", type=int, default=20)
    parser.add_argument("--broker-kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=300, help="messages a second")
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        outcome = run(
            Path(directory),
            driver_kills=arguments.driver_kills,
            broker_kills=arguments.broker_kills,
            seed=arguments.seed,
            rate=arguments.rate,
            tell=lambda text: sys.stderr.write(f"{time.monotonic() - began:.0f} s: {text}\n"),
        )
    sys.stdout.write(json.dumps(attrs.asdict(outcome)) + "\n")


if __name__ == "__main__":
    main()
