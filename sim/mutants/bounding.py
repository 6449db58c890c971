"""Planted bugs of what brokers remove too early, do too long in one turn, or let grow."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

_EARLY: Final = "removed-too-early"

MUTANTS: Final = (
    Mutant(
        "retention-removes-a-segment-too-many",
        "octopi.storage.retention",
        """
-        too_much = bytes_min is not None and rest_bytes >= bytes_min
+        too_much = bytes_min is not None and log_bytes >= bytes_min
""",
        "retention by bytes removes the segment with which the log had the bytes to keep",
        _EARLY,
    ),
    Mutant(
        "retention-by-the-age-of-the-first-record",
        "octopi.storage.segmented_log",
        """
-        if segment.last_append_ms is not None:
-            return segment.last_append_ms
+        if segment.first_append_ms is not None:
+            return segment.first_append_ms
""",
        "a segment is removed when its first record is too old, with all the newer ones",
        _EARLY,
    ),
    Mutant(
        "retention-beyond-the-highwater-mark",
        "octopi.roles.broker.broker_log",
        """
-            start = self._files.retention_start(now_ms, below=self.highwater)
+            start = self._files.retention_start(now_ms, below=self._files.end)
""",
        "a leader removes what it has not committed",
        _EARLY,
    ),
    Mutant(
        "retention-ignores-that-no-age-is-set",
        "octopi.storage.retention",
        """
-        too_old = age_ms is not None and now_ms - segment.newest_ms > age_ms
+        too_old = now_ms - segment.newest_ms > (age_ms or 0)
""",
        "a topic that keeps its records by bytes, or for ever, loses them by age",
        _EARLY,
    ),
    Mutant(
        "follower-begins-at-the-highwater-mark",
        "octopi.replication.partition_leader",
        """
-        begin = max(keep, log.start)
+        begin = max(keep, log.highwater if log.start > keep else keep)
""",
        "a follower that retention overtook is sent no records that were committed before it came",
        _EARLY,
    ),
)
