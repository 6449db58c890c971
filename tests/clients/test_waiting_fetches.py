"""Fetches that wait for records do not keep the other requests of their connection waiting."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from octopi.errors import Status
from octopi.identifiers import Offset
from octopi.limits import (
    FETCH_WAIT_S_MAX,
    OUTBOX_BYTES_MAX,
    REQUESTS_IN_FLIGHT_MAX,
    WAITING_FETCHES_MAX,
)
from octopi.roles.broker.local_log import LocalLog
from octopi.transport.connection import Connection
from octopi.wire import messages as m
from tests.kit.probes import batch, fetch, produce
from tests.kit.world import connection, describe, running_world

WAIT_MS = round(FETCH_WAIT_S_MAX * 1000)


@asynccontextmanager
async def with_waiting_fetches(
    count: int, bytes_max: int = 1000
) -> AsyncIterator[tuple[Connection, m.TopicInfo, list[object]]]:
    """A connection on which *count* fetches wait at the end of a topic, and their answers."""
    answers: list[object] = []
    async with running_world() as world:
        topic = await describe(world, "orders")
        place = topic.partitions[0]
        async with connection(world, place.leader_address) as broker:
            for _ in range(count):
                number = broker.next_request()
                broker.ask(
                    m.Fetch(number, "orders", place.partition, Offset(0), bytes_max, WAIT_MS),
                    answers.append,
                )
            await wait_all_tasks_blocked()
            yield broker, topic, answers


async def test_a_produce_behind_as_many_waiting_fetches_as_there_may_be_is_answered_at_once(
    autojump_clock: MockClock,
) -> None:
    async with with_waiting_fetches(WAITING_FETCHES_MAX) as (broker, topic, answers):
        assert not answers
        began = trio.current_time()
        await produce(broker, topic, batch(0, b"one"))
        assert trio.current_time() - began < 0.5
        await wait_all_tasks_blocked()
        assert len(answers) == WAITING_FETCHES_MAX
        for answer in answers:
            assert isinstance(answer, m.Fetched)
            assert answer.records == batch(0, b"one")


async def test_a_fetch_beyond_the_bound_is_refused_and_the_others_go_on(
    autojump_clock: MockClock,
) -> None:
    async with with_waiting_fetches(WAITING_FETCHES_MAX + 1) as (broker, topic, answers):
        (refused,) = answers
        assert isinstance(refused, m.Failure)
        assert refused.status == Status.TOO_MANY
        assert refused.reason == (
            f"at most {WAITING_FETCHES_MAX} fetches of a connection wait for records"
        )
        await produce(broker, topic, batch(0, b"one"))
        await wait_all_tasks_blocked()
        assert len(answers) == WAITING_FETCHES_MAX + 1
        fetched = await fetch(broker, topic, len(batch(0, b"one")), wait_ms=10)
        assert fetched.records == b""


async def test_a_fetch_that_finds_records_does_not_count_as_waiting(
    autojump_clock: MockClock,
) -> None:
    async with with_waiting_fetches(1) as (broker, topic, answers):
        await produce(broker, topic, batch(0, b"one"))
        for _ in range(2 * WAITING_FETCHES_MAX):
            assert (await fetch(broker, topic, 0, WAIT_MS)).records == batch(0, b"one")
        assert len(answers) == 1


async def test_waiting_fetches_end_empty_when_their_time_is_over_and_make_room(
    autojump_clock: MockClock,
) -> None:
    async with with_waiting_fetches(WAITING_FETCHES_MAX) as (broker, topic, answers):
        await trio.sleep(FETCH_WAIT_S_MAX + 1)
        assert len(answers) == WAITING_FETCHES_MAX
        assert {answer.records for answer in answers if isinstance(answer, m.Fetched)} == {b""}
        assert (await fetch(broker, topic, 0, wait_ms=10)).records == b""


async def test_answers_to_waiting_fetches_wait_for_room_in_the_outbox(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 0
    post = Connection.post

    def watched(self: Connection, message: object) -> None:
        nonlocal most
        post(self, message)
        most = max(most, self.statistics().outbox_bytes)

    monkeypatch.setattr(Connection, "post", watched)
    large = batch(0, bytes(1024 * 1024))
    async with with_waiting_fetches(REQUESTS_IN_FLIGHT_MAX, len(large)) as (broker, topic, answers):
        await produce(broker, topic, large)
        await trio.sleep(1)
        assert len(answers) == REQUESTS_IN_FLIGHT_MAX
        assert most < OUTBOX_BYTES_MAX + 2 * len(large)


async def test_a_client_that_is_refused_for_too_many_waiting_fetches_asks_again(
    autojump_clock: MockClock,
) -> None:
    fetched: list[bytes] = []
    count = WAITING_FETCHES_MAX + 10
    async with running_world() as world, world.client() as client:
        (place,) = (await describe(world, "orders")).partitions[:1]

        async def wait() -> None:
            result = await client.fetch("orders", 0, partition=place.partition, wait_s=20)
            fetched.append(result.messages[0].value)

        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(wait)
            await trio.sleep(3)
            assert world.net.count(m.Failure) >= 10
            async with client.producer() as producer:
                await producer.send("orders", b"one", partition=place.partition)
    assert fetched == [b"one"] * count


class Steps(trio.abc.Instrument):
    """Counts how often tasks that wait for records are run."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += "_fetch_later" in task.name


async def test_a_fetch_goes_on_waiting_while_new_records_are_not_committed(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs: list[LocalLog] = []
    add_waker = LocalLog.add_waker

    def noted(self: LocalLog, wake: Callable[[], None]) -> None:
        logs.append(self)
        add_waker(self, wake)

    monkeypatch.setattr(LocalLog, "add_waker", noted)
    async with with_waiting_fetches(1) as (broker, topic, answers):
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        logs[-1].wake()
        for _ in range(50):
            await trio.lowlevel.checkpoint()
        trio.lowlevel.remove_instrument(steps)
        assert steps.count <= 1
        await produce(broker, topic, batch(0, b"one"))
        await wait_all_tasks_blocked()
        assert len(answers) == 1
