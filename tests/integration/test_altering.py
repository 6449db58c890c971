"""Topics are altered while they are in use."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import attrs
import pytest
import trio

import octopi
from octopi.environment import TraceEvent
from octopi.errors import Status
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.storage import checkpoint
from octopi.tracing import steps
from octopi.wire import messages as m
from tests.kit.named_clusters import local_cluster
from tests.kit.probes import batch, produce, refusal_of

WEEK = timedelta(days=7)


async def test_a_greater_min_insync_holds_at_once(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, brokers=2) as cluster, octopi.connect(cluster.url) as client:
        topic = await client.create_topic("orders")
        (follower,) = await cluster.followers("orders")
        await cluster.kill(follower)
        await cluster.in_sync("orders", 1)
        async with cluster.cluster.connection(topic.partitions[0].leader_address) as leader:
            await produce(leader, topic, batch(0, b"one is enough"))
            altered = await client.alter_topic("orders", min_insync=2, retention=WEEK)
            assert altered.options.min_insync == 2
            assert len(altered.partitions[0].in_sync) == 1
            refused = await refusal_of(produce(leader, topic, batch(1, b"too few")))
            assert refused.status == Status.NOT_READY
            assert "1 of at least 2" in str(refused)
            await client.alter_topic("orders", min_insync=1)
            await produce(leader, topic, batch(1, b"one is enough again"))
        described = await client.describe_topic("orders")
        assert described.options == attrs.evolve(
            m.TopicOptions(), retention_ms=WEEK // timedelta(milliseconds=1)
        )


async def test_a_broker_that_was_away_goes_by_the_altered_options_before_it_leads(
    tmp_path: Path,
) -> None:
    async with local_cluster(tmp_path, brokers=1) as cluster, octopi.connect(cluster.url) as client:
        topic = await client.create_topic("orders")
        name = await cluster.leader("orders")
        await cluster.kill(name)
        with trio.fail_after(10):
            await client.alter_topic("orders", flush_before_ack=True, segment_bytes=4096)
        events: list[TraceEvent] = []
        cluster.traces[name] = events.append
        await cluster.restart(name)
        async with client.producer() as producer:
            await producer.send("orders", b"flushed")
        seen = [event.text for event in events]
        assert seen.index(steps.T9Altered.text) < seen.index(steps.E11Leading.text)
        partition = topic.partitions[0].partition
        path = cluster.data_dir(name) / "logs" / str(partition) / "orders" / "checkpoint"
        stored = checkpoint.load(cluster.cluster.environment.disk, str(path))
        assert stored is not None
        assert stored["topic"]["options"]["flush_before_ack"]
        assert stored["topic"]["version"] == 1


async def test_what_can_not_be_altered_is_refused(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, brokers=1) as cluster, octopi.connect(cluster.url) as client:
        await client.create_topic("orders")
        with pytest.raises(octopi.UnknownTopicError):
            await client.alter_topic("others", retention=WEEK)
        with pytest.raises(octopi.InvalidOptionError):
            await client.alter_topic("orders", retention_bytes=-1)


async def test_topics_that_are_created_at_the_same_time_share_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, orders = 40, list[int]()
    install = ReplicaManager.install_topics

    async def counted(self: ReplicaManager, topics: list[m.TopicRecord]) -> list[m.Undone]:
        orders.append(len(topics))
        return await install(self, topics)

    monkeypatch.setattr(ReplicaManager, "install_topics", counted)
    async with local_cluster(tmp_path, brokers=2) as cluster, octopi.connect(cluster.url) as client:
        names = [f"topic-{number}" for number in range(count)]
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(client.create_topic, name)
        assert sorted(one.topic for one in await client.topics()) == sorted(names)
        logs = await client.admin.describe_logs()
        assert len([one for one in logs if one.log.topic in names]) == 2 * count
    assert sum(orders) >= 2 * count
    assert len([one for one in orders if one]) < count, "there are two brokers"
