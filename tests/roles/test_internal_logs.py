"""The internal logs of partitions: made with them, appended to by leaders, and kept short."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trio.testing

from octopi.environment import Environment
from octopi.errors import NotLeaderError, OctopiError, Status
from octopi.identifiers import (
    SUBSCRIPTIONS_LOG,
    Epoch,
    Offset,
    PartitionId,
    Sequence as SequenceNumber,
    TopicId,
)
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.record import scan
from octopi.replication.effects import CommitReceipt, Refusal
from octopi.replication.internal_log import DamagedEntryError, Value, encode, encode_records
from octopi.roles.broker import log_store
from octopi.roles.broker.flusher import Flusher
from octopi.roles.broker.internal_logs import InternalLogs
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.storage.ends_file import EndsFile
from octopi.storage.flush_policy import FlushOptions
from octopi.wire import messages as m
from tests.kit.disk import MemoryDisk
from tests.kit.links import MemoryNet
from tests.kit.world import describe, running_world

PARTITION = PartitionId(0)
LOG = TopicId(SUBSCRIPTIONS_LOG)
LED = m.PartitionRecord(0, 1, 0, 1, 1, [1], [1])
FLUSHED = m.TopicRecord("orders", "0" * 16, [0], m.TopicOptions(flush_before_ack=True))
CACHED = m.TopicRecord("clicks", "1" * 16, [0], m.TopicOptions())
Answered = CommitReceipt | Refusal


@attrs.define
class Broker:
    """A broker's replicas, and their internal logs."""

    manager: ReplicaManager
    internal: InternalLogs
    tasks: trio.Nursery

    @property
    def log(self) -> LocalLog:
        """The internal log of the partition."""
        return self.manager.store.logs[SUBSCRIPTIONS_LOG, PARTITION]

    async def lead(self, record: m.PartitionRecord = LED) -> None:
        """Have the register know this broker, and appoint it."""
        self.manager.joined()
        await self.manager.install_partitions([record], [])

    async def set(self, key: str, value: Value | None) -> Answered:
        """Append an entry; return the answer."""
        answers: list[Answered] = []
        answered = trio.Event()

        def take(answer: Answered) -> None:
            answers.append(answer)
            answered.set()

        self.internal.append(PARTITION, key, value, take)
        await answered.wait()
        assert len(answers) == 1
        return answers[0]


@asynccontextmanager
async def broker(
    disk: MemoryDisk, *, lost_power: bool = False, incarnation: int = 1
) -> AsyncIterator[Broker]:
    """A broker without a network, from its start to its death."""
    environment = Environment(SystemClock(), MemoryNet(), disk, SystemRandomness())
    flusher = Flusher(environment.clock)
    async with trio.open_nursery() as tasks:
        manager = ReplicaManager(
            environment,
            "data",
            flusher,
            tasks,
            FlushOptions(),
            "test",
            lost_power=lost_power,
            catch_up_slowdown_max=1.0,
        )
        await manager.open_all(1)
        await manager.set_identity(1, incarnation)
        internal = InternalLogs(environment, manager.replica)
        tasks.start_soon(flusher.run)
        tasks.start_soon(internal.run)
        yield Broker(manager, internal, tasks)
        tasks.cancel_scope.cancel()


def remove_files(disk: MemoryDisk) -> None:
    """Remove the internal log, without a word in what is noted of it."""
    directory = f"data/logs/0/{SUBSCRIPTIONS_LOG}"
    for name in disk.list_directory(directory):
        disk.remove(f"{directory}/{name}")
    disk.remove_directory(directory)


def restarted(incarnation: int) -> m.PartitionRecord:
    return m.PartitionRecord(0, incarnation, 0, 1, incarnation, [1], [1])


# --- made with the partition -------------------------------------------------------------


async def test_a_replica_has_its_internal_log_before_it_leads() -> None:
    async with broker(MemoryDisk()) as here:
        await here.lead()
        replica = here.manager.replica(PARTITION)
        assert replica is not None
        assert replica.leads
        assert list(replica.logs) == [LOG]
        assert here.manager.topics() == [], "it is no topic"
        assert await here.set("s/1", {"n": 1}) == CommitReceipt(Offset(0), Epoch(1), False)


