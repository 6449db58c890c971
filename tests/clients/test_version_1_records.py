"""Version 1 records that are sent again are stored once, wherever their leader is by then."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from octopi.errors import OctopiError, Status
from octopi.record import encode_opaque, request_id_v1
from octopi.wire import messages as m
from tests.kit.probes import batch, fetch, produce, refusal_of
from tests.kit.world import BROKER, World, connection, describe, running_world


def one(sequence: int, payload: bytes = b"payload") -> bytes:
    """A record as the source's producer at that host and port would send it."""
    return encode_opaque(request_id_v1("localhost", 80, sequence), payload)


async def stored(world: World, url: str, topic: m.TopicInfo) -> bytes:
    async with connection(world, url) as broker:
        return (await fetch(broker, topic, 0, bytes_max=10**6)).records


async def produced(world: World, url: str, topic: m.TopicInfo, records: bytes) -> m.Produced:
    """Ask until the broker takes it."""
    with trio.fail_after(20):
        while True:
            try:
                async with connection(world, url) as broker:
                    return await produce(broker, topic, records)
            except OctopiError:
                await trio.sleep(0.1)


async def test_a_version_1_record_that_is_sent_again_is_answered_with_its_first_offset(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world:
        topic = await describe(world, "orders")
        async with connection(world, BROKER) as broker:
            await produce(broker, topic, batch(0, b"version 2"))
            first = await produce(broker, topic, one(1))
            await produce(broker, topic, one(2))
            again = await produce(broker, topic, one(1))
            assert (again.offset, again.epoch) == (first.offset, first.epoch)
            assert (first.duplicate, again.duplicate) == (False, True)
        assert await stored(world, BROKER, topic) == batch(0, b"version 2") + one(1) + one(2)


async def test_version_1_records_are_recognised_after_a_restart(autojump_clock: MockClock) -> None:
    async with running_world() as world:
        topic = await describe(world, "orders")
        first = [await produced(world, BROKER, topic, one(number)) for number in range(5)]
        for _ in range(2):  # from the records, then from a checkpoint, too
            await world.restart()
            again = [await produced(world, BROKER, topic, one(number)) for number in range(5)]
            assert [each.offset for each in again] == [each.offset for each in first]
            assert all(each.duplicate for each in again)
        assert await stored(world, BROKER, topic) == b"".join(map(one, range(5)))


async def test_version_1_records_are_recognised_by_the_next_leader(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world:
        for number in (2, 3):
            await world.start_broker(f"ws://broker-{number}:7100")
        topic = await describe(world, "orders")
        await trio.sleep(3)
        leader = (await describe(world, "orders")).partitions[0].leader_address
        first = await produced(world, leader, topic, one(1))
        await world.kill(leader)
        await trio.sleep(3)
        following = (await describe(world, "orders")).partitions[0].leader_address
        assert following != leader
        again = await produced(world, following, topic, one(1))
        assert (again.offset, again.duplicate) == (first.offset, True)
        assert await stored(world, following, topic) == one(1)


async def test_a_request_of_several_version_1_records_is_stored_whole_or_not_at_all(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world:
        topic = await describe(world, "orders")
        async with connection(world, BROKER) as broker:
            several = one(1) + one(2) + one(3)
            first = await produce(broker, topic, several)
            assert (await produce(broker, topic, several)).duplicate
            part = await produce(broker, topic, one(2) + one(3))
            assert (part.offset, part.duplicate) == (first.offset + len(one(1)), True)
            for torn in (one(3) + one(4), one(4) + one(3), one(3) + one(2), one(1) + one(3)):
                refused = await refusal_of(produce(broker, topic, torn))
                assert refused.status == Status.SEQUENCE_GAP
            twice = await refusal_of(produce(broker, topic, one(5) + one(5)))
            assert twice.status == Status.MALFORMED_RECORD
            assert not (await produce(broker, topic, one(4))).duplicate
        assert await stored(world, BROKER, topic) == several + one(4)


async def test_version_1_records_without_a_request_id_are_never_taken_for_repetitions(
    autojump_clock: MockClock,
) -> None:
    nameless = encode_opaque(bytes(32), b"nameless")
    async with running_world() as world:
        topic = await describe(world, "orders")
        async with connection(world, BROKER) as broker:
            for _ in range(2):
                assert not (await produce(broker, topic, nameless + nameless)).duplicate
            mixed = nameless + one(1) + nameless
            assert not (await produce(broker, topic, mixed)).duplicate
            assert (await produce(broker, topic, mixed)).duplicate
        assert await stored(world, BROKER, topic) == 4 * nameless + mixed
