"""The batch readers of the source, which Spark calls, and what all readers have in common.

Spark makes a reader where a query is planned, and unpickles a copy of it in every task that reads.
So a reader keeps options, and no state that only the planning process has and a task would need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import (
    ColumnPath,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from octopi.errors import (
    HistoryForkedError,
    HistoryLostError,
    InvalidOptionError,
    StorageError,
)
from octopi.identifiers import Offset
from octopi.logger import get_logger
from octopi.position import NO_ANCHOR, Place
from octopi.spark import planning, query_marks
from octopi.spark.columns import arrow_schema, record_batch
from octopi.spark.frames import check_records
from octopi.spark.logs import Bounds, SourceLog, SourceLogs
from octopi.spark.options import EARLIEST, LATEST, Places, ReadOptions
from octopi.spark.planning import Offsets, Range
from octopi.spark.served_logs import ServedLogs
from octopi.spark.stored_logs import StoredLogs

_log = get_logger(__name__)


class RangePartition(InputPartition):
    """The range of a log that one task reads."""

    def __init__(self, part: Range) -> None:
        super().__init__(str(part.log))
        self.part = part


def open_logs(options: ReadOptions) -> SourceLogs:
    """The logs that *options* name."""
    if options.path:
        return StoredLogs(
            options.path,
            options.subscribe,
            options.pattern,
            skip_gaps=not options.fail_on_data_loss,
        )
    return ServedLogs(options)


def read_range(options: ReadOptions, part: Range, columns: Sequence[str]) -> Iterator[Any]:
    """The rows of *part*, as `pyarrow.RecordBatch` with *columns*.  Every record is checked.

    Raises:
      OctopiError: any error of reading; a `RecordError` names the damaged record.
    """
    schema = arrow_schema(columns)
    log = part.log
    for piece in open_logs(options).read(log, Place(part.start, part.anchor), part.end):
        check_records(piece.frames, piece.offset)
        yield record_batch(piece.frames, piece.offset, log.topic, log.partition, schema)


class OctopiReader(DataSourceReader):
    """A batch read of all records between two places, which are fixed when the read is planned."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = list(columns)
        self._filters: list[Filter] = []

    def partitions(self) -> Sequence[InputPartition]:
        options, logs = self._options, open_logs(self._options)
        wanted = [log for log in logs.find() if _may_have(log, self._filters)]
        bounds = {log: logs.bounds(log) for log in wanted}
        _say_what_is_left_out(options, bounds)
        if options.subscription:
            options = query_marks.beginning_at(options, query_marks.marks(options, wanted))
        start = starting(options, logs, bounds)
        end = {
            log: _resolve("endingOffsets", options.ending, logs, log, here, LATEST)
            for log, here in bounds.items()
        }
        for log in wanted:
            low, high = _offset_limits(self._filters)
            start[log] = max(start[log], logs.boundary(log, Offset(low)))
            if high is not None and high < end[log]:
                # The last record that may pass the filters starts at or before this offset.
                reached, _ = advance_records(
                    logs, log, logs.boundary(log, Offset(max(0, high))), end[log], 1
                )
                end[log] = min(end[log], reached)
            low_ms = _timestamp_limit(self._filters)
            if low_ms is not None:
                start[log] = max(start[log], logs.at_time(log, low_ms))
        ranges = planning.split(start, end, options.min_partitions, logs.boundary)
        return [RangePartition(one) for one in ranges]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if not isinstance(partition, RangePartition):
            return iter(())  # Spark has a task even if there is nothing to read
        return read_range(self._options, partition.part, self._columns)


def _say_what_is_left_out(options: ReadOptions, bounds: Mapping[SourceLog, Bounds]) -> None:
    """Log which records in files are left out, because they are not known to be committed.

    Raises:
      StorageError: if these are all records of a log, since no rows would look like an empty log.
    """
    for log, here in bounds.items():
        if not here.uncommitted_bytes:
            continue
        if here.start == here.end:
            raise StorageError(
                f"of {log} in {options.path} nothing is known to be committed, although it has "
                f"{here.uncommitted_bytes} bytes of records: start its broker, which notes within "
                "a second what is committed, or read the cluster or another replica"
            )
        _log.warning(
            "records that are not known to be committed are left out",
            log=str(log),
            path=options.path,
            from_offset=here.end,
            size_bytes=here.uncommitted_bytes,
        )


