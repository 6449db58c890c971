"""Programs create topics at the same moment: each topic exists once its creation is answered."""

from __future__ import annotations

import trio

from octopi.testing import Cluster, simulated


@simulated(seeds=5, partitions=2, brokers=1, replicas=1)
async def test_topics_created_at_the_same_moment_can_all_be_produced_to(cluster: Cluster) -> None:
    """The first on a partition has brokers hear of it; the others must not come before that."""
    async with (
        cluster.client() as client,
        client.producer(delivery_timeout_s=5) as producer,
        trio.open_nursery() as nursery,
    ):
        for number in range(16):
            nursery.start_soon(producer.send, f"topic-{number}", b"first")
