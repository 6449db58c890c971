"""Many clients and brokers at once; brokers that die and come back by chance."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

import octopi
from tests.kit.named_clusters import ProcessCluster, local_cluster, process_cluster
from tests.kit.traffic import traffic

pytestmark = pytest.mark.slow


async def test_many_producers_consumers_and_brokers_under_load_agree_in_the_end(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    async with local_cluster(tmp_path, brokers=5) as cluster:
        began = time.monotonic()
        async with traffic(cluster.url, "orders", producers=8, consumers=6, partitions=6) as flow:
            await flow.progress(800)
            dies = await cluster.leader("orders")
            await cluster.kill(dies)
            await flow.progress(300)
            await cluster.restart(dies)
            await flow.progress(300)
        rate = flow.acknowledged_count / (time.monotonic() - began)
        record_property("acknowledged_messages_per_s", round(rate))
        await flow.check_replicas(cluster.data_dirs, 3)


async def kill_or_restart(cluster: ProcessCluster, randomness: random.Random) -> None:
    """Kill a broker, or restart a dead one; somebody in sync stays alive."""
    running = {name for name in cluster.names if cluster.brokers[name].is_running}
    dead = sorted(set(cluster.names) - running)
    in_sync = await synced(cluster, running)
    name = randomness.choice(cluster.names)
    if name in running and in_sync - {name}:
        await cluster.kill(name)
    elif dead:
        await cluster.restart(randomness.choice(dead))


async def synced(cluster: ProcessCluster, running: set[str]) -> set[str]:
    """Who is in sync, as soon as all of them are alive."""
    async with octopi.connect(cluster.url) as client:
        brokers = (await client.admin.describe_cluster()).brokers
    names = {one.broker: cluster.named(one.address) for one in brokers}
    with trio.fail_after(20):
        while True:
            found = {names[broker] for broker in (await cluster.place("orders")).in_sync}
            if found <= running:
                return found
            await trio.sleep(0.05)  # nothing announces it to clients


@pytest.mark.process
@pytest.mark.parametrize("seed", [1])  # and any other by hand
async def test_brokers_die_and_come_back_at_random_and_no_message_is_lost(
    tmp_path: Path, seed: int
) -> None:
    randomness = random.Random(seed)
    async with process_cluster(tmp_path) as cluster:
        async with traffic(cluster.url, "orders", producers=2, consumers=2) as flow:
            for _ in range(12):
                await kill_or_restart(cluster, randomness)
                if randomness.random() < 0.7:
                    await flow.progress(50)
            for name in cluster.names:
                if not cluster.brokers[name].is_running:
                    await cluster.restart(name)
            await cluster.in_sync("orders", 3)
            await flow.progress(50)
        await flow.check_replicas(cluster.data_dirs, 3)
