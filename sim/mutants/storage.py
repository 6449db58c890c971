"""Bugs of how logs are stored, and of how producers and consumers use them."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import HISTORY, LIVENESS, Mutant

_LOG: Final = "octopi.storage.segmented_log"
_FLUSH: Final = "octopi.storage.log_flush"
_RECOVERY: Final = "octopi.storage.recovery"
_BROKER_LOG: Final = "octopi.roles.broker.local_log"
_READABLE_LOG: Final = "octopi.roles.broker.readable_log"
_REPLICA: Final = "octopi.roles.broker.replica_driver"

MUTANTS: Final = (
    Mutant(
        "flush-that-does-not-sync",
        _FLUSH,
        """
-                    await self._sync(segment)
+                    pass
""",
        "a flush reports records as durable without an fsync",
        "acknowledged-unheld",
        ("power_fails", "dark_in_the_end"),
    ),
    Mutant(
        "names-not-synced",
        _FLUSH,
        """
-                    await self._disk.sync_directory(self._directory)
-                    await self._disk.sync_directory(_parent(self._directory))
+                    pass
""",
        "a flush makes records durable, but not the name of their file",
        "incomplete-leader",
        ("power_fails", "dark_in_the_end"),
    ),
    Mutant(
        "failed-fsync-tried-again",
        _FLUSH,
        """
-            raise failure from error
+            pass
         self._flushed_changes = changes
""",
        "a failed fsync counts as done (fsyncgate)",
        "promised-unheld",
        ("flush_fails",),
    ),
    Mutant(
        "first-failed-sync-retried-without-writing",
        _FLUSH,
        """
-        await in_turns(self._write_again(segment))
+        segment.to_be_written_again = False
         if self._segments.has(segment):
""",
        "the first sync of an opened log fails, and the next one counts, although the system takes "
        "for written what the failed one left out",
        "promised-unheld",
        ("first_flush_fails",),
    ),
    Mutant(
        "earlier-failures-stop-a-log-again",
        _FLUSH,
        """
-                if not segment.to_be_written_again:
-                    raise
+                raise
""",
        "a log is read-only because a sync by an earlier process failed, which Linux tells once "
        "more",
        LIVENESS,
        ("flush_fails", "flush_of_the_only_replica_fails"),
    ),
    Mutant(
        "flushed-end-read-after-the-sync",
        _FLUSH,
        """
-        if truncations == self._truncations:
-            self.flushed_end = max(self.flushed_end, end)
+        self.flushed_end = self._segments.end
""",
        "records that were appended while a flush ran count as flushed",
        "promised-unheld",
        ("power_fails", "joiner_dies"),
    ),
    Mutant(
        "half-an-append-kept",
        _LOG,
        """
-                    segment.undo()
+                    pass
""",
        "the part of a batch that a full disk took stays in the log",
        "committed-differs",
        ("full_for_a_moment",),
    ),
    Mutant(
        "newest-records-before-their-commit",
        _LOG,
        """
-        if data := self.newest.read(self, offset, bytes_max, until):
+        if data := self.newest.read(self, offset, bytes_max, self.end):
""",
        "a read from memory goes on to the end of the log, committed or not",
        "uncommitted-seen",
    ),
    Mutant(
        "torn-tail-kept",
        _RECOVERY,
        """
-                _drop(segments, number + 1)
-                return self._try_cut(segment, file_bytes, following)
+                segment.size_bytes = file_bytes
+                return None
""",
        "the bytes that a power failure left behind the last whole record stay in the log",
        "invalid-committed",
        ("torn_writes",),
    ),
    Mutant(
        "rot-taken-for-a-torn-tail",
        "octopi.roles.broker.opening",
        """
-                directory, topic, partition_id, ends, cut_altered=self._lost_power
+                directory, topic, partition_id, ends
""",
        "a broker whose log lost records to a flipped bit leads without them",
        "incomplete-leader",
        ("rots_before_its_flush",),
    ),
    Mutant(
        "sequences-forgotten-by-restarts",
        "octopi.roles.broker.log_files",
        """
