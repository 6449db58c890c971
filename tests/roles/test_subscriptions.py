"""Durable subscriptions, message by message, at brokers on virtual time.

What is stored is kept in memory here, where all brokers see it, as if it were replicated.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from octopi.errors import NeedsTimeError, RefusedError, Status
from octopi.identifiers import Claim, MemberId, Offset, PartitionId, SubscriptionId
from octopi.model import SubscriptionOptions
from octopi.roles.broker import node as broker_node
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.node import BrokerNode
from octopi.roles.broker.services import asked as asked_subscriptions, subscriptions as service
from octopi.roles.broker.services.subscriptions import SubscriptionService
from octopi.roles.broker.subscriptions.broker_subscriptions import BrokerSubscriptions, leaderships
from octopi.security.authenticator import Authenticator
from octopi.security.quotas import Quota
from octopi.subscriptions import coordinated, log_marks
from octopi.transport.connection import Connection
from octopi.wire import messages as m
from tests.kit.links import MemoryNet
from tests.kit.probes import batch, produce
from tests.kit.world import REGISTER, VirtualClock, World, connection, describe
from tests.roles.state_logs import SharedStates
from tests.security.tokens import key_ring, token

_T = TypeVar("_T")

OPTIONS = SubscriptionOptions(session_timeout_ms=1_000, mark_interval_ms=60_000)
"""Marks are stored when that is asked for."""


def granted(**wanted: str) -> str:
    """A token with these patterns, with spaces between them."""
    return token(VirtualClock().wall_ms(), 3600, **wanted)


class Asked:
    """A request, and all that comes back for it."""

    def __init__(self, connection: Connection, message: Any) -> None:  # noqa: ANN401
        self.request: int = message.request
        self._connection = connection
        self._send, self._receive = trio.open_memory_channel[object](math.inf)
        connection.ask(message, self._send.send_nowait)

    async def next(self, kind: type[_T]) -> _T:
        """What comes next, which has to be a *kind*."""
        with trio.fail_after(10):
            message = await self._receive.receive()
        assert isinstance(message, kind), message
        return message

    def mark(self, offset: int, acknowledge: int | None = None, anchor: str = "") -> None:
        confirm = acknowledge is not None
        self._connection.post(m.Mark(self.request, offset, confirm, acknowledge or 0, anchor))


@attrs.define
class Bench:
    """A topic with three messages, and a connection to its leader."""

    world: World
    states: SharedStates
    subscriptions: list[BrokerSubscriptions]
    topic: m.TopicInfo
    connection: Connection
    ends: list[int]
    """Where the messages end."""

    @property
    def partition(self) -> PartitionId:
        return self.topic.partitions[0].partition

    @property
    def place(self) -> tuple[str, PartitionId]:
        return self.topic.topic, self.partition

    def next(self) -> int:
        return self.connection.next_request()

    def connected(
        self, url: str = REGISTER, *, token: str | None = None
    ) -> AbstractAsyncContextManager[Connection]:
        """Another connection."""
        return connection(self.world, url, token=token)

    async def ask(
        self,
        message: Any,  # noqa: ANN401
        kind: type[_T],
        passing: frozenset[Status] = frozenset({Status.NOT_READY}),
    ) -> _T:
        """The answer, as soon as it is not one that *passing* has."""
        with trio.fail_after(10):
            while True:
                try:
                    return await self.connection.request(message, kind, 10)
                except RefusedError as error:
                    if error.status not in passing:
                        raise
                await trio.sleep(0.01)  # nothing announces it to clients
                message = attrs.evolve(message, request=self.next())

    async def refusal(self, message: Any) -> RefusedError:  # noqa: ANN401
        with pytest.raises(RefusedError) as caught:
            await self.ask(message, m.Done)
        return caught.value

    def creation(self, name: str = "billing", **changed: object) -> m.CreateSubscription:
        created = m.CreateSubscription(
            self.next(),
            *self.place,
            self.topic.topic_id,
            [one.partition for one in self.topic.partitions],
            name,
            "exclusive",
            OPTIONS,
            "earliest",
            "create_or_attach",
        )
        return attrs.evolve(created, **changed)

    async def create(self, name: str = "billing") -> SubscriptionId:
        """A subscription that is ready."""
        found = (await self.ask(self.creation(name), m.SubscriptionDescription)).definition
        opened = m.OpenMarks(
            self.next(),
            *self.place,
            found.topic_id,
            found.sid,
            name,
            "exclusive",
            OPTIONS,
            "earliest",
        )
        await self.ask(opened, m.Done)
        await self.ask(m.FinishSubscription(self.next(), *self.place, found.sid), m.Done)
        return found.sid

    async def join(self, sid: SubscriptionId, *, take_over: bool = False) -> tuple[Asked, Claim]:
        """A member that has the log."""
        join = m.JoinGroup(self.next(), *self.place, sid, MemberId(""), False, take_over, [])
        asked = Asked(self.connection, join)
        told = await asked.next(m.Assignment)
        while not told.add:
            told = await asked.next(m.Assignment)
        return asked, told.add[0].claim

    async def attach(self, sid: SubscriptionId, claim: int) -> tuple[Asked, m.Attached]:
        message = m.Attach(self.next(), *self.place, sid, MemberId("a"), Claim(claim))
        asked = Asked(self.connection, message)
        return asked, await asked.next(m.Attached)

    async def member(self) -> tuple[SubscriptionId, Asked]:
        """A subscription that is ready, and a member that is attached with its first claim."""
        sid = await self.create()
        attached, _ = await self.attach(sid, 1)
        return sid, attached

    async def mark_of(self, sid: SubscriptionId) -> m.MarksDescription:
        """How far a subscription is, as soon as this broker leads and knows."""
        question = m.DescribeMarks(self.next(), *self.place, sid)
        passing = frozenset({Status.NOT_READY, Status.NOT_LEADER})
        return await self.ask(question, m.MarksDescription, passing)


def is_ours(make: object) -> bool:
    """Whether *make* makes the service that is tested here."""
    return getattr(make, "func", make) is SubscriptionService


@asynccontextmanager
async def running(
    monkeypatch: pytest.MonkeyPatch, brokers: int = 1, authenticator: Authenticator | None = None
) -> AsyncIterator[Bench]:
    states, every = SharedStates(), broker_node.client_services
    begun: list[BrokerSubscriptions] = []
    async with trio.open_nursery() as nursery:

        def services(node: BrokerNode) -> list[Any]:
            made = BrokerSubscriptions(
                node.environment, states, partial(leaderships, node.replicas), nursery
            )
            begun.append(made)
            node.replicas.preparation.parts.append(made.prepare)
            nursery.start_soon(made.run)
            others = [one for one in every(node) if not is_ours(one)]
            return [*others, partial(SubscriptionService, made)]

        monkeypatch.setattr(broker_node, "client_services", services)
        shown = None if authenticator is None else granted(publish="*", consume="*", admin="*")
        world = await started(nursery, brokers, authenticator)
        async with bench_in(world, states, begun, token=shown) as bench:
            yield bench
        nursery.cancel_scope.cancel()


async def started(
    nursery: trio.Nursery, brokers: int = 1, authenticator: Authenticator | None = None
) -> World:
    """A register and brokers."""
    world = World(nursery, MemoryNet(capacity=8))
    await world.start_register()
    for number in range(1, brokers + 1):
        await world.start_broker(f"ws://broker-{number}:7100", authenticator=authenticator)
    return world


@asynccontextmanager
async def bench_in(
    world: World,
    states: SharedStates,
    subscriptions: list[BrokerSubscriptions],
    *,
    token: str | None = None,
) -> AsyncIterator[Bench]:
    """The topic is made."""
    topic = await describe(world, "orders")
    async with connection(world, topic.partitions[0].leader_address, token=token) as leader:
        ends = []
        for number, value in enumerate((b"one", b"two", b"three")):
            records = batch(number, value)
            ends.append((await produce(leader, topic, records)).offset + len(records))
        yield Bench(world, states, subscriptions, topic, leader, ends)


@pytest.fixture
async def bench(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """One broker, as most tests here need it."""
    async with running(monkeypatch) as one:
        yield one


async def test_a_new_member_goes_on_at_the_mark_of_the_one_before(
    bench: Bench, autojump_clock: MockClock
) -> None:
    sid = await bench.create()
    joined, claim = await bench.join(sid)
    attached, told = await bench.attach(sid, claim)
    assert (told.mark, told.log_start, told.lost_from) == (0, 0, None)
    attached.mark(bench.ends[0])
    attached.mark(bench.ends[1], acknowledge=7)
    assert (await attached.next(m.Marked)).acknowledge == 7
    described = await bench.mark_of(sid)
    assert (described.mark, described.member) == (bench.ends[1], "a")
    assert described.lag_bytes == bench.ends[2] - bench.ends[1]
    attached.mark(bench.ends[2])
    bench.connection.post(m.Detach(attached.request))
    await attached.next(m.Done)
    bench.connection.post(m.LeaveGroup(joined.request))
    await joined.next(m.Done)
    _, newer = await bench.join(sid)
    assert newer > claim
    _, told = await bench.attach(sid, newer)
    assert told.mark == bench.ends[2]
    assert (await bench.mark_of(sid)).lag_ms == 0


async def test_no_answer_about_a_subscription_is_sent_before_it_is_committed(
    bench: Bench, autojump_clock: MockClock
) -> None:
    sid = await bench.create()
    bench.states.is_held = True
    message = m.Attach(bench.next(), *bench.place, sid, MemberId("a"), Claim(1))
    asked = Asked(bench.connection, message)
    await bench.ask(m.DescribeReadings(bench.next(), ""), m.ReadingList)  # it came before
    assert len(bench.states.held) == 1
    bench.states.release()
    await asked.next(m.Attached)


async def test_a_member_with_an_outdated_claim_is_told_and_moves_no_mark(
    bench: Bench,
    autojump_clock: MockClock,
) -> None:
    sid = await bench.create()
    first, old = await bench.join(sid)
    zombie, _ = await bench.attach(sid, old)
    busy = m.JoinGroup(bench.next(), *bench.place, sid, MemberId(""), False, False, [])
    assert (await bench.refusal(busy)).status == Status.SUBSCRIPTION_BUSY
    _, new = await bench.join(sid, take_over=True)
    assert (await first.next(m.Detached)).status == Status.MEMBER_FENCED
    await bench.attach(sid, new)
    assert (await zombie.next(m.Detached)).status == Status.MEMBER_FENCED
    zombie.mark(bench.ends[2], acknowledge=1)  # it has ended, and is heard no more
    assert (await bench.mark_of(sid)).mark == 0
    again = m.Attach(bench.next(), *bench.place, sid, MemberId("a"), old)
    assert (await bench.refusal(again)).status == Status.MEMBER_FENCED


@pytest.mark.parametrize("offset", [1, 1 << 40], ids=["inside a record", "beyond the end"])
async def test_a_mark_inside_a_record_or_out_of_range_ends_the_attach(
    bench: Bench, autojump_clock: MockClock, offset: int
) -> None:
    sid, attached = await bench.member()
    attached.mark(offset, acknowledge=1)
    status = (await attached.next(m.Detached)).status
    assert status in {Status.OFFSET_INSIDE_RECORD, Status.OFFSET_OUT_OF_RANGE}
    assert (await bench.mark_of(sid)).mark == 0


class SlowPlaces:
    """Logs without an index: whether a record begins at a place is known once it was proved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_held = trio.Event()
        """Nothing is proved before."""
        self.proved: set[int] = set()
        self._read, self._prove = LocalLog.read_uncommitted, LocalLog.prove
        places = self

        def read(log: LocalLog, offset: Offset, bytes_max: int) -> bytes:
            if not bytes_max and offset not in places.proved:
                raise NeedsTimeError("that takes long")
            return places._read(log, offset, bytes_max)

        async def prove(log: LocalLog, offset: Offset) -> None:
            await places.is_held.wait()
            try:
                await places._prove(log, offset)
            finally:
                places.proved.add(offset)

        monkeypatch.setattr(LocalLog, "read_uncommitted", read)
        monkeypatch.setattr(LocalLog, "prove", prove)


