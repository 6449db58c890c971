"""A register and brokers: membership, topics, and a memory that outlives processes."""

import shutil
from pathlib import Path

import attrs
import pytest
import trio

from octopi.coordination.cluster_view import ClusterView
from octopi.errors import DirectoryInUseError, RefusedError, Status, SupersededError
from octopi.identifiers import PartitionId
from octopi.roles.register.node import RegisterNode
from octopi.roles.register.services import cluster as cluster_service
from octopi.storage import time_slices
from octopi.transport.connection import Connection
from octopi.wire import messages as m
from octopi.wire.endpoints import MEMBERSHIP
from tests.kit.cluster import Cluster, describe, eventually, running_cluster
from tests.kit.probes import refusal_of


async def cluster_description(cluster: Cluster) -> m.ClusterDescription:
    async with cluster.connection(cluster.register.url) as register:
        return await register.request(
            m.DescribeCluster(register.next_request()), m.ClusterDescription, 5
        )


async def create(cluster: Cluster, name: str, partition_count: int) -> m.TopicInfo:
    async with cluster.connection(cluster.register.url) as register:
        message = m.CreateTopic(
            register.next_request(), name, partition_count, None, m.TopicOptions()
        )
        return (await register.request(message, m.TopicDescription, 5)).topic


@pytest.mark.parametrize(("brokers", "partitions"), [(1, 1), (3, 1), (3, 6)])
async def test_brokers_register_and_partitions_spread_over_them(
    tmp_path: Path, brokers: int, partitions: int
) -> None:
    async with running_cluster(tmp_path, brokers) as cluster:
        topic = await create(cluster, "wide", partitions)
        described = await cluster_description(cluster)
        assert [one.broker for one in described.brokers] == list(range(1, brokers + 1))
        assert all(one.live for one in described.brokers)
        led = [one.partitions_led for one in described.brokers]
        assert sum(led) == partitions
        assert max(led) - min(led) <= 1
        addresses = {one.broker: one.address for one in described.brokers}
        for partition in topic.partitions:
            assert partition.leader is not None
            assert partition.leader_address == addresses[partition.leader]
            assert partition.replicas[0] == partition.leader
            assert set(partition.readers) <= set(addresses.values())


async def test_a_register_that_no_broker_has_told_of_topics_does_not_say_that_there_is_none(
    tmp_path: Path,
) -> None:
    async with (
        running_cluster(tmp_path, brokers=0) as cluster,
        cluster.connection(cluster.register.url) as register,
    ):
        await eventually(lambda: not cluster.registers[-1].is_gathering)
        for message, answer in (
            (m.DescribeTopic(register.next_request(), "orders", False), m.TopicDescription),
            (m.DeleteTopic(register.next_request(), "orders"), m.Done),
        ):
            refused = await refusal_of(register.request(message, answer, 5))
            assert (refused.status, refused.retryable) == (Status.NO_BROKER, True)


