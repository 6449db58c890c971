"""Batches: what arrived together, decoded only as far as the program asks."""

from __future__ import annotations

import pickle
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.clients.consuming.message_batch import MessageBatch
from octopi.identifiers import Offset, PartitionId, ProducerEpoch, ProducerId, Sequence, TopicName
from octopi.record import BatchBuilder, decode, encode_opaque, scan
from octopi.wire import messages as m
from tests.kit.world import World, running_world


async def fill(client: octopi.Client, topic: str, *sent: bytes) -> list[octopi.Receipt]:
    async with client.producer(batch_bytes=1000) as producer:
        pendings = [await producer.submit(topic, value) for value in sent]
        return [await pending for pending in pendings]


def numbered(count: int) -> list[bytes]:
    return [(b"%d" % number).zfill(100) for number in range(count)]


def damage_at(number: int) -> Callable[[object], object]:
    """Changes the record with this number in a delivery of `numbered`."""

    def change(message: object) -> object:
        assert isinstance(message, m.Delivery)
        records = bytearray(message.records)
        records[157 * number + 100] ^= 1
        return attrs.evolve(message, records=bytes(records))

    return change


LOOKS: dict[str, Callable[[MessageBatch], object]] = {
    "at nothing": lambda batch: None,
    "at the values": MessageBatch.values,
    "at the offsets": lambda batch: batch.offsets,
    "at the messages": MessageBatch.messages,
    "at the length": len,
    "at the end": lambda batch: batch.next_offset,
}


@asynccontextmanager
async def opened(
    client: octopi.Client, several: bool
) -> AsyncIterator[octopi.Consumer | octopi.MultiTopicConsumer]:
    """A consumer of all that topic ``orders`` has."""
    if several:
        async with client.consumer(["orders"], start="earliest", stop_at_end=True) as topics:
            yield topics
    else:
        async with client.consumer("orders", start="earliest", stop_at_end=True) as topic:
            yield topic


def offsets_of(consumer: octopi.Consumer | octopi.MultiTopicConsumer) -> dict[PartitionId, Offset]:
    if isinstance(consumer, octopi.Consumer):
        return dict(consumer.position.offsets)
    return dict(consumer.positions["orders"].offsets)


several_or_one = pytest.mark.parametrize("several", [False, True], ids=["one", "several"])


# --- as a consumer hands them out --------------------------------------------------------