@pytest.mark.parametrize("is_place", [True, False])
async def test_a_mark_that_takes_long_to_check_is_asked_for_again(
    bench: Bench, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, is_place: bool
) -> None:
    sid, places = await bench.create(), SlowPlaces(monkeypatch)
    offset = bench.ends[0] if is_place else 1
    for _ in range(2):
        attached, told = await bench.attach(sid, 1)
        attached.mark(offset, acknowledge=1)
        assert told.mark == 0
        assert (await attached.next(m.Detached)).status == Status.NOT_READY
    reset = m.SetMark(bench.next(), *bench.place, sid, Claim(2), offset)
    with pytest.raises(RefusedError) as caught:
        await bench.connection.request(reset, m.Done, 10)
    assert caught.value.status == Status.NOT_READY
    places.is_held.set()
    await trio.testing.wait_all_tasks_blocked()
    attached, _ = await bench.attach(sid, 1)
    attached.mark(offset, acknowledge=2)
    if is_place:
        assert (await attached.next(m.Marked)).acknowledge == 2
    else:
        assert (await attached.next(m.Detached)).status == Status.OFFSET_INSIDE_RECORD
    assert (await bench.mark_of(sid)).mark == (offset if is_place else 0)


@pytest.mark.parametrize("anchor", ["x", "0.0123456789abcdef", "1-9999", "1-0.2-0"])
async def test_a_mark_with_an_invalid_anchor_ends_the_attach(
    bench: Bench, autojump_clock: MockClock, anchor: str
) -> None:
    sid, attached = await bench.member()
    attached.mark(bench.ends[0], anchor=anchor)
    assert (await attached.next(m.Detached)).status == Status.INVALID_OPTION
    assert (await bench.mark_of(sid)).mark == 0
    attached, _ = await bench.attach(sid, 1)
    attached.mark(bench.ends[0], acknowledge=1, anchor="1-0")
    assert (await attached.next(m.Marked)).acknowledge == 1


