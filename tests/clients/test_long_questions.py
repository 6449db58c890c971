"""Questions about large logs keep nobody waiting: no turn of a task reads much."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from octopi.errors import NotLeaderError, NotReadyError, Status
from octopi.identifiers import Offset, PartitionId, ProducerEpoch, Sequence
from octopi.limits import FETCH_BYTES_DEFAULT, SLICE_BYTES
from octopi.record import BatchBuilder
from octopi.roles.broker import readable_log
from octopi.roles.broker.services import read
from octopi.simulation.kernel.turn_meter import TurnMeter, counted
from octopi.storage.time_slices import Slices, at_once
from octopi.transport.connection import Connection
from octopi.transport.turns import ConnectionTurn
from octopi.wire import messages as m
from tests.kit.disk import MemoryDisk
from tests.kit.probes import ALICE, produce, refusal_of
from tests.kit.world import BROKER, REGISTER, World, connection, running_world

TURN_BYTES_MAX = FETCH_BYTES_DEFAULT + 4 * SLICE_BYTES
"""A read for a consumer, and a slice."""
PER_BATCH = 4000
COUNT = 7 * PER_BATCH
VALUE = b"v" * 443
RECORD_BYTES = 500


def records(first: int, count: int) -> bytes:
    builder = BatchBuilder()
    for number in range(count):
        builder.add(VALUE, timestamp_ms=first + number)
    return builder.encode(ALICE, ProducerEpoch(0), Sequence(first))


@attrs.define
class Here:
    """A broker with a log of `COUNT` records in several segments."""

    world: World
    broker: Connection
    topic: m.TopicInfo
    disk: MemoryDisk
    turns: TurnMeter
    opening_bytes: int = 0
    """What one turn read at most until the broker led again after it had been killed."""
    opening_task: str = ""

    @property
    def partition(self) -> int:
        return self.topic.partitions[0].partition

    def find(self, at: str, value: int) -> m.FindOffset:
        number = self.broker.next_request()
        return m.FindOffset(number, "orders", PartitionId(self.partition), at, value)

    def harm_indexes(self) -> None:
        for name in self.index_names():
            self.disk.plant(name, bytes(byte ^ 1 for byte in self.disk.content(name)))

    def index_names(self) -> list[str]:
        directory = f"data/logs/{self.partition}/orders"
        names = self.disk.list_directory(directory)
        return [f"{directory}/{name}" for name in names if name.endswith(".index")]


@asynccontextmanager
async def large_log(retention_ms: int | None = None) -> AsyncIterator[Here]:
    async with running_world() as world:
        async with connection(world, REGISTER) as register:
            kept = m.TopicOptions(retention_ms, segment_bytes=4 * 1024 * 1024)
            create = m.CreateTopic(register.next_request(), "orders", 1, None, kept)
            topic = (await register.request(create, m.TopicDescription, 5)).topic
        async with connection(world, BROKER) as broker:
            for first in range(0, COUNT, PER_BATCH):
                assert len(records(first, 1)) == RECORD_BYTES
                await produce(broker, topic, records(first, PER_BATCH))
        await trio.sleep(2)  # it is flushed
        disk, turns = world.nodes[BROKER].disk, TurnMeter()
        await world.kill()
        world.nodes[BROKER].disk = counted(disk, turns)  # type: ignore[assignment]
        await world.start_broker()
        async with connection(world, BROKER) as broker:
            here = Here(world, broker, topic, disk, turns)
            with trio.fail_after(10):
                await until_it_leads(here)
            here.opening_bytes, here.opening_task = turns.bytes_max, turns.task
            turns.forget()
            yield here


async def until_it_leads(here: Here) -> None:
    while True:
        try:
            found = await here.broker.request(here.find("latest", 0), m.FoundOffset, 5)
        except (NotLeaderError, NotReadyError):
            await trio.sleep(0.1)
        else:
            assert found.offset == COUNT * RECORD_BYTES
            return


async def test_a_broker_that_starts_with_a_large_log_reads_little_of_it_in_one_turn(
    autojump_clock: MockClock,
) -> None:
    async with large_log() as here:
        assert here.opening_bytes <= TURN_BYTES_MAX, here.opening_task


QUESTIONS = {
    ("last", 10**9): 0,
    ("last", COUNT - 1234): 1234,
    ("last", 10): COUNT - 10,
    ("timestamp", 9876): 9876,
    ("timestamp", 10**9): COUNT,
    ("boundary", 20_000 * RECORD_BYTES + 7): 20_000,
}


@pytest.mark.parametrize("harmed", [False, True])
async def test_no_question_about_a_large_log_reads_much_in_one_turn(
    autojump_clock: MockClock, harmed: bool
) -> None:
    async with large_log() as here:
        if harmed:
            here.harm_indexes()
        for (at, value), number in QUESTIONS.items():
            found = await here.broker.request(here.find(at, value), m.FoundOffset, 5)
            assert found.offset == number * RECORD_BYTES
        assert here.turns.bytes_max <= TURN_BYTES_MAX, here.turns.task


async def test_reading_with_a_damaged_index_reads_little_in_one_turn(
    autojump_clock: MockClock,
) -> None:
    async with large_log() as here:
        here.harm_indexes()
        offset = 18_000 * RECORD_BYTES
        fetch = m.Fetch(
            here.broker.next_request(), "orders", PartitionId(here.partition), Offset(offset), 1, 0
        )
        fetched = await here.broker.request(fetch, m.Fetched, 5)
        assert fetched.records == records(18_000, 1)
        deliveries: list[Any] = []
        subscribe = m.Subscribe(
            here.broker.next_request(),
            "orders",
            PartitionId(here.partition),
            Offset(2_000 * RECORD_BYTES),
            2_002 * RECORD_BYTES,
        )
        here.broker.ask(subscribe, deliveries.append)
        await trio.sleep(1)
        subscribed, delivery = deliveries
        assert isinstance(subscribed, m.Subscribed)
        assert delivery.records == records(2_000, 2)
        assert here.turns.bytes_max <= 8 * SLICE_BYTES + TURN_BYTES_MAX, here.turns.task


async def test_an_offset_inside_a_record_is_refused_even_if_the_index_is_damaged(
    autojump_clock: MockClock,
) -> None:
    async with large_log() as here:
        here.harm_indexes()
        offset = 18_000 * RECORD_BYTES + 3
        fetch = m.Fetch(
            here.broker.next_request(), "orders", PartitionId(here.partition), Offset(offset), 1, 0
        )
        refused = await refusal_of(here.broker.request(fetch, m.Fetched, 5))
        assert refused.status == Status.OFFSET_INSIDE_RECORD
        here.harm_indexes()
        offset = 2_000 * RECORD_BYTES + 3
        number = here.broker.next_request()
        subscribe = m.Subscribe(
            number, "orders", PartitionId(here.partition), Offset(offset), 10**9
        )
        refused = await refusal_of(here.broker.request(subscribe, m.Subscribed, 5))
        assert refused.status == Status.OFFSET_INSIDE_RECORD


@pytest.mark.parametrize("harmed", [False, True])
async def test_parts_of_stored_batches_that_are_sent_again_are_found_without_reading_much(
    autojump_clock: MockClock, harmed: bool
) -> None:
    async with large_log() as here:
        if harmed:
            here.harm_indexes()
        answers: list[Any] = []
        sent = [3 * PER_BATCH + 50 * number for number in range(50)]
        for first in sent:
            number = here.broker.next_request()
            again = m.Produce(number, "orders", PartitionId(here.partition), records(first, 1))
            here.broker.ask(again, answers.append)
        await trio.sleep(1)
        assert sorted(one.offset for one in answers) == [one * RECORD_BYTES for one in sent]
        assert all(one.duplicate for one in answers)
        assert here.turns.bytes_max <= TURN_BYTES_MAX, here.turns.task


async def test_retention_that_learns_the_ages_of_old_segments_reads_little_in_one_turn(
    autojump_clock: MockClock,
) -> None:
    async with large_log(retention_ms=30_000) as here:
        here.harm_indexes()
        await produce(here.broker, here.topic, records(COUNT, 1))  # has the log flushed
        await trio.sleep(100)
        found = await here.broker.request(here.find("earliest", 0), m.FoundOffset, 5)
        assert found.offset > 0
        assert here.turns.bytes_max <= TURN_BYTES_MAX, here.turns.task


async def test_a_client_with_many_questions_does_not_delay_a_client_with_one(
    autojump_clock: MockClock,
) -> None:
    order: list[str] = []
    async with large_log() as here, connection(here.world, BROKER) as other:
        for _ in range(60):
            here.broker.ask(here.find("last", COUNT - 5), lambda _: order.append("much"))
        asked = attrs.evolve(here.find("last", COUNT - 5), request=other.next_request())
        other.ask(asked, lambda _: order.append("little"))
        await trio.sleep(1)
        assert len(order) == 61
        assert order.index("little") < 5


async def test_questions_of_a_connection_that_ends_end_with_it(autojump_clock: MockClock) -> None:
    async with large_log() as here:
        async with connection(here.world, BROKER) as other:
            here.harm_indexes()
            for _ in range(60):
                asked = attrs.evolve(here.find("last", COUNT - 5), request=other.next_request())
                other.ask(asked, lambda _: None)
            await trio.lowlevel.checkpoint()
            await other.close()
        found = await here.broker.request(here.find("last", COUNT - 5), m.FoundOffset, 5)
        assert found.offset == 5 * RECORD_BYTES


async def test_a_walk_in_one_turn_is_noticed(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def in_one_turn(work: Slices[object], turn: ConnectionTurn | None = None) -> object:
        return at_once(work)

    for module in (read, readable_log):
        monkeypatch.setattr(module, "in_turns", in_one_turn)
    async with large_log() as here:
        here.harm_indexes()
        await here.broker.request(here.find("last", COUNT - 5), m.FoundOffset, 5)
        assert here.turns.bytes_max > 4 * TURN_BYTES_MAX
        assert "_find_later" in here.turns.task
