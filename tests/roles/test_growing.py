"""A cluster that grows, shrinks and is moved about while messages flow."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

import octopi
from octopi.errors import RefusedError, Status
from octopi.wire import messages as m
from tests.kit.cluster import Cluster, eventually, running_cluster
from tests.kit.probes import refusal_of

Wish = m.DrainBroker | m.AddPartitions | m.MoveReplica


async def ask(cluster: Cluster, goal: Wish) -> None:
    """Have an operator's request carried out, trying again while the cluster is busy."""
    async with cluster.connection(cluster.register.url) as register:
        with trio.fail_after(20):
            while True:
                question = attrs.evolve(goal, request=register.next_request())
                try:
                    await register.request(question, m.Done, 20)
                    return
                except RefusedError as error:
                    if error.status != Status.NOT_READY:
                        raise
                await trio.sleep(0.05)


async def partitions_of(cluster: Cluster, topic: str) -> list[m.PartitionInfo]:
    async with octopi.connect(cluster.register.url) as client:
        return list((await client.describe_topic(topic)).partitions)


async def partition_of(cluster: Cluster, topic: str) -> m.PartitionInfo:
    async with octopi.connect(cluster.register.url) as client:
        return (await client.describe_topic(topic)).partitions[0]


async def until(
    cluster: Cluster, topic: str, holds: Callable[[m.PartitionInfo], bool]
) -> m.PartitionInfo:
    """Wait for what the register does by itself."""
    with trio.fail_after(20):
        while not holds(info := await partition_of(cluster, topic)):  # noqa: ASYNC110
            await trio.sleep(0.05)
    return info


@asynccontextmanager
async def load(cluster: Cluster, topic: str) -> AsyncIterator[None]:
    """Produce during the block; afterwards every message is there once, in order."""
    receipts: list[octopi.Receipt] = []

    async def produce(stop: trio.Event) -> None:
        async with octopi.connect(cluster.register.url) as client, client.producer() as producer:
            while not stop.is_set():
                receipts.append(await producer.send(topic, b"%d" % len(receipts)))

    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce, stop)
        await eventually(lambda: len(receipts) >= 20, 20)
        yield
        before = len(receipts)
        await eventually(lambda: len(receipts) >= before + 20, 20)
        stop.set()
    async with (
        octopi.connect(cluster.register.url) as client,
        client.consumer(topic, start="earliest", stop_at_end=True) as consumer,
    ):
        seen = [message async for message in consumer]
    assert [message.value for message in seen] == [b"%d" % n for n in range(len(receipts))]
    assert [message.offset for message in seen] == [receipt.offset for receipt in receipts]


async def test_a_drained_broker_leads_nothing_and_no_message_is_lost(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=3) as cluster, load(cluster, "orders"):
        before = await partition_of(cluster, "orders")
        assert before.leader is not None
        await ask(cluster, m.DrainBroker(0, before.leader))
        after = await partition_of(cluster, "orders")
        assert after.leader not in {None, before.leader}
        assert after.epoch > before.epoch


async def test_a_replica_moves_to_another_broker_under_load(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=3) as cluster, load(cluster, "orders"):
        before = await partition_of(cluster, "orders")
        assert sorted(before.replicas) == [1, 2, 3]
        await cluster.start_broker("broker-4")
        assert before.leader is not None
        await ask(cluster, m.MoveReplica(0, before.partition, before.leader, 4))
        after = await partition_of(cluster, "orders")
        assert before.leader not in after.replicas
        assert 4 in after.replicas
        # On a starved machine another one is out of sync for a moment.
        await until(cluster, "orders", lambda info: sorted(info.in_sync) == sorted(after.replicas))
        directory = tmp_path / f"broker-{before.leader}/logs/{before.partition}"
        await eventually(lambda: not directory.exists())


async def test_partitions_of_a_small_cluster_grow_replicas_when_brokers_come(
    tmp_path: Path,
) -> None:
    async with (
        running_cluster(tmp_path, brokers=1, rebalance_interval_s=0.1) as cluster,
        load(cluster, "orders"),
    ):
        assert (await partition_of(cluster, "orders")).replicas == [1]
        await cluster.start_broker("broker-2")
        await cluster.start_broker("broker-3")
        await until(cluster, "orders", lambda info: sorted(info.in_sync) == [1, 2, 3])


async def test_a_new_broker_takes_replicas_and_a_share_of_leaders(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, brokers=3, rebalance_interval_s=0.1) as cluster,
        octopi.connect(cluster.register.url) as client,
    ):
        await client.create_topic("wide", partitions=8)
        async with load(cluster, "wide-too"):
            await cluster.start_broker("broker-4")
            led: dict[int, int] = {}
            with trio.fail_after(20):
                while led.get(4, 0) < 2:
                    await trio.sleep(0.1)
                    described = await client.admin.describe_cluster()
                    led = {one.broker: one.partitions_led for one in described.brokers}
        assert max(led.values()) - min(led.values()) <= 1


async def test_added_partitions_take_new_topics(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        octopi.connect(cluster.register.url) as client,
    ):
        await ask(cluster, m.AddPartitions(0, 4))
        info = await client.create_topic("wide", partitions=12)
        assert len(info.partitions) == 12


async def test_impossible_moves_and_additions_are_refused(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        async with octopi.connect(cluster.register.url) as client, client.producer() as producer:
            receipt = await producer.send("orders", b"x")
        wishes: list[tuple[Wish, Status]] = [
            (m.DrainBroker(0, 9), Status.INVALID_OPTION),
            (m.AddPartitions(0, 0), Status.INVALID_OPTION),
            (m.AddPartitions(0, 1 << 40), Status.INVALID_OPTION),
            (m.MoveReplica(0, 999, 1, 2), Status.UNKNOWN_PARTITION),
            (m.MoveReplica(0, receipt.partition, 1, 9), Status.INVALID_OPTION),
            (m.MoveReplica(0, receipt.partition, 1, 1), Status.INVALID_OPTION),
        ]
        for goal, status in wishes:
            assert (await refusal_of(ask(cluster, goal))).status == status


async def test_no_partition_is_added_before_a_broker_has_joined(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        await trio.sleep(0.1)  # gathering is over: the refusal is about brokers
        refused = await refusal_of(ask(cluster, m.AddPartitions(0, 1)))
        assert refused.status == Status.NO_BROKER


async def test_replicas_of_a_partition_never_share_a_machine(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=0, rebalance_interval_s=0.1) as cluster:
        for number in (1, 2):
            await cluster.start_broker(f"broker-{number}", host="a")
        async with octopi.connect(cluster.register.url) as client:
            await client.create_topic("orders", partitions=4)
        assert all(len(one.replicas) == 1 for one in await partitions_of(cluster, "orders"))
        await cluster.start_broker("broker-3", host="b")

        def spans_both(place: m.PartitionInfo) -> bool:
            return len(place.replicas) == 2 and 3 in place.in_sync

        with trio.fail_after(20):
            while not all(map(spans_both, await partitions_of(cluster, "orders"))):  # noqa: ASYNC110
                await trio.sleep(0.05)
        place = await partition_of(cluster, "orders")
        [here] = {1, 2} & {*place.replicas}
        async with cluster.connection(cluster.register.url) as register:
            move = m.MoveReplica(register.next_request(), place.partition, 3, 3 - here)
            refused = await refusal_of(register.request(move, m.Done, 20))
        assert refused.status == Status.INVALID_OPTION
        assert f"on the same host a as broker {here}" in str(refused)
        await ask(cluster, m.MoveReplica(0, place.partition, here, 3 - here))
