"""Bugs of retention, of work that takes too long in one turn, and of queues that grow."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

_EARLY: Final = "removed-too-early"
_CREDIT: Final = "credit-passed"
_READING: Final = "octopi.roles.broker.reading"
_BOUND: Final = "bound-passed"
_LONG: Final = "turn-too-long"
_NOT_TOLD: Final = (
    "Retention may remove messages in any case, and a client isn't told how many a replica keeps."
)
_NO_BOUND: Final = (
    "Clients get the same messages; only memory that a node holds for a peer isn't bounded."
)
_NO_TIME: Final = "Reading costs no virtual time, so no client has to wait."

MUTANTS: Final = (
    Mutant(
        "retention-removes-a-segment-too-many",
        "octopi.storage.retention",
        """
-        too_much = bytes_min is not None and rest_bytes >= bytes_min
+        too_much = bytes_min is not None and log_bytes >= bytes_min
""",
        "retention by bytes removes a segment too many, so less than the topic's bytes are left",
        _EARLY,
        ("retention_strikes",),
        _NOT_TOLD,
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
        ("retention_strikes",),
        _NOT_TOLD,
    ),
    Mutant(
        "retention-beyond-the-highwater-mark",
        "octopi.roles.broker.local_log",
        """
-            below=self.highwater,
+            below=self._files.end,
""",
        "a leader removes records that are not committed",
        _EARLY,
        ("retention_strikes",),
        "It removes what it may remove a moment later, when that is committed; a client isn't told "
        "how far retention has come.",
    ),
    Mutant(
        "retention-of-a-log-that-is-to-begin-anew",
        "octopi.roles.broker.local_log",
        """
-        return not self._is_closed and self._files.start >= self.state.start
+        return not self._is_closed
""",
        "retention is applied to the old files of a log that a failing disk keeps from being "
        "restarted",
        "exception",
        ("restarts_fail",),
        "Only a broker whose disk fails ends, and is started again; others serve meanwhile.",
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
        ("retention_strikes",),
        _NOT_TOLD,
    ),
    Mutant(
        "retention-forgets-marks",
        "octopi.roles.broker.retaining",
        """
-            await log.apply_retention(slowest=partial(self._marks.slowest, log))
+            await log.apply_retention()
""",
        "retention removes what a subscription has yet to process, though its topic has it wait",
        _EARLY,
        ("retention_waits",),
    ),
    Mutant(
        "retention-holds-a-segment-too-few",
        "octopi.storage.retention",
        """
-        held_bytes -= segment.size_bytes
         too_old = hold.age_ms is not None and now_ms - segment.newest_ms > hold.age_ms
         too_much = hold.bytes_min is not None and held_bytes >= hold.bytes_min
+        held_bytes -= segment.size_bytes
""",
        "retention that waits for a subscription keeps less for it than its topic permits",
        _EARLY,
        ("retention_waits",),
        _NOT_TOLD,
    ),
    Mutant(
        "follower-begins-at-the-highwater-mark",
        "octopi.replication.partition_leader",
        """
-        begin = max(keep, log.start)
+        begin = max(keep, log.highwater if log.start > keep else keep)
""",
        "a follower whose next records were removed by retention starts at the highwater mark, "
        "without the committed records before it",
        _EARLY,
        ("retention_strikes",),
    ),
    Mutant(
        "credit-ignored-by-reads",
        _READING,
        """
-            room = min(self._credit - self.position, FETCH_BYTES_DEFAULT)
+            room = FETCH_BYTES_DEFAULT
""",
        "a reading with little credit left is sent a whole delivery",
        _CREDIT,
        ("large_log",),
        _NO_BOUND,
    ),
    Mutant(
        "credit-ignored-at-the-tail",
        _READING,
        """
-        if self._log.epoch != self._epoch or not self.position < delivery.end <= self._credit:
+        if self._log.epoch != self._epoch or not self.position < delivery.end:
""",
        "a consumer at the end of its log is sent new records even without credit",
        _CREDIT,
        ("large_log",),
        _NO_BOUND,
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
        ("many_fetches",),
        _NO_BOUND,
    ),
    Mutant(
        "follow-streams-fill-the-outbox",
        "octopi.roles.broker.follower_connection",
        """
                         await trio.lowlevel.checkpoint()  # let other tasks run between two reads
-                    await self._connection.drained()
+                    await trio.lowlevel.checkpoint()
""",
        "a leader puts records for a follower into the outbox, even if that is full",
        _BOUND,
        ("many_large_logs", "slow_to_acknowledge"),
        _NO_BOUND,
    ),
    Mutant(
        "any-number-of-bytes-on-their-way-to-a-follower",
        "octopi.roles.broker.follower_connection",
        """
-        return on_their_way < FOLLOW_WINDOW_BYTES and (
+        return on_their_way >= 0 and (
""",
        "a leader sends a follower all that it lacks, however much of that is unacknowledged",
        _BOUND,
        ("slow_to_acknowledge",),
        _NO_BOUND,
    ),
    Mutant(
        "all-logs-of-a-follower-in-one-turn",
        "octopi.roles.broker.follower_connection",
        """
-                        if sent >= round_ends:  # of many logs, each lacks some
+                        if False:
""",
        "a leader reads what a follower lacks of each of many logs without letting other tasks run",
        _LONG,
        ("many_large_logs",),
        _NO_TIME,
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
        "work in slices lets no other task run between two slices",
        _LONG,
        ("large_log",),
        _NO_TIME,
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
        "the index of a segment is rebuilt in one turn, however large the segment is",
        _LONG,
        ("large_log",),
        _NO_TIME,
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
        "a look-up of an offset is done in one turn, however much has to be read for it",
        _LONG,
        ("large_log",),
        _NO_TIME,
    ),
)
