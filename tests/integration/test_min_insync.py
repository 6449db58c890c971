"""A topic may ask for a number of in-sync replicas below which nothing is acknowledged."""

from pathlib import Path

import pytest
import trio

import octopi
from octopi.errors import Status
from octopi.wire import messages as m
from tests.kit.named_clusters import Deciders, LocalCluster, each_way, local_cluster
from tests.kit.probes import batch, fetch, produce, refusal_of, values
from tests.kit.replicas import identical


async def created(cluster: LocalCluster, min_insync: int) -> octopi.TopicInfo:
    async with octopi.connect(cluster.url) as client:
        return await client.create_topic("orders", min_insync=min_insync)


async def test_produce_requests_are_refused_until_there_are_enough_in_sync_replicas(
    tmp_path: Path,
) -> None:
    async with local_cluster(tmp_path, brokers=2) as cluster:
        topic = await created(cluster, min_insync=3)
        async with cluster.cluster.connection(topic.partitions[0].leader_address) as leader:
            refused = await refusal_of(produce(leader, topic, batch(0, b"early")))
            assert refused.status == Status.NOT_READY
            assert refused.retryable
            assert "2 of at least 3" in str(refused)
            assert (await fetch(leader, topic, 0)).highwater == 0


async def test_a_record_that_waits_for_a_replica_is_committed_when_that_replica_is_back(
    tmp_path: Path,
) -> None:
    async with local_cluster(tmp_path, brokers=2) as cluster:
        topic = await created(cluster, min_insync=2)
        (follower,) = await cluster.followers("orders")
        async with cluster.cluster.connection(topic.partitions[0].leader_address) as leader:
            await produce(leader, topic, batch(0, b"both"))
            await cluster.kill(follower)
            answers: list[object] = []
            request = leader.next_request()
            partition = topic.partitions[0].partition
            leader.ask(m.Produce(request, "orders", partition, batch(1, b"one")), answers.append)
            # Longer than a lagging follower is waited for where a topic asks for nothing.
            await trio.sleep(2.0)
            assert not answers
            assert values((await fetch(leader, topic, 0)).records) == [b"both"]
            await cluster.restart(follower)
            with trio.fail_after(10):
                while not answers:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            assert isinstance(answers[0], m.Produced)
        (held,) = (await identical(cluster.url, "orders", cluster.data_dirs, 2)).values()
        assert [message.value for message in held] == [b"both", b"one"]


@each_way
async def test_a_leader_that_dies_without_enough_replicas_loses_no_acknowledged_message(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, deciders=deciders) as cluster:
        topic = await created(cluster, min_insync=2)
        async with octopi.connect(cluster.url) as client, client.producer() as producer:
            receipt = await producer.send("orders", b"kept")
            for name in await cluster.followers("orders"):
                await cluster.kill(name)
            leader = await cluster.leader("orders")
            async with client.producer(delivery_timeout_s=2) as retirement:
                with pytest.raises(octopi.DeliveryError):
                    await retirement.send("orders", b"not acknowledged")
            await cluster.kill(leader)
            others = [name for name in cluster.names if name != leader]
            for name in others:
                await cluster.restart(name)
            assert await cluster.leader_after("orders", leader) in others
            # Its highwater mark is known again when the other one follows.
            found = await client.fetch("orders", 0, partition=receipt.partition, wait_s=5)
            assert [message.value for message in found.messages] == [b"kept"]
            assert topic.options.min_insync == 2
