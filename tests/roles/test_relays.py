"""Relays of a static list serve topics in memory: produced by quorum, read anywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from octopi import Client, Receipt, connect, last
from octopi.environment import Environment
from octopi.errors import (
    HistoryForkedError,
    HistoryLostError,
    NotDeliveredError,
    NotLeaderError,
    StorageError,
    UnknownTopicError,
)
from octopi.identifiers import BrokerId, Offset, PartitionId, TopicName
from octopi.limits import RELAY_SCRUB_S, RELAY_TICK_S
from octopi.relay.buffer import BufferBounds
from octopi.relay.message_ids import MessageId, id_sequence
from octopi.roles.broker.relay.mesh import PlacedStreams
from octopi.roles.broker.relay.store import RelayStore
from octopi.storage import checkpoint
from octopi.storage.directories import make_durable_directory
from octopi.testing import Cluster, simulated
from octopi.wire import messages as m
from tests.kit.relays import RelaysOfHosts
from tests.relay.parts import produced

TOPIC = TopicName("prices")


def values(count: int, begin: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(begin, begin + count)]


async def read(client: Client, count: int, start: str = "earliest") -> list[bytes]:
    async with client.consumer(TOPIC, start=start) as consumer:
        return [(await consumer.__anext__()).value for _ in range(count)]


def sequencer(relays: RelaysOfHosts) -> str:
    """The host of the sequencer of the topic."""
    node = next(iter(relays.running().values()))
    partition = node.mesh.partition_of(TOPIC)
    found = {
        one.member.sequencer
        for running in relays.running().values()
        if (one := running.partitions[partition]).member is not None and one.member.is_normal
    }
    [only] = found
    return relays.name_of(only)


@asynccontextmanager
async def started(
    cluster: Cluster, names: str = "abc", *, partitions: int = 2
) -> AsyncIterator[tuple[RelaysOfHosts, Environment]]:
    relays = RelaysOfHosts(cluster, names, partitions=partitions)
    relays.start()
    await relays.alike()
    yield relays, await cluster.environment("client")


@simulated(brokers=1, oracle=False)
async def test_what_is_produced_at_one_relay_is_read_at_all(cluster: Cluster) -> None:
    async with started(cluster, partitions=8) as (relays, environment):
        for name, node in relays.running().items():
            assert node.links is not None
            connected = set(node.links.incarnations)
            assert connected == {1, 2, 3} - {relays.id_of(name)}, "a link for each two"
        async with (
            connect(relays.addresses[0], environment=environment) as client,
            client.producer() as producer,
        ):
            receipts = [await producer.send(TOPIC, one) for one in values(20)]
        ids = [one.id or b"" for one in receipts]
        assert sorted(set(ids)) == ids, "one receiver gives growing ids"
        assert len({one.digest for one in receipts}) == 20
        for address in relays.addresses:
            async with connect(address, environment=environment) as client:
                assert await read(client, 20) == values(20)
                assert [one.topic for one in await client.topics()] == [TOPIC]


@simulated(brokers=1, oracle=False)
async def test_messages_that_are_sent_together_have_ids_in_a_row_and_one_digest(
    cluster: Cluster,
) -> None:
    async with (
        started(cluster) as (relays, environment),
        connect(relays.addresses, environment=environment) as client,
        client.producer(linger_s=0.05) as producer,
    ):
        pending = [await producer.submit(TOPIC, one) for one in values(5)]
        receipts = [await one for one in pending]
        assert len({one.digest for one in receipts}) == 1
        ids = [MessageId(one.id or b"") for one in receipts]
        found = [id_sequence(one) for one in ids]
        assert found == list(range(found[0], found[0] + 5))
        assert {one[:-2] for one in ids} == {ids[0][:-2]}


@simulated(seeds=2, brokers=1, oracle=False)
async def test_the_sequencer_is_killed_and_nothing_is_lost_or_doubled(cluster: Cluster) -> None:
    async with started(cluster) as (relays, environment):
        receipts: list[Receipt] = []
        seen: list[bytes] = []

        async def produce() -> None:
            async with (
                connect(relays.addresses, environment=environment) as client,
                client.producer() as producer,
            ):
                for one in values(60):
                    receipts.append(await producer.send(TOPIC, one))
                    await cluster.sleep(0.02)

        async def consume() -> None:
            async with (
                connect(relays.addresses[::-1], environment=environment) as client,
                client.consumer(TOPIC, start="earliest", create=True) as consumer,
            ):
                while len(seen) < 60:
                    seen.append((await consumer.__anext__()).value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            nursery.start_soon(consume)
            await cluster.sleep(0.4)
            cluster.kill(sequencer(relays), restart_s=3.0)
        assert seen == values(60)
        await relays.alike()
        for address in relays.addresses:
            async with connect(address, environment=environment) as client:
                assert await read(client, 60) == values(60)


@simulated(seeds=2, brokers=1, oracle=False)
async def test_a_sequencer_that_is_cut_off_sends_its_clients_to_the_others(
    cluster: Cluster,
) -> None:
    async with started(cluster) as (relays, environment):
        alone = sequencer(relays)
        others = [one for one in relays.names if one != alone]
        async with (
            connect(relays.addresses, environment=environment) as client,
            client.producer() as producer,
            client.consumer(TOPIC, start="earliest", create=True) as consumer,
        ):
            await producer.send(TOPIC, b"0")
            assert (await consumer.__anext__()).value == b"0"
            cluster.split([alone], [*others, "client"])
            receipt = await producer.send(TOPIC, b"1")
            assert not receipt.duplicate
            assert (await consumer.__anext__()).value == b"1"
        partition = relays.running()[alone].mesh.partition_of(TOPIC)
        assert not relays.running()[alone].partitions[partition].is_serving
        cluster.heal()
        await relays.alike()


@simulated(seeds=2, brokers=1, oracle=False)
async def test_who_has_read_what_is_gone_is_told_when_all_relays_restart(cluster: Cluster) -> None:
    async with started(cluster) as (relays, environment):
        async with connect(relays.addresses, environment=environment) as client:
            async with client.producer() as producer:
                for one in values(10):
                    await producer.send(TOPIC, one)
            async with client.consumer(TOPIC, start="earliest") as consumer:
                for _ in range(5):
                    await consumer.__anext__()
                position = consumer.position
        for name in relays.names:
            cluster.kill(name, restart_s=1.0)
        await cluster.sleep(2.0)
        await relays.alike()
        async with connect(relays.addresses, environment=environment) as client:
            async with client.producer() as producer:
                for one in values(10, begin=100):
                    await producer.send(TOPIC, one)
            with pytest.raises(HistoryForkedError):
                async with client.consumer(TOPIC, start=position) as consumer:
                    await consumer.__anext__()
            async with client.consumer(TOPIC, start=position, on_fork="resume") as consumer:
                found = [(await consumer.__anext__()).value for _ in range(10)]
            assert found == values(10, begin=100)


@simulated(brokers=1, oracle=False)
async def test_a_position_that_is_still_true_goes_on_at_another_relay(cluster: Cluster) -> None:
    async with started(cluster) as (relays, environment):
        async with (
            connect(relays.addresses[0], environment=environment) as client,
            client.producer() as producer,
            client.consumer(TOPIC, start="earliest", create=True) as consumer,
        ):
            for one in values(10):
                await producer.send(TOPIC, one)
            assert [(await consumer.__anext__()).value for _ in range(4)] == values(4)
            position = consumer.position
        assert "." in str(position.places[PartitionId(next(iter(position.places)))])
        cluster.kill(sequencer(relays))
        async with (
            connect(relays.addresses, environment=environment) as client,
            client.consumer(TOPIC, start=position) as consumer,
        ):
            assert [(await consumer.__anext__()).value for _ in range(6)] == values(6, begin=4)


@simulated(brokers=1, oracle=False)
async def test_a_topic_in_memory_takes_nothing_on_a_condition(cluster: Cluster) -> None:
    async with (
        started(cluster, "abc") as (_, environment),
        connect("ws://a:9101", environment=environment) as client,
    ):
        await client.describe_topic(TOPIC, create=True)
        async with client.producer() as producer:
            with pytest.raises(NotDeliveredError, match="nothing is appended to it on a con"):
                await producer.send(TOPIC, b"0", expected_end=0)
            await producer.send(TOPIC, b"1")


@simulated(brokers=1, oracle=False)
async def test_a_relay_outside_the_set_takes_what_is_produced_and_sends_readers_on(
    cluster: Cluster,
) -> None:
    async with started(cluster, "abcd", partitions=4) as (relays, environment):
        node = next(iter(relays.running().values()))
        members = node.mesh.sets[node.mesh.partition_of(TOPIC)].ranked
        [outside] = [one for one in relays.names if relays.id_of(one) not in members]
        async with connect(f"ws://{outside}:9101", environment=environment) as client:
            topic = await client.describe_topic(TOPIC, create=True)
            [place] = topic.partitions
            connection = await client._cluster.connections.get(f"ws://{outside}:9101")
            answer = await connection.request(
                m.Produce(connection.next_request(), TOPIC, place.partition, produced(1, [b"0"])),
                m.Produced,
                5.0,
            )
            assert (answer.offset, answer.duplicate, len(answer.id), len(answer.digest)) == (
                0,
                False,
                16,
                32,
            )
            assert await read(client, 1) != []
            with pytest.raises(NotLeaderError) as caught:
                await connection.request(
                    m.Subscribe(connection.next_request(), TOPIC, place.partition, Offset(0), 100),
                    m.Subscribed,
                    5.0,
                )
            assert caught.value.address in {f"ws://{relays.name_of(one)}:9101" for one in members}


@simulated(brokers=1, oracle=False)
async def test_a_relay_with_another_list_is_refused_by_name(cluster: Cluster) -> None:
    relays = RelaysOfHosts(cluster, partitions=1)
    relays.start("a", "b")
    await relays.alike("a", "b")
    other = RelaysOfHosts(cluster, partitions=2)
    other.start("c")
    await cluster.sleep(3.0)
    node = other.nodes["c"]
    assert "joining" in node.why_not_ready
    assert node.links is not None
    assert node.links.incarnations == {}
    assert relays.are_alike(["a", "b"])


@simulated(brokers=1, oracle=False)
async def test_each_relay_holds_the_streams_that_match_its_patterns_and_no_others(
    cluster: Cluster,
) -> None:
    placed = [
        PlacedStreams("prices.*", (BrokerId(1), BrokerId(2), BrokerId(3))),
        PlacedStreams("*", (BrokerId(2), BrokerId(3), BrokerId(4))),
    ]
    relays = RelaysOfHosts(cluster, "abcd", partitions=2, placed=placed)
    relays.start()
    await relays.alike()
    topics = ["prices.gold", "prices.tin", "scores", "news"]
    environment = await cluster.environment("client")
    for name, address in zip(relays.names, relays.addresses, strict=True):  # any relay takes all
        async with (
            connect(address, environment=environment) as client,
            client.producer() as producer,
        ):
            for topic in topics:
                await producer.send(topic, name.encode())
            async with client.consumer(topics, start="earliest") as consumer:
                count = len(topics) * (relays.names.index(name) + 1)
                seen = [(await consumer.__anext__()).value for _ in range(count)]
        assert sorted(seen) == sorted([one.encode() for one in "abcd"[: count // 4]] * 4)
    await relays.alike()
    for name, node in relays.running().items():
        held = {
            topic
            for topic in topics
            for partition in node.partitions.values()
            if partition.has(node.mesh.topic_id(TopicName(topic)))
        }
        of_prices, of_others = set(topics[:2]), set(topics[2:])
        wanted = {"a": of_prices, "d": of_others}.get(name, of_prices | of_others)
        assert held == wanted, name


@simulated(brokers=1, oracle=False)
async def test_all_topics_of_a_relay_together_keep_within_its_memory(cluster: Cluster) -> None:
    size_max, size = 1 << 20, 50_000
    relays = RelaysOfHosts(cluster, partitions=2, memory_bytes=size_max)
    relays.start()
    await relays.alike()
    topics = [f"prices-{number}" for number in range(6)]
    environment = await cluster.environment("client")
    async with connect(relays.addresses, environment=environment) as client:
        async with client.producer() as producer:
            for topic in topics:
                for _ in range(8):
                    await producer.send(topic, bytes(size))
                await cluster.sleep(2 * RELAY_TICK_S)
                for node in relays.running().values():
                    members = [one.member for one in node.partitions.values()]
                    held = sum(one.held_bytes for one in members if one is not None)
                    assert held <= size_max
        await relays.alike()
        evicted = [node.memory.evicted_bytes for node in relays.running().values()]
        assert all(evicted), "every relay has left something out"
        counts: list[int] = []
        for topic in topics:
            async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
                counts.append(len([one async for one in consumer]))
        assert counts[0] < 8, "the topic that was silent for longest lost its oldest messages"
        assert counts[-1] == 8, "the newest one has all of its own"
        cluster.kill("b", restart_s=0.2)
        await cluster.sleep(1.0)
        await relays.alike()


@simulated(brokers=1, oracle=False)
async def test_messages_that_are_too_old_are_gone_though_their_topic_is_silent(
    cluster: Cluster,
) -> None:
    relays = RelaysOfHosts(cluster, partitions=1, bounds=BufferBounds(age_s=30.0))
    relays.start()
    await relays.alike()
    environment = await cluster.environment("client")
    async with connect(relays.addresses, environment=environment) as client:
        async with client.producer() as producer:
            for one in values(5):
                await producer.send(TOPIC, one)
        await relays.alike()
        assert await read(client, 5) == values(5)
        await cluster.sleep(30.0 + RELAY_SCRUB_S)
        for node in relays.running().values():
            member = node.partitions[PartitionId(0)].member
            assert member is not None
            assert member.held_bytes == 0
        async with client.consumer(TOPIC, start="earliest", stop_at_end=True) as consumer:
            assert [one async for one in consumer] == []
        async with client.producer() as producer:
            await producer.send(TOPIC, b"5")
        assert await read(client, 1) == [b"5"]
        await relays.alike()


@simulated(brokers=1, oracle=False)
async def test_a_relay_whose_disk_was_lost_counts_on_from_what_others_know(
    cluster: Cluster,
) -> None:
    async with started(cluster) as (relays, _):
        cluster.kill("b", restart_s=0.5)
        await relays.alike()
        assert relays.nodes["b"].identity.incarnation == 2
        cluster.wipe("b")
        cluster.restart("b")
        await relays.alike()
        assert relays.nodes["b"].identity.incarnation == 3
        [error] = relays.errors["b"]
        assert "has forgotten starts" in str(error)


@simulated(brokers=1, oracle=False)
async def test_a_reader_that_is_slower_than_the_buffer_is_told_the_gap(cluster: Cluster) -> None:
    relays = RelaysOfHosts(cluster, partitions=1, bounds=BufferBounds(2_000, 1_000, 600.0))
    relays.start()
    await relays.alike()
    environment = await cluster.environment("client")
    async with (
        connect(relays.addresses, environment=environment) as client,
        client.producer() as producer,
    ):
        first = await producer.send(TOPIC, bytes(100))
        for _ in range(40):
            await producer.send(TOPIC, bytes(100))
        with pytest.raises(HistoryLostError):
            async with client.consumer(TOPIC, start=first.offset) as consumer:
                await consumer.__anext__()
        async with client.consumer(TOPIC, start=first.offset, on_gap="skip") as consumer:
            assert (await consumer.__anext__()).value == bytes(100)
            assert len(consumer.gaps) == 1
        with pytest.raises(NotDeliveredError, match="larger than half"):
            await producer.send(TOPIC, bytes(2_000))


@simulated(brokers=1, oracle=False)
async def test_offsets_are_found_in_memory(cluster: Cluster) -> None:
    async with (
        started(cluster) as (relays, environment),
        connect(relays.addresses, environment=environment) as client,
        client.producer() as producer,
    ):
        receipts = [await producer.send(TOPIC, one) for one in values(6)]
        place = receipts[0].partition
        for asked, wanted in (
            ("earliest", receipts[0].offset),
            ("latest", receipts[-1].next_offset),
            (last(2), receipts[4].offset),
            (last(100), receipts[0].offset),
        ):
            found = await client.find_offset(TOPIC, asked, partition=place)
            assert found.offset == wanted, asked
        fetched = await client.fetch(TOPIC, partition=place, offset=receipts[3].offset)
        assert [one.value for one in fetched.messages] == values(3, begin=3)
        [described] = (await client.describe_topic(TOPIC)).partitions
        assert len(described.replicas) == 3
        with pytest.raises(UnknownTopicError):
            await client.describe_topic("nobody-uses-this")


@simulated(brokers=1, oracle=False)
async def test_the_partitions_of_a_relay_store_their_generations_at_once(cluster: Cluster) -> None:
    disk = (await cluster.environment("disk")).disk
    await make_durable_directory(disk, "data")
    store = RelayStore(disk, "data")
    store.load()
    assert store.generation == 0
    async with trio.open_nursery() as nursery:
        for generation in (2, 5, 3, 5):
            nursery.start_soon(store.raise_to, generation)
    again = RelayStore(disk, "data")
    again.load()
    assert store.generation == again.generation == 5
    await checkpoint.store(disk, "data/relay", {"generation": -1})
    with pytest.raises(StorageError, match="has no generation"):
        again.load()


@simulated(seeds=2, brokers=1, oracle=False)
async def test_a_relay_whose_memory_is_wrong_begins_another_life_and_joins_again(
    cluster: Cluster,
) -> None:
    async with started(cluster) as (relays, environment):
        async with (
            connect(relays.addresses, environment=environment) as client,
            client.producer() as producer,
        ):
            for one in values(5):
                await producer.send(TOPIC, one)
            partition = relays.running()["a"].mesh.partition_of(TOPIC)
            wrong = next(one for one in relays.names if one != sequencer(relays))
            member = relays.members(partition)[wrong]
            [stream] = member.streams
            held = stream.buffer._transactions
            assert held[2] is not None
            held[2] = attrs.evolve(held[2], records=held[2].records[:-1] + b"?")
            member._scrubs_at = 0.0  # the look at memory is due
            await cluster.eventually(lambda: member.life.emptied == 1, "it gives up what it holds")
            for one in values(5, begin=5):
                await producer.send(TOPIC, one)
        await relays.alike()
        assert member.is_normal, "without a restart"
        async with connect(f"ws://{wrong}:9101", environment=environment) as client:
            assert await read(client, 10) == values(10)
