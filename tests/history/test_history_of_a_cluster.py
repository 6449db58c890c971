"""The history of a small cluster: what its nodes write to the topics `_octopi.*`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import octopi
from octopi.cli.topic_list import listed
from octopi.errors import NotDeliveredError, RefusedError, Status
from octopi.history.broker_rates import write_rates
from octopi.history.register_events import write_events
from octopi.history.writer import HistoryAccess
from octopi.identifiers import EVENTS_TOPIC, RATES_TOPIC
from octopi.roles.broker.node import BrokerNode
from tests.kit.cluster import Cluster, Node, running_cluster
from tests.kit.join_secrets import SECRETS
from tests.security.test_authorisation import fresh, guarded

Message = dict[str, Any]


class History:
    """The writers of a cluster's nodes, which write soon."""

    def __init__(self, cluster: Cluster, nursery: trio.Nursery, token: str | None = None) -> None:
        self.cluster = cluster
        self.nursery = nursery
        self.token = token

    def access(self, url: str) -> HistoryAccess:
        return HistoryAccess(
            self.cluster.environment, [url], self.token, SECRETS, interval_s=0.1, look_s=0.02
        )

    def of_register(self) -> trio.CancelScope:
        node, url = self.cluster.registers[-1], self.cluster.register.url
        return self._write(partial(write_events, node, self.access(url)))

    def of_broker(self, node: BrokerNode) -> trio.CancelScope:
        return self._write(partial(write_rates, node, self.access(self.cluster.register.url)))

    def _write(self, write: Callable[[], Awaitable[None]]) -> trio.CancelScope:
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await write()

        self.nursery.start_soon(run)
        return scope


@asynccontextmanager
async def history_of(cluster: Cluster, token: str | None = None) -> AsyncIterator[History]:
    async with trio.open_nursery() as nursery:
        yield History(cluster, nursery, token)
        nursery.cancel_scope.cancel()


async def read_until(
    url: str, topic: str, holds: Callable[[list[Message]], bool], token: str | None = None
) -> list[Message]:
    """The messages of *topic* from its beginning on, as soon as they are as wanted."""
    found: list[Message] = []
    with trio.fail_after(30):
        async with (
            octopi.connect(url, token=token) as client,
            client.consumer(topic, start="earliest", wait_for_topic=30) as consumer,
        ):
            async for message in consumer:
                found.append(json.loads(message.value))
                if holds(found):
                    break
    return found


async def produce(url: str, topic: str, count: int) -> None:
    async with octopi.connect(url) as client, client.producer() as producer:
        for number in range(count):
            await producer.submit(topic, b"message %d" % number)


async def test_a_change_of_leader_is_in_the_events(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster, history_of(cluster) as history:
        brokers: dict[int, Node] = {}
        for number in (1, 2, 3):
            brokers[number] = await cluster.start_broker(f"broker-{number}", broker=number)
        history.of_register()
        url = cluster.register.url
        await produce(url, "orders", 10)
        async with octopi.connect(url) as client:
            [partition] = (await client.describe_topic("orders")).partitions
        leader = partition.leader
        assert leader is not None
        await cluster.kill(brokers[leader])

        def has_another_leader(events: list[Message]) -> bool:
            last = events[-1]
            is_about_it = (last["kind"], last["partition"]) == ("leader", partition.partition)
            return is_about_it and bool(last["epoch"] > partition.epoch)

        events = await read_until(url, EVENTS_TOPIC, has_another_leader)
        assert [one["number"] for one in events] == list(range(1, len(events) + 1))
        assert {"register_started", "broker_joined", "topic_created", "broker_left"} <= {
            one["kind"] for one in events
        }


async def test_rates_add_up_to_what_was_produced_and_read(tmp_path: Path) -> None:
    nodes: list[BrokerNode] = []
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, tmp_path)
        await cluster.start_register()
        for number in (1, 2):
            await cluster.start_broker(f"broker-{number}", show=nodes.append)
        url = cluster.register.url
        async with history_of(cluster) as history:
            for node in nodes:
                history.of_broker(node)
            # Both brokers have looked once: what comes now is counted.
            await read_until(
                url, RATES_TOPIC, lambda seen: len({one["broker"] for one in seen}) == 2
            )
            await produce(url, "orders", 700)
            await produce(url, "payments", 300)
            async with (
                octopi.connect(url) as client,
                client.consumer(["*"], start="earliest", stop_at_end=True) as consumer,
            ):
                read = [message.topic async for message in consumer]
            assert sorted(set(read)) == ["orders", "payments"]

            def total(seen: list[Message], name: str) -> int:
                return sum(one[name] for one in seen)

            rates = await read_until(
                url,
                RATES_TOPIC,
                lambda seen: (
                    total(seen, "messages_in") >= 1_000
                    and total(seen, "bytes_out") >= total(seen, "bytes_in")
                ),
            )
        assert total(rates, "messages_in") == 1_000
        topics = [one for note in rates for one in note["topics"]]
        for topic, count in (("orders", 700), ("payments", 300)):
            of_topic = [one for one in topics if one["topic"] == topic]
            assert total(of_topic, "messages_in") == count
            assert total(of_topic, "bytes_in") == total(of_topic, "bytes_out") > 0
        assert {one["topic"] for one in topics} == {"orders", "payments"}
        nursery.cancel_scope.cancel()


