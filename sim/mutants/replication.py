"""Bugs of leaders and followers."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import HISTORY, LIVENESS, Mutant

_LEADER: Final = "octopi.replication.log_leader"
_PARTITION_LEADER: Final = "octopi.replication.partition_leader"
_FOLLOWER: Final = "octopi.replication.log_follower"
_PARTITION_FOLLOWER: Final = "octopi.replication.partition_follower"
_REPLICA: Final = "octopi.replication.partition_replica"
_EPOCHS: Final = "octopi.replication.epoch_history"
_SEQUENCES: Final = "octopi.replication.producer_sequences"

MUTANTS: Final = (
    Mutant(
        "commit-on-leader-alone",
        _LEADER,
        """
-        for broker in self._others:
+        for broker in ():
""",
        "a record is committed when the leader has it",
        "acknowledged-unheld",
    ),
    Mutant(
        "commit-on-one-follower",
        _LEADER,
        """
-        for broker in self._others:
-            end = min(end, self._acknowledged.get(broker, Offset(0)))
+        if self._others:
+            others = [self._acknowledged.get(broker, Offset(0)) for broker in self._others]
+            end = min(end, max(others))
""",
        "a record is committed when any one follower has it",
        "acknowledged-unheld",
        ("last_one", "left_behind"),
    ),
    Mutant(
        "answer-before-commit",
        _LEADER,
        """
+        effects += [Reply(waiting.answer, waiting.receipt) for waiting in self._waiting]
+        self._waiting.clear()
         return effects + self._commit()

     def found_duplicate(self, offset: Offset, answer: Answer) -> list[Effect]:
""",
        "the producer is answered when the leader has appended",
        "receipt-wrong",
        ("told_too_soon",),
    ),
    Mutant(
        "answer-duplicates-at-once",
        _LEADER,
        """
-        if end <= self.log.highwater:
+        if True:
             return [Reply(answer, receipt)]
""",
        "a repeated batch is acknowledged before it is committed",
        "receipt-wrong",
        ("told_too_soon", "answers_get_lost"),
    ),
    Mutant(
        "off-by-one-batch-answered",
        _LEADER,
        """
-            if waiting.end > end:
+            if waiting.receipt.offset > end:
""",
        "the batch that begins at the highwater mark is acknowledged, too",
        "receipt-wrong",
    ),
    Mutant(
        "no-duplicate-detection",
        _LEADER,
        """
-        if isinstance(verdict, Duplicate):
+        if False:
""",
        "a repeated batch is appended again",
        "committed-twice",
        ("answers_get_lost",),
    ),
    Mutant(
        "receipt-of-a-duplicate-names-this-epoch",
        _LEADER,
        """
-        receipt = CommitReceipt(offset, self.log.epochs.epoch_at(offset), True)
+        receipt = CommitReceipt(Offset(offset + 1), self.log.epochs.epoch_at(offset), True)
""",
        "the receipt of a repeated batch names another offset than the first one did",
        "receipt-wrong",
        ("answers_get_lost",),
    ),
    Mutant(
        "min-insync-ignored",
        _LEADER,
        """
-        if self._in_sync_count < self._min_insync:
+        if False:
             return []
""",
        "waiting records are committed while too few replicas are in sync",
        "acknowledged-unheld",
        ("too_few_for_what_waits", "too_few"),
    ),
    Mutant(
        "flush-before-ack-ignored-by-leader",
        _LEADER,
        """
-        self._durable = durable or self.log.flush_before_ack
+        self._durable = durable
         effects: list[Effect] = []
""",
        "the leader commits before it has flushed, although the topic asks for a flush",
        "acknowledged-unheld",
        ("flush_fails",),
    ),
    Mutant(
        "lost-wake-up-on-flush",
        _LEADER,
        """
         self.log.flushed(end)
-        return self._commit()
+        return []
""",
        "the leader doesn't check after a flush whether it can commit",
        LIVENESS,
        ("one_replica",),
    ),
    Mutant(
        "joining-needs-the-highwater-mark-only",
        _LEADER,
        """
-        return max(self.log.highwater, self.started_at)
+        return self.log.highwater
""",
        "a follower becomes in sync that lacks what older epochs committed (KAFKA-7128)",
        "incomplete-leader",
        ("joins_with_less", "left_behind"),
    ),
    Mutant(
        "proposed-members-do-not-count",
        _PARTITION_LEADER,
        """
