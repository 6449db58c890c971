"""Anchors: a broker compares the history that a reader has read with its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from octopi.errors import Status
from octopi.transport.connection import Connection
from octopi.wire import messages as m
from tests.kit.cluster import describe, running_cluster
from tests.kit.probes import batch, produce, refusal_of, values


@attrs.define
class Bench:
    """A log of two epochs, and a connection to its broker."""

    broker: Connection
    topic: m.TopicInfo
    first: m.Produced
    second: m.Produced
    end: int

    @property
    def old(self) -> str:
        """The anchor of a place behind a record of the first epoch."""
        return f"{self.first.epoch}-0"

    @property
    def new(self) -> str:
        """The anchor of a place behind a record of the second epoch."""
        return f"{self.second.epoch}-{self.second.offset}.{self.old}"

    async def fetch(self, offset: int, anchor: str = "", bytes_max: int = 1000) -> m.Fetched:
        partition = self.topic.partitions[0].partition
        request = self.broker.next_request()
        message = m.Fetch(request, self.topic.topic, partition, offset, bytes_max, 0, anchor)
        return await self.broker.request(message, m.Fetched, 5)

    async def subscribe(self, offset: int, anchor: str = "") -> list[object]:
        """What comes, up to two deliveries."""
        messages: list[object] = []
        enough = trio.Event()

        def take(message: object) -> None:
            messages.append(message)
            if isinstance(message, m.Failure) or len(messages) == 3:
                enough.set()

        request, partition = self.broker.next_request(), self.topic.partitions[0].partition
        self.broker.ask(
            m.Subscribe(request, self.topic.topic, partition, offset, 1 << 40, anchor), take
        )
        with trio.fail_after(5):
            await enough.wait()
        self.broker.forget(request)
        return messages


@asynccontextmanager
async def running(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        broker = await cluster.start_broker()
        topic = await describe(cluster, "orders")
        async with cluster.connection(broker.url) as connection:
            first = await produce(connection, topic, batch(0, b"one", b"two"))
        for _ in range(2):  # in between is an epoch without records
            await cluster.kill(broker)
            broker = await cluster.start_broker()
            topic = await describe(cluster, "orders")
        async with cluster.connection(broker.url) as connection:
            records = batch(2, b"three")
            second = await produce(connection, topic, records)
            assert second.epoch > first.epoch + 1
            yield Bench(connection, topic, first, second, second.offset + len(records))


async def test_deliveries_and_fetches_have_records_of_one_epoch_and_its_anchor(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as bench:
        old, new = bench.old, bench.new
        accepted, one, two = await bench.subscribe(0)
        assert isinstance(accepted, m.Subscribed)
        assert isinstance(one, m.Delivery)
        assert isinstance(two, m.Delivery)
        assert accepted.anchor == ""
        assert (values(one.records), one.anchor) == ([b"one", b"two"], old)
        assert (two.offset, two.anchor) == (bench.second.offset, new)
        for offset, anchor, found in ((0, old, one), (bench.second.offset, new, two)):
            fetched = await bench.fetch(offset)
            assert (fetched.records, fetched.anchor) == (found.records, anchor)


async def test_a_reading_and_an_empty_answer_carry_the_anchor_of_their_offset(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as bench:
        old, new = bench.old, bench.new
        assert (await bench.fetch(bench.end)).anchor == new
        request, partition = bench.broker.next_request(), bench.topic.partitions[0].partition
        for offset, anchor in ((bench.second.offset, old), (bench.end, new)):
            message = m.Subscribe(request + offset, bench.topic.topic, partition, offset, 0, anchor)
            accepted = await bench.broker.request(message, m.Subscribed, 5)
            assert accepted.anchor == anchor
        found = await bench.broker.request(
            m.FindOffset(request - 1, bench.topic.topic, partition, "latest", 0), m.FoundOffset, 5
        )
        assert (found.offset, found.anchor) == (bench.end, new)


async def test_a_place_behind_other_records_is_answered_with_the_last_common_offset(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as bench:
        old, new = bench.old, bench.new
        for offset, anchor, common in (
            (bench.end, old, bench.second.offset),
            (bench.end + 1000, old, bench.second.offset),
            (bench.end + 1000, new, bench.end),
            (bench.second.offset, f"{bench.second.epoch}-1", 0),
        ):
            error = await refusal_of(bench.fetch(offset, anchor))
            assert (error.status, error.offset) == (Status.HISTORY_FORKED, common)
            (failure,) = await bench.subscribe(offset, anchor)
            assert isinstance(failure, m.Failure)
            assert (failure.status, failure.offset) == (Status.HISTORY_FORKED, common)
        # Nothing is said of a place that comes without an anchor, nor of the beginning.
        assert (await refusal_of(bench.fetch(bench.end + 1000))).offset is None


async def test_a_place_in_an_epoch_that_the_log_never_had_is_sent_back_to_where_that_began(
    tmp_path: Path,
) -> None:
    """The leader of that epoch had less of the first one than this log has."""
    async with running(tmp_path) as bench:
        began = len(batch(0, b"one"))
        lost = f"{bench.second.epoch - 1}-{began}.{bench.old}"
        error = await refusal_of(bench.fetch(bench.end, lost))
        assert (error.status, error.offset) == (Status.HISTORY_FORKED, began)
        (failure,) = await bench.subscribe(bench.end, lost)
        assert isinstance(failure, m.Failure)
        assert (failure.status, failure.offset) == (Status.HISTORY_FORKED, began)
        assert values((await bench.fetch(began, bench.old)).records) == [b"two"]


async def test_an_epoch_that_the_broker_has_not_heard_of_is_asked_for_again(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as bench:
        error = await refusal_of(bench.fetch(bench.end, f"{bench.second.epoch + 1}-1"))
        assert (error.status, error.retryable) == (Status.NOT_READY, True)


async def test_a_fetch_with_an_invalid_anchor_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        late = f"1-{bench.end}"
        for anchor in ("seven", "7", "07-1", "2-1.3-0", late, "1200.9f3a61c2aa55bb66"):
            error = await refusal_of(bench.fetch(bench.end, anchor))
            assert error.status is Status.INVALID_OPTION
