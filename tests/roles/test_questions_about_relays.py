"""A broker that keeps topics in logs alone says so to who asks for relays."""

from pathlib import Path

import pytest

import octopi
from octopi.clients.relays import describe_relays, verify_relays
from octopi.errors import RefusedError, Status
from tests.kit.cluster import running_cluster


async def test_a_broker_without_relay_partitions_says_that_it_has_none(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        broker = await cluster.start_broker()
        async with octopi.connect(broker.url) as client:
            [view] = await describe_relays(client)
            assert view.relays == ()
            await client.create_topic("orders")
            with pytest.raises(RefusedError, match="in logs, not in memory") as refused:
                await verify_relays(client, "orders")
            assert refused.value.status == Status.WRONG_KIND
