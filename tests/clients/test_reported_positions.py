"""Brokers are told how far the programs of consumers are: what was sent may lie in buffers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.clients.consuming.position_reports import PositionReports
from octopi.identifiers import Offset
from octopi.limits import POSITION_REPORT_INTERVAL_S
from octopi.wire import messages as m
from tests.kit.world import BROKER, World, connection, running_world

INTERVAL_S = POSITION_REPORT_INTERVAL_S


async def fill(client: octopi.Client, topic: str, values: Sequence[bytes]) -> list[octopi.Receipt]:
    async with client.producer(linger_s=0) as producer:
        return [await producer.send(topic, value) for value in values]


async def shown(world: World) -> list[m.ReadingInfo]:
    async with connection(world, BROKER) as broker:
        question = m.DescribeReadings(broker.next_request(), "")
        return (await broker.request(question, m.ReadingList, 5)).readings


async def test_a_program_that_does_not_process_its_messages_is_shown_with_its_lag(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        receipts = await fill(client, "orders", [b"x" * 1000] * 10)
        end = receipts[-1].next_offset
        async with client.consumer("orders", start="earliest") as consumer:
            await anext(consumer)  # all of them were sent, and the first is worked on
            await trio.sleep(3 * INTERVAL_S)
            [info] = await shown(world)
            assert (info.sent_lag_bytes, info.lag_bytes, info.dealt) == (0, end, 0)
            for _ in range(4):
                await anext(consumer)
            await trio.sleep(3 * INTERVAL_S)
            [info] = await shown(world)
            assert (info.sent_lag_bytes, info.dealt) == (0, receipts[4].offset)
            assert consumer.position.places[receipts[4].partition].offset == receipts[4].next_offset
            with trio.move_on_after(2 * INTERVAL_S):  # it asks for one that doesn't come
                while True:
                    await anext(consumer)
            [info] = await shown(world)
            assert (info.lag_bytes, info.dealt) == (0, end)


async def test_a_batch_counts_as_processed_when_the_next_one_is_asked_for(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        end = (await fill(client, "orders", [b"x"] * 10))[-1].next_offset
        async with client.consumer("orders", start="earliest") as consumer:
            await consumer.next_batch()
            await trio.sleep(2 * INTERVAL_S)
            assert [one.lag_bytes for one in await shown(world)] == [end]
            with trio.move_on_after(2 * INTERVAL_S):
                await consumer.next_batch()
            assert [one.lag_bytes for one in await shown(world)] == [0]


async def test_a_program_that_takes_no_message_has_a_lag_from_the_beginning(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        end = (await fill(client, "orders", [b"x"] * 10))[-1].next_offset
        async with client.consumer("orders", start="earliest"):
            await trio.sleep(INTERVAL_S / 2)
            assert [one.lag_bytes for one in await shown(world)] == [end]


async def test_a_consumer_reports_its_position_again_after_a_restart_of_its_broker(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        receipts = await fill(client, "orders", [b"x"] * 3)
        async with client.consumer("orders", start="earliest") as consumer:
            for _ in range(3):
                await anext(consumer)
            await trio.sleep(2 * INTERVAL_S)
            await world.restart()
            await trio.sleep(30)  # it is found again
            assert [one.dealt for one in await shown(world)] == [receipts[2].offset]


async def test_few_reports_are_sent_however_many_messages_are_read(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[tuple[float, Offset]] = []
    tell = PositionReports.next

    def told(self: PositionReports, dealt: Offset, taken: Offset, now: float) -> Offset | None:
        offset = tell(self, dealt, taken, now)
        if offset is not None:
            reported.append((now, offset))
        return offset

    monkeypatch.setattr(PositionReports, "next", told)
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        async with client.consumer("orders", start="earliest") as consumer:
            for _ in range(100):
                await fill(client, "orders", [b"x"])
                await anext(consumer)
                await trio.sleep(0.1)
            await trio.sleep(100)  # the last message stays in hand
    times = [at for at, _ in reported]
    offsets = [offset for _, offset in reported]
    assert all(later - at >= INTERVAL_S - 1e-6 for at, later in pairwise(times))
    assert 9 <= len(reported) <= 13
    assert offsets == sorted(set(offsets))


async def test_a_member_of_a_subscription_has_processed_what_it_has_marked(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        receipts = await fill(client, "orders", [b"x"] * 4)
        async with client.subscription("orders", "billing", mark="manual") as orders:
            messages = [await anext(orders) for _ in range(4)]
            orders.mark(messages[1])
            await trio.sleep(2 * INTERVAL_S)
            [info] = await shown(world)
            assert (info.sent_lag_bytes, info.dealt) == (0, receipts[2].offset)
            orders.mark(messages[3])
            await trio.sleep(2 * INTERVAL_S)
            assert [one.lag_bytes for one in await shown(world)] == [0]


async def test_a_connections_name_is_shown_with_what_it_reads(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client(name="billing \u00e9") as client:
        await fill(client, "orders", [b"x"])
        async with client.consumer("orders"):
            await trio.sleep(0.1)
            [info] = await shown(world)
            assert info.name == "billing \u00e9"
            assert info.agent.startswith("octopi-python/")


async def test_a_member_of_a_subscription_is_shown_with_its_connections_name(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client(name="host-7") as client:
        await fill(client, "orders", [b"x"])
        async with client.subscription("orders", "billing") as orders:
            await anext(orders)
            seen = await client.admin.describe_subscription("orders", "billing")
            assert [(one.name, one.static) for one in seen.members] == [("host-7", False)]


# --- the machine -----------------------------------------------------------------------


def at(offset: int) -> Offset:
    return Offset(offset)


def test_a_reading_begins_with_a_report_and_then_reports_only_changes() -> None:
    reports = PositionReports()
    assert reports.is_idle
    reports.begin()
    assert not reports.is_idle
    assert reports.due_at == -math.inf
    assert reports.next(at(5), at(5), 10.0) == 5
    assert reports.is_idle
    reports.taken()
    assert (reports.is_idle, reports.due_at) == (False, 10.0 + INTERVAL_S)
    assert reports.next(at(5), at(9), 11.0) is None  # it works on what it took
    assert (reports.is_idle, reports.due_at) == (False, 11.0 + INTERVAL_S)
    assert reports.next(at(9), at(9), 12.0) == 9
    assert reports.is_idle


def test_a_program_ahead_of_a_fork_reports_no_position_beyond_the_fork() -> None:
    reports = PositionReports()
    reports.begin()
    assert reports.next(at(100), at(50), 0.0) == 50
