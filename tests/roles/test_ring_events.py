"""Brokers without a register tell what happened in the cluster, whichever of them is asked."""

from __future__ import annotations

import json
from typing import Any

import trio

from octopi.clients.client import Client
from octopi.history.ring_history import write_ring_history
from octopi.history.writer import HistoryAccess
from octopi.identifiers import EVENTS_TOPIC, RATES_TOPIC
from octopi.testing import Cluster, simulated
from octopi.wire.messages import ClusterEvent
from tests.kit.join_secrets import SECRETS
from tests.kit.ring import address
from tests.kit.ring_clients import client_of
from tests.roles.test_ring_operating import FOUNDERS, left
from tests.roles.test_ring_partitions import all_led, founded


async def events_of(client: Client, after: int = 0) -> list[ClusterEvent]:
    return (await client.admin.describe_events(after)).events


def texts(events: list[ClusterEvent], kind: str) -> list[str]:
    return [one.text for one in events if one.kind == kind]


@simulated(brokers=1, oracle=False)
async def test_any_broker_tells_what_all_have_noted_each_event_once(cluster: Cluster) -> None:
    ring = founded(cluster, FOUNDERS)
    await all_led(ring, in_sync=3)
    await ring.ideal(*FOUNDERS)
    async with client_of(ring, ["a"]) as client, client_of(ring, ["c"], "other") as other:
        await client.create_topic("orders")
        await client.create_topic("bills", partitions=3)
        await client.alter_topic("orders", min_insync=2)
        await client.delete_topic("bills")
        found = await events_of(client)
        assert {one.broker for one in found if one.kind == "broker_joined"} == {1, 2, 3}
        assert texts(found, "topic_created") == [
            "topic orders was created",
            "topic bills was created",
        ]
        assert texts(found, "topic_altered") == ["topic orders was altered: min_insync 2"]
        assert texts(found, "topic_deleted") == ["topic bills was deleted"]
        assert [one.number for one in found] == list(range(1, len(found) + 1))
        origins = {one.origin for one in found}
        assert len(origins) == len(found)
        again = await events_of(other)
        assert origins <= {one.origin for one in again}

        # What is told later has later numbers.
        await cluster.sleep(1.0)
        last = (await events_of(client))[-1].number
        assert await events_of(client, last) == []
        await client.delete_topic("orders")
        await cluster.sleep(1.0)
        [deleted] = await events_of(client, last)
        assert (deleted.number, deleted.kind) == (last + 1, "topic_deleted")


@simulated(brokers=1, oracle=False)
async def test_the_death_of_a_broker_and_the_elections_after_it_are_told_once(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    await ring.ideal("a", "b", "c", "d", "e")
    async with client_of(ring, ["a"]) as client:
        before = await events_of(client)
        led = {
            one.partition
            for one in (await client.admin.describe_cluster()).partitions
            if one.leader == 2
        }
        cluster.kill("b")
        await cluster.sleep(3.0)
        found = await events_of(client, before[-1].number)
        [gone] = [one for one in found if one.kind == "broker_left"]
        assert gone.broker == 2
        assert "stands before it on the ring, got no answer" in gone.text
        elected = [one for one in found if one.kind == "leader"]
        assert {one.partition for one in elected} >= led
        assert len({(one.partition, one.epoch) for one in elected}) == len(elected)
        assert "in_sync" in {one.kind for one in found}
        cluster.restart("b")
        await ring.ideal("a", "b", "c", "d", "e")
        # It has begun to count anew, and those whom it had told go on with it.
        await cluster.sleep(1.0)
        rejoined = await events_of(client, found[-1].number)
        assert 2 in {one.broker for one in rejoined if one.kind == "broker_joined"}


@simulated(brokers=1, oracle=False)
async def test_a_broker_that_gives_no_answer_holds_nobody_up_and_tells_later(
    cluster: Cluster,
) -> None:
    ring = founded(cluster, FOUNDERS)
    await all_led(ring, in_sync=3)
    await ring.ideal(*FOUNDERS)
    async with client_of(ring, ["a"]) as client:
        cluster.pause("c", seconds=5.0)
        began = cluster.now
        found = await events_of(client)
        assert cluster.now - began < 2.0
        assert 3 not in {one.broker for one in found if one.kind == "broker_joined"}
        await cluster.sleep(8.0)
        later = await events_of(client, found[-1].number)
        assert 3 in {one.broker for one in later if one.kind == "broker_joined"}


@simulated(brokers=1, oracle=False)
async def test_a_broker_that_was_removed_for_good_is_told_of(cluster: Cluster) -> None:
    ring = founded(cluster, ("a", "b", "c", "d"))
    await all_led(ring, in_sync=3)
    await ring.ideal("a", "b", "c", "d")
    async with client_of(ring, ["b"]) as client:
        await left(cluster, client, 4)
        assert texts(await events_of(client), "broker_removed") == ["broker 4 was removed"]


async def read(client: Client, topic: str) -> list[dict[str, Any]]:
    """All that is in *topic* now."""
    async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
        return [json.loads(one.value) async for one in consumer]


@simulated(brokers=1, oracle=False)
async def test_the_history_has_what_each_broker_noted_itself_once(cluster: Cluster) -> None:
    ring = founded(cluster, FOUNDERS)
    await all_led(ring, in_sync=3)
    await ring.ideal(*FOUNDERS)
    async with client_of(ring, ["a"]) as client, trio.open_nursery() as nursery:
        for name in FOUNDERS:
            environment = await cluster.environment(f"{name}-history")
            access = HistoryAccess(environment, [address(name)], None, SECRETS, interval_s=1.0)
            nursery.start_soon(write_ring_history, ring.nodes[name], access)
        await client.create_topic("orders")
        async with client.producer() as producer:
            for number in range(10):
                await producer.send("orders", b"%d" % number)
        await cluster.sleep(12.0)
        written = await read(client, EVENTS_TOPIC)
        lives = {one["life"] for one in written}
        assert len(lives) == 3
        for life in lives:
            numbers = [one["number"] for one in written if one["life"] == life]
            assert numbers == list(range(1, len(numbers) + 1))
        assert {one["broker"] for one in written if one["kind"] == "broker_joined"} == {1, 2, 3}
        topics = [one["topic"] for one in written if one["kind"] == "topic_created"]
        assert sorted(topics) == sorted(["orders", EVENTS_TOPIC, RATES_TOPIC])
        # What is told has the same names.
        told = {one.origin for one in await events_of(client)}
        assert {f"{one['life']}/{one['number']}" for one in written} <= told
        rates = await read(client, RATES_TOPIC)
        assert {one["broker"] for one in rates} == {1, 2, 3}
        assert sum(one["messages_in"] for one in rates) == 10
        nursery.cancel_scope.cancel()
