"""Real processes, all killed, and the files of one damaged while it is down: the damaged one comes
back first, and costs no healthy replica anything."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

import octopi
from octopi.operating_system import SystemDisk
from octopi.storage.ends_file import load_ends
from tests.integration.clusters import ProcessCluster, process_cluster
from tests.integration.replicas import at_rest

pytestmark = pytest.mark.process

COUNT = 450
VALUES = [b"%0100d" % number for number in range(COUNT)]
TOPIC = "orders"


def log_of(cluster: ProcessCluster, name: str) -> Path:
    (log,) = cluster.data_dir(name).glob(f"logs/*/{TOPIC}")
    return log


def cut_a_segment_in_half(log: Path) -> None:
    segments = sorted(log.glob("*.log"))
    segment = segments[len(segments) // 2]
    segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2])


def cut_the_last_segment_in_half(log: Path) -> None:
    segment = sorted(log.glob("*.log"))[-1]
    segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2])


def remove_a_middle_segment(log: Path) -> None:
    segments = sorted(log.glob("*.log"))
    segments[len(segments) // 2].unlink()


def remove_the_first_segment(log: Path) -> None:
    sorted(log.glob("*.log"))[0].unlink()


def remove_the_checkpoint(log: Path) -> None:
    (log / "checkpoint").unlink()


def flip_a_bit_of_the_checkpoint(log: Path) -> None:
    data = bytearray((log / "checkpoint").read_bytes())
    data[-1] ^= 1
    (log / "checkpoint").write_bytes(data)


def remove_the_directory(log: Path) -> None:
    shutil.rmtree(log)


def remove_the_replicas_files(log: Path) -> None:
    """The log, and all that says that there was one."""
    shutil.rmtree(log)
    for one in (log.parents[2] / "replicas").iterdir():
        if one.name.endswith(".ends"):
            one.unlink()


async def fill(cluster: ProcessCluster) -> None:
    """450 messages that all replicas hold, and have noted as durable."""
    async with octopi.connect(cluster.url) as client:
        await client.create_topic(TOPIC, segment_bytes=4096)
        async with client.producer() as producer:
            for value in VALUES:
                await producer.send(TOPIC, value)
    await cluster.in_sync(TOPIC, len(cluster.names))
    (log, *_) = await at_rest(cluster.url, TOPIC, len(cluster.names))
    with trio.fail_after(20):
        for name in cluster.names:
            while noted_end(cluster, name) < log.log.log_end:  # noqa: ASYNC110
                await trio.sleep(0.02)


def noted_end(cluster: ProcessCluster, name: str) -> int:
    (path,) = cluster.data_dir(name).glob("replicas/*.ends")
    stored = load_ends(SystemDisk(), str(path))
    assert stored is not None
    return min((one.recovery_point for one in stored.logs.values()), default=0)


async def kill_all(cluster: ProcessCluster) -> None:
    """All at once, so that nobody notices that another one is gone."""
    for name in cluster.names:
        cluster.brokers[name].signal(signal.SIGKILL)
    for name in cluster.names:
        await cluster.kill(name)


async def values(url: str) -> list[bytes]:
    with trio.fail_after(30):
        async with (
            octopi.connect(url) as client,
            client.consumer(TOPIC, start="earliest", stop_at_end=True) as consumer,
        ):
            return [bytes(message.value) async for message in consumer]


@pytest.mark.parametrize(
    "damage",
    [
        cut_a_segment_in_half,
        cut_the_last_segment_in_half,
        remove_a_middle_segment,
        remove_the_first_segment,
        remove_the_checkpoint,
        flip_a_bit_of_the_checkpoint,
        remove_the_directory,
        remove_the_replicas_files,
    ],
)
async def test_a_replica_with_damaged_files_costs_the_healthy_ones_nothing_and_catches_up(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    async with process_cluster(tmp_path) as cluster:
        await fill(cluster)
        damaged = await cluster.leader(TOPIC)
        await kill_all(cluster)
        damage(log_of(cluster, damaged))
        await cluster.restart(damaged)
        for name in cluster.names:
            if name != damaged:
                await cluster.restart(name)
        assert await values(cluster.url) == VALUES
        await cluster.in_sync(TOPIC, 3)
        await at_rest(cluster.url, TOPIC, 3)
        logs = [
            directory.log(TOPIC, int(log_of(cluster, damaged).parent.name))
            for directory in cluster.data_dirs
        ]
        assert logs[0] == logs[1] == logs[2]
