"""Named producers: a program that is killed and started again stores each message exactly once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any

import pytest
import trio

import octopi
import octopi.testing
from octopi.testing import Cluster, Host, simulated
from octopi.tracing import steps
from octopi.wire import messages as m

DEPOSITS = 12
DEPOSIT_TIMEOUT_S = 600.0


async def keep_account(client: octopi.Client, *, name: str | None) -> None:
    """Read deposits, and publish the balance after each one together with the position."""
    options: dict[str, Any] = {} if name is None else {"name": name, "topics": ["balances"]}
    async with client.producer(delivery_timeout_s=0.3, **options) as producer:
        balance, start = await last_state(client)
        async with client.consumer("deposits", start=start) as deposits:
            async for deposit in deposits:
                balance += int(deposit.value)
                position = str(deposits.position).encode()
                await producer.send("balances", b"%d" % balance, headers={"position": position})


async def last_state(client: octopi.Client) -> tuple[int, str]:
    """The balance that was published last, and where to go on reading."""
    balance, position = 0, "earliest"
    async with client.consumer("balances", start=octopi.last(1), stop_at_end=True) as balances:
        async for message in balances:
            balance, position = int(message.value), message.headers["position"].decode()
    return balance, position


async def scene(cluster: Cluster, fault: str, name: str | None) -> list[int]:
    """Make deposits while *fault* strikes; return all balances that were published."""

    async def account(host: Host) -> None:
        async with host.connect() as client:
            await keep_account(client, name=name)

    # The one who makes deposits is cut off, too, and has to wait until it comes through.
    async with (
        cluster.client() as client,
        client.producer(delivery_timeout_s=DEPOSIT_TIMEOUT_S) as producer,
    ):
        await client.create_topic("deposits", 1)
        await client.create_topic("balances", 1)
        cluster.program("account", account, restart_s=0.05)
        with cluster.random_faults([fault]):
            for _ in range(DEPOSITS):
                await producer.send("deposits", b"10")
                await cluster.sleep(0.5)
        await cluster.settle()
        await cluster.sleep(30)
        async with client.consumer("balances", start="earliest", stop_at_end=True) as balances:
            return [int(message.value) async for message in balances]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("fault", "seed_count"), [("slow", 10), ("pause", 8), ("cut", 8), ("isolate", 16)]
)
def test_a_program_with_a_named_producer_publishes_each_balance_once(
    fault: str, seed_count: int
) -> None:
    """Without a name it publishes one twice with at least two of these seeds of ``slow``, ``pause``
    and ``isolate``; ``cut`` has done no harm with any seed."""
    for seed in range(1, seed_count + 1):
        balances: list[int] = []

        async def run(cluster: Cluster, found: list[int] = balances) -> None:
            found += await scene(cluster, fault, "account")

        octopi.testing.run(run, seed=seed, timeout_s=3 * DEPOSIT_TIMEOUT_S)
        assert balances == [10 * count for count in range(1, DEPOSITS + 1)], f"seed {seed}"


def test_without_a_name_the_same_program_publishes_a_balance_twice() -> None:
    def doubles_one(seed: int) -> bool:
        balances: list[int] = []

        async def run(cluster: Cluster) -> None:
            balances.extend(await scene(cluster, "slow", None))

        octopi.testing.run(run, seed=seed)
        assert len(set(balances)) == DEPOSITS
        return len(balances) > DEPOSITS

    assert any(doubles_one(seed) for seed in range(1, 41)), "the test with a name shows something"


@pytest.mark.parametrize("code", ["C1a", "C1b", "C3", "P1", "P2a", "P7a", "P7b"])
def test_a_program_that_is_killed_in_the_middle_of_a_batch_publishes_each_balance_once(
    code: str,
) -> None:
    async def run(cluster: Cluster) -> None:
        async def account(host: Host) -> None:
            async with host.connect() as client:
                await keep_account(client, name="account")

        async with cluster.client() as client, client.producer() as producer:
            await client.create_topic("deposits", 1)
            await client.create_topic("balances", 1)
            cluster.program("account", account, restart_s=0.05)
            await cluster.sleep(2)
            for occurrence in (1, 2, 3):
                who = "account" if code.startswith("C") else "leader"
                killed = cluster.at(
                    code,
                    lambda _: cluster.kill("account", restart_s=0.05),
                    who=who,
                    occurrence=occurrence,
                )
                for _ in range(3):
                    await producer.send("deposits", b"10")
                    await cluster.sleep(0.5)
                assert killed.happened
            await cluster.sleep(30)
            assert [int(one) for one in await values(client, "balances")] == [
                10 * count for count in range(1, 10)
            ]

    octopi.testing.run(run)


# --- two lives -------------------------------------------------------------------------------


async def values(client: octopi.Client, topic: str) -> list[bytes]:
    """All that is committed in *topic* now."""
    async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
        return [message.value async for message in consumer]


@asynccontextmanager
async def two_clients(cluster: Cluster) -> AsyncIterator[tuple[octopi.Client, octopi.Client]]:
    """On hosts of their own, "old" and "new"."""
    async with cluster.client("old") as old, cluster.client("new") as new:
        await old.create_topic("prices", 1)
        yield old, new


@asynccontextmanager
async def former_life(client: octopi.Client) -> AsyncIterator[octopi.Producer]:
    """A producer that is going to be fenced within the block."""
    with pytest.raises(octopi.ProducerFencedError):
        async with client.producer(name="pricing") as producer:
            yield producer


@simulated()
async def test_a_late_batch_of_a_former_life_is_refused(cluster: Cluster) -> None:
    async with two_clients(cluster) as (old, new), former_life(old) as former:
        await former.send("prices", b"1")
        async with new.producer(name="pricing", topics=["prices"]) as producer:
            with pytest.raises(octopi.NotDeliveredError) as caught:
                await former.send("prices", b"late")
            assert isinstance(caught.value.__cause__, octopi.ProducerFencedError)
            with pytest.raises(octopi.ProducerFencedError) as told:
                await former.send("prices", b"later")
            await producer.send("prices", b"2")
        assert await values(new, "prices") == [b"1", b"2"]
    text = str(told.value)
    assert "the producer 'pricing' was opened again, by another program or by another" in text
    assert "a later life of the producer has begun, with epoch 2 behind 1" in text
    assert "have only one program use the name, or open it again here" in text


@simulated()
async def test_a_batch_that_was_on_its_way_when_the_name_was_opened_again_is_never_stored(
    cluster: Cluster,
) -> None:
    async with two_clients(cluster) as (old, new):
        with pytest.raises(octopi.DeliveryError):  # noqa: PT012
            async with old.producer(name="pricing", topics=["prices"]) as former:
                cluster.slow("old", latency_s=3.0, seconds=10)
                await former.submit("prices", b"late")
                await cluster.sleep(1)
                async with new.producer(name="pricing", topics=["prices"]):
                    assert await values(new, "prices") == []
                    await cluster.sleep(20)
                    assert await values(new, "prices") == []
                    await former.flush()


@simulated(seeds=5)
async def test_a_new_leader_knows_the_lives_that_have_not_sent_anything_yet(
    cluster: Cluster,
) -> None:
    async with two_clients(cluster) as (old, new), former_life(old) as former:
        await former.send("prices", b"1")
        async with new.producer(name="pricing", topics=["prices"]) as producer:
            cluster.kill(cluster.leader("prices"), restart_s=1.0)
            with pytest.raises(octopi.DeliveryError):
                await former.send("prices", b"late")
            cluster.kill(cluster.leader("prices"), restart_s=1.0)
            with pytest.raises(octopi.ProducerFencedError):
                await former.send("prices", b"late")
            await producer.send("prices", b"2")
        assert await values(new, "prices") == [b"1", b"2"]


@simulated()
async def test_lives_are_known_after_all_brokers_were_restarted(cluster: Cluster) -> None:
    async with two_clients(cluster) as (old, new), former_life(old) as former:
        await former.send("prices", b"1")
        async with new.producer(name="pricing", topics=["prices"]) as producer:
            await cluster.sleep(5)
            for broker in cluster.brokers:
                cluster.kill(broker, restart_s=1.0)
            with pytest.raises(octopi.DeliveryError):
                await former.send("prices", b"late")
            await producer.send("prices", b"2")
        assert await values(new, "prices") == [b"1", b"2"]


@simulated()
async def test_lives_are_known_when_retention_has_removed_all_their_records(
    cluster: Cluster,
) -> None:
    async with cluster.client("old") as old, cluster.client("new") as new:
        await old.create_topic("prices", 1, segment_bytes=4096, retention_bytes=4096)
        async with (
            former_life(old) as former,
            new.producer(name="pricing", topics=["prices"]) as producer,
            new.producer() as other,
        ):
            await former.send("prices", b"1")  # a life of its own, begun last
            with pytest.raises(octopi.DeliveryError):
                await producer.send("prices", b"late")
            for _ in range(20):
                await other.send("prices", bytes(1024))
            await cluster.sleep(200)
            assert b"1" not in await values(new, "prices")
            cluster.wipe(cluster.followers("prices")[0])
            await cluster.settle()
            cluster.kill(cluster.leader("prices"), restart_s=1.0)
            assert not (await former.send("prices", b"2")).duplicate
            async with new.producer(name="pricing", topics=["prices"]):
                with pytest.raises(octopi.DeliveryError):
                    await former.send("prices", b"late")
        assert (await values(new, "prices"))[-1] == b"2"


@simulated(seeds=5)
async def test_the_first_batch_of_a_life_is_stored_once_when_its_answer_is_lost(
    cluster: Cluster,
) -> None:
    async with two_clients(cluster) as (old, new):
        async with old.producer(name="pricing") as former:
            await former.send("prices", b"1")
        async with new.producer(name="pricing", topics=["prices"]) as producer:
            killed = cluster.at(steps.P7Acknowledging, cluster.kill, who="leader")
            receipt = await producer.send("prices", b"2")
        assert killed.happened
        assert receipt.duplicate
        assert await values(new, "prices") == [b"1", b"2"]


@simulated(seeds=5)
async def test_a_life_begins_once_when_the_leader_dies_before_it_says_so(
    cluster: Cluster,
) -> None:
    async with two_clients(cluster) as (_, new):
        killed = cluster.at(steps.P7Acknowledging, cluster.kill, who="leader")
        async with new.producer(name="pricing", topics=["prices"]) as producer:
            assert killed.happened
            await producer.send("prices", b"1")
        assert await values(new, "prices") == [b"1"]


@simulated(seeds=20)
async def test_of_two_lives_that_begin_at_the_same_moment_one_ends(cluster: Cluster) -> None:
    acknowledged: list[bytes] = []
    ended: list[str] = []

    async def live(client: octopi.Client, name: str) -> None:
        await cluster.sleep(cluster.random.random() * 0.004)
        try:
            async with client.producer(name="pricing", topics=["prices"]) as producer:
                for number in range(5):
                    value = f"{name} {number}".encode()
                    await producer.send("prices", value)
                    acknowledged.append(value)
        except (octopi.DeliveryError, octopi.ProducerFencedError):
            ended.append(name)

    async with two_clients(cluster) as (old, new), trio.open_nursery() as nursery:
        nursery.start_soon(live, old, "old")
        nursery.start_soon(live, new, "new")
    async with cluster.client() as client:
        stored = await values(client, "prices")
    assert len(ended) <= 1
    assert sorted(stored) == sorted(acknowledged)
    assert len([*groupby(one[:3] for one in stored)]) <= 2, "no life goes on behind a later one"
    assert len(stored) == 10 - 5 * len(ended) or ended


# --- what the leader tells -------------------------------------------------------------------


async def ask(
    client: octopi.Client, producer_id: bytes, *, begins: bool = False, after: int | None = None
) -> m.ProducerDescription:
    topic = octopi.identifiers.topic_name("prices")
    partition = (await client.describe_topic("prices")).partitions[0].partition
    return await client._router.ask_leader(
        "describe a producer",
        topic,
        partition,
        lambda request: m.DescribeProducer(request, topic, partition, producer_id, begins, after),
        m.ProducerDescription,
    )


@simulated()
async def test_a_producer_is_described_when_all_that_the_leader_holds_is_committed(
    cluster: Cluster,
) -> None:
    async with two_clients(cluster) as (old, new), old.producer(linger_s=0.0) as producer:
        await producer.send("prices", b"1")
        producer_id = producer._producer_id
        found = await ask(new, producer_id)
        assert (found.epoch, found.next_sequence) == (0, 1)
        assert (await ask(new, bytes(16))).epoch is None
        for follower in cluster.followers("prices"):
            cluster.isolate(follower, seconds=20)
        pending = await producer.submit("prices", b"2")
        await cluster.sleep(0.5)
        with trio.move_on_after(0.5) as waiting:
            await ask(new, producer_id)
        assert waiting.cancelled_caught
        assert not pending.is_settled
        assert (await ask(new, producer_id)).next_sequence == 2
        receipt = await pending
        assert found.end == receipt.offset


@simulated()
async def test_an_epoch_begins_only_behind_the_one_that_is_named(cluster: Cluster) -> None:
    async with two_clients(cluster) as (_, new):
        me = b"p" * 16
        with pytest.raises(octopi.ProducerFencedError, match="epoch 1 is not known any more"):
            await ask(new, me, begins=True, after=1)
        assert (await ask(new, me, begins=True)).epoch == 1
        assert (await ask(new, me, begins=True, after=1)).epoch == 2
        with pytest.raises(octopi.ProducerFencedError, match="epoch 1 was replaced by 2"):
            await ask(new, me, begins=True, after=1)
        assert (await ask(new, me)).epoch == 2
        with pytest.raises(octopi.RefusedError, match="a producer id has 16 bytes"):
            await ask(new, b"short")


@simulated()
async def test_a_named_producer_goes_on_behind_a_message_that_failed(cluster: Cluster) -> None:
    """Its leader begins a further epoch, which ends the copies of that message."""
    async with two_clients(cluster) as (old, _):
        async with old.producer(
            name="pricing", topics=["prices"], delivery_timeout_s=1.0
        ) as producer:
            await producer.send("prices", b"1")
            cluster.isolate("old", seconds=5)
            with pytest.raises(octopi.DeliveryError):
                await producer.send("prices", b"lost")
            await cluster.sleep(20)
            await producer.send("prices", b"2")
        stored = await values(old, "prices")
        assert stored in ([b"1", b"2"], [b"1", b"lost", b"2"])


@simulated()
async def test_topics_are_for_producers_with_names(cluster: Cluster) -> None:
    async with cluster.client() as client:
        with pytest.raises(octopi.InvalidOptionError, match="topics are for named producers"):
            async with client.producer(topics=["prices"]):
                pass
        with pytest.raises(octopi.InvalidOptionError, match="name: 'a b' is no name"):
            async with client.producer(name="a b"):
                pass


@simulated(partitions=1)
async def test_no_life_begins_on_fewer_replicas_than_the_topic_asks_for(cluster: Cluster) -> None:
    async with cluster.client("new") as new:
        # For this topic alone, the in-sync set may shrink to the leader.
        await new.create_topic("news", 1, min_insync=1)
        await new.create_topic("prices", 1, min_insync=2)
        leader, followers = cluster.leader("prices"), cluster.followers("prices")

        def cut(_: object) -> None:
            for follower in followers:
                cluster.cut(leader, follower)

        appended = cluster.at(steps.P2Appended, cut, who="leader")
        answers: list[m.ProducerDescription] = []

        async def begin() -> None:
            answers.append(await ask(new, bytes(16), begins=True))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(begin)
            await cluster.eventually(lambda: appended.happened, within_s=5)
            # What is committed then is committed by the leader alone.
            async with new.producer() as producer:
                await producer.send("news", b"1")
            await cluster.sleep(5)
            assert not answers
            for follower in followers:
                cluster.mend(leader, follower)
        assert answers
