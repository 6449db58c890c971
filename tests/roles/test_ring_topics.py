"""Topics without a register: any broker creates, describes, lists, alters and deletes them, and
clients produce and consume as in any other cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from octopi.clients.client import Client
from octopi.errors import Blame, RefusedError, Status, TopicExistsError, UnknownTopicError
from octopi.identifiers import is_internal
from octopi.testing import Cluster, simulated
from octopi.wire import messages as m
from tests.kit.ring import RingOfHosts
from tests.kit.ring_clients import client_of
from tests.roles.test_ring_fail_over import stored
from tests.roles.test_ring_partitions import FIVE, all_led, founded


@asynccontextmanager
async def clients(cluster: Cluster) -> AsyncIterator[tuple[RingOfHosts, Client, Client]]:
    """A ring of five, a client of one broker and a client of another."""
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    async with client_of(ring, ["a"], "one") as one, client_of(ring, ["d"], "other") as other:
        yield ring, one, other


def holders(ring: RingOfHosts, topic: str) -> dict[tuple[int, int], str]:
    """(broker, partition) -> the id of the topic of which the broker has a log."""
    return {
        (member.identity.broker or 0, log.partition): log.topic_id
        for name, member in ring.members().items()
        for log in ring.nodes[name].replicas.store
        if log.topic.topic == topic
    }


@simulated(brokers=1, oracle=False)
async def test_a_topic_is_created_by_one_broker_and_found_by_another(cluster: Cluster) -> None:
    async with clients(cluster) as (ring, one, other):
        await one.create_topic("orders")
        with pytest.raises(TopicExistsError):
            await other.create_topic("orders")
        [described] = await other.topics()
        assert (described.topic, len(described.partitions)) == ("orders", 1)
        assert described == await one.describe_topic("orders") or described.topic_id
        await cluster.eventually(lambda: len(holders(ring, "orders")) == 3, "three have logs")
        with pytest.raises(UnknownTopicError):
            await other.describe_topic("invoices")


@simulated(brokers=1, oracle=False)
async def test_messages_go_through_a_topic_of_several_partitions(cluster: Cluster) -> None:
    async with clients(cluster) as (_, one, other):
        await one.create_topic("orders", partitions=3)
        async with one.producer() as producer:
            for number in range(30):
                await producer.send("orders", b"%d" % number, key=b"%d" % number)
        async with other.consumer("orders", start="earliest", stop_at_end=True) as consumer:
            found = {message.value async for message in consumer}
        assert found == {b"%d" % number for number in range(30)}


@simulated(brokers=1, oracle=False)
async def test_a_deleted_topic_is_gone_everywhere_and_its_name_is_free(cluster: Cluster) -> None:
    async with clients(cluster) as (ring, one, other):
        await one.create_topic("orders", partitions=3)
        async with one.producer() as producer:
            await producer.send("orders", b"old", key=b"k")
        await other.delete_topic("orders")
        assert await one.topics() == []
        with pytest.raises(UnknownTopicError):
            await one.describe_topic("orders")
        await cluster.eventually(lambda: not holders(ring, "orders"), "nobody has a log")
        again = await one.create_topic("orders", partitions=3)
        async with other.producer() as producer:
            await producer.send("orders", b"new", key=b"k")
        async with one.consumer("orders", start="earliest", stop_at_end=True) as consumer:
            assert [message.value async for message in consumer] == [b"new"]
        await cluster.eventually(
            lambda: (
                set(holders(ring, "orders").values()) == {again.topic_id}
                and len(holders(ring, "orders")) == 9
            ),
            "each replica has a log of the new topic",
        )


@simulated(brokers=1, oracle=False)
async def test_a_topic_is_deleted_by_its_id_whichever_home_keeps_it(cluster: Cluster) -> None:
    async with clients(cluster) as (ring, one, other):
        names = [f"topic-{number}" for number in range(6)]
        for name in names:
            await one.create_topic(name)
        ids = {info.topic: info.topic_id for info in await one.topics()}
        for name in names[1:]:
            await other.admin.delete_topic_by_id(ids[name])
        assert [info.topic for info in await one.topics()] == names[:1]
        await cluster.eventually(
            lambda: not any(holders(ring, name) for name in names[1:]), "their logs are gone"
        )
        with pytest.raises(UnknownTopicError, match="no topic with id 0123456789abcdef"):
            await other.admin.delete_topic_by_id("0123456789abcdef")
        cluster.kill("a")
        await other.admin.delete_topic_by_id(ids[names[0]])  # others lead its homes in a moment
        assert await other.topics() == []


@simulated(brokers=1, oracle=False)
async def test_topics_of_all_homes_are_listed_in_the_order_of_their_names(
    cluster: Cluster,
) -> None:
    async with clients(cluster) as (_, one, other):
        names = [f"topic-{number:02}" for number in range(20)]
        for name in reversed(names):
            await one.create_topic(name)
        assert [topic.topic for topic in await other.topics()] == names
        described = await other.admin.describe_cluster()
        assert described.topic_count == 20
        assert {one.broker for one in described.brokers if one.live} == {1, 2, 3, 4, 5}
        assert all(one.leader is not None for one in described.partitions)


@simulated(brokers=1, oracle=False)
async def test_options_of_a_topic_are_altered_on_all_replicas(cluster: Cluster) -> None:
    async with clients(cluster) as (ring, one, other):
        await one.create_topic("orders", partitions=2)
        await other.alter_topic("orders", min_insync=2, retention_bytes=50_000)
        described = await one.describe_topic("orders")
        assert described.options.min_insync == 2
        with pytest.raises(RefusedError, match="3 replicas"):
            await one.alter_topic("orders", min_insync=4)

        def altered() -> bool:
            logs = [
                log
                for name in FIVE
                for log in ring.nodes[name].replicas.store
                if log.topic.topic == "orders"
            ]
            return len(logs) == 6 and {one.topic.options.min_insync for one in logs} == {2}

        await cluster.eventually(altered, "all replicas go by the new options")


@simulated(brokers=1, oracle=False)
async def test_topics_are_there_after_all_brokers_lost_their_power(cluster: Cluster) -> None:
    async with clients(cluster) as (ring, one, _):
        await one.create_topic("orders", partitions=3)
        async with one.producer() as producer:
            await producer.send("orders", b"kept", key=b"k")
        await cluster.sleep(3.0)
        for name in FIVE:
            cluster.lose_power(name, restart_s=1.0)
        await cluster.sleep(1.0)
        await all_led(ring, in_sync=3, within_s=60.0)
        assert [topic.topic for topic in await one.topics()] == ["orders"]


@simulated(seeds=2, brokers=1, oracle=False)
async def test_topics_are_created_and_deleted_while_brokers_die_and_all_agree_in_the_end(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    async with client_of(ring, FIVE) as client, trio.open_nursery() as nursery:

        async def keep_killing() -> None:
            while True:
                await cluster.sleep(0.2 + 0.6 * cluster.random.random())
                cluster.kill(cluster.random.choice(FIVE), restart_s=0.4)

        nursery.start_soon(keep_killing)
        there: set[str] = set()
        for number in range(20):
            name = f"topic-{number % 6}"
            if name in there:
                with suppress(UnknownTopicError):  # an attempt without an answer deleted it
                    await client.delete_topic(name)
                there.discard(name)
            else:
                await client.create_topic(name, partitions=1 + number % 4, exist_ok=True)
                there.add(name)
                async with client.producer() as producer:
                    await producer.send(name, b"%d" % number)
                assert await stored(client, name) == [b"%d" % number]
        nursery.cancel_scope.cancel()
    await all_led(ring, in_sync=3, within_s=60.0)
    async with client_of(ring, FIVE, "later") as client:
        topics = {one.topic: one for one in await client.topics()}
        assert set(topics) == there

        def agreed() -> bool:
            wanted = {
                (one.topic, place.partition, one.topic_id)
                for one in topics.values()
                for place in one.partitions
            }
            found = [
                (log.topic.topic, log.partition, log.topic_id)
                for name in FIVE
                for log in ring.nodes[name].replicas.store
                if not is_internal(log.topic_id)
            ]
            return set(found) == wanted and len(found) == 3 * len(wanted)

        await cluster.eventually(agreed, "each replica has the logs of its topics", within_s=60.0)


@simulated(brokers=1, oracle=False)
async def test_a_topic_beside_another_one_lies_on_its_partitions_wherever_both_records_are(
    cluster: Cluster,
) -> None:
    async with clients(cluster) as (_, one, other):
        await one.create_topic("orders", partition_ids=[5, 2, 7])
        ask = other._router.ask_register

        async def beside(name: str, topic: str, count: int = 0) -> list[int]:
            options = m.TopicOptions()

            def question(request: int) -> m.CreateTopic:
                return m.CreateTopic(request, name, count, None, options, topic)

            made = await ask("create a topic", question, m.TopicDescription)
            return [place.partition for place in made.topic.partitions]

        for number in range(6):  # their records lie in several homes
            assert await beside(f"beside-{number}", "orders") == [5, 2, 7]
        assert await beside("counted", "orders", count=3) == [5, 2, 7]
        with pytest.raises(RefusedError, match="has its 3 partitions, no other ones"):
            await beside("more", "orders", count=4)
        with pytest.raises(UnknownTopicError, match="no topic invoices"):
            await beside("alone", "invoices")
        with pytest.raises(UnknownTopicError):
            await one.describe_topic("alone")


@simulated(brokers=1, oracle=False)
async def test_a_queue_gives_up_a_message_as_a_dead_letter_beside_its_topic(
    cluster: Cluster,
) -> None:
    async with clients(cluster) as (_, one, other):
        await one.create_topic("orders", partitions=2)
        async with one.producer() as producer:
            for number in range(10):
                await producer.send("orders", b"%d" % number, key=b"%d" % number)
        async with other.subscription("orders", "mails", mode="shared") as queue:
            for _ in range(10):
                message = await anext(queue)
                if message.value == b"7":
                    message.reject("no such customer")
                else:
                    message.acknowledge()
        dead = await one.describe_topic("orders.mails.dead")
        topic = await one.describe_topic("orders")
        assert [place.partition for place in dead.partitions] == [
            place.partition for place in topic.partitions
        ]
        await cluster.eventually(lambda: _has_dead(one), "the letter is there", within_s=20.0)


async def _has_dead(client: Client) -> bool:
    return await stored(client, "orders.mails.dead") == [b"7"]


@simulated(brokers=1, oracle=False)
async def test_a_topic_in_memory_is_refused_and_the_refusal_says_where_there_are_some(
    cluster: Cluster,
) -> None:
    async with clients(cluster) as (_, one, other):
        with pytest.raises(
            RefusedError, match="with a register, or brokers of their own"
        ) as refused:
            await one.create_topic("prices", kind="relay")
        assert refused.value.status == Status.INVALID_OPTION
        assert refused.value.meaning.fault is Blame.CALLER
        assert not refused.value.meaning.retryable
        with pytest.raises(RefusedError, match="does not carry out set_relays") as set_members:
            await one.admin.set_relays(0, [1, 2, 3])
        assert set_members.value.status == Status.INVALID_OPTION
        assert await other.topics() == []
        await one.create_topic("prices")  # its name is free
