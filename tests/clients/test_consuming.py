"""Consumers on a cluster: each message once, in order, from where one wants, or a reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import attrs
import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.limits import RETENTION_CHECK_INTERVAL_S
from octopi.wire import messages as m
from tests.kit.world import BROKER, REGISTER, WALL_MS_AT_ZERO, running_world, values


async def fill(client: octopi.Client, topic: str, *sent: bytes) -> list[octopi.Receipt]:
    async with client.producer(batch_bytes=1000) as producer:
        pendings = [await producer.submit(topic, value) for value in sent]
        return [await pending for pending in pendings]


async def read_on(consumer: octopi.Consumer, read: list[octopi.Message]) -> None:
    """Read until something is raised."""
    while True:
        read.append(await anext(consumer))


def numbered(count: int, size_bytes: int = 0) -> list[bytes]:
    return [(b"%d" % number).zfill(size_bytes) for number in range(count)]


async def test_latest_means_messages_produced_after_the_block_was_entered(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await fill(client, "orders", b"old")
        async with client.consumer("orders") as consumer:
            await fill(client, "orders", b"new")
            assert (await anext(consumer)).value == b"new"


async def test_every_kind_of_start_finds_its_place(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        receipts = []
        for number in range(5):
            await trio.sleep(1)
            receipts += await fill(client, "orders", b"%d" % number)
        position = octopi.Position(
            receipts[0].topic,
            (await client.describe_topic("orders")).topic_id,  # type: ignore[arg-type]
            {receipts[0].partition: receipts[3].offset},
        )
        starts: list[tuple[object, int]] = [
            ("earliest", 0),
            (0, 0),
            (receipts[2].offset, 2),
            (octopi.last(2), 3),
            (octopi.last(100), 0),
            (receipts[1].timestamp, 1),
            (receipts[1].timestamp + timedelta(milliseconds=1), 2),
            (datetime(1999, 1, 1, tzinfo=UTC), 0),
            (datetime(2999, 1, 1, tzinfo=UTC), 5),
            (position, 3),
            (str(position), 3),
            ("latest", 5),
        ]
        for start, first in starts:
            async with client.consumer("orders", start=start, stop_at_end=True) as consumer:  # type: ignore[call-overload]
                read = [int(one.value) async for one in consumer]
            assert read == list(range(first, 5)), start


@pytest.mark.parametrize(
    ("start", "why"),
    [
        ("newest", "newest"),
        (1.5, r"1\.5"),
        (-2, r"octopi\.last\(2\)"),
        (True, "start is a bool"),
        (datetime(2026, 1, 1), "time zone"),
        ("v1:orders@xyz:0=1", "no position"),
        ("v1:others@0123456789abcdef:0=1", "others"),
    ],
)
async def test_an_invalid_start_is_refused(
    start: object, why: str, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        with pytest.raises(octopi.InvalidOptionError, match=why):
            async with client.consumer("orders", start=start):  # type: ignore[call-overload]
                pass


@pytest.mark.parametrize("count", [0, -1, 2**63])
def test_last_needs_a_number_of_messages(count: int) -> None:
    with pytest.raises(octopi.InvalidOptionError, match="count"):
        octopi.last(count)


async def test_an_offset_needs_a_single_partition(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("wide", partition_ids=[1, 2])
        with pytest.raises(octopi.InvalidOptionError, match="has 2"):
            async with client.consumer("wide", start=0):
                pass
        async with client.consumer("wide", start=0, partitions=[2], stop_at_end=True) as consumer:
            assert [one async for one in consumer] == []


async def test_a_topic_or_partition_that_is_not_there_is_told_at_once(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        with pytest.raises(octopi.UnknownTopicError):
            async with client.consumer("orders"):
                pass
        await client.create_topic("orders", partition_ids=[3])
        with pytest.raises(octopi.RefusedError, match="no partition 4; it has 3"):
            async with client.consumer("orders", partitions=[4]):
                pass


async def test_an_offset_inside_a_record_or_behind_the_end_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        (receipt,) = await fill(client, "orders", b"value")
        async with client.consumer("orders", start=1) as consumer:
            with pytest.raises(octopi.OffsetInsideRecordError):
                await anext(consumer)
        async with client.consumer("orders", start=receipt.next_offset + 1) as consumer:
            with pytest.raises(
                octopi.OffsetOutOfRangeError, match=f"ends at {receipt.next_offset}"
            ):
                await anext(consumer)
            with pytest.raises(octopi.OffsetOutOfRangeError):
                await anext(consumer)


async def test_stopping_at_the_end_leaves_out_what_comes_later(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await fill(client, "orders", *numbered(10))
        async with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
            await fill(client, "orders", b"later")
            assert [one.value async for one in consumer] == numbered(10)
        await client.create_topic("empty")
        assert await values(client, "empty") == []


async def test_the_position_is_exact_after_each_message_and_good_for_another_client(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("wide", 4)
        sent = numbered(200)
        async with client.producer(batch_bytes=300) as producer:
            for value in sent:
                await producer.submit("wide", value)
        read: list[bytes] = []
        token: str | None = None
        while len(read) < len(sent):
            async with world.client() as other:
                async with other.consumer("wide", start=token or "earliest") as consumer:
                    for _ in range(7):
                        if len(read) < len(sent):
                            read.append((await anext(consumer)).value)
                token = str(consumer.position)
        assert sorted(read, key=int) == sent


async def test_batches_and_single_messages_can_be_mixed(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        sent = numbered(100)
        await fill(client, "orders", *sent)
        async with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
            first = await anext(consumer)
            assert consumer.position.offsets == {first.partition: first.next_offset}
            assert consumer.lag_bytes > 0
            read = [first]
            async for batch in consumer.batches():
                read += batch
                assert consumer.position.offsets == {first.partition: batch[-1].next_offset}
            assert consumer.lag_bytes == 0
        assert [one.value for one in read] == sent


@pytest.mark.parametrize("message", [m.Subscribe, m.Subscribed, m.Delivery, m.Credit])
@pytest.mark.parametrize("action", ["break before", "break after"])
async def test_a_broken_connection_leaves_no_gap_and_no_repetition(
    message: type, action: str, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        sent = numbered(2000, 100)
        await fill(client, "orders", *sent)
        for skip in range(3):
            world.net.fault(message, action, skip=skip)  # type: ignore[arg-type]
        options = {"start": "earliest", "window_bytes": 5000, "stop_at_end": True}
        async with client.consumer("orders", **options) as consumer:  # type: ignore[call-overload]
            assert [one.value async for one in consumer] == sent
        assert all(fault.struck for fault in world.net.faults[:1])


async def test_a_reading_without_an_answer_is_tried_again(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await fill(client, "orders", b"value")
        world.net.fault(m.Subscribed, "lose")
        world.net.fault(m.Delivery, "lose")
        async with client.consumer("orders", start="earliest") as consumer:
            assert (await anext(consumer)).value == b"value"


async def test_a_broker_that_dies_again_and_again_shows_nothing_twice_and_hides_nothing(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        sent = numbered(1000)
        await client.create_topic("orders")
        read: list[bytes] = []

        async def consume() -> None:
            async with client.consumer("orders", start="earliest") as consumer:
                while len(read) < len(sent):
                    read.append((await anext(consumer)).value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            async with client.producer() as producer:
                for number, value in enumerate(sent):
                    await producer.submit("orders", value)
                    if number % 50 == 0:
                        await trio.sleep(0.2)
                    if number % 250 == 200:
                        await world.restart()
        assert read == sent


async def test_a_consumer_goes_on_while_the_register_is_away(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await fill(client, "orders", b"0")
        async with (
            client.consumer("orders", start="earliest") as consumer,
            client.producer() as producer,
        ):
            assert (await anext(consumer)).value == b"0"
            await producer.send("orders", b"1")
            await world.kill(REGISTER)
            await producer.send("orders", b"2")
            assert (await anext(consumer)).value == b"1"
            assert (await anext(consumer)).value == b"2"


async def test_a_consumer_without_a_broker_for_too_long_fails(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await fill(client, "orders", b"0")
        async with client.consumer("orders", start="earliest", reconnect_timeout_s=30) as consumer:
            await anext(consumer)
            await world.kill()
            before = trio.current_time()
            with pytest.raises(
                octopi.OctopiError, match=r"orders/\d: no broker for 30 s"
            ) as caught:
                await anext(consumer)
            assert isinstance(
                caught.value,
                octopi.UnreachableError | octopi.NotReadyError | octopi.ConnectionLostError,
            )
            assert trio.current_time() - before == pytest.approx(30, abs=2)


async def test_without_a_time_out_a_consumer_waits_for_ever(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await fill(client, "orders", b"0")
        async with client.consumer("orders", reconnect_timeout_s=None) as consumer:
            await world.kill()
            with trio.move_on_after(1000):
                await anext(consumer)
            await world.start_broker()
            await fill(client, "orders", b"1")
            assert (await anext(consumer)).value == b"1"


async def old_messages_removed(client: octopi.Client) -> None:
    await client.create_topic(
        "orders", partition_ids=[1], retention_bytes=15_000, segment_bytes=5000
    )
    await fill(client, "orders", *numbered(300, 100))
    await trio.sleep(RETENTION_CHECK_INTERVAL_S * 2)
    assert (await client.find_offset("orders", "earliest", partition=1)).log_start > 0


async def test_history_that_retention_removed_is_reported(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await old_messages_removed(client)
        async with client.consumer("orders", start=0) as consumer:
            with pytest.raises(octopi.HistoryLostError) as caught:
                await anext(consumer)
        error = caught.value
        assert (error.topic, error.partition, error.wanted) == ("orders", 1, 0)
        start = (await client.find_offset("orders", "earliest", partition=1)).log_start
        assert error.available_from == start


async def test_history_that_retention_removed_can_be_skipped(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await old_messages_removed(client)
        async with client.consumer("orders", start=0, on_gap="skip", stop_at_end=True) as consumer:
            read = [int(one.value) async for one in consumer]
        assert read == list(range(read[0], 300))
        assert read[0] > 0
        (gap,) = consumer.gaps
        assert gap.wanted == 0


async def test_retention_overtaking_a_slow_consumer_is_reported(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic(
            "orders", partition_ids=[1], retention_bytes=15_000, segment_bytes=5000
        )
        await fill(client, "orders", *numbered(50, 100))
        async with client.consumer("orders", start="earliest", window_bytes=500) as consumer:
            first = await anext(consumer)
            await trio.sleep(1)
            await fill(client, "orders", *numbered(300, 100))
            await trio.sleep(RETENTION_CHECK_INTERVAL_S * 2)
            read = [first]
            with pytest.raises(octopi.HistoryLostError) as caught:
                await read_on(consumer, read)
        assert [one.value for one in read] == numbered(50, 100)[: len(read)]
        assert caught.value.wanted == read[-1].next_offset


async def test_a_topic_made_anew_is_not_taken_for_the_old_one(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await fill(client, "orders", *numbered(10))
        async with client.consumer("orders", start="earliest") as consumer:
            await anext(consumer)
            position = consumer.position
            await client.delete_topic("orders")
            await client.create_topic("orders")
            await fill(client, "orders", bytes(5000))  # the old offset is inside this record
            with pytest.raises(octopi.TopicReplacedError):
                await read_on(consumer, [])
        with pytest.raises(octopi.TopicReplacedError):
            async with client.consumer("orders", start=position):
                pass


async def test_a_topic_that_was_deleted_ends_the_consumer(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await fill(client, "orders", b"0")
        async with client.consumer("orders", start="earliest") as consumer:
            await anext(consumer)
            await client.delete_topic("orders")
            deleted_at = trio.current_time()
            with pytest.raises(octopi.UnknownTopicError, match="orders"):
                await anext(consumer)
            assert trio.current_time() < deleted_at + 5, "the register's word is enough"


async def test_a_damaged_record_is_reported_behind_the_good_ones_before_it(
    autojump_clock: MockClock,
) -> None:
    def damage(message: object) -> object:
        assert isinstance(message, m.Delivery)
        records = bytearray(message.records)
        records[len(records) // 2] ^= 1
        return attrs.evolve(message, records=bytes(records))

    async with running_world() as world, world.client() as client:
        receipts = await fill(client, "orders", *numbered(99, 100))
        world.net.fault(m.Delivery, "change", change=damage)
        async with client.consumer("orders", start="earliest") as consumer:
            await trio.sleep(1)
            await fill(client, "orders", b"a later delivery")
            await trio.sleep(1)
            read: list[octopi.Message] = []
            where = f"orders/{receipts[49].partition}: record at offset {receipts[49].offset}"
            with pytest.raises(octopi.ChecksumError, match=where):
                await read_on(consumer, read)
            assert [one.value for one in read] == numbered(49, 100)
            assert dict(consumer.position.offsets) == {receipts[49].partition: receipts[49].offset}
            with pytest.raises(octopi.ChecksumError):
                await anext(consumer)


async def test_a_gap_in_the_deliveries_of_a_broker_is_an_error(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await fill(client, "orders", *numbered(100, 100))
        world.net.fault(m.Delivery, "lose", skip=1)
        options = {"start": "earliest", "window_bytes": 1000}
        async with client.consumer("orders", **options) as consumer:  # type: ignore[call-overload]
            with pytest.raises(octopi.ProtocolError, match="is next"):
                await read_on(consumer, [])


async def test_a_program_that_does_not_read_is_sent_no_more_than_its_window(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await fill(client, "orders", *numbered(1000, 100))
        options = {"start": "earliest", "window_bytes": 10_000}
        async with client.consumer("orders", **options) as consumer:  # type: ignore[call-overload]
            await trio.sleep(100)
            sent = [one.records for one in world.net.passed if isinstance(one, m.Delivery)]
            assert 10_000 <= sum(map(len, sent)) <= 10_000 + 200
            assert [int((await anext(consumer)).value) for _ in range(1000)] == list(range(1000))


async def test_leaving_the_block_ends_the_reading(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await fill(client, "orders", b"0")
        async with client.consumer("orders", start="earliest") as consumer:
            async for _ in consumer.batches():
                break
        await trio.sleep(1)
        before = world.net.count(m.Delivery)
        await fill(client, "orders", b"1")
        await trio.sleep(1)
        assert world.net.count(m.Delivery) == before
        with pytest.raises(octopi.ClosedError):
            await anext(consumer)


async def test_a_cancelled_wait_takes_no_message_away(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        sent = numbered(60)
        await client.create_topic("orders")
        read: list[bytes] = []

        async def produce() -> None:
            async with client.producer() as producer:
                for value in sent:
                    await trio.sleep(0.01)
                    await producer.send("orders", value)

        async with (
            client.consumer("orders", start="earliest") as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(produce)
            while len(read) < len(sent):
                with trio.move_on_after(0.004):
                    read.append((await anext(consumer)).value)
        assert read == sent


async def test_a_time_before_all_messages_finds_the_first_offset(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        (receipt,) = await fill(client, "orders", b"0")
        at_zero = datetime.fromtimestamp(WALL_MS_AT_ZERO / 1000, UTC)
        found = await client.find_offset("orders", at_zero, partition=receipt.partition)
        assert (found.offset, found.log_start, found.highwater) == (0, 0, receipt.next_offset)


@pytest.mark.parametrize(
    ("option", "value"),
    [("window_bytes", 0), ("on_gap", "ignore"), ("reconnect_timeout_s", -1)],
)
async def test_an_option_out_of_its_range_is_refused(
    option: str, value: object, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        with pytest.raises(octopi.InvalidOptionError, match=option):
            async with client.consumer("orders", **{option: value}):  # type: ignore[call-overload]
                pass


async def test_two_consumers_of_one_client_share_a_connection_and_nothing_else(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await fill(client, "orders", *numbered(10))
        before = world.net.connect_count
        async with (
            client.consumer("orders", start="earliest") as one,
            client.consumer("orders", start="earliest") as two,
        ):
            assert (await anext(one)).value == b"0"
            assert (await anext(two)).value == b"0"
            assert (await anext(one)).value == b"1"
        assert world.net.connect_count == before
        assert BROKER in {log.address for log in await client.admin.describe_logs("orders")}
