"""Queues, message by message, at brokers on virtual time: dealing, answers and dead letters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import attrs
import pytest
import trio
from trio.testing import MockClock

from octopi.errors import ConnectionLostError, CorruptLogError, ProtocolError, Status
from octopi.identifiers import (
    Claim,
    MemberId,
    Offset,
    PartitionId,
    SubscriptionId,
    TopicName,
)
from octopi.limits import RECENT_BATCHES_COUNT, RECORD_BYTES_MAX
from octopi.model import SubscriptionOptions
from octopi.position import Position
from octopi.record import BatchBuilder, Message, decode
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.services.queues import seen_in
from octopi.roles.broker.subscriptions.letters import letter_producer
from octopi.security.authenticator import Authenticator
from octopi.wire import messages as m
from tests.kit.probes import ALICE, batch, fetch, fetch_all, produce
from tests.kit.world import VirtualClock, describe
from tests.roles.test_subscriptions import Asked, Bench, at_new_leader, granted, running
from tests.security.tokens import key_ring

_T = TypeVar("_T")

OPTIONS = SubscriptionOptions(attempts=2, ack_timeout_ms=60_000, mark_interval_ms=50)


@attrs.define
class Member:
    """One that is attached to a queue."""

    asked: Asked
    bench: Bench
    waiting: list[tuple[int, int, Message]] = attrs.field(factory=list)

    async def next(self) -> tuple[int, int, Message]:
        """Offset, attempt and message of the next delivery."""
        while not self.waiting:
            deal = await self.asked.next(m.Deal)
            messages = []
            at = 0
            for offset, attempt in zip(deal.offsets, deal.attempts, strict=True):
                rest = deal.records[at:]
                size = int.from_bytes(rest[:4]) + 4
                [one] = decode(rest[:size], Offset(offset), TopicName("orders"), PartitionId(0))
                messages.append((offset, attempt, one))
                at += size
            assert at == len(deal.records)
            self.waiting += messages
        return self.waiting.pop(0)

    def settle(self, **changed: Any) -> None:  # noqa: ANN401
        empty = m.Settle(self.asked.request, [], [], [], [], [], False, 7)
        self.bench.connection.post(attrs.evolve(empty, **changed))

    def acknowledge(self, *deliveries: tuple[int, int], confirm: bool = False) -> None:
        offsets, attempts = [one for one, _ in deliveries], [one for _, one in deliveries]
        self.settle(acknowledged=offsets, attempts=attempts, confirm=confirm)

    async def confirmed(self) -> m.QueueSettled:
        self.acknowledge(confirm=True)
        return await self.asked.next(m.QueueSettled)


async def queue(
    bench: Bench,
    mode: str = "shared",
    options: SubscriptionOptions = OPTIONS,
    *,
    with_letters: bool = True,
) -> SubscriptionId:
    """A queue that is ready, with its dead-letter topic."""
    creation = bench.creation(mode=mode, options=options)
    found = (await bench.ask(creation, m.SubscriptionDescription)).definition
    opened = m.OpenMarks(
        bench.next(), *bench.place, found.topic_id, found.sid, "billing", mode, options, "earliest"
    )
    await bench.ask(opened, m.Done)
    if with_letters:
        await make_letters(bench)
    await bench.ask(m.FinishSubscription(bench.next(), *bench.place, found.sid), m.Done)
    return found.sid


async def make_letters(bench: Bench) -> m.TopicInfo:
    token = granted(create="*", admin="*", subscribe="*")
    async with bench.connected(token=token) as register:
        wanted = m.CreateTopic(
            register.next_request(),
            "orders.billing.dead",
            0,
            None,
            m.TopicOptions(),
            bench.topic.topic,
        )
        return (await register.request(wanted, m.TopicDescription, 10)).topic


async def delete_letters(bench: Bench) -> None:
    async with bench.connected() as register:
        gone = m.DeleteTopic(register.next_request(), "orders.billing.dead")
        await register.request(gone, m.Done, 10)


async def attach(bench: Bench, sid: SubscriptionId, count: int = 10, size: int = 10**6) -> Member:
    member = MemberId("m")
    message = m.Attach(bench.next(), *bench.place, sid, member, Claim(0), count, size)
    asked = Asked(bench.connection, message)
    await asked.next(m.Attached)
    return Member(asked, bench)


async def letters(bench: Bench, count: int) -> list[Message]:
    """The dead letters, as soon as there are so many."""
    topic = await describe(bench.world, "orders.billing.dead")
    with trio.fail_after(10):
        while True:
            records = await fetch_all(bench.connection, topic)
            place = topic.partitions[0].partition
            found = decode(records, Offset(0), TopicName(topic.topic), place)
            if len(found) >= count:
                return found
            await fetch(bench.connection, topic, len(records), wait_ms=1_000)


async def described(bench: Bench, sid: SubscriptionId, **wanted: object) -> m.MarksDescription:
    """How the queue is, as soon as it is as *wanted*."""
    with trio.fail_after(10):
        while True:
            found = await bench.mark_of(sid)
            if all(getattr(found, name) == value for name, value in wanted.items()):
                return found
            await trio.sleep(0.01)  # nothing announces it to clients


@asynccontextmanager
async def queued(
    monkeypatch: pytest.MonkeyPatch,
    **options: Any,  # noqa: ANN401
) -> AsyncIterator[tuple[Bench, SubscriptionId]]:
    async with running(monkeypatch) as bench:
        yield bench, await queue(bench, options=attrs.evolve(OPTIONS, **options))


async def test_messages_are_dealt_acknowledged_and_not_dealt_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queued(monkeypatch) as (bench, sid):
        member = await attach(bench, sid)
        got = [await member.next() for _ in range(3)]
        assert [one.value for _, _, one in got] == [b"one", b"two", b"three"]
        assert [attempt for _, attempt, _ in got] == [1, 1, 1]
        assert (await described(bench, sid)).open_count == 3
        member.acknowledge(*((offset, attempt) for offset, attempt, _ in got))
        assert (await member.confirmed()).stale == []
        marks = await bench.mark_of(sid)
        assert (marks.mark, marks.open_count, marks.member_count) == (bench.ends[2], 0, 1)
        records = batch(3, b"four")
        await produce(bench.connection, bench.topic, records)
        assert (await member.next())[2].value == b"four"


async def test_a_poison_message_ends_once_in_the_dead_letter_topic(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queued(monkeypatch) as (bench, sid):
        member = await attach(bench, sid, count=20)
        for _ in range(3):
            offset, attempt, one = await member.next()
            if one.value != b"two":
                member.acknowledge((offset, attempt))
            else:
                member.settle(released=[m.Release(offset, attempt)])
        offset, attempt, one = await member.next()
        assert (one.value, attempt) == (b"two", 2)
        member.settle(released=[m.Release(offset, attempt)])
        [letter] = await letters(bench, 1)
        assert letter.value == b"two"
        assert letter.headers["octopi-attempts"] == b"2"
        assert b"2 times" in letter.headers["octopi-reason"]
        position = Position.parse(letter.headers["octopi-origin"].decode())
        assert position.offsets == {bench.partition: offset}
        marks = await described(bench, sid, mark=bench.ends[2])
        assert (marks.dead_count, marks.waiting_count, marks.letter_fault) == (1, 0, "")
        assert len(await letters(bench, 1)) == 1


async def test_without_its_topic_a_dead_letter_waits_and_says_why_until_it_is_made_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queued(monkeypatch) as (bench, sid):
        member = await attach(bench, sid)
        first = await member.next()
        member.settle(rejected=[m.Rejection(first[0], 1, "no such customer")])
        assert len(await letters(bench, 1)) == 1
        await described(bench, sid, dead_count=1)
        await delete_letters(bench)
        second = await member.next()
        member.settle(rejected=[m.Rejection(second[0], 1, "bad")])
        fault = f"partition {bench.partition} has no log of topic orders.billing.dead"
        marks = await described(bench, sid, letter_fault=fault)
        assert (marks.waiting_count, marks.mark) == (1, bench.ends[0])
        await make_letters(bench)
        [letter] = await letters(bench, 1)
        assert (letter.value, letter.headers["octopi-reason"]) == (b"two", b"bad")
        marks = await described(bench, sid, dead_count=2)
        assert marks.letter_fault == ""


@pytest.mark.parametrize(
    ("epoch", "count"), [(5, 1), (1, 1), (1, RECENT_BATCHES_COUNT + 1)], ids=str
)
async def test_a_letter_topic_that_knows_more_than_the_queue_gets_each_dead_letter_all_the_same(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, epoch: int, count: int
) -> None:
    """As after a loss of power everywhere, when the queue has lost more than the topic."""
    async with queued(monkeypatch) as (bench, sid):
        topic = await describe(bench.world, "orders.billing.dead")
        for number in range(count):
            records = batch(number, b"another", producer=letter_producer(sid), epoch=epoch)
            await produce(bench.connection, topic, records)
        member = await attach(bench, sid)
        offset, attempt, _ = await member.next()
        member.settle(rejected=[m.Rejection(offset, attempt, "bad")])
        found = await letters(bench, count + 1)
        assert [one.value for one in found] == [b"another"] * count + [b"one"]
        await described(bench, sid, dead_count=1, waiting_count=0)


async def test_a_leader_that_died_leaves_a_thousand_open_messages_to_the_next(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(monkeypatch, brokers=2) as bench:
        records = batch(3, *(b"%d" % number for number in range(997)))
        await produce(bench.connection, bench.topic, records)
        sid = await queue(bench, with_letters=False)
        member = await attach(bench, sid, count=1_000)
        got = [await member.next() for _ in range(1_000)]
        settled = got[::2]
        member.acknowledge(*((offset, attempt) for offset, attempt, _ in settled))
        await member.confirmed()
        old = bench.topic.partitions[0].leader_address
        await bench.world.kill(old)
        with trio.fail_after(20):
            topic = await at_new_leader(bench, old)
        async with bench.connected(topic.partitions[0].leader_address) as connection:
            there = attrs.evolve(bench, connection=connection, topic=topic)
            await there.mark_of(sid)  # it leads
            member = await attach(there, sid, count=1_000)
            again = [await member.next() for _ in range(500)]
            assert [one[0] for one in again] == [one[0] for one in got[1::2]]
            assert (await described(there, sid)).open_count == 500


async def test_answers_to_old_deliveries_are_named_and_change_nothing(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queued(monkeypatch) as (bench, sid):
        old = await attach(bench, sid, count=3)
        deliveries = [await old.next() for _ in range(3)]
        new = await attach(bench, sid, count=3)
        old.settle(released=[m.Release(offset, 1) for offset, _, _ in deliveries])
        assert [(await new.next())[1] for _ in range(3)] == [2, 2, 2]
        offsets = [offset for offset, _, _ in deliveries]
        old.acknowledge(*((offset, 1) for offset in offsets))
        assert (await old.asked.next(m.QueueSettled)).stale == offsets
        assert (await bench.mark_of(sid)).mark == 0


async def test_messages_of_a_key_go_to_one_member_in_their_order(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(monkeypatch) as bench:
        builder = BatchBuilder()
        for number in range(6):
            builder.add(b"%d" % number, key=b"k" * (100 if number % 2 else 3))
        await produce(bench.connection, bench.topic, builder.encode(ALICE, 1, 0))
        sid = await queue(bench, "key_shared")
        members = [await attach(bench, sid, count=9) for _ in range(3)]
        marks = await described(bench, sid, open_count=9)
        assert marks.member_count == 3
        found: list[list[bytes]] = [[], [], []]
        everything = trio.Event()
        async with trio.open_nursery() as nursery:

            async def collect(at: int) -> None:
                while True:
                    found[at].append((await members[at].next())[2].value)
                    if sum(len(one) for one in found) == 9:
                        everything.set()

            for at in range(3):
                nursery.start_soon(collect, at)
            with trio.fail_after(10):
                await everything.wait()
            nursery.cancel_scope.cancel()
        for values in ([b"0", b"2", b"4"], [b"1", b"3", b"5"]):
            holders = [one for one in found if values[0] in one]
            assert [one for one in holders[0] if one in values] == values


async def test_a_large_message_becomes_a_dead_letter_without_its_headers(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(monkeypatch) as bench:
        headers = {"name": b"n" * 1_000}
        builder = BatchBuilder()
        builder.add(b"", headers=headers)
        value = bytes(RECORD_BYTES_MAX - builder.size_bytes)
        builder = BatchBuilder()
        builder.add(value, headers=headers)
        await produce(bench.connection, bench.topic, builder.encode(ALICE, 1, 0))
        sid = await queue(bench)
        member = await attach(bench, sid, size=2 * RECORD_BYTES_MAX)
        for _ in range(3):
            await member.next()
        offset, attempt, one = await member.next()
        assert one.headers == headers
        member.settle(rejected=[m.Rejection(offset, attempt, "too large")])
        [letter] = await letters(bench, 1)
        assert letter.value == value
        assert letter.headers["octopi-headers-dropped"] == b"1"
        assert "name" not in letter.headers


async def test_a_hostile_member_gets_no_more_than_the_window_and_ends_with_an_error(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queued(monkeypatch, window=2) as (bench, sid):
        member = await attach(bench, sid, count=2**39, size=2**39)
        bench.connection.post(m.QueueCredit(member.asked.request, 2**39 + 1, 2**39 + 1))
        bench.connection.post(m.QueueCredit(10**9, 1, 1))
        first, second = await member.next(), await member.next()
        assert (await described(bench, sid)).open_count == 2
        member.acknowledge((first[0], 99), (second[0] + 1, 1), (10**15, 1))
        stale = (await member.asked.next(m.QueueSettled)).stale
        assert stale == [first[0], second[0] + 1, 10**15]
        released = [m.Release(0, 1)] * 501
        member.settle(released=released, extended=[m.Extension(0, 1)] * 500)
        lost = await member.asked.next(ConnectionLostError)
        assert "at most 1000 answers together, not 1001" in str(lost)


async def test_records_of_a_queue_need_the_grant_to_read(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticator = Authenticator(key_ring(), VirtualClock())
    async with running(monkeypatch, authenticator=authenticator) as bench:
        sid = await queue(bench, with_letters=False)
        place = (bench.next(), *bench.place)
        refused = await bench.refusal(m.Attach(*place, sid, MemberId("m"), Claim(0), 1, 1))
        assert refused.status == Status.FORBIDDEN
        assert "subscribe" in str(refused)
        address = bench.topic.partitions[0].leader_address
        shown = granted(consume="*", subscribe="*")
        async with bench.connected(address, token=shown) as connection:
            there = attrs.evolve(bench, connection=connection)
            member = await attach(there, sid, count=1)
            await member.next()
            fresh = m.Authenticate(there.next(), granted(consume="*"))
            await connection.request(fresh, m.Authenticated, 5)
            failed = await member.asked.next(m.Failure)
            assert failed.status == Status.FORBIDDEN
        await described(bench, sid, member_count=0)


async def test_a_reset_and_a_deletion_end_members_with_messages_open(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queued(monkeypatch) as (bench, sid):
        member = await attach(bench, sid)
        await member.next()
        reset = m.ResetSubscription(
            bench.next(), *bench.place, sid, bench.partition, bench.ends[0], False
        )
        claim = (await bench.ask(reset, m.ResetBegun)).claim
        await bench.ask(m.SetMark(bench.next(), *bench.place, sid, claim, bench.ends[0]), m.Done)
        assert (await member.asked.next(m.Detached)).status == Status.MEMBER_FENCED
        member = await attach(bench, sid)
        assert (await member.next())[:2] == (bench.ends[0], 1)
        await bench.ask(m.DeleteMarks(bench.next(), *bench.place, sid), m.Done)
        assert (await member.next())[2].value == b"three"
        told = await member.asked.next(m.Detached)
        assert told.status == Status.UNKNOWN_SUBSCRIPTION


async def test_a_member_that_leaves_gives_back_what_it_has(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queued(monkeypatch) as (bench, sid):
        member, other = await attach(bench, sid, count=3), await attach(bench, sid, count=3)
        await described(bench, sid, open_count=3)
        bench.connection.post(m.Detach(member.asked.request))
        found = {(await other.next())[2].value for _ in range(3)}
        assert found == {b"one", b"two", b"three"}


async def test_a_member_that_leaves_says_what_its_program_saw(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queued(monkeypatch, attempts=1) as (bench, sid):
        member = await attach(bench, sid, count=3)
        await described(bench, sid, open_count=3)
        bench.connection.post(m.Detach(member.asked.request, [bench.ends[0]], [1]))
        other = await attach(bench, sid, count=3)
        found = [(await other.next())[1:] for _ in range(2)]
        assert [(attempt, one.value) for attempt, one in found] == [(1, b"one"), (1, b"three")]
        await described(bench, sid, dead_count=1)


def test_a_farewell_with_fewer_attempts_than_messages_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="as many attempts"):
        seen_in(m.Detach(1, [Offset(0), Offset(1)], [1]))


async def test_a_message_that_can_not_be_read_is_dealt_when_it_can_be_and_counts_no_attempt(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queued(monkeypatch, attempts=1) as (bench, sid):
        read, damaged = LocalLog.read, bench.ends[0]
        is_damaged = True

        def failing(log: LocalLog, offset: Offset, bytes_max: int) -> bytes:
            # It was sound when the queue was fed.
            if is_damaged and bytes_max < 1_000 and offset <= damaged:
                if offset == damaged:
                    raise CorruptLogError("00.log", 0, offset, "its bytes changed")
                bytes_max = min(bytes_max, damaged - offset)
            return read(log, offset, bytes_max)

        monkeypatch.setattr(LocalLog, "read", failing)
        member = await attach(bench, sid)
        got = [await member.next() for _ in range(2)]
        assert [one.value for _, _, one in got] == [b"one", b"three"]
        member.acknowledge(*((offset, attempt) for offset, attempt, _ in got))
        await member.confirmed()
        is_damaged = False
        offset, attempt, one = await member.next()
        assert one.value == b"two"
        member.acknowledge((offset, attempt), confirm=True)
        assert (await member.asked.next(m.QueueSettled)).stale == []
        marks = await bench.mark_of(sid)
        assert (marks.mark, marks.skipped, marks.dead_count) == (bench.ends[2], [], 0)


async def test_messages_that_stand_together_are_read_together(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queued(monkeypatch) as (bench, sid):
        values = [f"m{number}".encode() for number in range(500)]
        await produce(bench.connection, bench.topic, batch(len(bench.ends), *values))
        reads: list[Offset] = []
        read = LocalLog.read

        def counting(log: LocalLog, offset: Offset, bytes_max: int) -> bytes:
            reads.append(offset)
            return read(log, offset, bytes_max)

        monkeypatch.setattr(LocalLog, "read", counting)
        member = await attach(bench, sid, count=1_000)
        got = [(await member.next())[2].value for _ in range(len(bench.ends) + len(values))]
        assert got[-500:] == values
        assert len(reads) < 20