async def test_a_mark_of_an_epoch_that_the_leader_does_not_know_is_left_to_the_next_mark(
    bench: Bench,
    autojump_clock: MockClock,
) -> None:
    sid, attached = await bench.member()
    attached.mark(bench.ends[1], acknowledge=1, anchor="99-0")
    attached.mark(bench.ends[0], acknowledge=2, anchor="1-0")
    assert (await attached.next(m.Marked)).acknowledge == 2
    assert (await bench.mark_of(sid)).mark == bench.ends[0]


@pytest.mark.parametrize("name", ["", "a/b", "~a", "a\0", "x" * 300, "..", "ä"])
async def test_an_invalid_name_of_a_subscription_is_refused(
    bench: Bench, autojump_clock: MockClock, name: str
) -> None:
    refusal = await bench.refusal(bench.creation(name))
    assert refusal.status == Status.INVALID_OPTION
    assert bench.states.keys == []


async def test_requests_that_do_not_fit_the_subscription_are_refused(
    bench: Bench, autojump_clock: MockClock
) -> None:
    sid, place = await bench.create(), bench.place
    strange = SubscriptionId("f" * 16)
    other = attrs.evolve(OPTIONS, session_timeout_ms=2_000)
    elsewhere = ("orders", PartitionId(bench.partition + 1))
    expected: list[tuple[Any, Status]] = [
        (m.Attach(1, *place, strange, MemberId("a"), Claim(1)), Status.UNKNOWN_SUBSCRIPTION),
        (m.DescribeMarks(1, *place, strange), Status.UNKNOWN_SUBSCRIPTION),
        (m.FinishSubscription(1, *place, strange), Status.UNKNOWN_SUBSCRIPTION),
        (m.DescribeSubscription(1, *place, "shipping"), Status.UNKNOWN_SUBSCRIPTION),
        (m.DescribeMarks(1, *elsewhere, sid), Status.NOT_LEADER),
        (bench.creation(options=other), Status.SUBSCRIPTION_EXISTS),
        (bench.creation(create="create"), Status.SUBSCRIPTION_EXISTS),
        (bench.creation(mode="failover"), Status.SUBSCRIPTION_EXISTS),
        (bench.creation(create="perhaps", name="new"), Status.INVALID_OPTION),
        (bench.creation(mode="odd", name="new"), Status.INVALID_OPTION),
        (bench.creation(partitions=[bench.partition, 9], name="new"), Status.INVALID_OPTION),
        (bench.creation(topic_id="0" * 16, name="new"), Status.UNKNOWN_TOPIC),
        (m.SetMark(1, *place, sid, Claim(9), 1), Status.OFFSET_INSIDE_RECORD),
        (m.DeleteSubscription(1, *place, sid, "middle"), Status.INVALID_OPTION),
    ]
    for message, status in expected:
        refusal = await bench.refusal(attrs.evolve(message, request=bench.next()))
        assert refusal.status == status, message
    wrong_topic = m.DescribeMarks(bench.next(), "payments", bench.partition, sid)
    assert not (await bench.refusal(wrong_topic)).address


