"""A broker whose disk is full, read-only or broken says so, loses nothing and goes on
as far as it can."""

import errno
from pathlib import Path

import pytest
import trio

from octopi.errors import RefusedError, Status
from octopi.identifiers import is_internal
from octopi.storage.ends_file import load_ends
from octopi.storage.flush_policy import FlushOptions
from octopi.wire import messages as m
from tests.kit.cluster import Cluster, describe, eventually, running_cluster
from tests.kit.disk import MemoryDisk
from tests.kit.probes import batch, fetch, produce, refusal_of, values


def segment_path(topic: m.TopicInfo, base: int = 0) -> str:
    partition = topic.partitions[0].partition
    return f"logs/{partition}/{topic.topic}/{base:020d}.log"


async def start(
    cluster: Cluster, disk: MemoryDisk, flush: FlushOptions | None = None
) -> m.TopicInfo:
    await cluster.start_broker(disk=disk, flush=flush or FlushOptions())
    return await describe(cluster, "orders")


async def test_a_broker_with_a_full_disk_refuses_batches_until_there_is_space(
    tmp_path: Path,
) -> None:
    disk = MemoryDisk()
    async with running_cluster(tmp_path, brokers=0) as cluster:
        topic = await start(cluster, disk)
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            await produce(broker, topic, batch(0, b"fits"))
            disk.capacity_bytes = 0
            refused = await refusal_of(produce(broker, topic, batch(1, b"x" * 1000)))
            assert refused.status == Status.DISK_FULL
            assert refused.retryable
            assert values((await fetch(broker, topic, 0)).records) == [b"fits"]
            disk.capacity_bytes = None
            await produce(broker, topic, batch(1, b"now"))
            assert values((await fetch(broker, topic, 0)).records) == [b"fits", b"now"]


async def test_after_a_failed_write_the_log_is_read_only_and_other_logs_go_on(
    tmp_path: Path,
) -> None:
    disk = MemoryDisk()
    async with running_cluster(tmp_path, brokers=0) as cluster:
        topic = await start(cluster, disk)
        other = await describe(cluster, "other")
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            await produce(broker, topic, batch(0, b"kept"))
            disk.fail(errno.EIO, "append", path_end=segment_path(topic), written=0.2)
            for _ in range(2):
                refused = await refusal_of(produce(broker, topic, batch(1, b"lost")))
                assert refused.status == Status.LOG_READ_ONLY
            assert values((await fetch(broker, topic, 0)).records) == [b"kept"]
            await produce(broker, other, batch(0, b"fine"))
            described = await broker.request(
                m.DescribeLogs(broker.next_request(), "orders", "", -1), m.LogList, 5
            )
            assert "read-only" in described.logs[0].fault


async def test_a_failed_fsync_is_never_taken_for_success(tmp_path: Path) -> None:
    disk = MemoryDisk()
    async with running_cluster(tmp_path, brokers=0) as cluster:
        await cluster.start_broker(disk=disk)
        async with cluster.connection(cluster.register.url) as register:
            create = m.CreateTopic(
                register.next_request(), "safe", 1, None, m.TopicOptions(flush_before_ack=True)
            )
            topic = (await register.request(create, m.TopicDescription, 5)).topic
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            await produce(broker, topic, batch(0, b"durable"))
            disk.fail(errno.EIO, "sync", path_end=segment_path(topic))
            for sequence, status in ((1, Status.UNCOMMITTED), (2, Status.LOG_READ_ONLY)):
                refused = await refusal_of(produce(broker, topic, batch(sequence, b"maybe")))
                assert refused.status == status
            assert values((await fetch(broker, topic, 0)).records) == [b"durable"]


async def test_a_flush_without_a_free_descriptor_is_retried_and_no_batch_is_refused(
    tmp_path: Path,
) -> None:
    disk = MemoryDisk()
    async with running_cluster(tmp_path, brokers=0) as cluster:
        await cluster.start_broker(disk=disk)
        async with cluster.connection(cluster.register.url) as register:
            create = m.CreateTopic(
                register.next_request(), "safe", 1, None, m.TopicOptions(flush_before_ack=True)
            )
            topic = (await register.request(create, m.TopicDescription, 5)).topic
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            disk.fail(errno.EMFILE, "sync", path_end=segment_path(topic))
            disk.fail(errno.EMFILE, "sync_directory", times=2)
            for sequence in range(2):
                await produce(broker, topic, batch(sequence, b"%d" % sequence))
            assert values((await fetch(broker, topic, 0)).records) == [b"0", b"1"]
            described = await broker.request(
                m.DescribeLogs(broker.next_request(), "safe", "", -1), m.LogList, 5
            )
            assert described.logs[0].fault == ""


async def test_a_batch_acknowledged_after_a_flush_survives_a_power_failure(tmp_path: Path) -> None:
    disk = MemoryDisk()
    async with running_cluster(tmp_path, brokers=0) as cluster:
        broker_node = await cluster.start_broker(disk=disk)
        async with cluster.connection(cluster.register.url) as register:
            create = m.CreateTopic(
                register.next_request(), "safe", 1, None, m.TopicOptions(flush_before_ack=True)
            )
            topic = (await register.request(create, m.TopicDescription, 5)).topic
        async with cluster.connection(broker_node.url) as broker:
            for number in range(5):
                await produce(broker, topic, batch(number, b"%d" % number))
        await cluster.kill(broker_node)
        disk.crash(keep_page_cache=False)
        broker_node = await cluster.start_broker(disk=disk)
        topic = await describe(cluster, "safe")
        async with cluster.connection(broker_node.url) as broker:
            fetched = await fetch(broker, topic, 0)
            assert values(fetched.records) == [b"0", b"1", b"2", b"3", b"4"]
            again = await produce(broker, topic, batch(4, b"4"))
            assert again.duplicate


