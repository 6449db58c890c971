"""What retention must keep of a log by the settings of its topic, to check what a broker removes.

`octopi.simulation.invariants.oracle` uses it; the broker's own accounting is not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from octopi.errors import StorageError
from octopi.identifiers import SUBSCRIPTIONS_LOG, Offset
from octopi.model import SubscriptionOptions, TopicOptions
from octopi.record import record_timestamp_ms
from octopi.replication.internal_log import decode_records
from octopi.simulation.disk.log_bytes import LogBytes
from octopi.simulation.invariants.committed_log import CommittedLog
from octopi.wire.messages import TopicRecord


class CommittedMarks:
    """The marks of subscriptions in one partition, as they were ever committed."""

    def __init__(self, log: CommittedLog) -> None:
        """*log*: the partition's ``~subscriptions``."""
        self._log = log
        self._cut_count = 0
        self._end = 0
        self._values: dict[str, Mapping[str, Any]] = {}

    def least(self, topic_id: str, now_ms: int) -> int | None:
        """The least mark in the log of a topic, of subscriptions that have not expired at *now_ms*
        (ms since 1970-01-01 UTC); None: there is none."""
        self._read_on()
        expires_ms = SubscriptionOptions().expires_ms
        marks = []
        for key, value in self._values.items():
            lives_ms = value.get("expires_ms", expires_ms)
            is_over = lives_ms is not None and value.get("changed_ms", 0) + lives_ms <= now_ms
            if key.endswith(f"/{topic_id}") and not is_over:
                marks.append(value["mark"])
        return min(marks, default=None)

    def _read_on(self) -> None:
        log = self._log
        if log.cut_count != self._cut_count:
            self._cut_count, self._end = log.cut_count, 0
            self._values.clear()
        begin, self._end = Offset(self._end), log.end
        data = bytes(log.data[begin:])
        try:
            entries = decode_records(SUBSCRIPTIONS_LOG, log.partition, data, begin)
        except StorageError:
            return  # a damaged disk wrote this, and other rules say so
        for entry in entries:
            if entry.key.startswith("k/"):
                self._values.pop(entry.key, None)
                if entry.value is not None:
                    self._values[entry.key] = entry.value


def removed_wrongly(
    log: CommittedLog,
    replica: LogBytes,
    topic: TopicRecord | None,
    now_ms: int | None,
    needed: int | None = None,
) -> str:
    """Why *replica* must not start where it does, if that is behind the first record that had to be
    kept up to now; empty if it may.

    *topic* has the settings (None: it is deleted, and nothing has to be kept).  *now_ms* is the
    wall clock of the replica's host (ms since 1970-01-01 UTC); None if the clocks of hosts differ,
    so that ages mean nothing.  *needed*: where that begins which subscriptions have yet to process;
    None: they need nothing, or the replica need not know it.
    """
    start = replica.start
    if topic is None or start <= log.removed_end:
        return ""
    if start > log.end:
        return f"what is committed ends at {log.end}"
    why = _kept_in_any_case(log, replica, topic.options, now_ms)
    if why or needed is None or needed >= start or now_ms is None or not topic.options.holds:
        return why
    return _held(log, replica, topic.options, now_ms, needed)


def _kept_in_any_case(
    log: CommittedLog, replica: LogBytes, options: TopicOptions, now_ms: int | None
) -> str:
    """Why the last record that is gone had to be kept, whoever has processed it."""
    start, reasons = replica.start, []
    if options.retention_bytes is not None:
        kept_bytes = replica.end - start
        if kept_bytes >= options.retention_bytes:
            return ""
        reasons.append(f"{options.retention_bytes} bytes have to be kept, and it has {kept_bytes}")
    if options.retention_ms is not None:
        if now_ms is None:
            return ""
        age_ms = now_ms - _last_timestamp_ms(log, start)
        if age_ms > options.retention_ms:
            return ""
        reasons.append(
            f"what is not older than {options.retention_ms} ms has to be kept, and the last "
            f"message that it removed is {age_ms} ms old"
        )
    return "; ".join(reasons) or "its topic keeps everything"


def _held(
    log: CommittedLog, replica: LogBytes, options: TopicOptions, now_ms: int, needed: int
) -> str:
    """Why the last record that is gone had to be kept for a subscription that needs what lies from
    *needed* on."""
    start = replica.start
    reasons = [f"a subscription has yet to process what lies from {needed} on"]
    if options.hold_ms is not None:
        age_ms = now_ms - _last_timestamp_ms(log, start)
        if age_ms > (options.retention_ms or 0) + options.hold_ms:
            return ""
        reasons.append(f"the last message that it removed is {age_ms} ms old")
    if options.hold_bytes is not None:
        held_bytes = _expired_end(log, replica, options, now_ms) - start
        if held_bytes >= options.hold_bytes:
            return ""
        reasons.append(f"at most {max(0, held_bytes)} bytes more are kept for that")
    return ", ".join(reasons)


def _expired_end(log: CommittedLog, replica: LogBytes, options: TopicOptions, now_ms: int) -> int:
    """Behind this nothing is removed, though no subscription needs it."""
    ends = [replica.start]
    if options.retention_bytes is not None:
        ends.append(replica.end - options.retention_bytes)
    if options.retention_ms is not None:
        ends += [
            end
            for end, timestamp_ms in _records(log, replica.start)
            if now_ms - timestamp_ms > options.retention_ms
        ]
    return min(log.end, max(ends))


def _last_timestamp_ms(log: CommittedLog, end: int) -> int:
    """The time stamp of the last record before *end*, which must be the end of a record.  A record
    is appended at that time or later."""
    position = log.removed_end
    while (behind := log.record_end(Offset(position))) < end:
        position = behind
    with memoryview(log.data) as data:
        return record_timestamp_ms(data, position)


def _records(log: CommittedLog, start: int) -> Iterator[tuple[int, int]]:
    """The end and the time stamp of each committed record from *start* on."""
    while start < log.end:
        end = log.record_end(Offset(start))
        with memoryview(log.data) as data:
            timestamp_ms = record_timestamp_ms(data, start)
        yield end, timestamp_ms
        start = end
