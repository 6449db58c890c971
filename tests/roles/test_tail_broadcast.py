"""New records of a log are read and encoded once for all readers at its tail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from octopi.environment import Link
from octopi.errors import CorruptLogError, HistoryForkedError, OctopiError, Status
from octopi.identifiers import Offset
from octopi.limits import FETCH_BYTES_DEFAULT, KIB
from octopi.operating_system import SystemClock
from octopi.roles.broker.reading import Reading
from octopi.roles.broker.tail_broadcast import EncodedDelivery, TailBroadcast
from octopi.transport.failures import failure_of
from octopi.transport.outbox import Outbox
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode
from octopi.wire.endpoints import CLIENT
from tests.kit.cluster import Cluster, describe, running_cluster
from tests.kit.probes import batch, produce

_BEGIN: Final = Offset(0)


class Log:
    """A log whose records are single bytes."""

    def __init__(self) -> None:
        self.epoch = 1
        self.highwater = Offset(0)
        self.data = b""
        self.generation = 0
        self.reads: list[Offset] = []
        self.fault: CorruptLogError | None = None
        self._wakers: dict[Callable[[], None], None] = {}

    def commit(self, data: bytes) -> None:
        self.data += data
        self.highwater = Offset(len(self.data))
        self.wake()

    def bound(self, generation: int) -> None:
        """The topic has only ever had one list of partitions."""

    def read(self, offset: Offset, bytes_max: int) -> bytes:
        self.reads.append(offset)
        if self.fault is not None:
            raise self.fault
        return self.data[offset : min(offset + bytes_max, self.highwater)]

    def read_bytes_min(self, offset: Offset) -> int:
        return min(1, self.highwater - offset)

    def anchor_before(self, offset: Offset) -> str:
        return str(self.epoch) if offset else ""

    def check_anchor(self, offset: Offset, anchor: str) -> None:
        if anchor and anchor != self.anchor_before(offset):
            raise HistoryForkedError("other records", offset=0)

    def anchor_behind(self, offset: Offset) -> str:
        return str(self.epoch)

    @property
    def waker_count(self) -> int:
        return len(self._wakers)

    def wake(self) -> None:
        for wake in list(self._wakers):
            wake()

    def add_waker(self, wake: Callable[[], None]) -> None:
        self._wakers[wake] = None

    def remove_waker(self, wake: Callable[[], None]) -> None:
        self._wakers.pop(wake, None)


@attrs.define(eq=False)
class Reader:
    """Notes what it is given."""

    request: int = 1
    position: Offset = _BEGIN
    is_full: bool = False
    on_taken: Callable[[], None] = lambda: None
    taken: list[bytes] = attrs.Factory(list)
    awake: bool = False

    def take(self, delivery: EncodedDelivery, now: float) -> bool:
        if self.is_full:
            return False
        self.taken.append(delivery.data)
        assert self.messages[-1].offset == self.position
        self.position = delivery.end
        self.on_taken()
        return True

    def wake(self) -> None:
        self.awake = True

    @property
    def messages(self) -> list[m.Delivery]:
        found = [decode(data, frozenset({m.Delivery})) for data in self.taken]
        assert all(isinstance(one, m.Delivery) for one in found)
        return found  # type: ignore[return-value]

    @property
    def records(self) -> list[bytes]:
        return [bytes(one.records) for one in self.messages]


@attrs.define
class Bench:
    """A log, its fan-out, and who reads at the tail."""

    log: Log
    tail_broadcast: TailBroadcast

    def join(self, *readers: Reader) -> None:
        for reader in readers:
            self.tail_broadcast.join(self.log, reader)

    def leave(self, reader: Reader) -> None:
        self.tail_broadcast.leave(self.log, reader)


@asynccontextmanager
async def running() -> AsyncIterator[Bench]:
    bench = Bench(Log(), TailBroadcast(SystemClock()))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.tail_broadcast.run)
        yield bench
        nursery.cancel_scope.cancel()


async def test_records_at_the_tail_are_read_and_encoded_once_for_all_readers() -> None:
    async with running() as bench:
        readers = [Reader() for _ in range(10)]
        bench.join(*readers)
        for number in (b"a", b"bc"):
            bench.log.commit(number)
            await wait_all_tasks_blocked()
        assert all(one.taken == readers[0].taken for one in readers)
        assert all(one.taken[1] is readers[0].taken[1] for one in readers)
        assert bench.log.reads == [0, 1]
        assert readers[0].messages == [
            m.Delivery(1, 0, b"a", 1, "1"),
            m.Delivery(1, 1, b"bc", 3, "1"),
        ]


async def test_each_reader_gets_deliveries_with_its_own_request_number() -> None:
    async with running() as bench:
        readers = [Reader(request) for request in range(100)]
        bench.join(*readers)
        bench.log.commit(b"a")
        await wait_all_tasks_blocked()
        assert [one.messages for one in readers] == [
            [m.Delivery(n, 0, b"a", 1, "1")] for n in range(100)
        ]


async def test_a_reader_whose_connection_is_full_leaves_the_broadcast_and_others_are_served() -> (
    None
):
    async with running() as bench:
        first, full, last = Reader(), Reader(is_full=True), Reader()
        bench.join(first, full, last)
        bench.log.commit(b"a")
        await wait_all_tasks_blocked()
        assert (full.awake, full.taken) == (True, [])
        full.is_full = False
        bench.log.commit(b"b")
        await wait_all_tasks_blocked()
        assert full.taken == []
        assert first.records == last.records == [b"a", b"b"]
        assert not first.awake


async def test_a_reader_that_joins_during_a_delivery_gets_no_record_twice() -> None:
    async with running() as bench:
        late = Reader(position=Offset(1))
        first, last = Reader(on_taken=lambda: bench.join(late)), Reader()
        bench.join(first, last)
        bench.log.commit(b"a")
        await wait_all_tasks_blocked()
        assert late.taken == []
        bench.log.commit(b"b")
        await wait_all_tasks_blocked()
        assert late.records == [b"b"]
        assert last.records == [b"a", b"b"]


async def test_a_reader_that_leaves_during_a_delivery_is_sent_nothing() -> None:
    async with running() as bench:
        gone = Reader()
        first, last = Reader(on_taken=lambda: bench.leave(gone)), Reader()
        bench.join(first, gone, last)
        bench.log.commit(b"a")
        await wait_all_tasks_blocked()
        assert (gone.taken, gone.awake) == ([], False)
        assert last.records == [b"a"]


async def test_records_committed_during_a_delivery_go_to_the_remaining_readers_with_it() -> None:
    async with running() as bench:
        readers = [Reader() for _ in range(200)]

        def commit_more() -> None:
            readers[0].on_taken = lambda: None
            bench.log.commit(b"b")

        readers[0].on_taken = commit_more
        bench.join(*readers)
        bench.log.commit(b"a")
        await wait_all_tasks_blocked()
        assert readers[0].records == [b"a", b"b"]
        assert readers[-1].records == [b"ab"]
        assert all(b"".join(one.records) == b"ab" for one in readers)


async def test_other_tasks_have_their_turn_between_many_readers() -> None:
    async with running() as bench:
        readers = [Reader() for _ in range(1_000)]
        bench.join(*readers)
        bench.log.commit(b"a")
        served: list[int] = []
        while not readers[-1].taken:
            await trio.lowlevel.checkpoint()
            served.append(sum(bool(one.taken) for one in readers))
        assert max(b - a for a, b in pairwise(served)) < 200


async def test_large_deliveries_go_to_fewer_readers_in_a_row() -> None:
    async with running() as bench:
        readers = [Reader() for _ in range(100)]
        bench.join(*readers)
        bench.log.commit(bytes(FETCH_BYTES_DEFAULT))
        served: list[int] = []
        while not readers[-1].taken:
            await trio.lowlevel.checkpoint()
            served.append(sum(bool(one.taken) for one in readers))
        assert max(b - a for a, b in pairwise(served)) < 10


async def test_logs_with_new_records_take_turns() -> None:
    async with running() as bench:
        other = Log()
        crowd, alone = [Reader() for _ in range(1_000)], Reader()
        bench.join(*crowd)
        bench.tail_broadcast.join(other, alone)
        bench.log.commit(b"a")
        other.commit(b"b")
        while not alone.taken:
            await trio.lowlevel.checkpoint()
        assert crowd[-1].taken == []
        await wait_all_tasks_blocked()
        assert crowd[-1].records == [b"a"]


async def test_records_too_large_for_one_delivery_are_left_to_the_readers() -> None:
    async with running() as bench:
        reader = Reader()
        bench.join(reader)
        bench.log.commit(bytes(FETCH_BYTES_DEFAULT + 1))
        await wait_all_tasks_blocked()
        assert reader.records == [bytes(FETCH_BYTES_DEFAULT)]
        assert reader.awake


async def test_a_log_that_is_no_longer_served_wakes_all_its_readers() -> None:
    async with running() as bench:
        readers = [Reader() for _ in range(3)]
        bench.join(*readers)
        bench.log.epoch = 0
        bench.log.wake()
        await wait_all_tasks_blocked()
        assert all(one.awake for one in readers)
        assert bench.log.waker_count == 0


async def test_a_log_whose_topic_got_other_partitions_wakes_all_its_readers() -> None:
    """They have everything, and look up whether they may go on."""
    async with running() as bench:
        readers = [Reader() for _ in range(3)]
        bench.join(*readers)
        bench.log.generation = 2
        bench.log.wake()
        assert all(one.awake for one in readers)
        assert bench.log.waker_count == 0


async def test_a_log_that_can_not_be_read_wakes_its_readers_and_others_are_served() -> None:
    async with running() as bench:
        other, elsewhere = Log(), Reader()
        bench.tail_broadcast.join(other, elsewhere)
        readers = [Reader() for _ in range(3)]
        bench.join(*readers)
        bench.log.fault = CorruptLogError("segment", 0, 0, "a checksum is wrong")
        bench.log.commit(b"a")
        other.commit(b"b")
        await wait_all_tasks_blocked()
        assert all(one.awake and not one.taken for one in readers)
        assert elsewhere.records == [b"b"]


async def test_a_log_without_readers_at_its_tail_is_forgotten() -> None:
    async with running() as bench:
        readers = [Reader() for _ in range(5)]
        bench.join(*readers)
        assert bench.log.waker_count == 1
        bench.log.commit(b"a")
        for reader in readers * 2:
            bench.leave(reader)
        await wait_all_tasks_blocked()
        assert bench.log.waker_count == 0
        assert bench.log.reads == []
        assert not any(reader.taken for reader in readers)


async def test_a_few_readers_are_sent_records_in_the_call_that_commits_them() -> None:
    async with running() as bench:
        readers = [Reader() for _ in range(4)]
        bench.join(*readers)
        for records in (b"a", b"bc"):
            bench.log.commit(records)
            assert [reader.records[-1] for reader in readers] == [records] * 4
        assert bench.log.reads == [0, 1]


async def test_more_readers_are_served_when_the_producer_has_its_receipt() -> None:
    async with running() as bench:
        readers = [Reader() for _ in range(5)]
        bench.join(*readers)
        bench.log.commit(b"a")
        assert not any(reader.taken for reader in readers)
        await wait_all_tasks_blocked()
        assert [reader.records for reader in readers] == [[b"a"]] * 5


async def test_records_that_are_not_committed_yet_are_no_work() -> None:
    async with running() as bench:
        readers = [Reader() for _ in range(5)]
        bench.join(*readers)
        bench.log.commit(b"a")
        await wait_all_tasks_blocked()
        bench.log.wake()  # there are new records, for followers
        assert not bench.tail_broadcast.has_work
        bench.log.epoch = 0
        bench.log.wake()
        await wait_all_tasks_blocked()
        assert all(reader.awake for reader in readers)


async def test_what_is_committed_while_a_few_readers_are_served_is_sent_to_all_of_them() -> None:
    async with running() as bench:
        first, second = Reader(), Reader()
        left = [b"b"]
        first.on_taken = lambda: bench.log.commit(left.pop()) if left else None
        bench.join(first, second)
        bench.log.commit(b"a")
        await wait_all_tasks_blocked()
        assert b"".join(first.records) == b"".join(second.records) == b"ab"


# --- readings ---------------------------------------------------------------------


@attrs.define
class Peer:
    """What a reading needs of a connection, and of a broker's logs."""

    tail_broadcast: TailBroadcast
    readings: dict[Reading, None] = attrs.Factory(dict)
    posted: list[object] = attrs.Factory(list)
    outbox: Outbox = attrs.Factory(lambda: Outbox(None))
    turn: None = None

    def post(self, message: object) -> None:
        self.posted.append(message)

    def try_send_encoded(self, data: bytes, now: float) -> bool:
        self.posted.append(decode(data, frozenset({m.Delivery})))
        return True

    async def paced(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()

    @property
    def context(self) -> Any:  # noqa: ANN401
        """That of the connection's services."""
        return SimpleNamespace(connection=self, readers=self, refuse=self._refuse)

    def _refuse(self, log: Log, request: int, error: OctopiError) -> None:
        self.post(failure_of(request, error))


@pytest.mark.parametrize("credit", [2, 1])
async def test_nothing_is_delivered_after_the_end_of_a_reading(credit: int) -> None:
    async with running() as bench, trio.open_nursery() as nursery:
        peer, log = cast(Any, Peer(bench.tail_broadcast)), cast(Any, bench.log)
        log.delivered_bytes = 0
        reading = Reading(peer.context, log, m.Subscribe(1, "topic", 0, 0, credit))
        nursery.start_soon(reading.run)
        bench.log.commit(b"a")
        await wait_all_tasks_blocked()
        bench.log.commit(b"b")  # which is sent in this call if there is credit
        reading.grant(2)
        reading.stop()  # before anybody had a turn
        await wait_all_tasks_blocked()
        assert [one.records for one in peer.posted] == [b"a", b"b"][:credit]
        assert peer.readings == {}


async def test_a_reading_does_not_outlive_a_new_leader_that_lacks_what_it_sent() -> None:
    """The broker followed another leader before the reading had a turn."""
    async with running() as bench, trio.open_nursery() as nursery:
        peer, log = cast(Any, Peer(bench.tail_broadcast)), cast(Any, bench.log)
        log.delivered_bytes = 0
        reading = Reading(peer.context, log, m.Subscribe(1, "topic", 0, 0, 100))
        nursery.start_soon(reading.run)
        bench.log.commit(b"a")
        await wait_all_tasks_blocked()
        bench.log.epoch = 2
        bench.log.commit(b"b")
        await wait_all_tasks_blocked()
        delivered, ended = peer.posted
        assert delivered == m.Delivery(1, 0, b"a", 1, "1")
        assert (ended.status, ended.offset) == (Status.HISTORY_FORKED, 0)


async def test_a_reading_goes_on_under_a_new_leader_that_has_what_it_sent() -> None:
    async with running() as bench, trio.open_nursery() as nursery:
        peer, log = cast(Any, Peer(bench.tail_broadcast)), cast(Any, bench.log)
        log.delivered_bytes = 0
        log.anchor_before = log.anchor_behind = lambda offset: "1"
        reading = Reading(peer.context, log, m.Subscribe(1, "topic", 0, 0, 100))
        nursery.start_soon(reading.run)
        await wait_all_tasks_blocked()
        for epoch in (2, 3):
            bench.log.epoch = epoch
            bench.log.commit(b"a")
            await wait_all_tasks_blocked()
        assert [one.records for one in peer.posted] == [b"a", b"a"]
        reading.stop()


# --- over real connections -------------------------------------------------------------


class Subscriber:
    """Takes what comes on a link only when it is told to."""

    def __init__(self, link: Link, topic: m.TopicInfo, request: int = 1) -> None:
        self.data = bytearray()
        self._link = link
        self._topic = topic
        self._request = request

    async def subscribe(self, credit: int = 1 << 40) -> None:
        """At the beginning, which is the tail."""
        await self.say(m.Hello(m.PROTOCOL_VERSION, "test"))
        assert isinstance(await self.hear(), m.Welcome)
        place = self._topic.partitions[0].partition
        await self.say(m.Subscribe(self._request, self._topic.topic, place, 0, credit))
        assert isinstance(await self.hear(), m.Subscribed)

    async def grant(self, until: int) -> None:
        await self.say(m.Credit(self._request, until))

    async def wait_for(self, size_bytes: int) -> None:
        with trio.fail_after(10):
            while len(self.data) < size_bytes:
                message = await self.hear()
                assert isinstance(message, m.Delivery)
                assert (message.request, message.offset) == (self._request, len(self.data))
                self.data += message.records

    async def hear(self) -> object:
        """The next message that is no heartbeat."""
        while True:
            message = decode(await self._link.receive(), CLIENT.back | {m.Heartbeat, m.Welcome})
            if not isinstance(message, m.Heartbeat):
                return message

    async def say(self, message: object) -> None:
        await self._link.send(encode(message))


@asynccontextmanager
async def subscribed(
    cluster: Cluster, topic: m.TopicInfo, request: int = 1, credit: int = 1 << 40
) -> AsyncIterator[Subscriber]:
    link = await cluster.environment.net.connect(topic.partitions[0].leader_address, CLIENT.path)
    try:
        subscriber = Subscriber(link, topic, request)
        await subscriber.subscribe(credit)
        yield subscriber
    finally:
        with trio.CancelScope(shield=True):
            await link.aclose()


async def test_subscribers_get_every_record_once_in_order_with_any_request_number(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path) as cluster, AsyncExitStack() as stack:
        topic = await describe(cluster, "orders")
        subscribers = [
            await stack.enter_async_context(subscribed(cluster, topic, 1 + number % 3))
            for number in range(9)
        ]
        produced = b""
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            for number in range(20):
                records = batch(number, b"%d" % number)
                await produce(broker, topic, records)
                produced += records
        for one in subscribers:
            await one.wait_for(len(produced))
        assert all(one.data == produced for one in subscribers)


async def test_a_subscriber_with_a_full_socket_loses_nothing_and_delays_no_other(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path) as cluster:
        topic = await describe(cluster, "orders")
        async with (
            subscribed(cluster, topic) as slow,
            subscribed(cluster, topic) as quick,
            cluster.connection(topic.partitions[0].leader_address) as broker,
        ):
            produced = b""
            for number in range(20):
                records = batch(number, bytes([number]) * 1000 * KIB)
                await produce(broker, topic, records)
                produced += records
                await quick.wait_for(len(produced))
            assert not slow.data
            await slow.wait_for(len(produced))
            assert slow.data == quick.data == produced
            records = batch(20, b"at the tail again")
            await produce(broker, topic, records)
            for one in (slow, quick):
                await one.wait_for(len(produced) + len(records))


async def test_a_subscriber_without_credit_gets_the_rest_when_it_grants_more(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path) as cluster:
        topic = await describe(cluster, "orders")
        one_bytes = len(batch(0, b"x"))
        async with (
            subscribed(cluster, topic, credit=2 * one_bytes) as bounded,
            subscribed(cluster, topic) as other,
            cluster.connection(topic.partitions[0].leader_address) as broker,
        ):
            for number in range(5):
                await produce(broker, topic, batch(number, b"x"))
                await other.wait_for((number + 1) * one_bytes)
            await bounded.wait_for(2 * one_bytes)
            await bounded.grant(4 * one_bytes)
            await bounded.wait_for(4 * one_bytes)
            with trio.move_on_after(0.05) as silence:
                await bounded.hear()
            assert silence.cancelled_caught
            await bounded.grant(9 * one_bytes)
            await bounded.wait_for(5 * one_bytes)
            assert bounded.data == other.data