async def test_pages_of_subscriptions_come_in_the_order_of_their_names(
    bench: Bench, autojump_clock: MockClock
) -> None:
    for name in ("c", "a", "b"):
        await bench.create(name)
    seen, after = [], ""
    while True:
        asked = m.ListSubscriptions(bench.next(), *bench.place, after, 2)
        page = await bench.ask(asked, m.SubscriptionList)
        seen.append([one.name for one in page.definitions])
        if not (after := page.after):
            break
    assert seen == [["a", "b"], ["c"]]


async def test_a_reset_fences_the_attached_member(bench: Bench, autojump_clock: MockClock) -> None:
    sid = await bench.create()
    _, claim = await bench.join(sid)
    attached, _ = await bench.attach(sid, claim)
    attached.mark(bench.ends[2], acknowledge=1)
    await attached.next(m.Marked)
    reset = m.ResetSubscription(bench.next(), *bench.place, sid, bench.partition, 0, False)
    assert (await bench.refusal(reset)).status == Status.SUBSCRIPTION_BUSY
    forced = attrs.evolve(reset, request=bench.next(), force=True)
    begun = await bench.ask(forced, m.ResetBegun)
    assert begun.claim > claim
    await bench.ask(m.SetMark(bench.next(), *bench.place, sid, begun.claim, 0), m.Done)
    assert (await attached.next(m.Detached)).status == Status.MEMBER_FENCED
    finish = m.FinishReset(bench.next(), *bench.place, sid, bench.partition, begun.claim)
    await bench.ask(finish, m.Done)
    assert (await bench.mark_of(sid)).mark == 0


