"""The limits on the work that others can ask of a broker or a register: each is exceeded here."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from octopi.environment import Environment
from octopi.errors import RefusedError, Status, StorageError
from octopi.identifiers import Offset
from octopi.limits import (
    EVENTS_KEPT_COUNT,
    FETCH_WAIT_S_MAX,
    FOLLOW_WINDOW_MESSAGES,
    HAND_OVERS_MAX,
    KIB,
    LIST_MEMORY_BYTES,
    MEMORY_ALLOWANCE_BYTES,
    READINGS_MAX,
    RECORDS_PER_REPLICATE_MAX,
    UNDONE_REASON_BYTES_MAX,
    WALKS_PER_NODE_MAX,
)
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.roles import topic_service
from octopi.roles.answers import answer_with_room, tell_with_room
from octopi.roles.broker.broker_health import BrokerHealth
from octopi.roles.broker.follower_connection import _Followed
from octopi.roles.broker.replica_driver import ReplicaDriver
from octopi.roles.broker.services import describe as describe_service
from octopi.roles.broker.slow_lookups import SlowLookups
from octopi.roles.register.event_log import EventLog
from octopi.roles.register.hand_overs import HandOvers
from octopi.storage.brief_lock import BriefLock
from octopi.transport.memory_budget import OUTBOX
from octopi.transport.memory_pool import MemoryAccount, Pool
from octopi.transport.outbox import Outbox
from octopi.wire import messages as m
from tests.kit.disk import MemoryDisk
from tests.kit.links import MemoryNet
from tests.kit.probes import batch
from tests.kit.world import REGISTER, connection, describe, running_world


@attrs.define
class Crowd:
    """Counts how many are in at the same time."""

    now: int = 0
    most: int = 0
    total: int = 0

    async def stay(self) -> None:
        self.now += 1
        self.total += 1
        self.most = max(self.most, self.now)
        await wait_all_tasks_blocked()
        self.now -= 1


# --- what clients ask for ---------------------------------------------------------------


async def test_a_connection_has_a_bounded_number_of_readings(
    autojump_clock: MockClock,
) -> None:
    answers: list[object] = []
    async with running_world() as world:
        place = (await describe(world, "orders")).partitions[0]
        async with connection(world, place.leader_address) as broker:

            async def subscribe() -> int:
                number = broker.next_request()
                asked = m.Subscribe(number, "orders", place.partition, 0, 1000)
                broker.ask(asked, answers.append)
                await wait_all_tasks_blocked()
                return number

            first = await subscribe()
            for _ in range(READINGS_MAX - 1):
                await subscribe()
            assert {type(one) for one in answers} == {m.Subscribed}
            answers.clear()
            await subscribe()
            (refused,) = answers
            assert isinstance(refused, m.Failure)
            assert refused.status == Status.TOO_MANY
            answers.clear()
            broker.post(m.Unsubscribe(first))
            await subscribe()
            assert [type(one) for one in answers] == [m.Done, m.Subscribed]


async def test_a_fetch_that_asks_to_wait_for_days_is_answered_after_the_longest_time(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world:
        place = (await describe(world, "orders")).partitions[0]
        async with connection(world, place.leader_address) as broker:
            began = trio.current_time()
            asked = m.Fetch(broker.next_request(), "orders", place.partition, 0, 1000, 10**9)
            found = await broker.request(asked, m.Fetched, 10 * FETCH_WAIT_S_MAX)
            assert found.records == b""
            assert FETCH_WAIT_S_MAX <= trio.current_time() - began <= FETCH_WAIT_S_MAX + 1


async def test_requests_for_lists_wait_for_memory() -> None:
    used_bytes = LIST_MEMORY_BYTES // 3
    pool = Pool(LIST_MEMORY_BYTES + used_bytes, allowance_bytes=MEMORY_ALLOWANCE_BYTES)
    outbox, another = Outbox(MemoryAccount(pool, "a")), MemoryAccount(pool, "b")
    asker = cast("Any", SimpleNamespace(outbox=outbox))
    done: list[str] = []

    async def tell() -> None:
        done.append("slices")

    another.charge(OUTBOX, 2 * used_bytes)
    assert outbox.room_now(KIB, KIB), "there is room for what is small"
    async with trio.open_nursery() as nursery:
        answer_with_room(asker, nursery, lambda: done.append("whole"))
        nursery.start_soon(tell_with_room, asker, tell)
        await wait_all_tasks_blocked()
        assert done == []
        another.release(OUTBOX, 2 * used_bytes)
    assert sorted(done) == ["slices", "whole"]
    answer_with_room(asker, nursery, lambda: done.append("at once"))
    assert done[-1] == "at once"


async def test_a_long_list_is_answered_with_a_page_that_says_there_is_more(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe_service, "_LOGS_PER_PAGE", 3)
    monkeypatch.setattr(describe_service, "_READINGS_TOLD", 3)
    monkeypatch.setattr(topic_service, "_TOPICS_PER_PAGE", 3)
    monkeypatch.setattr(topic_service, "_PARTITIONS_PER_PAGE", 12)
    async with running_world() as world:
        places = [(await describe(world, name)).partitions[0] for name in "abcd"]
        async with (
            connection(world, REGISTER) as register,
            connection(world, places[0].leader_address) as broker,
        ):
            for _ in range(4):
                asked = m.Subscribe(broker.next_request(), "a", places[0].partition, 0, 1000)
                broker.ask(asked, lambda _: None)
            await wait_all_tasks_blocked()
            logs = await broker.request(
                m.DescribeLogs(broker.next_request(), "", "", -1), m.LogList, 5
            )
            readers = await broker.request(
                m.DescribeReadings(broker.next_request(), ""), m.ReadingList, 5
            )
            topics = await register.request(
                m.ListTopics(register.next_request(), "", 10_000), m.TopicList, 5
            )
            for name in "12":  # each in all eight partitions
                create = m.CreateTopic(register.next_request(), name, 8, None, m.TopicOptions())
                await register.request(create, m.TopicDescription, 5)
            wide = await register.request(
                m.ListTopics(register.next_request(), "", 10_000), m.TopicList, 5
            )
    assert (len(logs.logs), logs.more) == (3, True)
    assert (len(readers.readings), readers.more) == (3, True)
    assert (len(topics.topics), topics.more) == (3, True)
    assert ([one.topic for one in wide.topics], wide.more) == (["1"], True)


async def test_a_bounded_number_of_look_ups_run_at_a_time_over_all_connections() -> None:
    slow_lookups, crowd = SlowLookups(), Crowd()

    async def look_up() -> None:
        async with slow_lookups.turn(BriefLock()):
            await crowd.stay()

    async with trio.open_nursery() as nursery:
        for _ in range(3 * WALKS_PER_NODE_MAX):
            nursery.start_soon(look_up)
    assert (crowd.most, crowd.total) == (WALKS_PER_NODE_MAX, 3 * WALKS_PER_NODE_MAX)


# --- what nodes send and order ----------------------------------------------------------


def test_a_leader_that_sends_too_many_records_at_a_time_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[Callable[[], object]] = []
    monkeypatch.setattr(ReplicaDriver, "submit", lambda replica, event: taken.append(event))
    replica = ReplicaDriver.__new__(ReplicaDriver)
    message = m.Replicate(0, 1, 1, 1, "0" * 16, 0, 1, b"", 0)
    most = batch(0, *[b""] * RECORDS_PER_REPLICATE_MAX)
    replica.replicate(attrs.evolve(message, records=most))
    assert len(taken) == 1
    more = batch(RECORDS_PER_REPLICATE_MAX, b"")
    with pytest.raises(RefusedError) as caught:
        replica.replicate(attrs.evolve(message, records=most + more))
    assert caught.value.status == Status.MESSAGE_TOO_LARGE
    assert len(taken) == 1


def test_a_bounded_number_of_small_messages_is_in_flight_to_a_follower() -> None:
    log = cast("Any", SimpleNamespace(end=100))
    answer = cast("Any", None)
    followed = _Followed(log, answer, Offset(0), Offset(0), Offset(0), lambda: None)
    for end in range(1, FOLLOW_WINDOW_MESSAGES + 1):
        assert followed.may_send()
        followed.position = Offset(end)
        followed.sent_ends.append(followed.position)
    assert not followed.may_send()
    followed.acknowledge(Offset(1))
    assert followed.may_send()


async def test_a_bounded_number_of_partitions_of_a_broker_change_leaders_at_a_time() -> None:
    crowd, count = Crowd(), 3 * HAND_OVERS_MAX
    records = {
        one: m.PartitionRecord(
            one, 1, 0, leader=1, leader_incarnation=1, replicas=[1, 2], in_sync=[1, 2]
        )
        for one in range(count)
    }
    controller = SimpleNamespace(
        state=SimpleNamespace(partitions=records),
        stopping=set(),
        draining=set(),
        is_live=lambda broker: True,
    )

    async def change(partition: int, goal: object, *, if_still: Callable[[], bool]) -> None:
        await crowd.stay()
        records[partition] = attrs.evolve(records[partition], leader=2)

    async def until(*_: object) -> None:
        """Nothing is under way."""

    election_driver = SimpleNamespace(
        change=change, until=until, is_changing=lambda partition: False
    )
    surroundings = [cast("Any", one) for one in (None, controller, None, None, election_driver)]
    await HandOvers(*surroundings).drain(1)
    assert (crowd.most, crowd.total) == (HAND_OVERS_MAX, count)


async def test_the_reason_why_an_order_was_not_carried_out_is_short() -> None:
    environment = Environment(SystemClock(), MemoryNet(), MemoryDisk(), SystemRandomness())
    status = BrokerHealth(environment, "data")
    undone = status.undone(StorageError("é" * 10_000), [3])
    assert len(undone.reason.encode()) <= UNDONE_REASON_BYTES_MAX
    assert undone.reason.startswith("é" * 100)


def test_a_register_keeps_a_bounded_number_of_the_newest_events() -> None:
    log = EventLog(SystemClock())
    for _ in range(EVENTS_KEPT_COUNT + 10):
        log.left(1)
    kept = log.after(0)
    assert [kept[0].number, kept[-1].number] == [11, EVENTS_KEPT_COUNT + 10]
    assert len(kept) == EVENTS_KEPT_COUNT
