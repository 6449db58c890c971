"""Illegal names and numbers in the files of a node, as a hostile peer could have planted them."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import pytest
import trio

from octopi.coordination.journal_entries import (
    BrokerRegistered,
    ClusterFormed,
    Entry,
    EpochAnnounced,
    PartitionDecided,
    RegisterStarted,
    TopicCreated,
    TopicDeleted,
)
from octopi.errors import StorageError
from octopi.identifiers import PartitionId
from octopi.operating_system import SystemDisk
from octopi.roles.broker.deletion import remove_directory
from octopi.roles.broker.log_files import log_directory
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.register_journal import open_register_journal
from octopi.roles.register.running import run_register
from octopi.storage import checkpoint
from octopi.storage.ends_file import EndsFile, load_ends
from octopi.wire import messages as m
from tests.kit.cluster import describe, running_cluster, system_environment

NAMES = ["../../x", "a\0b", "..", "a/b", ""]
FORMED: list[Entry] = [
    RegisterStarted(m.RegisterGeneration(1, "first")),
    ClusterFormed("c" * 16, 4, "5e" * 16),
]
RECORD = m.PartitionRecord(0, 1, 0, 1, 1, [1], [1])


def files(directory: Path) -> set[str]:
    return {str(path) for path in directory.rglob("*")}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("partition", [0, -1, 10**9])
def test_no_log_lies_outside_of_the_directory_for_logs(name: str, partition: int) -> None:
    with pytest.raises(StorageError, match="can't have a log of topic"):
        log_directory("data", PartitionId(partition), name)
    assert log_directory("data", PartitionId(9_999), "a.b") == "data/logs/9999/a.b"


def test_the_target_of_a_symbolic_link_is_not_deleted(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "precious").write_text("mine")
    partition = tmp_path / "logs/0"
    partition.mkdir(parents=True)
    link = partition / "orders!0.deleted"
    link.symlink_to(foreign)
    remove_directory(SystemDisk(), str(link))
    assert not link.is_symlink()
    assert (foreign / "precious").read_text() == "mine"
    (tmp_path / "logs/1").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="is a symbolic link"):
        remove_directory(SystemDisk(), str(tmp_path / "logs/1/foreign"))
    assert (foreign / "precious").read_text() == "mine"


async def journal_of(directory: Path, entries: list[Entry]) -> None:
    path = directory / "register/journal"
    path.mkdir(parents=True)
    async with trio.open_nursery() as nursery:
        journal, _ = await open_register_journal(system_environment(nursery), str(path))
        journal.append(entries)
        await journal.close()


@pytest.mark.parametrize(
    "entries",
    [
        [RegisterStarted(m.RegisterGeneration(1 << 62, "x")), FORMED[1]],
        [*FORMED, PartitionDecided(attrs.evolve(RECORD, epoch=1 << 40))],
        [*FORMED, PartitionDecided(attrs.evolve(RECORD, partition=10**9))],
        [*FORMED, PartitionDecided(RECORD), EpochAnnounced(0, 1 << 62)],
        [*FORMED, BrokerRegistered((1 << 63) - 1, 1, "n", "ws://a:1")],
        [*FORMED, ClusterFormed("c" * 16, 10**9)],
        [*FORMED, PartitionDecided(RECORD), PartitionDecided(RECORD)],
        [*FORMED, RegisterStarted(m.RegisterGeneration(9, "x"))],
        [*FORMED, EpochAnnounced(3, 1)],
        [*FORMED, TopicDeleted("none", "0" * 16, [])],
    ],
    ids=lambda entries: type(entries[-1]).__name__,
)
async def test_a_journal_with_impossible_decisions_ends_in_a_clear_error(
    tmp_path: Path, entries: list[Entry]
) -> None:
    await journal_of(tmp_path, entries)
    before = files(tmp_path)
    options = RegisterOptions("127.0.0.1:0", str(tmp_path / "register"))
    async with trio.open_nursery() as nursery:
        environment = system_environment(nursery)
        for _ in range(2):
            why = pytest.RaisesExc(StorageError, match="with an empty --data-dir")
            with pytest.RaisesGroup(why, flatten_subgroups=True):
                await run_register(environment, options, stop=trio.Event())
    assert before <= files(tmp_path), "nothing is removed"


@pytest.mark.parametrize("topic_id", ["2" * 16, "../../../y"])
@pytest.mark.parametrize("name", NAMES)
async def test_a_topic_without_a_legal_name_is_told_to_no_broker_and_deleted_by_its_id(
    tmp_path: Path, name: str, topic_id: str
) -> None:
    odd = m.TopicRecord(name, topic_id, [0], m.TopicOptions())
    orders = m.TopicRecord("orders", "1" * 16, [0], m.TopicOptions())
    registered = BrokerRegistered(1, 1, "none", "ws://127.0.0.1:1")
    await journal_of(
        tmp_path,
        [*FORMED, registered, PartitionDecided(RECORD), TopicCreated(odd), TopicCreated(orders)],
    )
    async with running_cluster(tmp_path, brokers=0) as cluster:
        await cluster.start_broker()
        async with cluster.connection(cluster.register.url) as register:
            listed = await register.request(m.ListTopics(1, "", 9), m.TopicList, 5)
            found = {one.topic: one.topic_id for one in listed.topics}
            assert found.get(name, topic_id) == topic_id
            await register.request(m.DeleteTopicById(2, topic_id), m.Done, 5)
            after = await register.request(m.ListTopics(3, "", 9), m.TopicList, 5)
            assert [one.topic for one in after.topics] == ["orders"]
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", NAMES)
async def test_a_noted_log_without_a_legal_name_is_left_out_and_the_broker_serves(
    tmp_path: Path, name: str
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        broker = await cluster.start_broker()
        info = await describe(cluster, "orders")
        await cluster.stop(broker)
        partition = info.partitions[0].partition
        path = str(tmp_path / f"broker-1/replicas/{partition}.ends")
        stored = load_ends(SystemDisk(), path)
        assert stored is not None
        file = EndsFile(SystemDisk(), path, stored.logs)
        await file.store()
        odd = m.TopicRecord(name, "2" * 16, [partition], m.TopicOptions())
        await file.add({odd.topic_id: attrs.asdict(odd)})
        await file.end()
        file.close()
        before = {path for path in files(tmp_path) if "broker-1" not in path}
        for _ in range(2):
            broker = await cluster.start_broker()
            await describe(cluster, "orders", create=False)
            await cluster.stop(broker)
        assert {path for path in files(tmp_path) if "broker-1" not in path} == before
        assert sorted(os.listdir(tmp_path / f"broker-1/logs/{partition}")) == [
            "orders",
            "~subscriptions",
        ]


async def test_a_log_whose_checkpoint_names_no_topic_gets_a_new_one_and_is_not_deleted(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        broker = await cluster.start_broker()
        info = await describe(cluster, "orders")
        await cluster.stop(broker)
        folder = tmp_path / f"broker-1/logs/{info.partitions[0].partition}"
        path = str(folder / "orders/checkpoint")
        stored = checkpoint.load(SystemDisk(), path)
        assert stored is not None
        stored["topic"]["topic_id"] = "/../../../../x"
        await checkpoint.store(SystemDisk(), path, stored)
        await cluster.start_broker()
        await describe(cluster, "orders", create=False)
        assert sorted(os.listdir(folder)) == ["orders", "~subscriptions"]
        made = checkpoint.load(SystemDisk(), path)
        assert made is not None
        assert made["topic"]["topic_id"] == info.topic_id


async def test_impossible_decisions_on_the_disk_of_a_broker_are_left_out(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        broker = await cluster.start_broker()
        info = await describe(cluster, "orders")
        await cluster.stop(broker)
        partition = info.partitions[0].partition
        table = str(tmp_path / "broker-1/partitions")
        stored = checkpoint.load(SystemDisk(), table)
        assert stored is not None
        (fields,) = stored["partitions"]
        stored["partitions"] += [
            {**fields, "partition": 10**9},
            {**fields, "partition": 3, "epoch": 1 << 62},
            {"partition": 2},
        ]
        await checkpoint.store(SystemDisk(), table, stored)
        replica = str(tmp_path / f"broker-1/replicas/{partition}")
        state = checkpoint.load(SystemDisk(), replica)
        assert state is not None
        state["record"]["epoch"] = state["promised"] = 1 << 62
        await checkpoint.store(SystemDisk(), replica, state)
        for odd in ("logs/x", "logs/99999999", "logs/01", "replicas/99999999.ends"):
            path = tmp_path / "broker-1" / odd
            path.mkdir()
            (path / "kept").touch()
        for _ in range(2):
            broker = await cluster.start_broker()
            await describe(cluster, "orders", create=False)
            await cluster.stop(broker)
        assert (tmp_path / "broker-1/logs/x/kept").exists()