async def test_deleting_a_subscription_ends_its_members_and_leaves_no_entries(
    bench: Bench, autojump_clock: MockClock
) -> None:
    sid = await bench.create()
    joined, claim = await bench.join(sid)
    attached, _ = await bench.attach(sid, claim)
    begin = m.DeleteSubscription(bench.next(), *bench.place, sid, "begin")
    await bench.ask(begin, m.Done)
    assert (await joined.next(m.Detached)).status == Status.UNKNOWN_SUBSCRIPTION
    await bench.ask(m.DeleteMarks(bench.next(), *bench.place, sid), m.Done)
    assert (await attached.next(m.Detached)).status == Status.UNKNOWN_SUBSCRIPTION
    await bench.ask(attrs.evolve(begin, request=bench.next(), step="end"), m.Done)
    assert bench.states.entries[bench.partition] == {}


async def test_a_connection_that_ends_stores_its_marks(
    bench: Bench, autojump_clock: MockClock
) -> None:
    sid = await bench.create()
    address = bench.topic.partitions[0].leader_address
    async with bench.connected(address) as other:
        there = attrs.evolve(bench, connection=other)
        attached, _ = await there.attach(sid, 1)
        attached.mark(bench.ends[1])
        await there.ask(m.DescribeReadings(there.next(), ""), m.ReadingList)
    key, entries = f"k/{sid}/{bench.topic.topic_id}", bench.states.entries[bench.partition]
    await bench.states.until(lambda: entries[key].get("mark") == bench.ends[1])
    described = await bench.mark_of(sid)
    assert (described.mark, described.member) == (bench.ends[1], "")


async def test_all_marks_are_stored_before_a_hand_over(
    bench: Bench, autojump_clock: MockClock
) -> None:
    sid, attached = await bench.member()
    attached.mark(bench.ends[2])
    await bench.ask(m.DescribeReadings(bench.next(), ""), m.ReadingList)
    key = f"k/{sid}/{bench.topic.topic_id}"
    assert bench.states.entries[bench.partition][key].get("mark") != bench.ends[2]
    bench.states.is_held = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.subscriptions[-1].prepare_all)
        await trio.testing.wait_all_tasks_blocked()
        assert len(bench.states.held) == 1
        bench.states.release()
    assert bench.states.entries[bench.partition][key]["mark"] == bench.ends[2]


async def test_a_state_that_can_not_be_stored_ends_all_sessions(
    bench: Bench,
    autojump_clock: MockClock,
) -> None:
    sid, attached = await bench.member()
    bench.states.is_refusing = True
    attached.mark(bench.ends[2], acknowledge=1)
    assert (await attached.next(m.Failure)).status == Status.NOT_READY
    bench.states.is_refusing = False
    assert (await bench.mark_of(sid)).mark == 0
    await bench.attach(sid, 1)


