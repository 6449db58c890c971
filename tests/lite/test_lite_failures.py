"""Octopi Lite while brokers fail, with three replicas on real sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

from octopi import lite
from octopi.errors import UnreachableError
from octopi.lite.numbers import padded
from tests.kit.cluster import running_cluster


async def test_a_dead_leader_is_not_noticed_by_who_waits_long_enough(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        nodes = [await cluster.start_broker(f"broker-{one}") for one in (1, 2, 3)]
        async with (
            lite.mount_producer(cluster.register.url) as producer,
            lite.mount_consumer_group(cluster.register.url, 2) as group,
        ):
            assert await producer.add_message(0, b"before") == 0
            leader = await producer.get_leader_ip(0)
            [node] = [one for one in nodes if leader in one.url]
            await cluster.kill(node)
            assert await producer.add_message_timeout(0, b"after", 20) == 1
            assert await producer.get_leader_ip(0) != leader
            expected = [padded(b"before"), padded(b"after")]
            for _ in nodes:  # each time of another replica
                assert await group.consume([0], 0, 0) == {0: expected}


async def test_one_broker_that_is_left_of_three_serves_what_was_acknowledged(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        nodes = [await cluster.start_broker(f"broker-{one}") for one in (1, 2, 3)]
        async with (
            lite.mount_producer(cluster.register.url) as producer,
            lite.mount_consumer_group(cluster.register.url) as group,
        ):
            for number, node in enumerate(nodes):
                assert await producer.add_message_timeout(0, b"%d" % number, 20) == number
                if node is not nodes[-1]:
                    await cluster.kill(node)
            [record] = await group.poll(20)
            assert record.messages == [padded(b"%d" % one) for one in range(3)]


async def test_a_server_that_does_not_answer_is_told_when_it_is_mounted() -> None:
    for mount in (lite.mount_producer, lite.mount_consumer_group):
        with pytest.raises(UnreachableError):
            async with mount("ws://127.0.0.1:9", request_timeout_s=0.5):
                pass
