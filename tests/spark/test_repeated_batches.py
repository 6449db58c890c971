"""A batch that Spark repeats has the same records, also the first one.

Spark keeps where each batch ends, and nothing else.  So of the first batch it asks where it begins
whenever it plans it: when the query runs, and again when the query died in it.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from octopi.errors import HistoryLostError
from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.position import NO_ANCHOR, Anchor, Place
from octopi.spark import stream_reading
from octopi.spark.logs import Bounds, Piece, SourceLog, SourceLogs
from octopi.spark.options import read_options
from octopi.spark.reading import RangePartition
from octopi.spark.stream_reading import OctopiStreamReader

RECORD = 10
"""Each record of these logs has ten bytes."""


@attrs.define
class GrowingLogs(SourceLogs):
    """Logs that a test makes longer at the end, and shorter at the start."""

    there: dict[SourceLog, Bounds]

    def find(self) -> list[SourceLog]:
        return sorted(self.there)

    def bounds(self, log: SourceLog) -> Bounds:
        return self.there[log]

    def boundary(self, log: SourceLog, offset: Offset) -> Offset:
        return Offset(min(offset - offset % RECORD, self.there[log].end))

    def at_time(self, log: SourceLog, timestamp_ms: int) -> Offset:
        raise AssertionError("no test asks for a time")

    def anchor(self, log: SourceLog, offset: Offset) -> Anchor:
        return NO_ANCHOR

    def common(self, log: SourceLog, place: Place) -> Offset | None:
        return None

    def read(self, log: SourceLog, start: Place, end: Offset) -> Iterator[Piece]:
        raise AssertionError("no test reads records")


def a_log(partition: int, topic: str = "orders") -> SourceLog:
    return SourceLog(TopicName(topic), PartitionId(partition), TopicId("ab"))


FIRST, SECOND = a_log(0), a_log(1)


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> GrowingLogs:
    logs = GrowingLogs({FIRST: Bounds(Offset(0), Offset(100))})
    monkeypatch.setattr(stream_reading, "open_logs", lambda _: logs)
    return logs


def a_driver(starting: str = "earliest", **options: str) -> OctopiStreamReader:
    """The reader of a driver that was just started."""
    given = {"subscribePattern": ".*", "startingOffsets": starting, **options}
    return OctopiStreamReader(read_options(given, streaming=True), ["value"])


def ranges(
    driver: OctopiStreamReader, end: dict[str, object], start: dict[str, object] | None = None
) -> list[tuple[SourceLog, int, int]]:
    """What a batch reads, planned as Spark does it: of the first one it doesn't have the start."""
    planned = driver.partitions(driver.initialOffset() if start is None else start, end)
    parts = [one.part for one in planned if isinstance(one, RangePartition)]
    return [(one.log, one.start, one.end) for one in parts]


def test_the_first_batch_begins_where_the_query_began_and_not_at_a_later_end(
    logs: GrowingLogs,
) -> None:
    driver = a_driver("latest")
    began = driver.initialOffset()
    logs.there[FIRST] = Bounds(Offset(0), Offset(150))
    end = driver.latestOffset(began, ReadAllAvailable())
    logs.there[FIRST] = Bounds(Offset(0), Offset(200))
    planned = ranges(driver, end)
    assert planned == [(FIRST, 100, 150)]
    driver = a_driver("latest")  # the first one died in this batch
    assert ranges(driver, end) == planned
    following = driver.latestOffset(end, ReadAllAvailable())
    assert ranges(driver, following, end) == [(FIRST, 150, 200)]


def test_a_first_batch_is_not_repeated_if_retention_removed_records_of_it(
    logs: GrowingLogs,
) -> None:
    driver = a_driver()
    end = driver.latestOffset(driver.initialOffset(), ReadAllAvailable())
    assert ranges(driver, end) == [(FIRST, 0, 100)]
    logs.there[FIRST] = Bounds(Offset(50), Offset(100))
    with pytest.raises(HistoryLostError, match="removed by retention"):
        ranges(a_driver(), end)
    assert ranges(a_driver(failOnDataLoss="false"), end) == [(FIRST, 50, 100)]


def test_a_log_that_is_new_in_a_batch_begins_at_the_same_place_when_it_is_repeated(
    logs: GrowingLogs,
) -> None:
    driver = a_driver()
    start = driver.latestOffset(driver.initialOffset(), ReadAllAvailable())
    logs.there[SECOND] = Bounds(Offset(0), Offset(80))
    end = driver.latestOffset(start, ReadAllAvailable())
    assert ranges(driver, end, start) == [(SECOND, 0, 80)]
    logs.there[SECOND] = Bounds(Offset(40), Offset(80))
    with pytest.raises(HistoryLostError, match="orders/1"):
        ranges(a_driver(), end, start)


def test_no_batch_is_planned_without_new_records(logs: GrowingLogs) -> None:
    driver = a_driver()
    first = driver.latestOffset(driver.initialOffset(), ReadAllAvailable())
    assert driver.latestOffset(first, ReadAllAvailable()) == first
    logs.there[FIRST] = Bounds(Offset(0), Offset(110))
    second = driver.latestOffset(first, ReadAllAvailable())
    assert second != first
    assert driver.latestOffset(second, ReadAllAvailable()) == second
