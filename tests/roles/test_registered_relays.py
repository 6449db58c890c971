"""Topics in memory in a cluster with a register, beside log topics, on the same brokers."""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from octopi import Client, ClusterInfo, connect
from octopi.clients.relays import describe_relays, verify_relays
from octopi.errors import RefusedError, Status, TopicExistsError, UnknownTopicError
from octopi.limits import RELAY_AWAY_S, RELAY_SETS_BALANCE_S
from octopi.testing import Cluster, simulated

TOPIC = "prices"


def values(count: int, begin: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(begin, begin + count)]


async def read(client: Client, count: int, topic: str = TOPIC) -> list[bytes]:
    async with client.consumer(topic, start="earliest") as consumer:
        return [(await consumer.__anext__()).value for _ in range(count)]


async def produce(client: Client, some: list[bytes], topic: str = TOPIC) -> None:
    async with client.producer() as producer:
        for one in some:
            await producer.send(topic, one)


@simulated(brokers=3)
async def test_a_relay_topic_and_a_log_topic_are_in_one_cluster(cluster: Cluster) -> None:
    async with cluster.client() as client:
        made = await client.create_topic(TOPIC, kind="relay")
        assert made.kind == "relay"
        await client.create_topic("orders", 2)
        async with client.producer() as producer:
            receipts = [await producer.send(TOPIC, one) for one in values(10)]
            for one in values(5):
                await producer.send("orders", one)
        assert len({one.id for one in receipts}) == 10
        assert all(one.digest for one in receipts)
        assert await read(client, 10) == values(10)
        assert sorted(await read(client, 5, "orders")) == values(5)
        found = {one.topic: one.kind for one in await client.topics()}
        assert found == {TOPIC: "relay", "orders": "log"}


def members(cluster: ClusterInfo) -> list[int]:
    [place] = cluster.relays
    return list(place.replicas)


async def has_members(cluster: Cluster, client: Client, wanted: list[int]) -> None:
    """Wait until exactly these brokers are members, and there."""

    async def holds() -> bool:
        [place] = (await client.admin.describe_cluster()).relays
        return sorted(place.replicas) == wanted == sorted(place.in_sync)

    for _ in range(600):
        if await holds():
            return
        await cluster.sleep(0.1)
    raise AssertionError((await client.admin.describe_cluster()).relays)


