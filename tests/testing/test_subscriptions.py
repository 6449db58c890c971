"""Durable subscriptions in a simulated cluster whose machines fail."""

from __future__ import annotations

from functools import partial
from typing import Literal

import pytest
import trio

import octopi
import octopi.testing
from octopi.errors import NeedsTimeError
from octopi.identifiers import Claim, MemberId, Offset, PartitionId, TopicName
from octopi.limits import CLAIM_STEP_MAX
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.subscriptions import broker_subscriptions
from octopi.roles.broker.subscriptions.led_partition import LedPartition
from octopi.tracing import steps
from octopi.wire.messages import Attach, Attached

COUNT = 30


async def book(client: octopi.Client, count: int) -> list[bytes]:
    """Process *count* messages as a member, and confirm."""
    booked = []
    async with client.subscription("orders", "billing", member="m1") as orders:
        async for order in orders:
            booked.append(order.value)
            if len(booked) == count:
                break
    return booked


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a plain topic"])
@pytest.mark.parametrize("brokers", [1, 3])
def test_a_confirmed_mark_survives_power_lost_everywhere_where_messages_are_flushed(
    brokers: int, beside: bool
) -> None:
    values = [b"%d" % number for number in range(COUNT)]

    async def scene(cluster: octopi.testing.Cluster) -> None:
        async with cluster.client() as client:
            await client.create_topic("orders", 1, flush_before_ack=True)
            if beside:
                await client.create_topic("plain", 1)
            async with client.producer() as producer:
                await producer.submit_many("orders", values)
            assert await book(client, COUNT // 2) == values[: COUNT // 2]
            lose_power_everywhere(cluster)
            await cluster.sleep(5)
            assert await book(client, COUNT - COUNT // 2) == values[COUNT // 2 :]

    octopi.testing.run(scene, seed=3, brokers=brokers, partitions=1, oracle=not beside)


def test_a_confirmed_mark_survives_all_replicas_but_one() -> None:
    values = [b"%d" % number for number in range(COUNT)]

    async def scene(cluster: octopi.testing.Cluster) -> None:
        async with cluster.client() as client:
            await client.create_topic("orders", 1)
            async with client.producer() as producer:
                await producer.submit_many("orders", values)
            await cluster.settle()
            assert await book(client, COUNT // 2) == values[: COUNT // 2]
            for host in list(cluster.brokers)[:2]:
                cluster.kill(host)
                await cluster.sleep(5)
            assert await book(client, COUNT - COUNT // 2) == values[COUNT // 2 :]

    octopi.testing.run(scene, brokers=3, partitions=1)


def test_a_member_replaced_during_its_work_gets_an_error_when_it_leaves() -> None:
    async def scene(cluster: octopi.testing.Cluster) -> None:
        async with cluster.client() as client, cluster.client() as other:
            await client.create_topic("orders", 1)
            async with client.producer() as producer:
                await producer.send("orders", b"1")

            async def work() -> None:
                async with client.subscription("orders", "billing") as orders:
                    await anext(orders)
                    async with other.subscription("orders", "billing", take_over=True):
                        await cluster.sleep(1)

            with pytest.raises(octopi.MemberFencedError, match="took over"):
                await work()

    octopi.testing.run(scene, brokers=1, partitions=1)


def test_a_member_that_knows_that_it_was_replaced_leaves_without_an_error() -> None:
    async def scene(cluster: octopi.testing.Cluster) -> None:
        async with cluster.client() as client, cluster.client() as other:
            await client.create_topic("orders", 1)
            async with client.producer() as producer:
                await producer.send("orders", b"1")
            async with client.subscription("orders", "billing") as orders:
                await anext(orders)
                async with other.subscription("orders", "billing", take_over=True):
                    await cluster.sleep(1)
                with pytest.raises(octopi.MemberFencedError, match="took over"):
                    await orders.commit()

    octopi.testing.run(scene, brokers=1, partitions=1)


def test_a_topic_deleted_while_its_partition_has_no_leader_leaves_no_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    led: list[LedPartition] = []

    class ListedPartition(LedPartition):
        async def begin(self) -> None:
            led.append(self)
            await super().begin()

    monkeypatch.setattr(broker_subscriptions, "LedPartition", ListedPartition)

    async def scene(cluster: octopi.testing.Cluster) -> None:
        async with cluster.client() as client:
            for topic in ("orders", "mails"):
                await client.create_topic(topic, 1)
                async with client.subscription(topic, "billing"):
                    pass
            assert len(led[-1].machine.all_marks()) == 2
            (host,) = cluster.brokers
            cluster.kill(host)
            await cluster.sleep(5)
            await client.delete_topic("orders")
            cluster.restart(host)
            await cluster.sleep(10)
            names = [one.name for one in await client.admin.subscriptions("mails")]
            assert names == ["billing"]
            assert [one.entry.topic for one in led[-1].machine.all_marks()] == ["mails"]
            assert [one.topic for one, _ in led[-1].machine.member_counts()] == ["mails"]

    octopi.testing.run(scene, brokers=1, partitions=1)


@pytest.mark.parametrize("seed", [9, 10])  # with these the disk loses all that was not flushed
def test_a_deletion_whose_beginning_all_replicas_have_lost_begins_again(seed: int) -> None:
    async def scene(cluster: octopi.testing.Cluster) -> None:
        async with cluster.client() as client:
            await client.create_topic("orders", 1)
            async with client.subscription("orders", "billing"):
                pass
            await cluster.sleep(3)  # what is stored is flushed
            # First the assignment is removed, then the mark: by then the client knows that the
            # deletion has begun, and that is not flushed yet.
            loss = cluster.at(steps.S12Removing, partial(lose_power, cluster), occurrence=2)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.admin.delete_subscription, "orders", "billing")
                await loss.wait()
                await cluster.sleep(0.5)
                cluster.restart(*cluster.brokers)
            assert await client.admin.subscriptions("orders") == []

    octopi.testing.run(scene, brokers=1, partitions=1, seed=seed)


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_reset_unblocks_a_log_that_a_forged_claim_has_fenced(partitions: int) -> None:
    async def scene(cluster: octopi.testing.Cluster) -> None:
        # A reset that is refused is tried again for the time-out, while the member attaches again.
        async with cluster.client(request_timeout_s=2) as client, cluster.client() as other:
            await client.create_topic("orders", partitions)
            async with client.producer() as producer:
                await producer.send("orders", b"1", partition=partitions - 1)
            async with client.subscription("orders", "billing", mode="failover") as orders:
                assert (await anext(orders)).value == b"1"
                await orders.commit()
                await attach(other, PartitionId(partitions - 1), CLAIM_STEP_MAX)
                reset = partial(client.admin.reset_subscription, "orders", "billing", "earliest")
                with pytest.raises(octopi.SubscriptionBusyError):
                    await reset()
                await reset(force=True)
                assert (await anext(orders)).value == b"1"

    octopi.testing.run(scene, brokers=1, partitions=partitions)


async def attach(client: octopi.Client, partition: PartitionId, claim: int) -> None:
    """Attach to a log of "billing" with a claim that the coordinator didn't give."""
    status = await client.admin.describe_subscription("orders", "billing")
    sid, topic = status.definition.sid, TopicName("orders")
    await client._router.ask_leader(
        "attach",
        topic,
        partition,
        lambda request: Attach(request, topic, partition, sid, MemberId("any"), Claim(claim)),
        Attached,
    )


def lose_power_everywhere(cluster: octopi.testing.Cluster) -> None:
    """All that no broker has flushed is lost."""
    for host in cluster.brokers:
        lose_power(cluster, host)
    for host in cluster.brokers:
        assert cluster.restart(host)


def lose_power(cluster: octopi.testing.Cluster, host: str) -> None:
    """Also if this is the last copy, which `Cluster.lose_power` spares."""
    cluster._process(host, "cut the power of").host.lose_power()


@pytest.mark.parametrize("mode", ["exclusive", "failover"])
@pytest.mark.parametrize("size", [20, 27])
@pytest.mark.parametrize(("brokers", "seed"), [(1, 5), (1, 6), (3, 3), (3, 6)])
def test_a_member_goes_on_with_the_records_that_replaced_lost_ones(
    brokers: int, seed: int, size: int, mode: Literal["exclusive", "failover"]
) -> None:
    """It had marked messages of 20 bytes; all replicas lose some of them, or all that were not
    flushed, and messages of *size* bytes come into their place."""

    async def scene(cluster: octopi.testing.Cluster) -> None:
        async with cluster.client() as client:
            await client.create_topic("orders", 1)
            await send(client, "first", 20)
            async with client.subscription("orders", "billing", mode=mode) as orders:
                assert len(await take_to(orders, b"first 29")) == COUNT
                await orders.commit()
                await cluster.sleep(5)  # that is flushed
                await send(client, "second", 20)
                assert len(await take_to(orders, b"second 29")) == COUNT
                lose_power_everywhere(cluster)
                await send(client, "third", size)
                await send(client, "fourth", 20)
                async with client.consumer("orders", start="earliest") as consumer:
                    log = await take_to(consumer, b"fourth 29")
                found = await take_to(orders, b"fourth 29")
                assert found == log[COUNT:]
                (fork,) = orders.forks
                assert fork.offset == found[0].offset
                await orders.commit()
            async with client.subscription("orders", "billing", mode=mode) as orders:
                await send(client, "fifth", 20)
                assert len(await take_to(orders, b"fifth 29")) == COUNT
                assert orders.forks == []

    octopi.testing.run(scene, seed=seed, brokers=brokers, partitions=1, oracle=False)


async def send(client: octopi.Client, name: str, size: int) -> None:
    """Send messages of one size, soon enough to be lost with the power after it."""
    async with client.producer() as producer:
        values = [f"{name} {number}".encode().ljust(size) for number in range(COUNT)]
        for receipt in [await producer.submit("orders", value) for value in values]:
            await receipt


async def take_to(
    messages: octopi.Subscription | octopi.Consumer, last: bytes
) -> list[octopi.Message]:
    """The next messages, up to the one with that text."""
    taken = []
    async for message in messages:
        taken.append(message)
        if message.value.rstrip() == last:
            break
    return taken


def test_a_member_goes_on_while_a_leader_checks_its_marks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if the log had no index."""
    read, prove = LocalLog.read_uncommitted, LocalLog.prove
    proved: set[int] = set()

    def read_if_proved(log: LocalLog, offset: Offset, bytes_max: int) -> bytes:
        if not bytes_max and offset not in proved:
            raise NeedsTimeError("that takes long")
        return read(log, offset, bytes_max)

    async def prove_and_note(log: LocalLog, offset: Offset) -> None:
        await prove(log, offset)
        proved.add(offset)

    monkeypatch.setattr(LocalLog, "read_uncommitted", read_if_proved)
    monkeypatch.setattr(LocalLog, "prove", prove_and_note)
    values = [b"%d" % number for number in range(COUNT)]

    async def scene(cluster: octopi.testing.Cluster) -> None:
        async with cluster.client() as client:
            await client.create_topic("orders", 1)
            async with client.producer() as producer:
                await producer.submit_many("orders", values)
            assert await book(client, COUNT // 2) == values[: COUNT // 2]
            assert await book(client, COUNT - COUNT // 2) == values[COUNT // 2 :]

    octopi.testing.run(scene, brokers=1, partitions=1)
    assert proved
