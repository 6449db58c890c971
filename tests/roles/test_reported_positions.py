"""Consumers report how far their programs are, and a broker computes lags from it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import cbor2
import pytest

from octopi.errors import ProtocolError
from octopi.identifiers import Offset, PartitionId
from octopi.limits import POSITION_REPORT_INTERVAL_S
from octopi.roles.broker.reading import Reading
from octopi.transport.connection import Connection
from octopi.wire import messages as m
from octopi.wire.codec import decode
from tests.kit.cluster import describe, running_cluster
from tests.kit.probes import batch, produce

ONE = len(batch(0, b"value"))


@asynccontextmanager
async def opened(tmp_path: Path, credit: int) -> AsyncIterator[tuple[Connection, int]]:
    """A reading of a log of five records of the length `ONE`, and the number it has."""
    async with running_cluster(tmp_path) as cluster:
        topic = await describe(cluster, "orders")
        place = topic.partitions[0]
        async with cluster.connection(place.leader_address) as broker:
            for number in range(5):
                await produce(broker, topic, batch(number, b"value"))
            ask = m.Subscribe(broker.next_request(), "orders", place.partition, Offset(0), credit)
            broker.ask(ask, lambda _: None)
            while [one.position for one in await shown(broker)] != [credit]:
                pass
            yield broker, ask.request


async def shown(broker: Connection) -> list[m.ReadingInfo]:
    question = m.DescribeReadings(broker.next_request(), "orders")
    return (await broker.request(question, m.ReadingList, 5)).readings


async def reported(broker: Connection, request: int, *offsets: int) -> m.ReadingInfo:
    """The reading after it reported these positions."""
    for offset in offsets:
        broker.post(m.ReportPosition(request, Offset(offset)))
    [info] = await shown(broker)
    return info


async def test_a_reading_has_one_lag_for_sent_and_one_for_processed_messages(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, credit=3 * ONE) as (broker, request):
        [info] = await shown(broker)
        assert (info.position, info.dealt) == (3 * ONE, None)
        assert (info.sent_lag_bytes, info.lag_bytes, info.least_lag_bytes) == (
            2 * ONE,
            None,
            2 * ONE,
        )
        info = await reported(broker, request, 0)
        assert (info.sent_lag_bytes, info.lag_bytes, info.least_lag_bytes) == (
            2 * ONE,
            5 * ONE,
            5 * ONE,
        )
        info = await reported(broker, request, ONE)
        assert (info.position, info.dealt, info.lag_bytes) == (3 * ONE, ONE, 4 * ONE)


async def test_a_position_beyond_what_was_sent_or_before_an_earlier_one_is_ignored(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, credit=3 * ONE) as (broker, request):
        assert (await reported(broker, request, 3 * ONE + 1, 2**63 - 1)).dealt is None
        assert (await reported(broker, request, 2 * ONE, ONE, 0)).dealt == 2 * ONE
        # A position need not be the start of a record: nothing is read from there.
        assert (await reported(broker, request, 2 * ONE + 1)).dealt == 2 * ONE + 1
        assert (await reported(broker, request, 3 * ONE)).lag_bytes == 2 * ONE


async def test_a_position_in_a_reading_that_is_not_there_is_ignored(tmp_path: Path) -> None:
    async with opened(tmp_path, credit=3 * ONE) as (broker, request):
        assert (await reported(broker, request + 1_000, ONE)).dealt is None
        broker.post(m.Unsubscribe(request))
        broker.post(m.ReportPosition(request, Offset(ONE)))
        assert all(one.dealt is None for one in await shown(broker))
        assert broker.end_reason is None


def at_a_broker(**of_log: int) -> Reading:
    """A reading that was sent what lies below 100."""
    log = SimpleNamespace(name="orders", partition=PartitionId(0), epoch=1, **of_log)
    peer = SimpleNamespace(peer="peer", greeting=m.Hello(1, "test"))
    message = m.Subscribe(1, "orders", PartitionId(0), Offset(100), 1_000)
    context = SimpleNamespace(connection=peer, readers=None)
    return Reading(cast(Any, context), cast(Any, log), message)


def test_position_reports_that_are_too_frequent_are_useless_frames() -> None:
    reading = at_a_broker()
    assert reading.dealt_with(Offset(0), now=5.0)
    assert not reading.dealt_with(Offset(1), now=5.1)
    assert not reading.dealt_with(Offset(2), now=5.4)
    assert reading.dealt_with(Offset(3), now=5.0 + POSITION_REPORT_INTERVAL_S)
    assert not reading.dealt_with(Offset(3), now=9.0)  # no news
    assert not reading.dealt_with(Offset(101), now=9.0)  # it was not sent so much
    assert reading.dealt_with(Offset(100), now=9.0)


def test_records_that_retention_removed_do_not_count_as_lag() -> None:
    reading = at_a_broker(start=50, highwater=130)
    reading.dealt_with(Offset(10), now=0.0)
    assert (reading.describe().dealt, reading.describe().lag_bytes) == (50, 80)
    reading.dealt_with(Offset(60), now=1.0)
    assert (reading.describe().dealt, reading.describe().lag_bytes) == (60, 70)


@pytest.mark.parametrize("offset", [-1, 2**63, "12", None, 1.5])
def test_a_position_report_without_a_valid_offset_is_refused(offset: object) -> None:
    fields = {"type": "report_position", "request": 1, "offset": offset}
    with pytest.raises(ProtocolError, match=r"^report_position\.offset: "):
        decode(cbor2.dumps(fields), frozenset({m.ReportPosition}))
