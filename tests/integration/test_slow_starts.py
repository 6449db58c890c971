"""Nodes start in any order, late or not at once: the cluster comes to be all the same."""

from pathlib import Path

import pytest
import trio

import octopi
from harness.processes import node_processes
from octopi.errors import NotReadyError
from tests.kit.named_clusters import (
    Deciders,
    each_way,
    each_with_registers,
    process_cluster,
    start_together,
)
from tests.kit.replicas import DataDirectory
from tests.kit.traffic import traffic

pytestmark = pytest.mark.process


async def test_brokers_that_start_before_the_register_join_when_it_comes(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        register.kill9()
        brokers = [
            nodes.node(f"broker-{number}", "broker", "--register", register.url)
            for number in (1, 2, 3)
        ]
        for broker in brokers:
            broker.launch()
        while not all("register lost" in broker.log() for broker in brokers):  # noqa: ASYNC110
            await trio.sleep(0.02)
        await trio.to_thread.run_sync(register.restart)
        for broker in brokers:
            await trio.to_thread.run_sync(broker.wait_ready)
        async with traffic(register.url, "orders") as flow:
            await flow.progress(50)
        await flow.check_replicas([DataDirectory(broker.data_dir) for broker in brokers], 3)


@each_way
async def test_a_leader_that_starts_late_finds_another_one_and_follows(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with process_cluster(tmp_path, deciders=deciders) as cluster:
        async with traffic(cluster.url, "orders", producers=2) as flow:
            await flow.progress(100)
        await flow.check_replicas(cluster.data_dirs, 3)
        late = await cluster.leader("orders")
        early = await cluster.followers("orders")
        for name in cluster.names:
            await cluster.kill(name)
        await start_together([cluster.brokers[name] for name in early])
        assert await cluster.leader_after("orders", late) in early
        async with octopi.connect(cluster.url) as client, client.producer() as producer:
            await flow.producing[0].burst(producer, "orders", 50)
        await cluster.restart(late)
        await cluster.in_sync("orders", 3)
        await flow.check_replicas(cluster.data_dirs, 3)


@each_with_registers
async def test_a_leader_that_starts_first_does_not_wait_for_its_followers(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with process_cluster(tmp_path, deciders=deciders) as cluster:
        async with traffic(cluster.url, "orders", producers=2) as flow:
            await flow.progress(100)
        leader = await cluster.leader("orders")
        late = await cluster.followers("orders")
        for name in cluster.names:
            await cluster.kill(name)
        await cluster.restart(leader)
        async with octopi.connect(cluster.url) as client, client.producer() as producer:
            await flow.producing[0].burst(producer, "orders", 50)
        await start_together([cluster.brokers[name] for name in late])
        await cluster.in_sync("orders", 3)
        await flow.check_replicas(cluster.data_dirs, 3)


async def test_a_partition_without_its_in_sync_replica_waits_for_it(tmp_path: Path) -> None:
    """Who was away when messages were acknowledged does not lead without them."""
    async with process_cluster(tmp_path) as cluster:
        async with traffic(cluster.url, "orders", producers=2) as flow:
            await flow.progress(100)
            stale = await cluster.followers("orders")
            for name in stale:
                await cluster.kill(name)
            await flow.progress(100, reading=False)
        last = await cluster.leader("orders")
        await cluster.kill(last)
        await start_together([cluster.brokers[name] for name in stale])
        async with octopi.connect(cluster.url, request_timeout_s=1) as client:
            with pytest.raises(NotReadyError):
                await client.fetch("orders", 0, partition=flow.producing[0].receipts[0].partition)
        await cluster.restart(last)
        await flow.check_replicas(cluster.data_dirs, 3)