@several_or_one
async def test_a_batch_has_what_arrived_together(several: bool, autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        sent = numbered(500)
        receipts = await fill(client, "orders", *sent)
        values: list[bytes] = []
        offsets: list[int] = []
        async with opened(client, several) as consumer:
            async for batch in consumer.batches():
                assert (batch.topic, batch.partition) == ("orders", receipts[0].partition)
                assert batch.offset == receipts[len(values)].offset
                assert len(batch) == len(batch.values())
                values += batch.values()
                offsets += batch.offsets
                assert batch.next_offset == receipts[len(values) - 1].next_offset
                assert offsets_of(consumer) == {batch.partition: batch.next_offset}
        assert values == sent
        assert offsets == [one.offset for one in receipts]
        passed = [one for one in world.net.passed if isinstance(one, m.Delivery) and one.records]
        assert sum(len(one.records) for one in passed) == receipts[-1].next_offset


@several_or_one
async def test_messages_and_batches_may_be_taken_in_turn(
    several: bool, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        sent = numbered(500)
        await fill(client, "orders", *sent)
        seen: list[bytes] = []
        offsets: list[int] = []
        async with opened(client, several) as consumer:
            while (message := await anext(consumer, None)) is not None:
                assert offsets_of(consumer) == {message.partition: message.next_offset}
                seen.append(message.value)
                offsets.append(message.offset)
                if (batch := await consumer.next_batch()) is None:
                    break
                assert offsets_of(consumer) == {batch.partition: batch.next_offset}
                assert [one.value for one in batch] == batch.values()
                seen += batch.values()
                offsets += batch.offsets
        assert seen == sent
        assert offsets == sorted(set(offsets))


@several_or_one
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
async def test_a_batch_ends_before_a_damaged_record_which_is_raised_next(
    look: Callable[[MessageBatch], object], several: bool, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        receipts = await fill(client, "orders", *numbered(100))
        world.net.fault(m.Delivery, "change", change=damage_at(49))
        async with opened(client, several) as consumer:
            batch = await consumer.next_batch()
            assert batch is not None
            look(batch)
            for _ in range(2):
                where = f"orders/{receipts[49].partition}: record at offset {receipts[49].offset}:"
                with pytest.raises(octopi.ChecksumError, match=where):
                    await consumer.next_batch()
                assert offsets_of(consumer) == {receipts[49].partition: receipts[49].offset}
            assert batch.next_offset == receipts[49].offset
            assert len(batch) == len(batch.messages()) == len(batch.offsets) == 49
            assert batch.values() == numbered(49)


@several_or_one
async def test_no_batch_is_handed_out_whose_first_record_is_damaged(
    several: bool, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        receipts = await fill(client, "orders", *numbered(10))
        world.net.fault(m.Delivery, "change", change=damage_at(0))
        async with opened(client, several) as consumer:
            before = offsets_of(consumer)
            for _ in range(2):
                with pytest.raises(octopi.ChecksumError, match="record at offset 0:"):
                    await consumer.next_batch()
            assert offsets_of(consumer) == before == {receipts[0].partition: 0}
            consumer.close()
            with pytest.raises(octopi.ClosedError):
                await consumer.next_batch()


@several_or_one
async def test_a_consumer_that_was_closed_says_so_and_no_damage(
    several: bool, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        await fill(client, "orders", *numbered(100))
        world.net.fault(m.Delivery, "change", change=damage_at(49))
        async with opened(client, several) as consumer:
            await consumer.next_batch()
            consumer.close()
            with pytest.raises(octopi.ClosedError):
                await consumer.next_batch()


async def test_the_position_before_a_damaged_record_is_known_while_its_batch_is_in_hand(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        receipts = await fill(client, "orders", *numbered(100))
        world.net.fault(m.Delivery, "change", change=damage_at(7))
        async with client.consumer("orders", start="earliest") as consumer:
            await consumer.next_batch()
            assert consumer.position.offsets == {receipts[7].partition: receipts[7].offset}
            assert consumer.lag_bytes == receipts[-1].next_offset - receipts[7].offset


async def test_batches_that_are_not_looked_at_move_the_window_on(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        receipts = await fill(client, "orders", *numbered(1000))
        kept: list[MessageBatch] = []
        options = {"start": "earliest", "window_bytes": 2000, "stop_at_end": True}
        async with client.consumer("orders", **options) as consumer:  # type: ignore[call-overload]
            await trio.sleep(100)
            assert sent_bytes(world) <= 2200
            kept += [batch async for batch in consumer.batches()]
        assert len(kept) > 10
        assert [value for batch in kept for value in batch.values()] == numbered(1000)
        assert kept[-1].next_offset == receipts[-1].next_offset


def sent_bytes(world: World) -> int:
    return sum(len(one.records) for one in world.net.passed if isinstance(one, m.Delivery))


# --- by itself ---------------------------------------------------------------------------


def records_of(*values: bytes) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.add(value, b"key", {"n": b"1"}, 7)
    return builder.encode(ProducerId(b"p" * 16), ProducerEpoch(1), Sequence(0))


def batch_of(records: bytes | memoryview) -> MessageBatch:
    return MessageBatch(TopicName("orders"), PartitionId(3), Offset(1000), records)


def damaged(number: int) -> bytes:
    records = bytearray(records_of(b"one", b"two", b"three"))
    records[number * (len(records_of(b"one"))) + 60] ^= 1
    return bytes(records)


def test_a_batch_is_a_sequence_of_its_messages() -> None:
    records = records_of(b"one", b"two", b"three")
    messages = decode(records, Offset(1000), TopicName("orders"), PartitionId(3))
    batch = batch_of(records)
    assert list(batch) == batch.messages() == messages
    assert (batch[0], batch[-1], batch[1:]) == (messages[0], messages[2], messages[1:])
    assert bool(batch)
    assert messages[1] in batch
    assert batch.index(messages[2]) == 2
    assert "orders/3 from 1000 to" in repr(batch)


def test_what_was_decoded_is_decoded_once() -> None:
    batch = batch_of(records_of(b"one", b"two"))
    assert batch.values() is batch.values()
    assert batch.offsets is batch.offsets
    assert batch.messages() is batch.messages()
    assert batch.offsets.tolist() == [one.offset for one in batch]
    assert [one.value for one in batch] == batch.values()


def test_the_rest_of_a_batch_begins_with_its_first_message() -> None:
    batch = batch_of(records_of(b"one", b"two", b"three"))
    rest = batch.rest(batch.messages()[1:])
    assert rest.offset == batch.offsets[1]
    assert rest.next_offset == batch.next_offset
    assert (rest.values(), rest.offsets) == ([b"two", b"three"], batch.offsets[1:])
    assert rest.decoded(lambda records, offset: (records, offset)) == (
        records_of(b"one", b"two", b"three")[rest.offset - 1000 :],
        rest.offset,
    )


@pytest.mark.parametrize("kept", ["values", "messages"])
@pytest.mark.parametrize("of_version_1", [False, True])
def test_what_is_taken_of_a_batch_does_not_keep_the_buffer_it_was_received_in(
    kept: str, of_version_1: bool
) -> None:
    records = records_of(b"one", b"two", b"three")
    if of_version_1:
        records += encode_opaque(b"r" * 32, b"four")
    memory = bytearray(records)
    batch = batch_of(memoryview(memory).toreadonly())
    expected = getattr(batch_of(records), kept)()
    found = getattr(batch, kept)()
    assert found == expected
    del batch
    memory.clear()  # refused while a view of it exists
    assert found == expected


def test_a_batch_that_was_received_in_place_is_pickled_with_its_records() -> None:
    records = records_of(b"one", b"two", b"three")
    copy = pickle.loads(pickle.dumps(batch_of(memoryview(records))))
    assert copy.values() == [b"one", b"two", b"three"]
    assert list(copy) == list(batch_of(records))
    assert copy.next_offset == 1000 + len(records)


def test_another_decoder_gets_the_records_and_those_before_a_damaged_one() -> None:
    calls: list[int] = []

    def count(records: bytes | memoryview, offset: Offset) -> int:
        calls.append(offset)
        found = scan(records)
        if found.fault is not None:
            raise found.fault
        return found.count

    assert batch_of(records_of(b"one", b"two", b"three")).decoded(count) == 3
    assert calls == [1000]
    batch = batch_of(damaged(2))
    assert batch.decoded(count) == 2
    assert isinstance(batch.damage, octopi.ChecksumError)
    assert batch.values() == [b"one", b"two"]
    assert batch_of(damaged(0)).is_empty


def test_an_error_of_a_stricter_decoder_is_raised_and_no_damage() -> None:
    def refuse(records: bytes | memoryview, offset: Offset) -> None:
        raise octopi.MalformedRecordError("no record is good enough")

    batch = batch_of(records_of(b"one"))
    with pytest.raises(octopi.MalformedRecordError, match="good enough"):
        batch.decoded(refuse)
    assert batch.damage is None
    assert batch.values() == [b"one"]


def test_threads_that_look_at_the_same_time_see_the_same_damage() -> None:
    for _ in range(20):
        batch = batch_of(records_of(*[b"value"] * 200) + damaged(1))
        found: list[tuple[int, type | None]] = []

        def look(batch: MessageBatch = batch, found: list[tuple[int, type | None]] = found) -> None:
            found.append((len(batch.values()), type(batch.damage)))

        threads = [threading.Thread(target=look) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert found == [(201, octopi.ChecksumError)] * 4
