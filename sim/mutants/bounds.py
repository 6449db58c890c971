"""Planted bugs of what brokers remove too early, do too long in one turn, or let grow."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

_EARLY: Final = "removed-too-early"
_CREDIT: Final = "credit-passed"
_READING: Final = "octopi.roles.broker.reading"
_BOUND: Final = "bound-passed"
_LONG: Final = "turn-too-long"

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
        "octopi.storage.log_retention",
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
        "octopi.roles.broker.local_log",
        """
-                now_ms, below=self.highwater, outdated_below=outdated_below
+                now_ms, below=self._files.end, outdated_below=outdated_below
""",
        "a leader removes what it has not committed",
        _EARLY,
    ),
    Mutant(
        "retention-of-a-log-that-is-to-begin-anew",
        "octopi.roles.broker.local_log",
        """
-        return not self._is_closed and self._files.start >= self.state.start
+        return not self._is_closed
""",
        "retention looks at the old files of a log that a disk keeps from beginning anew",
        "exception",
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
    Mutant(
        "credit-ignored-by-reads",
        _READING,
        """
-            room = min(self._credit - self.position, FETCH_BYTES_DEFAULT)
+            room = FETCH_BYTES_DEFAULT
""",
        "a reading with some credit left is sent as much as fits a delivery",
        _CREDIT,
    ),
    Mutant(
        "credit-ignored-at-the-tail",
        _READING,
        """
-        if self._log.epoch != self._epoch or delivery.end > self._credit:
+        if self._log.epoch != self._epoch:
""",
        "a consumer that is at the end of its log is sent what comes, whatever its credit",
        _CREDIT,
    ),
    Mutant(
        "any-number-of-waiting-fetches",
        "octopi.roles.broker.services.read",
        """
-        if self._waiting_count >= WAITING_FETCHES_MAX:
+        if False:
""",
        "a connection may have any number of fetches that wait for records",
        _BOUND,
    ),
    Mutant(
        "follow-streams-fill-the-outbox",
        "octopi.roles.broker.follower_connection",
        """
                         await trio.lowlevel.checkpoint()  # others' turn between two reads
-                    await self._connection.drained()
+                    await trio.lowlevel.checkpoint()
""",
        "a leader puts all that a follower may be sent in the outbox, whether it has room or not",
        _BOUND,
    ),
    Mutant(
        "any-number-of-bytes-on-their-way-to-a-follower",
        "octopi.roles.broker.follower_connection",
        """
-        return on_their_way < FOLLOW_WINDOW_BYTES and (
+        return on_their_way >= 0 and (
""",
        "a leader sends a follower all that it lacks, however much of that is not acknowledged",
        _BOUND,
    ),
    Mutant(
        "all-logs-of-a-follower-in-one-turn",
        "octopi.roles.broker.follower_connection",
        """
-                        if sent >= round_ends:  # of many logs, each lacks some
+                        if False:
""",
        "a leader reads what a follower lacks of each of many logs before others have their turn",
        _LONG,
    ),
    Mutant(
        "slices-all-in-one-turn",
        "octopi.storage.time_slices",
        """
-            await trio.lowlevel.checkpoint()
+            pass
     finally:
         work.close()
""",
        "what is done in slices lets no other task have its turn between them",
        _LONG,
    ),
    Mutant(
        "index-made-anew-in-one-slice",
        "octopi.storage.index_rebuild",
        """
-            if position < records.size_bytes:
+            if position > records.size_bytes:
                 yield from pauses(chunk.read_bytes)
                 if is_outdated():
""",
        "the index of a segment is made anew, with all of that read, in one turn",
        _LONG,
    ),
    Mutant(
        "look-ups-of-offsets-in-one-turn",
        "octopi.roles.broker.services.read",
        """
-                offset = await in_turns(work, another(self._connection.turn))
+                while True:
+                    try:
+                        next(work)
+                    except StopIteration as done:
+                        offset = done.value
+                        break
""",
        "a question about an offset is answered in one turn, whatever has to be read for it",
        _LONG,
    ),
)
