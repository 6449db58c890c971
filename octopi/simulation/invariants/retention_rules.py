"""What retention must keep of a log by the settings of its topic, to check what a broker removes.

`octopi.simulation.invariants.oracle` uses it; the broker's own accounting is not used.
"""

from __future__ import annotations

from octopi.identifiers import Offset
from octopi.record import record_timestamp_ms
from octopi.simulation.disk.log_bytes import LogBytes
from octopi.simulation.invariants.committed_log import CommittedLog
from octopi.wire.messages import TopicRecord


def removed_wrongly(
    log: CommittedLog, replica: LogBytes, topic: TopicRecord | None, now_ms: int | None
) -> str:
    """Why *replica* must not start where it does, if that is behind the first record that had to be
    kept up to now; empty if it may.

    *topic* has the settings (None: it is deleted, and nothing has to be kept).  *now_ms* is the
    wall clock of the replica's host (ms since 1970-01-01 UTC); None if the clocks of hosts differ,
    so that ages mean nothing.
    """
    start = replica.start
    if topic is None or start <= log.removed_end:
        return ""
    if start > log.end:
        return f"what is committed ends at {log.end}"
    options, reasons = topic.options, []
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


def _last_timestamp_ms(log: CommittedLog, end: int) -> int:
    """The time stamp of the last record before *end*, which must be the end of a record.  A record
    is appended at that time or later."""
    position = log.removed_end
    while (behind := log.record_end(Offset(position))) < end:
        position = behind
    with memoryview(log.data) as data:
        return record_timestamp_ms(data, position)