async def test_a_large_cluster_is_described_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (cluster_service, time_slices):
        monkeypatch.setattr(module, "GROUP_COUNT", 4)
    told: list[list[int]] = []
    describe_partition = ClusterView.partition

    def noted(view: ClusterView, record: m.PartitionRecord) -> m.PartitionInfo:
        told[-1].append(record.partition)
        return describe_partition(view, record)

    class Rounds(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            told.append([])

    async with running_cluster(tmp_path) as cluster:
        topic = await create(cluster, "wide", 6)
        monkeypatch.setattr(ClusterView, "partition", noted)
        rounds = Rounds()
        trio.lowlevel.add_instrument(rounds)
        described = await cluster_description(cluster)
        trio.lowlevel.remove_instrument(rounds)
    assert [one.partition for one in described.partitions] == sorted(
        one.partition for one in topic.partitions
    )
    assert [len(one) for one in told if one] == [4, 2]


async def test_ten_clients_that_create_a_topic_at_once_get_the_same_one(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        found: list[str] = []

        async def one() -> None:
            found.append((await describe(cluster, "orders", create=True)).topic_id)

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(one)
        assert len(set(found)) == 1


async def test_topics_are_listed_in_order_and_in_pages(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        for name in ("b", "a", "c"):
            await create(cluster, name, 1)
        async with cluster.connection(cluster.register.url) as register:

            async def page(after: str) -> m.TopicList:
                return await register.request(
                    m.ListTopics(register.next_request(), after, 2), m.TopicList, 5
                )

            first, second = await page(""), await page("b")
        assert [one.topic for one in first.topics] == ["a", "b"]
        assert first.more
        assert [one.topic for one in second.topics] == ["c"]
        assert not second.more


async def test_a_second_live_broker_of_the_same_id_is_refused(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        with pytest.RaisesGroup(RefusedError, flatten_subgroups=True) as caught:
            await cluster_second_broker(cluster)
        (refusal,) = flat(caught.value)
        assert isinstance(refusal, RefusedError)
        assert refusal.status == Status.DUPLICATE_BROKER
        assert (await cluster_description(cluster)).brokers[0].live


async def test_an_incarnation_that_joins_again_replaces_its_stale_connection(
    tmp_path: Path,
) -> None:
    async with (
        running_cluster(tmp_path, brokers=0) as cluster,
        cluster.connection(cluster.register.url, MEMBERSHIP) as first,
        cluster.connection(cluster.register.url, MEMBERSHIP) as second,
    ):
        joined = await first.request(played_join(first, "", None), m.Joined, 10)
        again = played_join(second, joined.cluster, joined.broker)
        assert await second.request(again, m.Joined, 10) == attrs.evolve(joined, request=1)
        await eventually(lambda: first.end_reason is not None)
        assert second.end_reason is None
        (broker,) = (await cluster_description(cluster)).brokers
        assert (broker.broker, broker.live) == (joined.broker, True)


def played_join(connection: Connection, cluster: str, broker: int | None) -> m.Join:
    """The request of a broker whose incarnation has the nonce ``first``."""
    request, address = connection.next_request(), "ws://127.0.0.1:1"
    return m.Join(request, cluster, broker, 1, "first", [], None, address)


async def cluster_second_broker(cluster: Cluster) -> None:
    """A broker with a data directory of its own that claims to be broker 1."""
    async with trio.open_nursery() as nursery:
        other = Cluster(nursery, cluster.directory)
        other.register = cluster.register
        await other.start_broker("copy", broker=1)


def flat(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += flat(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


async def test_two_processes_can_not_share_a_data_directory(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        with pytest.RaisesGroup(DirectoryInUseError, flatten_subgroups=True):
            async with trio.open_nursery() as nursery:
                other = Cluster(nursery, cluster.directory)
                other.register = cluster.register
                await other.start_broker("broker-1")


async def test_a_broker_keeps_its_id_over_restarts(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=2) as cluster:
        extra = await cluster.start_broker("broker-3")
        await cluster.stop(extra)
        await cluster.start_broker("broker-3")
        described = await cluster_description(cluster)
        assert [(one.broker, one.incarnation) for one in described.brokers] == [
            (1, 1),
            (2, 1),
            (3, 2),
        ]


async def test_a_restarted_register_knows_all_brokers_and_topics(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=2) as cluster:
        before = [await create(cluster, name, count) for name, count in (("a", 1), ("b", 4))]
        address = cluster.register.url.removeprefix("ws://")
        await cluster.kill(cluster.register)
        await cluster.start_register(listen=address)
        for topic in before:
            again = await describe(cluster, topic.topic, create=False)
            assert again.topic_id == topic.topic_id
            assert [one.partition for one in again.partitions] == [
                one.partition for one in topic.partitions
            ]


async def test_a_register_whose_disk_was_erased_learns_everything_from_the_brokers(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path, brokers=2) as cluster:
        before = [await create(cluster, name, count) for name, count in (("a", 1), ("b", 4))]
        identity = (await cluster_description(cluster)).cluster
        address = cluster.register.url.removeprefix("ws://")
        await cluster.kill(cluster.register)
        shutil.rmtree(tmp_path / "register")
        # Wider than a broker's longest pause between two attempts to join.
        await cluster.start_register(listen=address, gather_s=2.0)
        for topic in before:
            again = await describe(cluster, topic.topic, create=True)
            assert again.topic_id == topic.topic_id
            assert [one.partition for one in again.partitions] == [
                one.partition for one in topic.partitions
            ]
        assert (await cluster_description(cluster)).cluster == identity


class Listening(trio.abc.Instrument):
    """Whether registers that listen no longer are in a cluster, at every step of any task."""

    def __init__(self) -> None:
        self.registers: list[RegisterNode] = []
        self.seen: set[bool] = set()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        for register in self.registers:
            if not register.is_gathering:
                self.seen.add(bool(register.controller.state.cluster))


async def test_a_register_that_lost_its_disk_waits_until_connected_brokers_have_joined(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, "orders", 1)
        address = cluster.register.url.removeprefix("ws://")
        await cluster.kill(cluster.register)
        shutil.rmtree(tmp_path / "register")
        watch = Listening()
        trio.lowlevel.add_instrument(watch)
        await cluster.start_register(listen=address, gather_s=2.0, show=watch.registers.append)
        await joined_again(cluster, "orders")
        trio.lowlevel.remove_instrument(watch)
        assert watch.seen == {True}


async def test_a_register_that_lost_its_disk_believes_a_leader_alone_in_sync(
    tmp_path: Path,
) -> None:
    """What a leader asked for is told to it alone: the others were dead."""
    async with running_cluster(tmp_path, brokers=0) as cluster:
        brokers = [await cluster.start_broker(f"broker-{number}") for number in (1, 2)]
        topic = await create(cluster, "orders", 1)
        leader = topic.partitions[0].leader
        assert leader is not None
        await cluster.kill(brokers[2 - leader])

        async def alone() -> bool:
            return (await describe(cluster, "orders")).partitions[0].in_sync == [leader]

        with trio.fail_after(10):
            while not await alone():  # noqa: ASYNC110
                await trio.sleep(0.01)
        address = cluster.register.url.removeprefix("ws://")
        await cluster.kill(cluster.register)
        shutil.rmtree(tmp_path / "register")
        await cluster.start_register(listen=address, gather_s=2.0)
        assert await alone()


async def superseded(cluster: Cluster, address: str, name: str) -> str:
    """Start a register that has to end because of what brokers tell it; what it says then."""
    with pytest.RaisesGroup(SupersededError, flatten_subgroups=True) as caught:
        async with trio.open_nursery() as nursery:
            other = Cluster(nursery, cluster.directory)
            await other.start_register(listen=address, name=name)
            with trio.fail_after(20):
                await other.register.ended.wait()
    (error,) = flat(caught.value)
    return str(error)


async def joined_again(cluster: Cluster, topic: str) -> None:
    """Wait until the brokers have found the register that runs now."""
    assert (await describe(cluster, topic, create=False)).partitions[0].leader == 1


async def test_an_older_copy_of_a_register_stops_when_a_broker_knows_better(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, "orders", 1)
        address = cluster.register.url.removeprefix("ws://")
        await cluster.stop(cluster.register)
        shutil.copytree(tmp_path / "register", tmp_path / "copy")
        await cluster.start_register(listen=address)
        await joined_again(cluster, "orders")
        await cluster.kill(cluster.register)
        for generation in (2, 3):  # its own, which grows with every start
            said = await superseded(cluster, address, "copy")
            assert "broker 1 at ws://" in said
            assert f"this one, of generation {generation}" in said
        await cluster.start_register(listen=address, name="empty", gather_s=2.0)
        await joined_again(cluster, "orders")


async def test_a_register_stops_when_its_brokers_follow_another_one(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, "orders", 1)
        address = cluster.register.url.removeprefix("ws://")
        await cluster.kill(cluster.register)
        await cluster.start_register(listen=address, name="by mistake", gather_s=2.0)
        await joined_again(cluster, "orders")
        await cluster.kill(cluster.register)
        await superseded(cluster, address, "register")
        await cluster.start_register(listen=address, name="by mistake")
        await joined_again(cluster, "orders")


async def test_a_deleted_topic_is_removed_from_a_broker_that_was_away(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        broker = await cluster.start_broker()
        topic = await create(cluster, "orders", 1)
        directory = tmp_path / f"broker-1/logs/{topic.partitions[0].partition}"
        assert (directory / "orders").is_dir()
        await cluster.stop(broker)
        async with cluster.connection(cluster.register.url) as register:
            await register.request(m.DeleteTopic(register.next_request(), "orders"), m.Done, 5)
        assert (directory / "orders").is_dir()
        await cluster.start_broker()
        await eventually(lambda: [one.name for one in directory.iterdir()] == ["~subscriptions"])


async def test_a_topic_creation_without_any_broker_is_refused_as_retryable(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        await trio.sleep(0.1)  # gathering is over: the refusal is about brokers
        with pytest.raises(RefusedError) as caught:
            await create(cluster, "orders", 1)
        assert caught.value.status == Status.NO_BROKER
        assert caught.value.retryable
        await cluster.start_broker()
        assert (await create(cluster, "orders", 1)).partitions[0].leader == 1


async def test_illegal_topic_names_reach_no_disk(tmp_path: Path) -> None:
    names = ["", ".", "..", "../../etc/passwd", "a/b", "a\0b", "x" * 300, "käse", "a b", "a\n"]
    async with running_cluster(tmp_path) as cluster:
        before = everything_below(tmp_path)
        for name in names:
            for ask in (describe(cluster, name, create=True), create(cluster, name, 1)):
                with pytest.raises(RefusedError) as caught:
                    await ask
                assert caught.value.status == Status.INVALID_TOPIC
        assert everything_below(tmp_path) == before


def everything_below(path: Path) -> list[str]:
    return sorted(str(found) for found in path.rglob("*"))


async def test_a_topic_created_beside_another_gets_partitions_of_that_one(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, brokers=1) as cluster,
        cluster.connection(cluster.register.url) as register,
    ):
        orders = await create(cluster, "orders", 3)

        async def ask(name: str, count: int, beside: str, given: list[int] | None) -> m.TopicInfo:
            partitions = None if given is None else [PartitionId(one) for one in given]
            number, options = register.next_request(), m.TopicOptions()
            message = m.CreateTopic(number, name, count, partitions, options, beside)
            return (await register.request(message, m.TopicDescription, 5)).topic

        for number, count in enumerate((0, 3)):
            made = await ask(f"orders.billing{number}.dead", count, "orders", None)
            assert [one.partition for one in made.partitions] == [
                one.partition for one in orders.partitions
            ]
        for count, given in ((2, None), (0, [0, 1, 2])):
            refused = await refusal_of(ask("other", count, "orders", given))
            assert refused.status == Status.INVALID_OPTION
        refused = await refusal_of(ask("other", 0, "nothing", None))
        assert refused.status == Status.UNKNOWN_TOPIC