async def test_a_register_that_was_killed_goes_on_with_another_life(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, history_of(cluster) as history:
        url = cluster.register.url
        writing = history.of_register()
        first = await read_until(url, EVENTS_TOPIC, lambda seen: len(seen) >= 2)
        writing.cancel()
        await cluster.kill(cluster.register)
        await cluster.start_register(listen=url.removeprefix("ws://"))
        history.of_register()
        await produce(url, "orders", 1)
        life = first[0]["life"]
        all_events = await read_until(
            url,
            EVENTS_TOPIC,
            lambda seen: seen[-1]["life"] != life and seen[-1]["kind"] == "topic_created",
        )
        assert len({one["life"] for one in all_events}) == 2
        for known in {one["life"] for one in all_events}:
            numbers = [one["number"] for one in all_events if one["life"] == known]
            assert numbers == list(range(1, len(numbers) + 1))


async def test_the_writer_goes_on_after_no_broker_led_its_topic(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster, history_of(cluster) as history:
        history.of_register()
        broker = await cluster.start_broker()
        url = cluster.register.url
        await read_until(url, EVENTS_TOPIC, lambda seen: seen[-1]["kind"] == "broker_joined")
        await cluster.kill(broker)
        await cluster.start_broker()
        events = await read_until(
            url,
            EVENTS_TOPIC,
            lambda seen: [one["kind"] for one in seen].count("broker_joined") == 2,
        )
        assert "broker_left" in [one["kind"] for one in events]
        assert len({one["number"] for one in events}) == len(events)


async def test_with_keys_only_nodes_write_the_history(tmp_path: Path) -> None:
    node_token = fresh(None, "node", replicate="*")
    user = fresh(verbs=("create", "publish", "subscribe", "admin", "consume"))
    async with guarded(tmp_path) as cluster, history_of(cluster, node_token) as history:
        url = cluster.register.url
        async with octopi.connect(url, token=user) as client:
            with pytest.raises(RefusedError, match="only nodes may change") as refused:
                await client.create_topic(EVENTS_TOPIC)
            assert refused.value.status == Status.FORBIDDEN
            history.of_register()
            await read_until(url, EVENTS_TOPIC, lambda seen: True, user)
            for attempt in (
                lambda: client.alter_topic(EVENTS_TOPIC, retention_bytes=1),
                lambda: client.delete_topic(EVENTS_TOPIC),
            ):
                with pytest.raises(RefusedError, match="only nodes may change"):
                    await attempt()
            async with client.producer() as producer:
                with pytest.raises(NotDeliveredError, match="only nodes may change"):
                    await producer.send(EVENTS_TOPIC, b"{}")


async def test_no_topic_of_another_name_begins_as_system_topics_do(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, octopi.connect(cluster.register.url) as client:
        with pytest.raises(RefusedError, match="cluster's own topics") as refused:
            await client.create_topic("_octopi.mine")
        assert refused.value.status == Status.INVALID_TOPIC
        async with client.producer() as producer:
            with pytest.raises(RefusedError, match="cluster's own topics"):
                await producer.send("_octopi.mine", b"")
        assert await client.topics() == []


async def test_lists_and_patterns_leave_system_topics_out_unless_they_ask(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, history_of(cluster) as history:
        url = cluster.register.url
        history.of_register()
        await produce(url, "orders", 1)
        await read_until(url, EVENTS_TOPIC, lambda seen: len(seen) > 1)
        async with octopi.connect(url) as client:
            names = [one.info.topic for one in await listed(client, rates=False)]
            assert names == ["orders"]
            names = [one.info.topic for one in await listed(client, rates=False, system=True)]
            assert names == [EVENTS_TOPIC, "orders"]
            for pattern, expected in (("*", {"orders"}), ("_octopi*", {EVENTS_TOPIC})):
                async with client.consumer(
                    [pattern], start="earliest", stop_at_end=True
                ) as consumer:
                    assert {message.topic async for message in consumer} == expected
