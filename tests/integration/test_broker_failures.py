"""What clients live through when brokers die: they are sent elsewhere, or told why not."""

from pathlib import Path

import pytest
import trio

import octopi
from octopi.errors import ConnectionLostError, DeliveryError, NotReadyError, UnreachableError
from tests.kit.cluster import eventually
from tests.kit.named_clusters import Deciders, each_way, process_cluster
from tests.kit.traffic import Producing, traffic

pytestmark = pytest.mark.process

REFERRED_S = 5.0
"""Clients go on at another broker sooner than this: detection, election, and a retry."""


async def test_clients_fail_without_any_broker_and_recover_when_one_returns(
    tmp_path: Path,
) -> None:
    async with process_cluster(tmp_path, brokers=1) as cluster:
        await cluster.create("orders")
        sent = Producing("alice")
        async with (
            octopi.connect(cluster.url, request_timeout_s=1) as hasty,
            octopi.connect(cluster.url) as patient,
            hasty.producer(delivery_timeout_s=1) as retirement,
            patient.producer() as waiting,
        ):
            await sent.burst(waiting, "orders")
            partition = sent.receipts[0].partition
            await cluster.kill("broker-1")
            no_broker = (NotReadyError, UnreachableError, ConnectionLostError)
            with pytest.raises(no_broker, match="orders"):
                await hasty.fetch("orders", 0, partition=partition)
            with pytest.raises(DeliveryError, match="orders"):
                await retirement.send("orders", b"lost, and known to be")
            with pytest.raises(no_broker, match="orders"):
                async with hasty.consumer(
                    "orders", start=sent.receipts[-1].next_offset, reconnect_timeout_s=1
                ) as consumer:
                    await consumer.next_batch()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sent.burst, waiting, "orders")
                await cluster.restart("broker-1")
            async with hasty.consumer("orders", start="earliest", stop_at_end=True) as consumer:
                seen = [message.value async for message in consumer]
        assert seen == [sent.value(number) for number in range(len(sent.receipts))]


@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_either_of_two_brokers_may_die(tmp_path: Path, role: str) -> None:
    async with process_cluster(tmp_path, brokers=2) as cluster:
        async with traffic(cluster.url, "orders", producers=2, consumers=2) as flow:
            await flow.progress(100)
            leader = await cluster.leader("orders")
            (follower,) = await cluster.followers("orders")
            dies = leader if role == "leader" else follower
            await cluster.kill(dies)
            await flow.progress(200)
            await cluster.restart(dies)
            await cluster.in_sync("orders", 2)
            await flow.progress(50)
        await flow.check_replicas(cluster.data_dirs, 2)


@each_way
async def test_consumers_of_a_dead_broker_are_sent_to_another_one(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with (
        process_cluster(tmp_path, deciders=deciders) as cluster,
        # Readers take turns, so each of the brokers has one of three consumers.
        traffic(cluster.url, "orders", consumers=3) as flow,
    ):
        await flow.progress(100)
        dies = (await cluster.followers("orders"))[0]
        await cluster.kill(dies)
        with trio.fail_after(REFERRED_S):
            await flow.progress(50)
        await cluster.restart(dies)
        await cluster.in_sync("orders", 3)
        await cluster.kill(await cluster.leader("orders"))
        with trio.fail_after(REFERRED_S):
            await flow.progress(50)


@each_way
async def test_producers_of_a_dead_leader_are_sent_to_the_new_one(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with process_cluster(tmp_path, deciders=deciders) as cluster:
        async with traffic(cluster.url, "orders", producers=4) as flow:
            await flow.progress(100)
            before = await cluster.leader("orders")
            epoch = flow.producing[0].receipts[-1].epoch
            await cluster.kill(before)
            # What the dead leader had committed the new one acknowledges, in the old epoch.
            await eventually(
                lambda: all(one.receipts[-1].epoch > epoch for one in flow.producing), REFERRED_S
            )
            assert await cluster.leader("orders") != before
        await cluster.restart(before)
        await flow.check_replicas(cluster.data_dirs, 3)