-        others = self.in_sync.union(proposed) - {self.broker}
+        others = self.in_sync - {self.broker}
""",
        "a proposed member of the in-sync set is not waited for until the leader knows that it "
        "has joined (KIP-497)",
        "acknowledged-unheld",
        ("joins_while_more_comes", "joiner_dies"),
    ),
    Mutant(
        "leaving-members-do-not-count",
        _PARTITION_LEADER,
        """
-        others = self.in_sync.union(proposed) - {self.broker}
+        others = (frozenset(proposed) or self.in_sync) - {self.broker}
""",
        "a member that is proposed to leave the in-sync set is not waited for, although the "
        "register has not agreed yet",
        "acknowledged-unheld",
        ("slow_to_remember",),
    ),
    Mutant(
        "alone-without-a-flush",
        _PARTITION_LEADER,
        """
-        durable = self._durable or self.alone
+        durable = self._durable and not self.alone
""",
        "a leader that is alone in sync commits records that are only in its page cache",
        "acknowledged-unheld",
        ("all_alone", "left_alone"),
    ),
    Mutant(
        "acknowledgements-outlive-sessions",
        _PARTITION_LEADER,
        """
-            for one in self.logs.values():
-                one.forget(broker)
""",
        "what a follower acknowledged before it lost its power still counts",
        "acknowledged-unheld",
        ("ghost", "back_with_less"),
    ),
    Mutant(
        "acknowledgements-of-any-session",
        _PARTITION_LEADER,
        """
-            or session.number != (message.incarnation, message.attempt)
""",
        "a late acknowledgement of an earlier session counts for the new session",
        "incomplete-leader",
        ("late_word",),
    ),
    Mutant(
        "any-follower-may-join",
        _PARTITION_LEADER,
        """
-        return session.open and all(end is not None and end >= need for end, need in ends)
+        return session.open
""",
        "a follower joins the in-sync set before it has caught up",
        "incomplete-leader",
        ("joins_with_less", "joiner_dies"),
    ),
    Mutant(
        "laggards-stay",
        _PARTITION_LEADER,
        """
-            if is_leaving and self.may_leave(broker):
+            if False:
""",
        "a follower that hangs is never removed from the in-sync set, and stops its partitions "
        "for ever",
        LIVENESS,
        ("stops_beside_a_sleeper", "all_alone"),
    ),
    Mutant(
        "acknowledge-before-append",
        _FOLLOWER,
        """
-        effects.append(AppendReplicated(records, scan))
-        return effects
+        end = Offset(self.log.end + scan.valid_bytes)
+        self._acknowledged = end
+        return [*effects, AcknowledgeEnd(end), AppendReplicated(records, scan)]
""",
        "a follower acknowledges before it appends",
        "promised-unheld",
        ("disk_fails", "full_for_a_moment"),
    ),
    Mutant(
        "acknowledge-before-flush",
        _FOLLOWER,
        """
-        end = log.flushed_end if self._durable else log.end
+        end = log.end
""",
        "a follower acknowledges records in its page cache that count only on the device",
        "acknowledged-unheld",
        ("power_fails", "flush_fails"),
    ),
    Mutant(
        "truncate-to-highwater",
        _FOLLOWER,
        """
+        keep = begin = log.highwater
         gives_up = keep < log.highwater
""",
        "a follower cuts its log at its own highwater mark (KIP-101)",
        "committed-cut",
        ("leaders_die", "cut_and_leads_again"),
    ),
    Mutant(
        "no-truncation",
        _FOLLOWER,
        """
-        if keep < log.end:
+        if False:
             log.truncate(keep)
""",
        "a follower keeps records that its leader doesn't have",
        "committed-differs",
        ("leaders_die", "cut_and_leads_again"),
    ),
    Mutant(
        "gaps-are-skipped",
        _FOLLOWER,
        """
-        if not scan.count or offset != self.log.end:
+        if not scan.count or offset < self.log.end:
""",
        "a follower appends records that don't continue its log",
        "promised-unheld",
        ("full_for_a_moment",),
    ),
    Mutant(
        "highwater-unclamped-on-follower",
        _FOLLOWER,
        """
-        highwater = min(self._told, self.log.end)
+        highwater = self._told
""",
        "a follower's highwater mark passes the end of its log",
        "highwater-back",
        ("left_behind", "leaders_die"),
    ),
    Mutant(
        "highwater-is-the-log-end-on-follower",
        _FOLLOWER,
        """