async def test_a_replica_of_an_older_broker_gets_its_internal_log_and_stays_intact() -> None:
    disk = MemoryDisk()
    async with broker(disk) as here:
        await here.lead()
    remove_files(disk)
    notes = EndsFile(disk, "data/replicas/0.ends", {})
    await notes.store()
    notes.close()
    async with broker(disk, incarnation=2) as here:
        (report,) = here.manager.replica_reports()
        assert report.intact
        assert here.log.end == 0


async def test_an_internal_log_that_was_noted_and_is_gone_is_damage() -> None:
    disk = MemoryDisk()
    async with broker(disk) as here:
        await here.lead()
    remove_files(disk)
    async with broker(disk, incarnation=2) as here:
        (report,) = here.manager.replica_reports()
        assert not report.intact
        assert here.log.end == 0


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        ("replace_file", "data/replicas/0.ends"),
        ("replace_file", "data/replicas/0"),
        ("sync_directory", "data/logs/0"),
        ("replace_file", "checkpoint"),
    ],
)
async def test_a_process_that_dies_while_it_makes_a_replica_leaves_no_damage(
    operation: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    async with broker(disk) as here:
        await here.manager.metadata.remember([LED], [])
        disk.fail(errno.ENOSPC, operation, path_end=path, times=9)
        assert await here.manager.install_partitions([LED], [])
        assert here.manager.replica(PARTITION) is None, "it neither follows nor leads"
    disk.heal()
    disk.crash(keep_page_cache=True)
    caplog.clear()
    async with broker(disk, incarnation=2) as here:
        (report,) = here.manager.replica_reports()
        assert report.intact
        assert here.log.end == 0
        assert not caplog.records


async def test_an_internal_log_that_can_not_be_read_stops_no_broker_and_comes_back() -> None:
    disk = MemoryDisk()
    async with broker(disk) as here:
        await here.lead()
        await here.manager.install_topics([CACHED])
        await here.set("s/1", {})
        end = here.log.end
    disk.fail(errno.EIO, "read_file", path_end="~subscriptions/checkpoint", times=99)
    async with broker(disk, incarnation=2) as here:
        assert [log.topic.topic for log in here.manager.store] == ["clicks"]
        (report,) = here.manager.replica_reports()
        assert not report.intact
        await here.manager.make_lacking_logs()
        disk.heal()
        await here.manager.make_lacking_logs()
        replica = here.manager.replica(PARTITION)
        assert replica is not None
        assert set(replica.logs) == {LOG, CACHED.topic_id}
        assert here.log.end == end


# --- appending and reading ---------------------------------------------------------------


async def test_entries_appended_together_are_committed_in_order_and_loaded() -> None:
    async with broker(MemoryDisk()) as here:
        await here.lead()
        answers: list[Answered] = []
        for number in range(5):
            here.internal.append(PARTITION, f"m/1/{number}", {"n": number}, answers.append)
        here.internal.append(PARTITION, "m/1/3", None, answers.append)
        assert isinstance(await here.set("m/1/0", {"n": 9}), CommitReceipt)
        offsets = [one.offset for one in answers if isinstance(one, CommitReceipt)]
        assert len(offsets) == 6
        assert offsets == sorted(offsets)
        fold = await here.internal.load(PARTITION)
        assert fold.values == {
            "m/1/0": {"n": 9},
            "m/1/1": {"n": 1},
            "m/1/2": {"n": 2},
            "m/1/4": {"n": 4},
        }
        assert fold.end == here.log.highwater


async def test_the_next_leader_goes_on_in_its_own_epoch() -> None:
    disk = MemoryDisk()
    async with broker(disk) as here:
        await here.lead()
        await here.set("s/1", {"n": 1})
        await here.set("s/2", {"n": 2})
    for incarnation in (2, 3):
        async with broker(disk, incarnation=incarnation) as here:
            await here.lead(restarted(incarnation))
            answer = await here.set("s/2", {"n": incarnation})
            assert isinstance(answer, CommitReceipt)
            assert answer.epoch == incarnation
            fold = await here.internal.load(PARTITION)
            assert fold.values == {"s/1": {"n": 1}, "s/2": {"n": incarnation}}


async def test_an_internal_log_of_a_replica_that_does_not_lead_refuses_entries() -> None:
    async with broker(MemoryDisk()) as here:
        for _ in range(2):
            answer = await here.set("s/1", {})
            assert isinstance(answer, Refusal)
            assert answer.status == Status.NOT_LEADER
            with pytest.raises(NotLeaderError):
                await here.internal.load(PARTITION)
            here.manager.joined()
            record = m.PartitionRecord(0, 1, 0, 2, 1, [1, 2], [1, 2])
            await here.manager.install_partitions([record], [])


async def test_an_entry_without_a_form_is_refused_before_anything_is_appended() -> None:
    async with broker(MemoryDisk()) as here:
        await here.lead()
        answers: list[Answered] = []
        with pytest.raises(ValueError, match="no keys like that"):
            here.internal.append_all(PARTITION, [("s/1", {}), ("q/1", {})], answers.append)
        assert not answers
        assert here.log.end == 0


async def test_a_load_waits_until_its_entries_are_committed_and_ends_with_the_leadership() -> None:
    async with broker(MemoryDisk()) as here:
        await here.lead(m.PartitionRecord(0, 1, 0, 1, 1, [1, 2], [1, 2]))
        answers: list[Answered] = []
        here.internal.append(PARTITION, "s/1", {}, answers.append)
        await trio.testing.wait_all_tasks_blocked()
        refused = trio.Event()

        async def load() -> None:
            with pytest.raises(NotLeaderError):
                await here.internal.load(PARTITION)
            refused.set()

        here.tasks.start_soon(load)
        await trio.testing.wait_all_tasks_blocked()
        assert not answers
        assert not refused.is_set()
        deposed = m.PartitionRecord(0, 2, 0, 2, 1, [1, 2], [1, 2])
        await here.manager.install_partitions([deposed], [])
        await refused.wait()
        (answer,) = answers
        assert isinstance(answer, Refusal)
        assert answer.status == Status.UNCOMMITTED


async def test_a_damaged_entry_names_itself_and_the_partition_goes_on() -> None:
    async with broker(MemoryDisk()) as here:
        await here.lead()
        await here.set("s/1", {})
        at = here.log.end
        entry = encode(SUBSCRIPTIONS_LOG, "s/1", {"n": 1})
        odd = attrs.evolve(entry, value=b"\x01")
        records = encode_records(SUBSCRIPTIONS_LOG, [odd], Epoch(1), SequenceNumber(1), 0)
        replica = here.manager.replica(PARTITION)
        assert replica is not None
        replica.produce(here.log, records, lambda answer: None)
        with pytest.raises(DamagedEntryError, match="deterministic") as caught:
            await here.internal.load(PARTITION)
        assert (caught.value.offset, caught.value.key) == (at, "s/1")
        assert isinstance(await here.set("s/2", {}), CommitReceipt)


# --- how many have to be in sync ---------------------------------------------------------


async def test_nothing_is_committed_while_too_few_replicas_are_in_sync() -> None:
    async with broker(MemoryDisk()) as here:
        await here.lead()
        here.internal.require_in_sync(PARTITION, 2)
        answer = await here.set("s/1", {})
        assert isinstance(answer, Refusal)
        assert answer.status == Status.NOT_READY
        here.internal.require_in_sync(PARTITION, 1)
        assert isinstance(await here.set("s/1", {}), CommitReceipt)


# --- a failure of power ------------------------------------------------------------------


async def test_an_internal_log_is_flushed_before_commit_if_a_topic_is_flushed_or_none_exists() -> (
    None
):
    async with broker(MemoryDisk()) as here:
        await here.lead()
        assert here.log.state.flush_before_ack, "there is no topic"
        await here.manager.install_topics([CACHED])
        assert not here.log.state.flush_before_ack
        await here.manager.install_topics([FLUSHED])
        assert here.log.state.flush_before_ack
        await here.manager.remove_topics([m.RemovedTopic(FLUSHED.topic, FLUSHED.topic_id)])
        assert not here.log.state.flush_before_ack
        await here.manager.remove_topics([m.RemovedTopic(CACHED.topic, CACHED.topic_id)])
        assert here.log.state.flush_before_ack


@pytest.mark.parametrize("topics", [[], [FLUSHED]])
async def test_a_power_failure_spares_replicas_that_flush_before_they_acknowledge(
    topics: list[m.TopicRecord],
) -> None:
    disk = MemoryDisk()
    async with broker(disk) as here:
        await here.lead(m.PartitionRecord(0, 1, 0, 2, 1, [1, 2], [1, 2]))
        await here.manager.install_topics(topics)
    disk.crash(keep_page_cache=False)
    async with broker(disk, lost_power=True, incarnation=2) as here:
        (report,) = here.manager.replica_reports()
        assert report.intact


async def test_marks_are_durable_before_the_last_unflushed_topic_is_removed() -> None:
    disk = MemoryDisk()
    async with broker(disk) as here:
        await here.lead(m.PartitionRecord(0, 1, 0, 2, 1, [1, 2], [1, 2]))
        await here.manager.install_topics([CACHED])
        entry = encode(SUBSCRIPTIONS_LOG, "s/1", {"n": 1})
        records = encode_records(SUBSCRIPTIONS_LOG, [entry], Epoch(1), SequenceNumber(0), 0)
        here.log.append(records, scan(records))  # acknowledged from the page cache, as there
        await here.manager.remove_topics([m.RemovedTopic(CACHED.topic, CACHED.topic_id)])
    disk.crash(keep_page_cache=False)
    async with broker(disk, lost_power=True, incarnation=2) as here:
        (report,) = here.manager.replica_reports()
        assert report.intact
        assert here.log.end == len(records)


# --- kept short --------------------------------------------------------------------------


async def fill(here: Broker, count: int) -> None:
    """Set a few keys again and again, to about 100 KiB each time."""
    for number in range(count):
        answer = await here.set(f"k/{number % 3}", {"n": number, "bulk": bytes(100_000)})
        assert isinstance(answer, CommitReceipt)


async def test_a_long_internal_log_gets_a_snapshot_and_loses_the_segments_before_it() -> None:
    disk = MemoryDisk()
    async with broker(disk) as here:
        await here.lead()
        await fill(here, 30)
        await trio.testing.wait_all_tasks_blocked()
        before = await here.internal.load(PARTITION)
        assert before.snapshot is not None
        end = here.log.end
        await here.log.flush()
        await here.internal.apply_retention(here.log)
        assert 0 < here.log.start <= before.snapshot.begin
        assert here.log.end == end
        after = await here.internal.load(PARTITION)
        assert after.values == before.values
        assert len(before.values) == 3
        await here.manager.store.ends[PARTITION].sync()
    async with broker(disk, incarnation=2) as here:
        (report,) = here.manager.replica_reports()
        assert report.intact
        await here.lead(restarted(2))
        assert (await here.internal.load(PARTITION)).values == before.values


async def test_no_segment_is_removed_before_the_snapshot_is_durable() -> None:
    async with broker(MemoryDisk()) as here:
        await here.lead()
        await fill(here, 30)
        await trio.testing.wait_all_tasks_blocked()
        here.log.state.flushed_end = Offset(0)
        await here.internal.apply_retention(here.log)
        assert here.log.start == 0


# --- clients -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [SUBSCRIPTIONS_LOG, "~other"])
async def test_no_client_can_name_an_internal_log(
    autojump_clock: trio.testing.MockClock, name: str
) -> None:
    async with running_world() as world, world.client() as client:
        await describe(world, "orders")

        async def consume() -> None:
            async with client.consumer(name, start="earliest", stop_at_end=True) as consumer:
                async for _ in consumer:
                    pass

        calls: list[Callable[[], object]] = [
            lambda: client.create_topic(name),
            lambda: client.describe_topic(name),
            lambda: client.delete_topic(name),
            consume,
        ]
        for call in calls:
            with pytest.raises(OctopiError, match="~"):
                await call()  # type: ignore[misc]


async def test_internal_logs_are_listed_among_logs_and_not_among_topics(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await describe(world, "orders")
        listed = {one.log.topic for one in await client.admin.describe_logs()}
        assert listed == {"orders", SUBSCRIPTIONS_LOG}
        assert [one.topic for one in await client.topics()] == ["orders"]


async def test_a_store_remembers_the_newest_topics_that_were_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_store, "REMOVED_TOPICS_MAX", 2)
    async with broker(MemoryDisk()) as here:
        removed = [TopicId(f"{number:016x}") for number in range(3)]
        for topic_id in removed:
            await here.manager.remove_topics([m.RemovedTopic("orders", topic_id)])
        known = [here.manager.store.is_removed(one) for one in removed]
        assert known == [False, True, True]