class PushdownReader(OctopiReader):
    """A batch read that uses the query's filters to read less.

    It is a class of its own, because Spark refuses a reader with `pushFilters` while its setting
    ``spark.sql.python.filterPushdown.enabled`` is off.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._filters = list(filters)
        return filters  # Spark has to apply them, too: this reader leaves out only whole ranges


def common_offset(
    options: ReadOptions, logs: SourceLogs, log: SourceLog, place: Place
) -> Offset | None:
    """The last common offset, if *log* has another history before *place* than was read there; None
    if it is the same, or not known.

    Raises:
      HistoryForkedError: if the history is another one (unless ``failOnDataLoss=false``).
    """
    common = logs.common(log, place)
    if common is None:
        return None
    fork = HistoryForkedError.of_range(log.topic, log.partition, common, place.offset)
    if options.fail_on_data_loss:
        raise fork
    _log.warning("records are lost that this query had read, or was about to", why=str(fork))
    return common


def starting(options: ReadOptions, logs: SourceLogs, bounds: Mapping[SourceLog, Bounds]) -> Offsets:
    """The offsets at which a query begins.

    Raises:
      InvalidOptionError: if no record starts at an offset, or it is behind the end.
      HistoryLostError: if retention has removed the records at an offset (unless
          ``failOnDataLoss=false``).
      HistoryForkedError: if the log has another history there than the anchor of an offset says
          (unless ``failOnDataLoss=false``).
    """
    if options.starting_timestamp_ms is not None:
        stamp = options.starting_timestamp_ms
        return {log: logs.at_time(log, stamp) for log in bounds}
    start: Offsets = {}
    for log, here in bounds.items():
        anchor = options.starting_anchors.get(log.topic, {}).get(log.partition, NO_ANCHOR)
        common = None
        if anchor and not isinstance(options.starting, str):
            place = Place(Offset(options.starting[log.topic][log.partition]), anchor)
            common = common_offset(options, logs, log, place)
        if common is not None:
            start[log] = max(common, here.start)
            continue
        option = "subscription" if options.subscription else "startingOffsets"
        offset = _resolve(option, options.starting, logs, log, here, EARLIEST)
        if offset < here.start:
            lost = HistoryLostError(log.topic, log.partition, offset, here.start)
            if options.fail_on_data_loss:
                raise lost
            _log.warning("the query begins later than it should", why=str(lost))
            offset = here.start
        start[log] = offset
    return start


def _resolve(
    option: str, places: Places, logs: SourceLogs, log: SourceLog, here: Bounds, otherwise: int
) -> Offset:
    """The offset of *log* that *places* gives; *otherwise* is used if it doesn't name the log."""
    match places:
        case "earliest":
            return here.start
        case "latest":
            return here.end
    place = places.get(log.topic, {}).get(log.partition, otherwise)
    if place == EARLIEST:
        return here.start
    if place == LATEST:
        return here.end
    if place > here.end:
        raise InvalidOptionError(
            f"{option}: there is no offset {place} in {log}, which ends at {here.end}"
        )
    found = logs.boundary(log, Offset(place))
    if here.start < place != found:
        raise InvalidOptionError(
            f"{option}: offset {place} of {log} is inside the record that starts at {found}: "
            "offsets are byte positions; take them from the columns offset and next_offset"
        )
    return Offset(place)


def advance_records(
    logs: SourceLogs, log: SourceLog, start: Offset, end: Offset, count: int
) -> tuple[Offset, int]:
    """The end of the first *count* records from *start* on, *end* at most, and their number."""
    used = 0
    for piece in logs.read(log, Place(start), end) if count else ():
        taken = min(count - used, len(piece.frames))
        used += taken
        start = Offset(piece.offset + int(piece.frames.bounds[taken]))
        if used == count:
            break
    return start, used


# --- filters -----------------------------------------------------------------------------


def _may_have(log: SourceLog, filters: Sequence[Filter]) -> bool:
    """Whether rows of *log* can pass those of *filters* that are about topic and partition."""
    for one in filters:
        match one:
            case EqualTo(("topic",), value) if value != log.topic:
                return False
            case EqualTo(("partition",), value) if value != log.partition:
                return False
            case In(("topic",), values) if log.topic not in values:
                return False
            case In(("partition",), values) if log.partition not in values:
                return False
    return True


def _offset_limits(filters: Sequence[Filter]) -> tuple[int, int | None]:
    """The least and the greatest offset that a row can have that passes *filters*; None: there is
    no greatest one."""
    low, high = 0, 2**63
    offset: ColumnPath = ("offset",)
    for one in filters:
        match one:
            case EqualTo(path, value) if path == offset:
                low, high = max(low, value), min(high, value)
            case GreaterThan(path, value) | GreaterThanOrEqual(path, value) if path == offset:
                low = max(low, value)
            case LessThan(path, value) | LessThanOrEqual(path, value) if path == offset:
                high = min(high, value)
    return low, None if high == 2**63 else high


def _timestamp_limit(filters: Sequence[Filter]) -> int | None:
    """The least time stamp (ms) that a row can have that passes *filters*; None: no limit."""
    stamps = [
        one.value.timestamp()
        for one in filters
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual)
        and one.attribute == ("timestamp",)
    ]
    return max(0, int(max(stamps) * 1000)) if stamps else None
