"""A cluster without a register, as processes, under load: its leaders are killed."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import octopi
from harness.processes import NodeProcess, node_processes
from tests.kit.ring_processes import start_ring
from tests.kit.traffic import traffic

pytestmark = pytest.mark.process

BROKERS = 5


async def leader(ring: list[NodeProcess], client: octopi.Client, topic: str) -> NodeProcess:
    """The process that leads the first partition of *topic*."""
    while True:
        place = (await client.describe_topic(topic)).partitions[0]
        for one in ring:
            if one.url == place.leader_address:
                return one
        await trio.sleep(0.1)  # an election is under way


async def test_leaders_are_killed_under_load_and_nothing_is_lost_or_doubled(
    tmp_path: Path,
) -> None:
    with node_processes(tmp_path) as nodes:
        ring = await trio.to_thread.run_sync(start_ring, nodes, BROKERS)
        urls = [one.url for one in ring]
        async with (
            octopi.connect(urls) as client,
            traffic(urls, "orders", producers=2, consumers=2, partitions=2) as flow,
        ):
            await flow.progress(100)
            for _ in range(2):
                dies = await leader(ring, client, "orders")
                dies.kill9()
                await flow.progress(200)
                await trio.to_thread.run_sync(dies.start)
                await flow.progress(100)
        flow.check()