-        sequences.note(scan, base)
+        pass

     opening = SegmentedLog.open(
""",
        "a restarted broker doesn't know the sequences of producers since its checkpoint",
        "committed-twice",
        ("answers_get_lost",),
    ),
    Mutant(
        "sequences-kept-by-truncation",
        _BROKER_LOG,
        """
-        self.state.sequences = await sequences_below(end, self._files, known, behind)
+        await sequences_below(end, self._files, known, behind)
""",
        "a log that was cut takes batches for stored that it doesn't have any more",
        "committed-twice",
        ("cut_and_leads_again",),
    ),
    Mutant(
        "reads-to-the-end-of-the-log",
        _READABLE_LOG,
        """
-        until = self._published
+        until = self._files.end
""",
        "consumers read records that are not committed",
        "uncommitted-seen",
        ("told_too_soon", "too_few"),
    ),
    Mutant(
        "highwater-told-ahead-of-effects",
        _READABLE_LOG,
        """
-        return self._published
+        return self.state.highwater
""",
        "followers learn of commits while effects before them still wait for the device",
        "uncommitted-seen",
        ("slow_to_remember",),
    ),
    Mutant(
        "effects-go-on-behind-a-failure",
        _REPLICA,
        """
-            self._drop_effects(error)
""",
        "effects behind one that failed are performed all the same",
        "promise-forgotten",
        ("disk_fails",),
    ),
    Mutant(
        "promises-not-stored",
        _REPLICA,
        """
     async def _wait_for(self, effect: PartitionEffect) -> list[PartitionEffect]:
+        if isinstance(effect, StoreState):
+            await trio.lowlevel.checkpoint()
+            return []
         tracer = self._tracer
""",
        "the promise and the record of a replica are not stored on the disk",
        "promise-forgotten",
        ("candidates_die",),
    ),
    Mutant(
        "resume-one-record-late",
        "octopi.clients.consuming.consumer_session",
        """
         self.credit = self._credit_now()
+        late = max(self.wanted, min(self.highwater, Offset(self.wanted + 66)))
+        self._trail = Trail(Place(late))
         return self.place
""",
        "a consumer that resumes on another connection leaves a record out",
        HISTORY,
        ("one_link_breaks", "sleeper"),
    ),
    Mutant(
        "resume-from-what-was-taken",
        "octopi.clients.consuming.consumer_session",
        """
         self.credit = self._credit_now()
+        self._trail = Trail(Place(Offset(self.wanted - self.waiting_bytes)))
         return self.place
""",
        "a consumer that resumes on another connection asks again for records that it has and its "
        "program has not taken yet",
        HISTORY,
        ("one_link_breaks", "sleeper"),
    ),
    Mutant(
        "unknown-outcomes-called-failures",
        "octopi.clients.producing.batches",
        """
-    unknown = batch.maybe_stored or batch.sent_at is not None
+    unknown = False
""",
        "a producer reports a message as not stored although the outcome is unknown",
        HISTORY,
        ("refused_for_long",),
    ),
    Mutant(
        "retries-get-new-sequences",
        "octopi.clients.producing.producer_session",
        """
             if batch.sent_at is not None:
                 batch.sent_at = None
-                batch.maybe_stored = True
+                batch.first_sequence = Sequence(self._next_sequence)
+                self._next_sequence += len(batch)
""",
        "a batch that is sent again gets new sequences, so it is another batch",
        "committed-twice",
        ("answers_get_lost",),
    ),
    Mutant(
        "credit-not-given-back",
        "octopi.clients.consuming.consumer_session",
        """
-        self.waiting_bytes -= len(chunk.records)
         credit = self._credit_now()
""",
        "records that the program took still count as waiting for it, so no credit is left",
        LIVENESS,
        ("large_log",),
    ),
    Mutant(
        "expired-batches-called-failures",
        "octopi.clients.producing.producer_session",
        """
-            elif head.maybe_stored or head.sent_at is not None:
+            elif False:
                 self._settle(head, self._late(OutcomeUnknownError))
""",
        "a message that timed out is reported as not stored although it may be",
        HISTORY,
        ("refused_for_long",),
    ),
    Mutant(
        "replicas-given-up-are-moved-in-part",
        "octopi.roles.broker.retired_replicas",
        """
-        for path in (f"logs/{partition}", ends_path(replica), replica):
+        for path in (ends_path(replica), replica):
""",
        "a broker that retires a replica leaves its logs in their place, and deletes them later",
        "retired-unkept",
        ("finds_its_way", "leaders_are_moved_from_marks"),
        "No client reads what a broker keeps of a replica that it gave up.",
    ),
    Mutant(
        "start-forgotten-when-a-removal-fails",
        _BROKER_LOG,
        """
             _log.error("retention failed", topic=self.topic.topic, why=str(error))
+            return
         if self._files.start > self.state.start:
""",
        "after the disk failed in the middle of a removal, a leader still names the former start "
        "of its log",
        "start-forgotten",
        ("removals_fail",),
        "Who asks for what is removed is refused, and asks again, until retention looks again and "
        "names the right start.",
    ),
    Mutant(
        "flushes-count-behind-cuts",
        _BROKER_LOG,
        """
-            self.replica.flushed(self.topic_id, lambda: self._files.flushed_end)
+            self.replica.flushed(self.topic_id, lambda: end)
""",
        "a flush that ended before its log was cut counts for records that were appended since",
        "promised-unheld",
        ("flushes_while_it_is_cut",),
    ),
    Mutant(
        "flushed-records-not-checked",
        _RECOVERY,
        """
-        begin = recovery_point if noted.highwater is None else min(recovery_point, noted.highwater)
+        begin = recovery_point
""",
        "a replica doesn't check records before its checkpoint that may not be committed, and "
        "commits what became of them",
        "invalid-committed",
        ("unheard_and_altered",),
    ),
    Mutant(
        "cuts-not-flushed",
        "octopi.roles.broker.local_log",
        """
             self._files.truncate(end)
-            await self._files.flush()  # else it could come back as a part of a newer epoch
""",
        "a power failure undoes the cut of a log whose newer epochs are durable",
        "committed-differs",
        ("cut_in_the_dark",),
    ),
)
