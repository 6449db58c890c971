"""Producers on a cluster: what arrives, how often, in which order, and when."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.identifiers import Epoch, Offset
from octopi.limits import LINGER_S, RECORD_BYTES_MAX
from octopi.wire import messages as m
from tests.kit.world import BROKER, REGISTER, read_all, running_world, values


async def test_a_message_comes_back_as_it_was_sent(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        when = datetime(2026, 11, 21, 12, 30, 0, 123_000, tzinfo=UTC)
        async with client.producer() as producer:
            receipt = await producer.send(
                "orders", b"value", key=b"k", headers={"h": b"v"}, timestamp=when
            )
            following = await producer.send("orders", b"next")
        first, second = await read_all(client, "orders")
        assert (first.key, first.value, first.headers) == (b"k", b"value", {"h": b"v"})
        assert first.timestamp == receipt.timestamp == when
        assert (first.partition, first.offset) == (receipt.partition, receipt.offset)
        assert first.next_offset == receipt.next_offset == following.offset == second.offset
        assert not receipt.duplicate


async def test_a_send_on_an_idle_log_does_not_linger(autojump_clock: MockClock) -> None:
    async with (
        running_world() as world,
        world.client() as client,
        client.producer(linger_s=10) as producer,
    ):
        await producer.send("orders", b"finds the leader")
        before = trio.current_time()
        await producer.send("orders", b"value")
        assert trio.current_time() == before


async def test_submitted_messages_wait_for_more_no_longer_than_the_linger_time(
    autojump_clock: MockClock,
) -> None:
    async with (
        running_world() as world,
        world.client() as client,
        client.producer() as producer,
    ):
        await producer.send("orders", b"finds the leader")
        before = world.net.count(m.Produce)
        for number in range(100):
            pending = await producer.submit("orders", b"%d" % number)
        await trio.sleep(LINGER_S * 1.5)
        assert pending.is_settled
        assert world.net.count(m.Produce) == before + 1


async def _in_turn(producer: octopi.Producer, logs: int, rounds: int, round_s: float) -> None:
    """A message to each log, then the next to each; all in rounds of *round_s*."""
    for number in range(logs * rounds):
        await producer.submit(f"t{number % logs}", b"value")
        await trio.sleep(round_s / logs)


@pytest.mark.parametrize(("logs", "sent_most"), [(10, 20 * 10), (200, 4 * 200)])
async def test_messages_to_many_logs_in_turn_linger_until_each_log_has_several(
    logs: int, sent_most: int, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client, client.producer() as producer:
        await _in_turn(producer, logs, 1, 1)  # finds the leaders
        await producer.flush()
        before = world.net.count(m.Produce)
        await _in_turn(producer, logs, 20, 1.2 * LINGER_S)
        began = trio.current_time()
        await producer.flush()
        assert trio.current_time() - began < LINGER_S, "what is flushed doesn't linger"
        sent = world.net.count(m.Produce) - before
        assert sent_most / 2 < sent <= sent_most


async def test_a_send_among_many_logs_does_not_linger(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client, client.producer() as producer:
        await _in_turn(producer, 100, 1, 0)
        await producer.flush()
        await _in_turn(producer, 100, 1, 0)
        before = trio.current_time()
        await producer.send("t0", b"value")
        assert trio.current_time() == before


async def test_a_full_batch_is_sent_at_once(autojump_clock: MockClock) -> None:
    async with (
        running_world() as world,
        world.client() as client,
        client.producer(linger_s=60, batch_bytes=1000) as producer,
    ):
        await producer.send("orders", b"finds the leader")
        pending = await producer.submit("orders", bytes(1000))
        before = trio.current_time()
        await pending
        assert trio.current_time() == before


async def test_many_messages_at_once_are_stored_in_their_order_and_fill_batches(
    autojump_clock: MockClock,
) -> None:
    messages = [b"%d" % number for number in range(1000)]
    async with running_world() as world, world.client() as client:
        async with client.producer(batch_bytes=1000, buffer_bytes=5000) as producer:
            await producer.submit("orders", b"first")
            before = world.net.count(m.Produce)
            await producer.submit_many("orders", messages, headers={"h": b"v"})
            await producer.submit("orders", b"last")
            await producer.flush()
            batches = world.net.count(m.Produce) - before
            size_bytes = sum(61 + 8 + len(value) for value in messages)
            assert size_bytes / 1100 < batches <= size_bytes / 1000 + 2
            assert producer.acknowledged_count == 1002
        assert await values(client, "orders") == [b"first", *messages, b"last"]
        assert (await read_all(client, "orders"))[5].headers == {"h": b"v"}


async def test_of_many_messages_none_is_taken_if_one_is_too_large(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        async with client.producer() as producer:
            with pytest.raises(octopi.MalformedRecordError):
                await producer.submit_many("orders", [b"good", bytes(RECORD_BYTES_MAX)])
            with pytest.raises(TypeError):
                await producer.submit_many("orders", [b"good", "text"])  # type: ignore[list-item]
            await producer.submit_many("orders", [])
            mutable = bytearray(b"mutable")
            await producer.submit_many("orders", [mutable])  # type: ignore[list-item]
        assert await values(client, "orders") == [b"mutable"]


async def test_sends_of_many_tasks_share_batches(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        async with client.producer() as producer:
            await producer.send("orders", b"finds the leader")
            before = world.net.count(m.Produce)
            async with trio.open_nursery() as nursery:
                for number in range(100):
                    nursery.start_soon(producer.send, "orders", b"%d" % number)
            assert world.net.count(m.Produce) <= before + 3
        assert len(await values(client, "orders")) == 101


@pytest.mark.parametrize("action", ["break before", "break after", "lose"])
@pytest.mark.parametrize("message", [m.Produce, m.Produced])
async def test_a_message_is_stored_once_whatever_gets_lost_on_the_way(
    action: str, message: type, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        async with client.producer() as producer:
            await producer.send("orders", b"0")
            world.net.fault(message, action)  # type: ignore[arg-type]
            receipt = await producer.send("orders", b"1")
            await producer.send("orders", b"2")
        read = await read_all(client, "orders")
        assert [one.value for one in read] == [b"0", b"1", b"2"]
        assert read[1].offset == receipt.offset
        stored_before = message is m.Produced or action == "break after"
        assert receipt.duplicate == (
            stored_before and (message, action) != (m.Produced, "break after")
        )


async def test_a_broker_that_dies_again_and_again_loses_doubles_and_reorders_nothing(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        sent = [b"%d" % number for number in range(3000)]

        async def trouble() -> None:
            for _ in range(5):
                await trio.sleep(0.4)
                await world.restart()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trouble)
            async with client.producer(batch_bytes=500) as producer:
                pendings = []
                for number, value in enumerate(sent):
                    pendings.append(await producer.submit("orders", value))
                    if number % 100 == 0:
                        await trio.sleep(0.1)
                receipts = [await pending for pending in pendings]
        read = await read_all(client, "orders")
        assert [one.value for one in read] == sent
        assert [one.offset for one in read] == [receipt.offset for receipt in receipts]


async def test_a_producer_goes_on_while_the_register_is_away(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        async with client.producer() as producer:
            await producer.send("orders", b"0")
            await world.kill(REGISTER)
            await producer.send("orders", b"1")
            world.net.cut(BROKER)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(producer.send, "orders", b"2")
                await trio.sleep(5)
                await world.start_register()
        assert await values(client, "orders") == [b"0", b"1", b"2"]


async def test_a_message_that_was_never_sent_is_not_delivered_when_its_time_is_up(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await world.kill()
        async with client.producer(delivery_timeout_s=20) as producer:
            before = trio.current_time()
            with pytest.raises(
                octopi.NotDeliveredError, match=r"orders/\d: no receipt within 20 s"
            ):
                await producer.send("orders", b"lost")
            assert trio.current_time() - before == pytest.approx(20, abs=0.1)
        await world.start_broker()
        assert await values(client, "orders") == []


async def test_a_message_without_an_answer_has_an_unknown_outcome_when_its_time_is_up(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        async with client.producer(delivery_timeout_s=40) as producer:
            await producer.send("orders", b"0")
            world.net.fault(m.Produced, "lose", times=1000)
            with pytest.raises(octopi.OutcomeUnknownError, match="40 s"):
                await producer.send("orders", b"maybe")
            world.net.faults.clear()
            await producer.send("orders", b"1")
        assert await values(client, "orders") == [b"0", b"maybe", b"1"]


async def test_a_register_that_is_away_ends_in_not_delivered(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await world.kill(REGISTER)
        async with client.producer(delivery_timeout_s=3) as producer:
            with pytest.raises(octopi.NotDeliveredError, match=REGISTER):
                await producer.send("orders", b"value")


async def test_a_key_always_goes_to_the_same_partition_and_keeps_its_order(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        info = await client.create_topic("wide", 4)
        async with client.producer(batch_bytes=100) as producer:
            for number in range(200):
                await producer.submit("wide", b"%d" % number, key=b"key-%d" % (number % 7))
        read = await read_all(client, "wide")
        assert {one.partition for one in read} <= {one.partition for one in info.partitions}
        for key in {one.key for one in read}:
            mine = [one for one in read if one.key == key]
            assert len({one.partition for one in mine}) == 1
            assert [int(one.value) for one in mine] == sorted(int(one.value) for one in mine)


async def test_messages_without_a_key_visit_every_partition_batch_by_batch(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("wide", 4)
        async with client.producer(batch_bytes=1000) as producer:
            pendings = [await producer.submit("wide", bytes(100)) for _ in range(80)]
            partitions = [(await pending).partition for pending in pendings]
        assert sorted(partitions.count(one) for one in set(partitions)) == [17, 21, 21, 21]
        changes = sum(a != b for a, b in pairwise(partitions))
        assert changes == 11  # twelve batches of seven, the last one short


async def test_a_chosen_partition_is_honoured_and_a_wrong_one_refused_at_once(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("chosen", partition_ids=[2, 5])
        async with client.producer() as producer:
            assert (await producer.send("chosen", b"a", partition=5)).partition == 5
            assert (await producer.send("chosen", b"b", partition=2, key=b"k")).partition == 2
            with pytest.raises(octopi.RefusedError, match="no partition 3; it has 2, 5") as caught:
                await producer.send("chosen", b"c", partition=3)
            assert caught.value.status is octopi.Status.UNKNOWN_PARTITION
        assert len(await values(client, "chosen")) == 2


async def test_a_missing_topic_is_created_only_if_the_option_says_so(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        async with client.producer(create_topics=False) as producer:
            with pytest.raises(octopi.UnknownTopicError):
                await producer.send("orders", b"value")
        assert await client.topics() == []
        async with client.producer() as producer:
            await producer.send("orders", b"value")
        assert [one.topic for one in await client.topics()] == ["orders"]


async def test_an_invalid_message_is_refused_and_harms_no_other(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        async with client.producer(linger_s=1) as producer:
            await producer.submit("orders", b"before")
            with pytest.raises(TypeError, match="value must be bytes, not str"):
                await producer.submit("orders", "text")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="key must be bytes, not int"):
                await producer.submit("orders", b"", key=7)  # type: ignore[arg-type]
            with pytest.raises(octopi.MalformedRecordError, match="at most"):
                await producer.submit("orders", bytes(9 * 1024 * 1024))
            with pytest.raises(octopi.InvalidOptionError, match="time zone"):
                await producer.submit("orders", b"", timestamp=datetime(2026, 1, 1))
            with pytest.raises(octopi.InvalidTopicError):
                await producer.submit("../etc", b"")
            await producer.submit("orders", bytearray(b"after"))  # type: ignore[arg-type]
        assert await values(client, "orders") == [b"before", b"after"]


async def test_a_refused_message_alone_does_not_hold_up_the_first_batch(
    autojump_clock: MockClock,
) -> None:
    async with (
        running_world() as world,
        world.client() as client,
        client.producer() as producer,
    ):
        await producer.send("orders", b"first")
        with pytest.raises(octopi.MalformedRecordError):
            await producer.submit("orders", bytes(9 * 1024 * 1024))
        await producer.flush()
        receipt = await producer.send("orders", b"second")
        assert receipt.offset > Offset(0)


async def test_a_full_buffer_holds_back_submit_until_there_is_room(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        options = {"batch_bytes": 1000, "buffer_bytes": 5000, "linger_s": 0.001}
        async with client.producer(**options) as producer:  # type: ignore[arg-type]
            await producer.send("orders", b"finds the leader")
            with world.net.away(BROKER):
                for _ in range(5):
                    await producer.submit("orders", bytes(1000))
                with pytest.raises(trio.WouldBlock):
                    producer.submit_nowait("orders", bytes(1000))
                with trio.move_on_after(1) as waiting:
                    await producer.submit("orders", b"too many")
                assert waiting.cancelled_caught
            await producer.submit("orders", b"the last")
        read = await values(client, "orders")
        assert len(read) == 7
        assert read[-1] == b"the last"


async def test_a_buffer_that_stays_full_ends_in_not_delivered(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        options = {"batch_bytes": 1000, "buffer_bytes": 1000, "delivery_timeout_s": 5}
        async with client.producer(**options) as producer:  # type: ignore[arg-type]
            await producer.send("orders", b"finds the leader")
            await world.kill()
            await trio.sleep(1)
            first = await producer.submit("orders", bytes(1000))
            await trio.sleep(1)
            async with trio.open_nursery() as nursery:
                # Both wait; the first one's room comes when the older message expired.
                nursery.start_soon(producer.submit, "orders", bytes(1000))
                with pytest.raises(octopi.DeliveryError):
                    await first
            with pytest.raises(octopi.DeliveryError, match="1 message was not"):
                await producer.flush()


async def test_submit_nowait_needs_a_known_topic_and_sends_like_submit(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        async with client.producer() as producer:
            with pytest.raises(trio.WouldBlock):
                producer.submit_nowait("orders", b"too early")
            await producer.send("orders", b"0")
            receipt = await producer.submit_nowait("orders", b"1", key=b"k")
            assert receipt.topic == "orders"
        assert await values(client, "orders") == [b"0", b"1"]


async def test_a_pending_receipt_can_be_awaited_often_and_later(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        async with client.producer() as producer:
            pending = await producer.submit("orders", b"value")
            found: list[octopi.Receipt] = []

            async def wait() -> None:
                found.append(await pending)

            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(wait)
            assert found == [await pending] * 3
        assert await pending.receipt() == found[0]


async def test_flush_reports_each_unreported_failure_once(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await world.kill()
        async with client.producer(delivery_timeout_s=1) as producer:
            pendings = [await producer.submit("orders", b"%d" % number) for number in range(5)]
            with pytest.raises(octopi.NotDeliveredError):
                await pendings[0]
            with pytest.raises(octopi.NotDeliveredError):
                await pendings[0]
            with pytest.raises(octopi.NotDeliveredError, match="4 messages were not acknowledged"):
                await producer.flush()
            await producer.flush()
            late = await producer.submit("orders", b"one more")
            for pending in pendings:
                with pytest.raises(octopi.NotDeliveredError):
                    await pending
            with pytest.raises(octopi.NotDeliveredError, match="1 message was not acknowledged"):
                await producer.flush()
            with pytest.raises(octopi.NotDeliveredError):
                await late


async def test_leaving_the_block_waits_and_reports_failed_messages(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        async with client.producer(linger_s=100) as producer:
            pending = await producer.submit("orders", b"value")
        assert (await pending).offset == 0
        await world.kill()
        with pytest.raises(octopi.NotDeliveredError, match="1 message was"):
            async with client.producer(delivery_timeout_s=1) as producer:
                await producer.submit("orders", b"lost")


async def test_leaving_by_an_exception_settles_everything_without_waiting(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        async with client.producer() as producer:
            await producer.send("orders", b"0")
        pendings: list[octopi.PendingReceipt] = []

        async def fail_while_messages_are_underway() -> None:
            async with client.producer(linger_s=100, batch_bytes=100) as producer:
                await producer.send("orders", b"1")
                world.net.fault(m.Produced, "lose", times=100)
                pendings.append(await producer.submit("orders", bytes(100)))
                pendings.append(await producer.submit("orders", b"queued"))
                raise ZeroDivisionError

        before = trio.current_time()
        with pytest.raises(ZeroDivisionError):
            await fail_while_messages_are_underway()
        assert trio.current_time() == before
        with pytest.raises(octopi.OutcomeUnknownError, match="closed"):
            await pendings[0]
        with pytest.raises(octopi.NotDeliveredError, match="closed"):
            await pendings[1]
        with pytest.raises(octopi.ClosedError):
            await producer.submit("orders", b"too late")
        with pytest.raises(octopi.ClosedError):
            producer.submit_nowait("orders", b"too late")


async def test_a_closed_producer_ignores_what_happens_to_its_connection(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_world() as world, world.client() as client:

        async def fail_while_a_message_is_underway() -> None:
            async with client.producer() as producer:
                await producer.send("orders", b"0")
                world.net.fault(m.Produced, "lose")
                await producer.submit("orders", b"1")
                await trio.sleep(1)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail_while_a_message_is_underway()
        await world.kill()
        await trio.testing.wait_all_tasks_blocked()
        assert [one.name for one in caplog.records if one.levelname == "ERROR"] == []


async def test_a_deleted_topic_is_created_again_for_the_next_message(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        async with client.producer() as producer:
            await producer.send("orders", b"gone")
            await client.delete_topic("orders")
            await producer.send("orders", b"new")
        assert await values(client, "orders") == [b"new"]


async def test_a_deleted_topic_is_an_error_if_the_producer_may_not_create_topics(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        async with client.producer(create_topics=False) as producer:
            await producer.send("orders", b"gone")
            await client.delete_topic("orders")
            with pytest.raises(octopi.NotDeliveredError, match="no topic orders"):
                await producer.send("orders", b"new")


async def test_a_topic_that_came_back_with_other_partitions_is_routed_anew(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders", partition_ids=[1])
        async with client.producer() as producer:
            await producer.send("orders", b"gone")
            await client.delete_topic("orders")
            await client.create_topic("orders", partition_ids=[2])
            with pytest.raises(octopi.NotDeliveredError, match="no partition 1"):
                await producer.send("orders", b"to the old place")
            assert (await producer.send("orders", b"new")).partition == 2
        assert await values(client, "orders") == [b"new"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("linger_s", -1),
        ("batch_bytes", 0),
        ("batch_bytes", 16 * 2**20),
        ("batches_in_flight", 0),
        ("batches_in_flight", 65),
        ("buffer_bytes", 1),
        ("delivery_timeout_s", 0),
    ],
)
async def test_an_option_out_of_its_range_is_refused(
    option: str, value: int, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        with pytest.raises(octopi.InvalidOptionError, match=option):
            async with client.producer(**{option: value}):  # type: ignore[arg-type]
                pass


async def test_a_producer_that_was_fenced_says_so(autojump_clock: MockClock) -> None:
    def fence(message: object) -> object:
        assert isinstance(message, m.Produced)
        return m.Failure(message.request, octopi.Status.PRODUCER_FENCED, "another life writes")

    async with running_world() as world, world.client() as client:
        with pytest.raises(octopi.ProducerFencedError) as caught:  # noqa: PT012
            async with client.producer() as producer:
                await producer.send("orders", b"0")
                world.net.fault(m.Produced, "change", change=fence)
                with pytest.raises(octopi.NotDeliveredError, match="another life writes"):
                    await producer.send("orders", b"1")
                with pytest.raises(octopi.ProducerFencedError, match="another life writes"):
                    await producer.send("orders", b"2")
        assert caught.value.status is octopi.Status.PRODUCER_FENCED


def not_here(message: object) -> object:
    assert isinstance(message, m.Produced)
    return m.Failure(message.request, octopi.Status.NOT_LEADER, "not here", BROKER, Epoch(2))


async def test_a_producer_goes_at_once_to_the_successor_that_its_leader_names(
    autojump_clock: MockClock,
) -> None:
    async with (
        running_world() as world,
        world.client() as client,
        client.producer() as producer,
    ):
        await producer.send("orders", b"0")
        await world.kill(REGISTER)
        world.net.fault(m.Produced, "change", change=not_here)
        before = trio.current_time()
        await producer.send("orders", b"1")
        assert trio.current_time() == before


async def test_leaders_that_name_each_other_do_not_make_a_producer_loop(
    autojump_clock: MockClock,
) -> None:
    async with (
        running_world() as world,
        world.client() as client,
        client.producer() as producer,
    ):
        await producer.send("orders", b"0")
        world.net.fault(m.Produced, "change", change=not_here, times=20)
        before, asked = trio.current_time(), world.net.count(m.DescribeTopic)
        await producer.send("orders", b"1")
        assert trio.current_time() - before > 1
        assert world.net.count(m.DescribeTopic) - asked == 19


async def test_a_connection_that_gives_no_answer_is_given_up(autojump_clock: MockClock) -> None:
    async with (
        running_world() as world,
        world.client() as client,
        client.producer() as producer,
    ):
        await producer.send("orders", b"0")
        world.net.fault(m.Produced, "lose")
        before = world.net.connect_count
        assert (await producer.send("orders", b"1")).duplicate
        assert world.net.connect_count == before + 1


async def test_the_logs_of_a_topic_share_their_questions_to_the_register(
    autojump_clock: MockClock,
) -> None:
    async with (
        running_world() as world,
        world.client() as client,
        client.producer() as producer,
    ):
        info = await client.create_topic("wide", 8)

        async def send_everywhere() -> None:
            async with trio.open_nursery() as nursery:
                for one in info.partitions:
                    send = partial(producer.send, "wide", b"value", partition=one.partition)
                    nursery.start_soon(send)

        await send_everywhere()
        before = world.net.count(m.DescribeTopic)
        world.net.cut(BROKER)
        await send_everywhere()
        assert world.net.count(m.DescribeTopic) - before <= 2


async def test_a_log_without_messages_under_way_costs_no_task(autojump_clock: MockClock) -> None:
    async with (
        running_world() as world,
        world.client() as client,
        client.producer() as producer,
    ):
        await client.create_topic("orders")
        await trio.sleep(60)
        before = trio.lowlevel.current_statistics().tasks_living
        await producer.send("orders", b"value")
        await trio.sleep(60)
        # The connection to the broker stays: its two tasks here, and three over there.
        assert trio.lowlevel.current_statistics().tasks_living <= before + 5
        idle = trio.lowlevel.current_statistics().tasks_living
        for number in range(10):
            await client.create_topic(f"topic-{number}")
            await producer.send(f"topic-{number}", b"value")
        await trio.sleep(60)
        assert trio.lowlevel.current_statistics().tasks_living == idle
