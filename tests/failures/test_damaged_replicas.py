"""Real processes, all killed, and the files of one damaged while it is down: the damaged one comes
back first, and costs no healthy replica anything."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

import octopi
from octopi.admin.cluster_snapshot import ClusterSnapshot, look, problems
from octopi.cli.main import cli
from octopi.identifiers import is_internal
from octopi.operating_system import SystemDisk
from octopi.storage.ends_file import load_ends
from tests.kit.named_clusters import ProcessCluster, process_cluster
from tests.kit.replicas import Servers, at_rest

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
    topics = (one for topic_id, one in stored.logs.items() if not is_internal(topic_id))
    return min((one.recovery_point for one in topics), default=0)


async def kill_all(cluster: ProcessCluster) -> None:
    """All at once, so that nobody notices that another one is gone."""
    for name in cluster.names:
        cluster.brokers[name].signal(signal.SIGKILL)
    for name in cluster.names:
        await cluster.kill(name)


async def values(url: Servers) -> list[bytes]:
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


async def test_damage_of_the_only_in_sync_replica_cuts_no_other_one_and_waits_for_an_operator(
    tmp_path: Path,
) -> None:
    async with process_cluster(tmp_path) as cluster:
        await fill(cluster)
        alone = await cluster.leader(TOPIC)
        behind = [name for name in cluster.names if name != alone]
        for name in behind:
            await cluster.kill(name)
        await cluster.in_sync(TOPIC, 1)
        async with octopi.connect(cluster.url) as client, client.producer() as producer:
            receipts = [await producer.send(TOPIC, b"%0100d" % number) for number in range(100)]
        with trio.fail_after(20):
            while noted_end(cluster, alone) <= receipts[-1].offset:  # noqa: ASYNC110
                await trio.sleep(0.02)  # nothing announces it
        await cluster.kill(alone)
        before = {name: content(log_of(cluster, name)) for name in behind}
        cut_a_segment_in_half(log_of(cluster, alone))
        damaged = content(log_of(cluster, alone))
        for name in (alone, *behind):
            await cluster.restart(name)
        problem = await found_stuck(cluster.url)
        assert "octopi-node partitions recover" in problem
        assert {name: content(log_of(cluster, name)) for name in behind} == before
        assert content(log_of(cluster, alone)) == damaged


def content(log: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(log.glob("*.log")))


async def found_stuck(url: Servers) -> str:
    """Wait until the partition is known to wait for an operator; what `status` says of it."""
    with trio.fail_after(30):
        async with octopi.connect(url) as client:
            while True:
                place = (await client.describe_topic(TOPIC)).partitions[0]
                cluster = await client.admin.describe_cluster()
                if place.is_stuck and all(one.live for one in cluster.brokers):
                    assert place.leader is None
                    logs = await client.admin.describe_logs(TOPIC)
                    found = problems(ClusterSnapshot(cluster, logs, {}))
                    assert any("is damaged at byte" in one for one in found)
                    return " ".join(found)
                await trio.sleep(0.05)  # nothing announces it to clients


async def test_a_flipped_bit_in_flushed_records_is_reported_and_nothing_is_cut(
    tmp_path: Path,
) -> None:
    async with process_cluster(tmp_path, brokers=1) as cluster:
        (name,) = cluster.names
        async with octopi.connect(cluster.url) as client:
            await client.create_topic(TOPIC, flush_before_ack=True)
            async with client.producer() as producer:
                receipts = [await producer.send(TOPIC, value) for value in VALUES[:100]]
        await cluster.kill(name)
        (segment,) = log_of(cluster, name).glob("*.log")
        data = bytearray(segment.read_bytes())
        data[receipts[40].offset + 50] ^= 1
        segment.write_bytes(data)
        await cluster.restart(name)
        assert segment.read_bytes() == data, "nothing is cut"
        await cluster.place(TOPIC)  # it leads, and serves what lies before
        async with octopi.connect(cluster.url) as client:
            seen = await look(client)
            async with client.consumer(TOPIC, start="earliest") as consumer:
                taken = [bytes((await anext(consumer)).value) for _ in range(40)]
        assert taken == VALUES[:40]
        problem = " ".join(problems(seen))
        assert f"is damaged at byte {receipts[40].offset}" in problem
        await cluster.kill(name)
        result = CliRunner().invoke(cli, ["verify", str(cluster.data_dir(name))])
        assert result.exit_code == 5
        assert f"damage: {segment}: byte {receipts[40].offset}" in result.stdout