async def test_a_state_not_stored_because_the_leader_changes_is_not_logged_as_an_error(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    async with running(monkeypatch) as bench:
        sid = await bench.create()
        attached, _ = await bench.attach(sid, 1)
        bench.states.is_refusing = True
        attached.mark(bench.ends[2], acknowledge=1)
        assert (await attached.next(m.Failure)).status == Status.NOT_READY
        assert not caplog.records


async def test_unusable_entries_are_logged_and_the_partition_goes_on(
    bench: Bench,
    autojump_clock: MockClock,
) -> None:
    sid, attached = await bench.member()
    bench.states.is_damaged = bench.states.is_refusing = True
    attached.mark(bench.ends[2], acknowledge=1)
    await attached.next(m.Failure)
    refusal = await bench.refusal(m.DescribeMarks(bench.next(), *bench.place, sid))
    assert refusal.status == Status.INTERNAL
    assert "the entry 'k/1' can't be used" in str(refusal)
    await produce(bench.connection, bench.topic, batch(3, b"four"))


async def test_a_leader_uses_its_entries_once_they_can_be_read_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(monkeypatch) as bench:
        sid = await bench.create()
        attached, _ = await bench.attach(sid, 1)
        bench.states.is_damaged = bench.states.is_refusing = True
        attached.mark(bench.ends[2], acknowledge=1)
        await attached.next(m.Failure)
        question = m.DescribeMarks(bench.next(), *bench.place, sid)
        assert (await bench.refusal(question)).status == Status.INTERNAL
        bench.states.is_damaged = bench.states.is_refusing = False
        again = attrs.evolve(question, request=bench.next())
        passing = frozenset({Status.NOT_READY, Status.INTERNAL})
        described = await bench.ask(again, m.MarksDescription, passing)
        assert described.claim == 1


async def test_a_connection_has_a_bounded_number_of_member_sessions(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "SUBSCRIPTION_SESSIONS_MAX", 2)
    async with running(monkeypatch) as bench:
        sids = [await bench.create(name) for name in ("a", "b", "c")]
        first, _ = await bench.attach(sids[0], 1)
        await bench.attach(sids[1], 1)
        third = m.Attach(bench.next(), *bench.place, sids[2], MemberId("a"), Claim(1))
        assert (await bench.refusal(third)).status == Status.TOO_MANY
        bench.connection.post(m.Detach(first.request))
        await first.next(m.Done)
        await bench.attach(sids[2], 1)


async def test_an_attach_waits_for_a_bounded_number_of_confirmations(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_subscriptions, "CONFIRMS_MAX", 3)
    async with running(monkeypatch) as bench:
        sid = await bench.create()
        attached, _ = await bench.attach(sid, 1)
        bench.states.is_held = True
        for number in range(4):
            attached.mark(bench.ends[1], acknowledge=number)
        assert (await attached.next(m.Detached)).status == Status.TOO_MANY
        bench.states.release()
        await bench.attach(sid, 1)


async def test_messages_about_unknown_sessions_are_ignored(
    bench: Bench, autojump_clock: MockClock
) -> None:
    sid = await bench.create()
    bench.connection.post(m.Mark(77, Offset(0), True, 1))
    bench.connection.post(m.Holding(78, []))
    assert (await bench.mark_of(sid)).mark == 0


async def at_new_leader(bench: Bench, old: str) -> m.TopicInfo:
    """The topic, as soon as another broker than the one at *old* leads it."""
    while True:
        topic = await describe(bench.world, "orders")
        if topic.partitions[0].leader_address not in {"", old}:
            return topic
        await trio.sleep(0.01)  # nothing announces it to clients


async def test_a_drained_leader_leaves_all_marks_to_the_next_one(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(monkeypatch, brokers=2) as bench:
        sid = await bench.create()
        joined, claim = await bench.join(sid)
        attached, _ = await bench.attach(sid, claim)
        attached.mark(bench.ends[2])
        old = bench.topic.partitions[0]
        assert old.leader is not None
        async with bench.connected() as register:
            drain = m.DrainBroker(register.next_request(), old.leader)
            await register.request(drain, m.Done, 10)
        with trio.fail_after(10):
            topic = await at_new_leader(bench, old.leader_address)
        address = topic.partitions[0].leader_address
        for one in (joined, attached):
            told = await one.next(m.Failure)
            assert told.status == Status.NOT_LEADER
            assert told.address in {"", address}  # empty: this broker has yet to hear of it
        async with bench.connected(address) as connection:
            there = attrs.evolve(bench, connection=connection, topic=topic)
            assert (await there.mark_of(sid)).mark == bench.ends[2]
            found = m.DescribeSubscription(there.next(), *there.place, "billing")
            described = await there.ask(found, m.SubscriptionDescription)
            assert [one.log_count for one in described.members] == [1]


async def test_a_mark_that_comes_while_a_hand_over_is_prepared_is_stored_at_once(
    bench: Bench,
    autojump_clock: MockClock,
) -> None:
    sid = await bench.create()
    _, claim = await bench.join(sid)
    attached, _ = await bench.attach(sid, claim)
    (subscriptions,) = bench.subscriptions
    attached.mark(bench.ends[0])
    await bench.mark_of(sid)  # it was taken
    await subscriptions.prepare(bench.partition)
    attached.mark(bench.ends[1])
    await bench.mark_of(sid)
    stored = [one for one in bench.states.entries[bench.partition].items() if one[0][0] == "k"]
    assert [value["mark"] for _, value in stored] == [bench.ends[1]]


async def test_two_preparations_of_a_hand_over_at_a_time_both_end(
    bench: Bench, autojump_clock: MockClock
) -> None:
    sid = await bench.create()
    _, claim = await bench.join(sid)
    attached, _ = await bench.attach(sid, claim)
    (subscriptions,) = bench.subscriptions
    bench.states.is_held = True
    attached.mark(bench.ends[0])
    await bench.mark_of(sid)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(subscriptions.prepare, bench.partition)
            nursery.start_soon(subscriptions.prepare_all)
            await trio.testing.wait_all_tasks_blocked(0.05)
            attached.mark(bench.ends[1])
            await bench.mark_of(sid)
            first, *later = bench.states.held
            bench.states.held = [first]
            bench.states.release()
    assert later


async def test_a_confirmed_mark_survives_its_leader(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(monkeypatch, brokers=2) as bench:
        sid = await bench.create()
        attached, _ = await bench.attach(sid, 1)
        attached.mark(bench.ends[0], acknowledge=1)
        await attached.next(m.Marked)
        bench.states.is_held = True
        attached.mark(bench.ends[2], acknowledge=2)
        await bench.ask(m.DescribeReadings(bench.next(), ""), m.ReadingList)
        assert len(bench.states.held) == 1
        bench.states.lose()
        old = bench.topic.partitions[0].leader_address
        await bench.world.kill(old)
        with trio.fail_after(20):
            topic = await at_new_leader(bench, old)
        async with bench.connected(topic.partitions[0].leader_address) as connection:
            there = attrs.evolve(bench, connection=connection, topic=topic)
            assert (await there.mark_of(sid)).mark == bench.ends[0]
            _, told = await there.attach(sid, 1)
            assert told.mark == bench.ends[0]


async def test_a_topic_that_is_deleted_takes_its_subscriptions_with_it(
    bench: Bench, autojump_clock: MockClock
) -> None:
    sid = await bench.create()
    joined, claim = await bench.join(sid)
    attached, _ = await bench.attach(sid, claim)
    async with bench.connected() as register:
        deletion = m.DeleteTopic(register.next_request(), "orders")
        await register.request(deletion, m.Done, 10)
    assert (await joined.next(m.Detached)).status == Status.UNKNOWN_TOPIC
    assert (await attached.next(m.Detached)).status == Status.UNKNOWN_TOPIC
    assert bench.states.entries[bench.partition] == {}


async def test_a_new_leader_finishes_the_removal_of_a_deleted_topic(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_marks, "TURN_COUNT", 1)
    monkeypatch.setattr(coordinated, "TURN_COUNT", 1)
    async with running(monkeypatch, brokers=2) as bench:
        for number in range(20):
            await bench.create(f"billing-{number}")
        stored = len(bench.states.entries[bench.partition])
        async with bench.connected() as register:
            deletion = m.DeleteTopic(register.next_request(), "orders")
            await register.request(deletion, m.Done, 10)
        await bench.states.until(lambda: len(bench.states.entries[bench.partition]) < stored)
        await bench.world.kill(bench.topic.partitions[0].leader_address)
        assert bench.states.entries[bench.partition]
        await bench.states.until(lambda: not bench.states.entries[bench.partition])


async def test_a_member_that_is_silent_for_its_session_time_out_is_removed(
    bench: Bench, autojump_clock: MockClock
) -> None:
    sid = await bench.create()
    joined, claim = await bench.join(sid)
    told = await joined.next(m.Detached)
    assert told.status == Status.UNKNOWN_MEMBER
    _, newer = await bench.join(sid)
    assert newer > claim


async def test_marks_of_a_topic_need_as_many_in_sync_replicas_as_its_records(
    bench: Bench,
    autojump_clock: MockClock,
) -> None:
    await bench.create()
    assert bench.states.required == {bench.partition: 1}
    async with bench.connected() as register:
        wanted = m.CreateTopic(
            register.next_request(),
            "strict",
            1,
            [bench.partition],
            m.TopicOptions(min_insync=2),
        )
        await register.request(wanted, m.TopicDescription, 10)
    strict = await describe(bench.world, "strict")
    there = attrs.evolve(bench, topic=strict)
    await there.ask(there.creation("b"), m.SubscriptionDescription)
    assert bench.states.required == {bench.partition: 2}
    async with bench.connected() as register:
        deletion = m.DeleteTopic(register.next_request(), "strict")
        await register.request(deletion, m.Done, 10)
    await bench.states.until(lambda: bench.states.required == {bench.partition: 1})


async def test_a_subscription_id_gives_a_token_no_more_rights_than_the_name(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = Authenticator(key_ring(), VirtualClock())
    async with running(monkeypatch, authenticator=door) as bench:
        sid, own = await bench.create("billing"), await bench.create("shipping")
        address = bench.topic.partitions[0].leader_address
        shown = granted(consume="orders/ship*")
        async with bench.connected(address, token=shown) as connection:
            there = attrs.evolve(bench, connection=connection)
            for message in (
                m.DescribeMarks(1, *bench.place, sid),
                m.Attach(1, *bench.place, sid, MemberId("a"), Claim(1)),
                m.FinishSubscription(1, *bench.place, sid),
                m.JoinGroup(1, *bench.place, sid, MemberId(""), False, False, []),
            ):
                refusal = await there.refusal(attrs.evolve(message, request=there.next()))
                assert refusal.status == Status.UNKNOWN_SUBSCRIPTION
            for by_name in (
                m.DescribeSubscription(there.next(), *bench.place, "billing"),
                attrs.evolve(bench.creation(), request=there.next()),
                m.DeleteMarks(there.next(), *bench.place, own),
                m.SetMark(there.next(), *bench.place, own, Claim(1), 0),
            ):
                assert (await there.refusal(by_name)).status == Status.FORBIDDEN
            listed = m.ListSubscriptions(there.next(), *bench.place, "", 10)
            page = await there.ask(listed, m.SubscriptionList)
            assert [one.name for one in page.definitions] == ["shipping"]
            attached, _ = await there.attach(own, 1)
            fresh = m.Authenticate(there.next(), granted(subscribe="*"))
            await connection.request(fresh, m.Authenticated, 5)
            assert (await attached.next(m.Failure)).status == Status.FORBIDDEN


async def test_members_of_a_token_count_as_readings_at_a_broker(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = Authenticator(key_ring(), VirtualClock())
    async with running(monkeypatch, authenticator=door) as bench:
        sid = await bench.create()
        shown = key_ring().sign(
            "greedy", {"consume": ["*"]}, VirtualClock().wall_ms(), 3600, quota=Quota(readings=2)
        )
        address = bench.topic.partitions[0].leader_address
        async with bench.connected(address, token=shown) as connection:

            def attach(claim: int) -> Asked:
                number = connection.next_request()
                message = m.Attach(number, *bench.place, sid, MemberId("a"), Claim(claim))
                return Asked(connection, message)

            first = attach(1)
            await first.next(m.Attached)
            second = attach(2)
            await second.next(m.Attached)
            await first.next(m.Detached)
            third = attach(3)
            await third.next(m.Attached)
            await second.next(m.Detached)
            join = m.JoinGroup(
                connection.next_request(), *bench.place, sid, MemberId(""), False, False, []
            )
            await Asked(connection, join).next(m.Assignment)
            assert (await attach(4).next(m.Failure)).status == Status.QUOTA_EXCEEDED
