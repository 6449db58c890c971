"""A broker that keeps topics in logs tells who asks for relays what there is instead."""

from pathlib import Path

import pytest

import octopi
from octopi.clients.relays import describe_relays
from octopi.errors import RefusedError, Status
from tests.kit.cluster import running_cluster


async def test_a_broker_with_logs_refuses_questions_about_relays_in_words(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        broker = await cluster.start_broker()
        async with octopi.connect(broker.url) as client:
            with pytest.raises(RefusedError, match="keeps topics in logs") as refused:
                await describe_relays(client)
            assert refused.value.status == Status.WRONG_ENDPOINT
            await client.create_topic("orders")  # the connection goes on