-        highwater = min(self._told, self.log.end)
+        highwater = self.log.end
""",
        "a follower takes all its records for committed",
        "uncommitted-seen",
        ("left_behind", "leaders_die"),
    ),
    Mutant(
        "sequences-not-learned-by-followers",
        _FOLLOWER,
        """
-        log.sequences.note(scan, log.end)
""",
        "a follower that becomes the leader doesn't know the sequences of producers",
        "committed-twice",
        ("answers_get_lost",),
    ),
    Mutant(
        "epochs-not-learned-by-followers",
        _FOLLOWER,
        """
-        if self.log.epochs.begin(records_epoch, offset):
+        if self.log.epochs.begin(self.epoch, offset):
""",
        "a follower notes the leader's epoch instead of the one that wrote the records",
        "committed-differs",
        ("leaders_die",),
    ),
    Mutant(
        "promise-forgotten",
        _REPLICA,
        """
-        effects += [SyncLogs(), *self._store(promised=message.epoch, sync_flag=True)]
+        effects += [SyncLogs(), *self._store(sync_flag=True)]
+        self.state = attrs.evolve(self.state, promised=message.epoch)
""",
        "an epoch is accepted without a promise on the device",
        "promise-forgotten",
        ("candidates_die",),
    ),
    Mutant(
        "old-record-moves-a-promised-replica",
        _REPLICA,
        """
-        if record.epoch < self.state.promised:
-            return self._store(record=record, **found)
""",
        "a replica acts in an epoch older than the one that it promised",
        "two-leaders",
        ("candidates_die", "sleeper"),
    ),
    Mutant(
        "role-kept-while-a-leader-is-chosen",
        _REPLICA,
        """
-        effects = self._leave_role("another leader is being chosen")
+        effects: list[PartitionEffect] = []
""",
        "a replica that accepts a new epoch keeps its role in the old one",
        "incomplete-leader",
        ("candidates_die", "sleeper"),
    ),
    Mutant(
        "any-life-leads",
        _REPLICA,
        """
-        if record.leader == self.broker and record.leader_incarnation == self.incarnation:
+        if record.leader == self.broker:
""",
        "a restarted broker leads because of a record that appointed its former incarnation",
        "two-leaders",
        ("leads_at_once",),
    ),
    Mutant(
        "lost-power-not-noticed",
        _REPLICA,
        """
-        flushed = state.sync_flag or not lost_power
+        flushed = True
""",
        "a broker whose machine lost its power reports its logs as intact",
        "incomplete-leader",
        ("back_with_less", "leads_at_once"),
    ),
    Mutant(
        "accept-without-flush",
        _REPLICA,
        """
-        effects += [SyncLogs(), *self._store(promised=message.epoch, sync_flag=True)]
+        effects += self._store(promised=message.epoch, sync_flag=True)
""",
        "a replica sets its sync flag although records that it has acknowledged are not on its "
        "device",
        "acknowledged-unheld",
        ("candidates_die",),
    ),
    Mutant(
        "divergence-at-the-longer-stretch",
        _EPOCHS,
        """
-    return min(mine[newest], theirs[newest])
+    return theirs[newest]
""",
        "two logs are taken to diverge at the follower's end of an epoch",
        "committed-differs",
        ("leaders_die", "cut_and_leads_again"),
    ),
    Mutant(
        "divergence-by-log-end",
        _EPOCHS,
        """
-    newest = max(common)
+    return min(max(mine.values()), max(theirs.values()))
""",
        "two logs are taken to diverge where the shorter one ends",
        "committed-differs",
        ("cut_in_the_dark", "cut_and_leads_again"),
    ),
    Mutant(
        "only-the-last-batch-remembered",
        _SEQUENCES,
        """
+        producer.batches.clear()
         producer.batches.append((run.first_sequence, offset))
""",
        "only a producer's newest batch is recognised when it is repeated",
        HISTORY,
        ("answers_get_lost",),
    ),
    Mutant(
        "sequence-gaps-accepted",
        _SEQUENCES,
        """
-        if run.first_sequence == known.next_sequence:
+        if run.first_sequence >= known.next_sequence:
             return Fresh()
""",
        "a producer's later batch is stored although an earlier one is missing",
        "committed-twice",
        ("full_for_a_moment",),
    ),
    Mutant(
        "unknown-producers-accepted",
        _SEQUENCES,
        """
             if known is None:
+                return Fresh()
                 return Refused(
                     Status.UNKNOWN_PRODUCER,
""",
        "a producer whose first batches are missing may write",
        "committed-twice",
        ("full_for_a_moment",),
    ),
)