async def test_a_torn_tail_is_cut_and_the_producer_goes_on_behind_what_is_left(
    tmp_path: Path,
) -> None:
    disk = MemoryDisk()
    async with running_cluster(tmp_path, brokers=0) as cluster:
        broker_node = await cluster.start_broker(disk=disk, flush=FlushOptions(interval_s=1000))
        topic = await describe(cluster, "orders")
        one = len(batch(0, b"value"))
        async with cluster.connection(broker_node.url) as broker:
            for number in range(3):
                await produce(broker, topic, batch(number, b"value"))
        await cluster.kill(broker_node)
        disk.crash(keep_page_cache=True)
        path = "".join(path for path in disk.files() if path.endswith(".log"))
        disk.plant(path, disk.content(path) + batch(3, b"value")[:-1])
        broker_node = await cluster.start_broker(disk=disk)
        topic = await describe(cluster, "orders")
        async with cluster.connection(broker_node.url) as broker:
            assert (await fetch(broker, topic, 0)).highwater == 3 * one
            receipt = await produce(broker, topic, batch(3, b"value"))
            assert (receipt.offset, receipt.duplicate) == (3 * one, False)


async def test_a_killed_broker_does_not_cut_acknowledged_records_as_a_torn_tail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    async with running_cluster(tmp_path, brokers=0) as cluster:
        broker_node = await cluster.start_broker(disk=disk)
        topic = await describe(cluster, "orders")
        one = len(batch(0, b"value"))
        async with cluster.connection(broker_node.url) as broker:
            for number in range(3):
                await produce(broker, topic, batch(number, b"value"))
            with trio.fail_after(20):
                while noted(disk) < 3 * one:  # noqa: ASYNC110
                    await trio.sleep(0.02)  # nothing announces it
        await cluster.kill(broker_node)
        disk.crash(keep_page_cache=True)
        path = "".join(path for path in disk.files() if path.endswith(".log"))
        before = disk.content(path)
        disk.flip(path, 8 * (2 * one - 5))
        broker_node = await cluster.start_broker(disk=disk)
        topic = await describe(cluster, "orders")
        async with cluster.connection(broker_node.url) as broker:
            assert (await fetch(broker, topic, 0)).highwater == one
            with pytest.raises(RefusedError) as refused:
                await produce(broker, topic, batch(1, b"another"))
            assert refused.value.status == Status.LOG_CORRUPT
            logs = await broker.request(
                m.DescribeLogs(broker.next_request(), "", "", -1), m.LogList, 5
            )
            assert "is damaged at byte" in logs.logs[0].fault
        assert len(disk.content(path)) == len(before), "nothing is cut"
        assert "a log is damaged" in caplog.text


def noted(disk: MemoryDisk) -> int:
    """What is noted as durable of the only topic's log."""
    (path,) = (path for path in disk.files() if path.endswith(".ends"))
    stored = load_ends(disk, path)
    assert stored is not None
    topics = (one for topic_id, one in stored.logs.items() if not is_internal(topic_id))
    return min((one.recovery_point for one in topics), default=0)


@pytest.mark.parametrize("restart", [False, True], ids=["while it runs", "before it starts"])
async def test_damage_in_the_middle_of_a_log_is_never_served(tmp_path: Path, restart: bool) -> None:
    disk = MemoryDisk()
    async with running_cluster(tmp_path, brokers=0) as cluster:
        broker_node = await cluster.start_broker(disk=disk)
        async with cluster.connection(cluster.register.url) as register:
            create = m.CreateTopic(
                register.next_request(), "orders", 1, None, m.TopicOptions(segment_bytes=4096)
            )
            topic = (await register.request(create, m.TopicDescription, 5)).topic
        one = len(batch(0, b"v" * 1000))
        async with cluster.connection(broker_node.url) as broker:
            for number in range(12):
                await produce(broker, topic, batch(number, b"v" * 1000))
        await cluster.stop(broker_node)
        paths = sorted(path for path in disk.files() if path.endswith(".log"))
        assert len(paths) > 2
        damaged = 3 * one + one * 1  # the second record of the second segment
        disk.flip(paths[1], (one + one // 2) * 8)
        broker_node = await cluster.start_broker(disk=disk)
        topic = await describe(cluster, "orders")
        async with cluster.connection(broker_node.url) as broker:
            below = await fetch(broker, topic, 3 * one, bytes_max=100_000)
            assert len(below.records) == one
            refused = await refusal_of(fetch(broker, topic, damaged))
            assert refused.status == Status.LOG_CORRUPT
            assert paths[1].partition("/broker-1/")[2] in str(refused)
            behind = await fetch(broker, topic, 6 * one, bytes_max=100_000)
            assert behind.records
            await produce(broker, topic, batch(12, b"more"))


async def test_a_read_only_data_directory_is_refused_at_the_start(tmp_path: Path) -> None:
    disk = MemoryDisk()
    disk.read_only = True
    with pytest.RaisesGroup(
        pytest.RaisesExc(Exception, match="(?i)read-only"), flatten_subgroups=True
    ):
        async with running_cluster(tmp_path, brokers=0) as cluster:
            await cluster.start_broker(disk=disk)


async def test_a_broker_flushes_without_being_asked(tmp_path: Path) -> None:
    disk = MemoryDisk()
    async with running_cluster(tmp_path, brokers=0) as cluster:
        topic = await start(cluster, disk, flush=FlushOptions(interval_s=0.01))
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            await produce(broker, topic, batch(0, b"value"))
            before = disk.calls.count("sync")
            await eventually(lambda: disk.calls.count("sync") > before)
