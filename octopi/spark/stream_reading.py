"""The streaming reader of the source, which Spark calls."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from octopi.errors import HistoryLostError
from octopi.identifiers import Offset
from octopi.logger import get_logger
from octopi.position import NO_ANCHOR, Anchor, Place
from octopi.spark import planning
from octopi.spark.logs import Bounds, SourceLog, SourceLogs
from octopi.spark.options import ReadOptions
from octopi.spark.planning import Offsets
from octopi.spark.query_marks import QueryMarks, beginning_at
from octopi.spark.reading import (
    RangePartition,
    advance_records,
    common_offset,
    open_logs,
    read_range,
    starting,
)

_log = get_logger(__name__)


class OctopiStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = list(columns)
        self._logs: SourceLogs | None = None
        self._target: Offsets | None = None
        """The offsets at which a run with ``Trigger.AvailableNow`` ends."""
        self._batch_at: float | None = None
        """When the newest batch began."""
        self._marks: QueryMarks | None = None
        """Of the subscription; None: there is none, or nothing was planned yet."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_logs": None, "_marks": None}

    # --- where a query is planned ----------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        options, logs = self._options, self._opened()
        found = logs.find()
        if (marks := self._joined(found, is_new=True)) is not None:
            options = beginning_at(options, marks.begin(found))
        bounds = {log: logs.bounds(log) for log in found}
        start = starting(options, logs, bounds)
        anchors = {log: logs.anchor(log, offset) for log, offset in start.items()}
        return planning.initial(planning.dump(start, options.min_partitions, anchors))

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_bytes is None and options.max_records is None and not options.min_bytes:
            return ReadAllAvailable()
        return ReadMaxBytes(options.max_bytes or 2**62)

    def prepareForTriggerAvailableNow(self) -> None:
        logs = self._opened()
        self._target = {log: logs.bounds(log).end for log in logs.find()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        options, logs = self._options, self._opened()
        begun, _ = planning.load(start)
        found = logs.find()
        planning.check_topics(begun, found)
        bounds = {log: logs.bounds(log) for log in found}
        self._check_loss(begun, bounds)
        before = planning.load_places(start)
        for log, here in bounds.items():
            # A log that has become shorter would not be read, and so not be compared.
            if log in begun and here.end < begun[log]:
                common_offset(options, logs, log, before[log])
        if (marks := self._joined(found)) is not None:
            # A batch is planned when all before it are done.  Of the last one nothing else is said.
            marks.store(before)
        end = {log: here.end for log, here in bounds.items()}
        if self._target is not None:
            target = self._target
            end = {log: min(offset, target[log]) for log, offset in end.items() if log in target}
        # A log that is new in this batch is read from its start.
        known = {log: begun.get(log, bounds[log].start) for log in end}
        end = {log: max(offset, known[log]) for log, offset in end.items()}
        if not isinstance(limit, ReadAllAvailable):
            end = self._within_limits(logs, known, end)
        is_first = planning.is_initial(start)
        if begun | end == begun and not is_first:
            return start  # the text must not change: nothing is new
        fresh = {log: at for log, at in (known | begun).items() if is_first or log not in begun}
        anchors = {log: place.anchor for log, place in before.items()}
        ended = anchors | {
            log: logs.anchor(log, offset) for log, offset in end.items() if offset != begun.get(log)
        }
        # Logs that are gone stay in the offsets, in case they come back.
        dumped = planning.dump(begun | end, options.min_partitions, ended)
        return planning.beginning(dumped, fresh, anchors)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        logs = self._opened()
        read = planning.begun(start, end)
        begun = {log: place.offset for log, place in read.items()}
        ended, min_partitions = planning.load(end)
        found = set(logs.find())
        if (marks := self._joined(found)) is not None:
            marks.store({})  # fails if another query has them now
        moved = {log: offset for log, offset in ended.items() if offset > begun.get(log, 0)}
        bounds = {log: logs.bounds(log) for log in moved if log in found}
        for log, here in bounds.items():
            if log in begun and begun[log] < here.start:
                self._lost(log, begun[log], here.start)
            begun[log] = max(begun.get(log, here.start), here.start)
        anchors = self._check_forks(read, planning.load_places(end), begun, moved, bounds)
        for log in moved.keys() - found:
            self._gone(log)
        there = {log: offset for log, offset in moved.items() if log in bounds}
        ranges = planning.split(begun, there, min_partitions, logs.boundary)
        return [
            RangePartition(
                attrs.evolve(one, anchor=anchors.get(one.log, NO_ANCHOR))
                if one.start == begun[one.log]
                else one
            )
            for one in ranges
        ]

    def reportLatestOffset(self) -> dict[str, Any]:
        logs = self._opened()
        ends = {log: logs.bounds(log).end for log in logs.find()}
        return planning.dump(ends, self._options.min_partitions)

    def commit(self, end: dict[str, Any]) -> None:
        if self._marks is not None:
            self._marks.store(planning.load_places(end))

    def stop(self) -> None:
        if self._marks is not None:
            self._marks.leave()

    # --- in tasks ----------------------------------------------------------------------

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if not isinstance(partition, RangePartition):
            return iter(())  # Spark has a task even if there is nothing to read
        return read_range(self._options, partition.part, self._columns)

    # --- decisions ---------------------------------------------------------------------

    def _opened(self) -> SourceLogs:
        if self._logs is None:
            self._logs = open_logs(self._options)
        return self._logs

    def _joined(self, found: Iterable[SourceLog], *, is_new: bool = False) -> QueryMarks | None:
        """The marks that the query keeps, if it does.  *is_new*: it has no checkpoint.  With one a
        subscription that is made now must not begin behind it."""
        options = self._options
        if not options.subscription:
            return None
        if self._marks is None:
            self._marks = QueryMarks(options)
        is_latest = is_new and options.starting == "latest"
        self._marks.join(found, "latest" if is_latest else "earliest")
        return self._marks

    def _within_limits(self, logs: SourceLogs, start: Offsets, end: Offsets) -> Offsets:
        options = self._options
        waiting_bytes = sum(end[log] - start[log] for log in end)
        now = time.monotonic()
        self._batch_at = now if self._batch_at is None else self._batch_at
        is_late = now - self._batch_at >= options.max_delay_s
        if self._target is None and waiting_bytes < options.min_bytes and not is_late:
            return start
        if waiting_bytes:
            self._batch_at = now
        if options.max_bytes is not None and waiting_bytes > options.max_bytes:

            def advance(log: SourceLog, offset: Offset, size_bytes: int) -> tuple[Offset, int]:
                reached = min(end[log], logs.boundary(log, Offset(offset + size_bytes)))
                return reached, reached - offset

            chosen = planning.share_out(start, end, options.max_bytes, advance)
            if chosen == start:  # the next record is larger than the limit: read it alone
                log = next(log for log in sorted(end) if end[log] > start[log])
                chosen[log], _ = advance_records(logs, log, start[log], end[log], 1)
            end = chosen
        if options.max_records is not None:
            ends = end

            def count(log: SourceLog, offset: Offset, records: int) -> tuple[Offset, int]:
                return advance_records(logs, log, offset, ends[log], records)

            end = planning.share_out(start, end, options.max_records, count)
        return end

    def _check_loss(
        self, begun: Mapping[SourceLog, Offset], bounds: Mapping[SourceLog, Bounds]
    ) -> None:
        for log, offset in begun.items():
            if log in bounds and offset < bounds[log].start:
                self._lost(log, offset, bounds[log].start)

    def _check_forks(
        self,
        start: Mapping[SourceLog, Place],
        end: Mapping[SourceLog, Place],
        begun: Offsets,
        moved: Offsets,
        bounds: Mapping[SourceLog, Bounds],
    ) -> dict[SourceLog, Anchor]:
        """Check that the logs have the history for which the batch was planned.  Return the anchors
        of the places at which it begins, as far as they are known.

        If a log has forked and the query goes on (``failOnDataLoss=false``), *begun* gets the last
        common offset, and *moved* an end that the log has.

        Raises:
          HistoryForkedError: if a log has forked (unless ``failOnDataLoss=false``).
        """
        opened = self._opened()
        for log, here in bounds.items():
            for places in (start, end):
                if log not in places or places[log].offset < begun[log]:
                    continue  # retention has removed the records there
                common = common_offset(self._options, opened, log, places[log])
                if common is not None:
                    begun[log] = min(begun[log], max(common, here.start))
                    moved[log] = opened.boundary(log, min(moved[log], here.end))
        return {log: one.anchor for log, one in start.items() if begun.get(log) == one.offset}

    def _lost(self, log: SourceLog, wanted: Offset, available: Offset) -> None:
        lost = HistoryLostError(log.topic, log.partition, wanted, available)
        if self._options.fail_on_data_loss:
            raise HistoryLostError(log.topic, log.partition, wanted, available)
        _log.warning("records are lost to this query, which goes on behind them", why=str(lost))

    def _gone(self, log: SourceLog) -> None:
        if self._options.fail_on_data_loss:
            raise HistoryLostError(log.topic, log.partition, 0, 0)
        _log.warning("a topic is gone, and this query goes on without it", topic=log.topic)
