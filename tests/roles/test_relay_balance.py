"""The sequencers of relay partitions are spread over the members, and stay where they are then."""

from __future__ import annotations

from collections import Counter

from octopi import connect
from octopi.limits import RELAY_BALANCE_S
from octopi.testing import Cluster, simulated
from tests.kit.relays import RelaysOfHosts

PARTITIONS = 6


def sequencers(relays: RelaysOfHosts) -> dict[int, str | None]:
    """By partition; None: its members don't agree on one."""
    found: dict[int, str | None] = {}
    for number in range(PARTITIONS):
        members = relays.members(number).values()
        said = {one.sequencer if one.is_normal else None for one in members}
        [one] = said if len(said) == 1 else [None]
        found[number] = None if one is None else relays.name_of(one)
    return found


def epochs(relays: RelaysOfHosts) -> list[object]:
    return [one.epoch for at in range(PARTITIONS) for one in relays.members(at).values()]


def are_spread(relays: RelaysOfHosts) -> bool:
    counts = Counter(sequencers(relays).values())
    return [counts[one] for one in relays.names] == [2, 2, 2]


@simulated(brokers=1, oracle=False)
async def test_sequencers_are_spread_and_come_back_to_a_relay_that_was_away(
    cluster: Cluster,
) -> None:
    relays = RelaysOfHosts(cluster, partitions=PARTITIONS)
    relays.start()
    await relays.alike()
    await cluster.eventually(lambda: are_spread(relays), "they are spread", within_s=20)
    await relays.alike()
    first, since = sequencers(relays), epochs(relays)
    await cluster.sleep(60.0)
    assert epochs(relays) == since, "nothing goes to and fro"

    cluster.kill("b", restart_s=2.0)
    await cluster.sleep(1.5)
    away = Counter(sequencers(relays).values())
    assert "b" not in away
    await cluster.sleep(1.0)
    await relays.alike()
    await cluster.sleep(RELAY_BALANCE_S - 3)
    assert "b" not in sequencers(relays).values(), "it has to be there for a while"
    await cluster.eventually(lambda: sequencers(relays) == first, "it has its own", within_s=20)
    await relays.alike()
    since = epochs(relays)
    await cluster.sleep(60.0)
    assert epochs(relays) == since


@simulated(brokers=1, oracle=False)
async def test_messages_go_on_while_sequencers_are_spread(cluster: Cluster) -> None:
    relays = RelaysOfHosts(cluster, partitions=PARTITIONS)
    relays.start()
    await relays.alike()
    topics = [f"prices-{number}" for number in range(12)]
    environment = await cluster.environment("client")
    slowest, count = 0.0, 0
    async with (
        connect(relays.addresses, environment=environment) as client,
        client.producer() as producer,
    ):
        before = set(sequencers(relays).values())
        while not are_spread(relays) or count < 200:
            begun = cluster.now
            await producer.send(topics[count % len(topics)], b"%d" % count)
            slowest = max(slowest, cluster.now - begun)
            count += 1
            await cluster.sleep(0.01)
            assert count < 3_000
        assert before != set(sequencers(relays).values())
        async with client.consumer(topics, start="earliest", stop_at_end=True) as consumer:
            seen = [int(one.value) async for one in consumer]
    assert sorted(seen) == list(range(count)), "nothing is lost or doubled"
    assert slowest < 0.5, "nobody has to notice that a sequencer is silent"


@simulated(brokers=1, oracle=False)
async def test_a_relay_that_comes_and_goes_is_waited_for_longer_each_time(
    cluster: Cluster,
) -> None:
    relays = RelaysOfHosts(cluster, partitions=PARTITIONS)
    relays.start()
    await relays.alike()
    await cluster.eventually(lambda: are_spread(relays), "they are spread", within_s=20)
    waits: list[float] = []
    for _ in range(3):
        cluster.kill("b", restart_s=1.0)
        await cluster.sleep(2.0)
        await relays.alike()
        begun = cluster.now
        await cluster.eventually(lambda: are_spread(relays), "it has its own", within_s=60)
        waits.append(cluster.now - begun)
    assert waits[0] < waits[1] < waits[2]
    assert waits[2] > 2 * RELAY_BALANCE_S


@simulated(brokers=3)
async def test_a_register_spreads_sequencers_and_leaves_them_where_they_are(
    cluster: Cluster,
) -> None:
    async with cluster.client() as client:
        for number in range(9):
            await client.create_topic(f"prices-{number}", kind="relay")

        async def led() -> dict[int, int | None]:
            relays = (await client.admin.describe_cluster()).relays
            return {one.partition: one.leader for one in relays}

        def is_spread(leaders: dict[int, int | None]) -> bool:
            counts = Counter(leaders.values())
            each = [counts[one] for one in (1, 2, 3)]
            return None not in counts and max(each) - min(each) <= 1

        assert len(await led()) >= 3
        for _ in range(300):
            if is_spread(first := await led()):
                break
            await cluster.sleep(0.1)
        assert is_spread(first)
        async with client.producer() as producer:
            for number in range(9):
                await producer.send(f"prices-{number}", b"one")
        for _ in range(60):
            await cluster.sleep(1.0)
            assert await led() == first
        cluster.kill("broker-2", restart_s=1.0)
        for _ in range(300):
            await cluster.sleep(0.1)
            if await led() != first:
                break
        for _ in range(300):
            await cluster.sleep(0.1)
            if await led() == first:
                return
        raise AssertionError((first, await led()))
