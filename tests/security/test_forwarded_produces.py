"""A broker passes on only what the client's token grants, and the leader trusts no client."""

from __future__ import annotations

from pathlib import Path

import trio

import octopi
from octopi.errors import Status
from octopi.wire import messages as m
from tests.kit.cluster import Cluster
from tests.security.test_authorisation import RECORD, everything, fresh, guarded, outcome
from tests.security.test_quotas import limited


async def elsewhere(cluster: Cluster, topic: str) -> tuple[str, int]:
    """Make *topic*; return a broker that doesn't lead it, and its partition."""
    async with octopi.connect(cluster.register.url, token=everything()) as client:
        await client.create_topic(topic)
        with trio.fail_after(20):
            while True:
                [place] = (await client.describe_topic(topic)).partitions
                if len(place.in_sync) == 2:
                    break
                await trio.sleep(0.01)  # nothing announces it to clients
        brokers = (await client.admin.describe_cluster()).brokers
    [other] = [one.address for one in brokers if one.address != place.leader_address]
    return other, place.partition


async def test_a_broker_passes_on_what_the_token_grants_and_nothing_else(tmp_path: Path) -> None:
    async with guarded(tmp_path, brokers=2) as cluster:
        other, partition = await elsewhere(cluster, "orders")
        for token, status in (
            (fresh(publish="orders"), None),
            (fresh(publish="invoices", subscribe="orders"), Status.FORBIDDEN),
            (limited(bytes=1_000_000), Status.FORBIDDEN),
            (limited(topics=1), None),
        ):
            async with cluster.connection(other, token=token) as opened:
                message = m.Produce(
                    opened.next_request(), "orders", partition, RECORD, forward=True
                )
                assert await outcome(opened, message, m.Produced) is status