@simulated(brokers=3)
async def test_a_relay_topic_can_not_be_what_a_log_topic_is(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await client.create_topic(TOPIC, kind="relay", buffer_count=100, buffer_bytes=1 << 20)
        info = await client.describe_topic(TOPIC)
        assert (info.options.buffer_count, info.options.buffer_bytes) == (100, 1 << 20)
        await produce(client, values(1))
        for options, why in (
            ({"retention_bytes": 10}, "retention_bytes is an option of log topics"),
            ({"partitions": 2}, "one partition"),
            ({"buffer_bytes": 5}, "buffer_bytes must be at least"),
        ):
            with pytest.raises(RefusedError, match=why) as refused:
                await client.create_topic("other", kind="relay", **options)
            assert refused.value.status == Status.INVALID_OPTION
        with pytest.raises(RefusedError, match="buffer_count is an option of relay topics"):
            await client.create_topic("other", buffer_count=5)
        with pytest.raises(TopicExistsError):
            await client.create_topic(TOPIC)
        with pytest.raises(RefusedError, match="can't be altered") as altered:
            await client.alter_topic(TOPIC, retention_bytes=10)
        assert altered.value.status == Status.WRONG_KIND
        with pytest.raises(RefusedError) as subscribed:
            async with client.subscription(TOPIC, "billing", create="create") as messages:
                await messages.__anext__()
        assert subscribed.value.status == Status.WRONG_KIND


@simulated(brokers=2)
async def test_two_brokers_are_too_few_for_a_relay_topic(cluster: Cluster) -> None:
    async with cluster.client() as client:
        with pytest.raises(RefusedError, match="3 brokers at least") as refused:
            await client.create_topic(TOPIC, kind="relay")
        assert refused.value.status == Status.INVALID_OPTION


@simulated(brokers=4)
async def test_any_broker_sends_clients_to_a_relay_set(cluster: Cluster) -> None:
    async with cluster.client() as client:
        made = await client.create_topic(TOPIC, kind="relay")
        [outside] = {1, 2, 3, 4} - set(made.partitions[0].replicas)
        brokers = (await client.admin.describe_cluster()).brokers
        environment = await cluster.environment("elsewhere")
        for broker in brokers:
            async with connect(broker.address, environment=environment) as other:
                await produce(other, values(2, 2 * (broker.broker - 1)))
        assert await read(client, 8) == values(8)
        views = {one.broker.broker: one.relays for one in await describe_relays(client)}
        assert views[outside] == ()
        assert {one.state for relays in views.values() for one in relays} == {"normal"}
        assert (await verify_relays(client, TOPIC)).is_right


@simulated(seeds=2, brokers=3)
async def test_the_sequencer_dies_and_nothing_is_lost_or_doubled(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await client.create_topic(TOPIC, kind="relay")
        await produce(client, values(10))

        async def go_on() -> None:
            async with client.producer() as producer:
                for one in values(40, 10):
                    await producer.send(TOPIC, one)
                    await cluster.sleep(0.02)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go_on)
            await cluster.sleep(0.2)
            place = (await client.describe_topic(TOPIC)).partitions[0]
            cluster.kill(f"broker-{place.leader}", restart_s=2.0)
        assert await read(client, 50) == values(50)
        await has_members(cluster, client, [1, 2, 3])


@simulated(brokers=3)
async def test_a_deleted_topic_is_gone_from_memory_and_may_be_made_again(cluster: Cluster) -> None:
    async with cluster.client() as client:
        first = await client.create_topic(TOPIC, kind="relay")
        await client.create_topic("news", kind="relay")
        await produce(client, values(5))
        await produce(client, values(3), "news")
        await client.delete_topic(TOPIC)
        with pytest.raises(UnknownTopicError):
            await client.describe_topic(TOPIC)
        again = await client.create_topic(TOPIC, kind="relay")
        assert again.topic_id != first.topic_id
        await produce(client, values(2, 100))
        assert await read(client, 2) == values(2, 100)
        assert await read(client, 3, "news") == values(3)
        for view in await describe_relays(client):
            assert sum(one.streams for one in view.relays) == 2


@simulated(brokers=4)
async def test_a_broker_that_is_drained_is_replaced_in_its_relay_sets(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await client.create_topic(TOPIC, kind="relay")
        await produce(client, values(10))
        before = members(await client.admin.describe_cluster())
        leaving, [joining] = before[0], {1, 2, 3, 4} - set(before)
        await client.admin.drain_broker(leaving)
        wanted = sorted({*before, joining} - {leaving})
        await has_members(cluster, client, wanted)
        await produce(client, values(5, 10))
        assert await read(client, 15) == values(15)
        for _ in range(50):
            views = {one.broker.broker: one.relays for one in await describe_relays(client)}
            if not views[leaving]:
                break
            await cluster.sleep(0.1)
        assert views[leaving] == (), "it has given up what it held"


@simulated(brokers=4)
async def test_a_broker_that_was_removed_is_replaced_in_its_relay_sets(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await client.create_topic(TOPIC, kind="relay")
        await produce(client, values(10))
        before = members(await client.admin.describe_cluster())
        gone, [joining] = before[1], {1, 2, 3, 4} - set(before)
        cluster.kill(f"broker-{gone}")
        await cluster.sleep(5)
        await client.admin.remove_broker(gone)
        await has_members(cluster, client, sorted({*before, joining} - {gone}))
        await produce(client, values(5, 10))
        assert await read(client, 15) == values(15)


@simulated(brokers=5)
async def test_an_operator_gives_a_relay_partition_other_members(cluster: Cluster) -> None:
    async with cluster.client() as client:
        made = await client.create_topic(TOPIC, kind="relay")
        number, before = made.partitions[0].partition, made.partitions[0].replicas
        await produce(client, values(10))
        wanted = sorted({1, 2, 3, 4, 5} - set(before[:2]))
        await client.admin.set_relays(number, wanted)
        await has_members(cluster, client, wanted)
        await client.admin.set_relays(number, [1, 2, 3, 4, 5])
        await has_members(cluster, client, [1, 2, 3, 4, 5])
        await produce(client, values(5, 10))
        assert await read(client, 15) == values(15)
        with pytest.raises(RefusedError, match="3 to 9 different members"):
            await client.admin.set_relays(number, [1, 2])
        with pytest.raises(RefusedError, match="no broker 9"):
            await client.admin.set_relays(number, [1, 2, 9])


async def memberships(client: Client) -> Counter[int]:
    """In how many relay sets each broker is, as the register says."""
    places = (await client.admin.describe_cluster()).relays
    return Counter(one for place in places for one in place.replicas)


@simulated(brokers=4)
async def test_relay_sets_are_spread_when_brokers_come_and_go_and_stay_then(
    cluster: Cluster,
) -> None:
    topics = [f"prices-{number}" for number in range(4)]
    cluster.kill("broker-4")
    await cluster.sleep(2.0)
    async with cluster.client() as client:
        for number, name in enumerate(topics):
            info = await client.create_topic(name, kind="relay", partition_ids=[number])
            assert [one.partition for one in info.partitions] == [number]
        count = 0

        async def spread(*brokers: int) -> None:
            for _ in range(150):
                held = await memberships(client)
                each = [held[one] for one in brokers]
                if sum(each) == 12 == held.total() and max(each) - min(each) <= 1:
                    return
                await cluster.sleep(1.0)
            raise AssertionError(await memberships(client))

        async def go_on(*, task_status: trio.TaskStatus[None]) -> None:
            nonlocal count
            task_status.started()
            async with client.producer() as producer:
                while True:
                    await producer.send(topics[count % len(topics)], b"%d" % count)
                    count += 1
                    await cluster.sleep(0.5)

        async with trio.open_nursery() as nursery:
            await nursery.start(go_on)
            await spread(1, 2, 3)
            cluster.restart("broker-4")
            await spread(1, 2, 3, 4)  # it joins, and takes its share
            places = (await client.admin.describe_cluster()).relays
            sets = {one.partition: sorted(one.replicas) for one in places}
            for _ in range(4):  # nothing goes to and fro
                await cluster.sleep(10.0)
                places = (await client.admin.describe_cluster()).relays
                assert {one.partition: sorted(one.replicas) for one in places} == sets
            await client.admin.drain_broker(4)
            await spread(1, 2, 3)  # it leaves all of them
            nursery.cancel_scope.cancel()
        async with client.consumer(topics, start="earliest", stop_at_end=True) as consumer:
            seen = [int(one.value) async for one in consumer]
        assert len(seen) == len(set(seen)), "nothing is doubled"
        assert set(seen) >= set(range(count)), "and nothing is lost"


@simulated(brokers=4)
async def test_a_set_that_an_operator_gave_its_members_is_left_as_it_is_until_it_is_given_back(
    cluster: Cluster,
) -> None:
    async with cluster.client() as client:
        for number in range(2):
            await client.create_topic(f"prices-{number}", kind="relay", partition_ids=[number])
            await client.admin.set_relays(number, [1, 2, 3])
        await cluster.sleep(2 * RELAY_SETS_BALANCE_S)
        assert await memberships(client) == {1: 2, 2: 2, 3: 2}
        for number in range(2):
            await client.admin.set_relays(number, [])
        for _ in range(60):
            await cluster.sleep(1.0)
            if (held := await memberships(client))[4] == 1 and held.total() == 6:
                return
        raise AssertionError(held)


@simulated(brokers=3)
async def test_a_relay_topic_is_placed_in_one_relay_partition(cluster: Cluster) -> None:
    async with cluster.client() as client:
        total = (await client.admin.describe_cluster()).partition_count
        for places in ([0, 1], [], [total]):
            with pytest.raises(RefusedError, match=r"one partition|different numbers") as refused:
                await client.create_topic("wrong", kind="relay", partition_ids=places)
            assert refused.value.status == Status.INVALID_OPTION
        for number in range(total):
            name = f"prices-{number}"
            info = await client.create_topic(name, kind="relay", partition_ids=[number])
            assert info.partitions[0].partition == number


@simulated(brokers=3)
async def test_relays_go_on_while_the_register_is_away(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await client.create_topic(TOPIC, kind="relay")
        await produce(client, values(5))
        place = (await client.describe_topic(TOPIC)).partitions[0]
        async with (
            client.consumer(TOPIC, start="earliest") as consumer,
            client.producer() as producer,
        ):
            seen = [(await consumer.__anext__()).value]
            cluster.kill(cluster.register)
            for one in values(5, 5):
                await producer.send(TOPIC, one)
            # The relays choose another sequencer, and the one that was killed comes back.
            cluster.kill(f"broker-{place.leader}", restart_s=0.5)
            for one in values(20, 10):
                await producer.send(TOPIC, one)
                await cluster.sleep(0.2)
            while len(seen) < 30:
                seen.append((await consumer.__anext__()).value)
            assert seen == values(30)
            cluster.restart(cluster.register)
        await has_members(cluster, client, [1, 2, 3])
        await produce(client, values(5, 30))
        assert await read(client, 35) == values(35)


@simulated(brokers=3)
async def test_all_relays_restart_and_the_topic_is_there_and_empty(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await client.create_topic(TOPIC, kind="relay")
        await produce(client, values(5))
        for broker in (1, 2, 3):
            cluster.kill(f"broker-{broker}", restart_s=1.0)
        cluster.kill(cluster.register, restart_s=2.0)
        await cluster.sleep(8)
        await has_members(cluster, client, [1, 2, 3])
        await produce(client, values(3, 50))
        assert await read(client, 3) == values(3, 50)


@simulated(brokers=3)
async def test_a_register_that_lost_its_disk_learns_of_topics_in_memory(cluster: Cluster) -> None:
    async with cluster.client() as client:
        made = await client.create_topic(TOPIC, kind="relay", buffer_count=50)
        await produce(client, values(5))
        cluster.kill(cluster.register)
        cluster.wipe(cluster.register)
        cluster.restart(cluster.register)
        await cluster.sleep(10)
        found = await client.describe_topic(TOPIC)
        assert (found.topic_id, found.kind) == (made.topic_id, "relay")
        assert found.options.buffer_count == 50
        assert await read(client, 5) == values(5)
        await has_members(cluster, client, [1, 2, 3])


@simulated(brokers=4, oracle=False, timeout_s=1200)
async def test_a_member_that_stays_away_is_replaced(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await client.create_topic(TOPIC, kind="relay")
        await produce(client, values(10))
        before = members(await client.admin.describe_cluster())
        gone, [joining] = before[1], {1, 2, 3, 4} - set(before)
        cluster.kill(f"broker-{gone}")
        await cluster.sleep(RELAY_AWAY_S - 30)
        assert members(await client.admin.describe_cluster()) == before
        await cluster.sleep(60)
        await has_members(cluster, client, sorted({*before, joining} - {gone}))
        cluster.restart(f"broker-{gone}")
        await cluster.sleep(10)
        await produce(client, values(5, 10))
        assert await read(client, 15) == values(15)
