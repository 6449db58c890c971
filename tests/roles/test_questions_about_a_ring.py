"""A broker that has a register tells who asks for the ring what there is instead."""

from pathlib import Path

import pytest

import octopi
from octopi.clients.ring import describe_ring, locate
from octopi.errors import RefusedError, Status
from tests.kit.cluster import running_cluster


async def test_a_broker_with_a_register_refuses_questions_about_a_ring_in_words(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        broker = await cluster.start_broker()
        async with octopi.connect(broker.url) as client:
            for ask in (describe_ring, locate):
                with pytest.raises(RefusedError, match="this cluster has a register") as refused:
                    await ask(client)
                assert refused.value.status == Status.WRONG_ENDPOINT
            await client.create_topic("orders")  # the connection goes on
