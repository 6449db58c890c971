"""Bugs of registers that have lost their journal, and of elections after replicas lost records."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

_CHANGE: Final = "octopi.coordination.election"
_CONTROLLER: Final = "octopi.coordination.controller"
_ONLY_LOGGED: Final = (
    "Readers hear of a loss from the log's epochs; what is missing is a message to operators."
)

MUTANTS: Final = (
    Mutant(
        "learned-while-asking",
        _CONTROLLER,
        """
-        rebuild = self._rebuild.copy()
+        rebuild = self._rebuild
""",
        "if a broker's report can't be journaled, the register forgets its content, but counts "
        "the broker as having reported, so an older record wins",
        "incomplete-leader",
        ("an_older_record_comes_last", "forgets_with_a_full_disk"),
    ),
    Mutant(
        "what-power-took-is-damage-later",
        "octopi.roles.broker.opening",
        """
-            ends.note_power_failure(log.topic_id, log.end)
+            pass
""",
        "records that a power failure took are taken for damage when the process starts the next "
        "time, and the partition waits for an operator",
        "complaint",
        ("killed_when_power_is_back",),
    ),
    Mutant(
        "begun-empty-without-a-word",
        "octopi.coordination.elections",
        """
             lost=[],
-            recovered_epoch=change.epoch,
         )
""",
        "a partition that lost all its disks begins again empty, and the loss of its messages is "
        "not reported",
        "incomplete-leader",
        ("every_disk_lost", "only_disk_lost"),
    ),
    Mutant(
        "begun-empty-beside-a-replica",
        "octopi.roles.register.operator_recovery",
        """
-        running = [one for one in self._record.replicas if self._controller.is_live(one)]
+        running: list[int] = []
""",
        "an operator is told that a partition would begin again empty, although a broker with a "
        "replica runs",
        "complaint",
        ("every_disk_lost", "most_disks_lost"),
    ),
    Mutant(
        "begun-empty-elsewhere",
        "octopi.coordination.elections",
        """
-            replicas=[broker],
-            in_sync=[broker],
+            replicas=sorted({*record.replicas, broker}),
+            in_sync=[broker],
             lost=[],
""",
        "replicas whose disks are lost stay replicas of a partition that begins again empty",
        "lost-too-much",
        ("every_disk_lost", "most_disks_lost"),
    ),
    Mutant(
        "deleted-topics-kept-beside-newer-ones",
        "octopi.coordination.admission",
        """
-        elif topic.topic_id in known.replaces:
+        elif False:
""",
        "a register that has lost its journal leaves a deleted topic on a broker that was away, "
        "so there is no place for a newer topic of that name",
        "liveness",
        ("made_again_and_forgotten",),
    ),
    Mutant(
        "older-record-decided-on",
        "octopi.coordination.rebuild",
        """
-            if mine is None or (mine.epoch, mine.version) < (record.epoch, record.version):
+            if mine is None or (mine.epoch, mine.version) > (record.epoch, record.version):
""",
        "a register that has lost its journal takes the oldest partition record that brokers "
        "report, not the newest",
        "incomplete-leader",
        ("records_of_different_age",),
    ),
    Mutant(
        "recovered-before-all-have-accepted",
        _CHANGE,
        """
-        return sorted(away) if not record.in_sync or away == members else []
+        return sorted(away) if away == members else []
""",
        "when no replica is in sync, the first one that accepts leads, although another one has "
        "more records",
        "lost-too-much",
        ("back_one_by_one",),
    ),
    Mutant(
        "leaders-compared-by-the-sum-of-their-logs",
        _CHANGE,
        """
-            sum(size > 0 for size in missing),
-            sum(missing),
+            -sum(held.values()),
""",
        "after a power failure the replica with most bytes leads, even if these are bytes of "
        "deleted topics",
        "lost-too-much",
        ("many_logs_in_the_dark",),
    ),
    Mutant(
        "recovered-by-any-replica",
        _CHANGE,
        """
-            accepted = [one for one in accepted if one.broker in members]
         sound = [one for one in accepted if is_sound(one) and one.broker not in replaced]
         best = sound or (accepted if ordered else [])
         if not best:
             return None
-        # A replica that was in sync has all records that were flushed before being acknowledged.
-        for known in (members, {*record.in_sync, *record.lost}):
-            best = [one for one in best if one.broker in known] or best
""",
        "when all replicas in sync have lost their power, a replica that was not in sync may lead",
        "lost-too-much",
        ("more_outside_the_set",),
    ),
    Mutant(
        "lost-without-an-order",
        "octopi.coordination.elections",
        """
             replaced={one.broker for one in brokers if one.replaced},
-            ordered=ordered,
+            ordered=True,
""",
        "when all replicas in sync are damaged, the register gives up the missing records by "
        "itself, without asking the operator, who may restore files",
        "lost-unasked",
        ("sole_replica_damaged", "all_damaged"),
    ),
    Mutant(
        "in-sync-set-given-up-unasked",
        "octopi.coordination.elections",
        """
-        if missing and not ordered:
-            return None
+        ordered = ordered or bool(missing)
""",
        "the register gives up records that only absent replicas in sync hold, although they may "
        "come back whole, and appoints the best of the others",
        "lost-unasked",
        ("whole_ones_may_come_back", "all_in_sync_wiped"),
    ),
    Mutant(
        "refilled-in-part-and-sound",
        "octopi.replication.replica_logs",
        """
-            sound=log.sound and whole,
+            sound=log.sound,
""",
        "a replica whose damaged part was set aside reports that nothing is missing before it has "
        "copied the records again, and may lead without an order",
        "lost-unasked",
        ("damaged_while_one_is_filled_again",),
    ),
    Mutant(
        "ordered-loss-not-told",
        "octopi.roles.register.election_driver",
        """
-        if decision.losses is not None:
+        if decision.losses is not None and not decision.ordered:
             self._tell_loss(decision, decision.losses)
""",
        "a loss by an operator's order is reported in no log, event or metric",
        "complaint",
        ("sole_replica_damaged", "all_damaged"),
        _ONLY_LOGGED,
    ),
    Mutant(
        "known-loss-not-told",
        _CHANGE,
        """
-                known[log.topic_id] = max(known.get(log.topic_id, 0), log.end, log.held_end)
+                known[log.topic_id] = max(known.get(log.topic_id, 0), log.end)
""",
        "records that a replica knows to be lost are not reported as lost",
        "lost-untold",
        ("sole_replica_damaged", "all_damaged"),
        _ONLY_LOGGED,
    ),
    Mutant(
        "worst-leads-by-order",
        _CHANGE,
        """
-        leader = choose_leader(agreed, leaderships, topics)
+        leader = min(agreed, key=lambda one: sum(log.end for log in one.ends))
""",
        "of the remaining replicas the one with the fewest bytes leads by an operator's order",
        "lost-too-much",
        ("left_behind_and_all_that_is_left", "all_damaged"),
    ),
    Mutant(
        "damaged-leads-by-order",
        _CHANGE,
        """
-        best = sound or (accepted if ordered else [])
+        best = accepted if ordered else sound
""",
        "a damaged replica that was in sync last leads by an operator's order, although one is "
        "left that lacks nothing",
        "lost-too-much",
        ("all_in_sync_wiped", "two_wiped_and_one_damaged"),
    ),
    Mutant(
        "lost-data-told-once",
        "octopi.replication.partition_replica",
        """
         self.registered = True
-        return []
+        return self._store(intact=True)
""",
        "a broker that lost records reports it to a register that is still learning, but not "
        "again to the register that decides",
        "incomplete-leader",
        ("says_so_twice",),
    ),
)
