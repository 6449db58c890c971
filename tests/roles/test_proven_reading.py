"""Consumers that compute the digests of topics in memory from what relays send."""

from __future__ import annotations

import attrs
import pytest
import trio

from octopi import Client, DigestMismatchError, Position, RefusedError, Status, connect
from octopi.limits import CONSUMER_WINDOW_BYTES
from octopi.testing import Cluster, simulated
from tests.kit.relays import RelaysOfHosts
from tests.roles.test_relays import TOPIC, sequencer, started, values


async def send(client: Client, *messages: bytes) -> None:
    async with client.producer() as producer:
        for one in messages:
            await producer.send(TOPIC, one)


async def proven(
    client: Client,
    count: int,
    start: str | Position = "earliest",
    window_bytes: int = CONSUMER_WINDOW_BYTES,
) -> tuple[list[bytes], Position]:
    async with client.consumer(
        TOPIC, start=start, proven=True, window_bytes=window_bytes
    ) as consumer:
        found = [(await anext(consumer)).value for _ in range(count)]
        return found, consumer.position


def flip(relays: RelaysOfHosts, name: str, number: int) -> None:
    """A bit flips in the transaction of that number that a relay holds."""
    partition = relays.running()[name].mesh.partition_of(TOPIC)
    [stream] = relays.members(partition)[name].streams
    one = stream.buffer._transactions[number]
    assert one is not None
    changed = one.records[:-1] + bytes([one.records[-1] ^ 1])
    stream.buffer._transactions[number] = attrs.evolve(one, records=changed)


@simulated(brokers=1, oracle=False)
async def test_digests_are_computed_across_a_killed_relay_and_new_messages(
    cluster: Cluster,
) -> None:
    async with (
        started(cluster) as (relays, environment),
        connect(relays.addresses, environment=environment) as client,
    ):
        await send(client, *values(10))
        async with client.consumer(TOPIC, start="earliest", proven=True) as consumer:
            for one in values(10):
                assert (await anext(consumer)).value == one
            cluster.kill(sequencer(relays), restart_s=3.0)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send, client, *values(20, 10))
                for one in values(20, 10):
                    assert (await anext(consumer)).value == one


@simulated(brokers=1, oracle=False)
async def test_a_position_goes_on_and_large_messages_come_in_parts(cluster: Cluster) -> None:
    large = [bytes([number]) * 700_000 for number in range(3)]
    async with (
        started(cluster) as (relays, environment),
        connect(relays.addresses, environment=environment) as client,
    ):
        async with client.producer(linger_s=0.05) as producer:
            pending = [await producer.submit(TOPIC, one) for one in [b"first", *large, b"last"]]
            for one in pending:
                await one
        # A transaction has several messages, of which the window lets one through at a time.
        found, position = await proven(client, 2, window_bytes=1_000)
        assert found == [b"first", large[0]]
        found, _ = await proven(client, 3, start=str(position), window_bytes=1_000)
        assert found == [*large[1:], b"last"]


@simulated(brokers=1, oracle=False)
async def test_a_bit_that_flipped_in_a_relays_memory_is_told_to_who_computes_digests(
    cluster: Cluster,
) -> None:
    async with started(cluster) as (relays, environment):
        async with connect(relays.addresses, environment=environment) as client:
            await send(client, *values(6))
        for name in relays.names:
            flip(relays, name, 3)
        async with (
            connect(relays.addresses, environment=environment) as client,
            client.consumer(TOPIC, start="earliest", proven=True) as consumer,
        ):
            with pytest.raises(DigestMismatchError) as caught:
                await anext(consumer)
            assert caught.value.code == "digest_mismatch"
            place = next(iter(consumer.position.places.values()))
            assert caught.value.offset > place.offset


@simulated(brokers=1, oracle=False)
async def test_who_resumes_behind_a_fork_computes_the_digests_of_the_new_history(
    cluster: Cluster,
) -> None:
    async with (
        started(cluster) as (relays, environment),
        connect(relays.addresses, environment=environment) as client,
    ):
        await send(client, *values(3))
        async with client.consumer(
            TOPIC, start="earliest", on_fork="resume", proven=True
        ) as consumer:
            for one in values(3):
                assert (await anext(consumer)).value == one
            for name in relays.names:
                cluster.kill(name, restart_s=1.0)
            await cluster.sleep(2.0)
            await relays.alike()
            await send(client, *values(3, 10))
            for one in values(3, 10):
                assert (await anext(consumer)).value == one
            assert len(consumer.forks) == 1


@simulated(brokers=1)
async def test_a_topic_in_logs_has_no_digests(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await client.create_topic(TOPIC)
        with pytest.raises(RefusedError) as caught:
            await proven(client, 1)
        assert caught.value.status == Status.WRONG_KIND
        assert "read it without `proven`" in str(caught.value)
