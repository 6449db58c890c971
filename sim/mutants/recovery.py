"""Bugs in how a register learns again, and in what it does when all copies lost something."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

_CHANGE: Final = "octopi.coordination.election"
_CONTROLLER: Final = "octopi.coordination.controller"

MUTANTS: Final = (
    Mutant(
        "learned-while-asking",
        _CONTROLLER,
        """
-        rebuild = self._rebuild.copy()
+        rebuild = self._rebuild
""",
        "what a broker reports is forgotten when its admission can't be journaled, but that it "
        "has reported is not: an older record wins",
        "incomplete-leader",
    ),
    Mutant(
        "what-power-took-is-damage-later",
        "octopi.roles.broker.opening",
        """
-            ends.note_power_failure(log.topic_id, log.end)
+            pass
""",
        "what a failure of power took is taken for damage by the process that starts next, and "
        "the partition waits for an operator",
        "complaint",
    ),
    Mutant(
        "begun-empty-without-a-word",
        "octopi.coordination.elections",
        """
             lost=[],
-            recovered_epoch=change.epoch,
         )
""",
        "a partition that lost all disks begins again empty, and nothing says that messages are "
        "lost",
        "incomplete-leader",
    ),
    Mutant(
        "begun-empty-beside-a-replica",
        "octopi.roles.register.operator_recovery",
        """
-        running = [one for one in self._record.replicas if self._controller.is_live(one)]
+        running: list[int] = []
""",
        "an operator is told that a partition would begin again empty, though a broker with a "
        "replica runs",
        "complaint",
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
        "the replicas whose disks are lost stay replicas of the partition that begins again empty",
        "lost-too-much",
    ),
    Mutant(
        "deleted-topics-kept-beside-newer-ones",
        "octopi.coordination.admission",
        """
-        elif topic.topic_id in known.replaces:
+        elif False:
""",
        "a register without memory leaves a deleted topic with a broker that was away, where the "
        "one of its name has no place then",
        "liveness",
    ),
    Mutant(
        "older-record-decided-on",
        "octopi.coordination.rebuild",
        """
-            if mine is None or (mine.epoch, mine.version) < (record.epoch, record.version):
+            if mine is None or (mine.epoch, mine.version) > (record.epoch, record.version):
""",
        "a register without memory decides by the oldest record that brokers were told, and not "
        "by the newest",
        "incomplete-leader",
    ),
    Mutant(
        "recovered-before-all-have-accepted",
        _CHANGE,
        """
-        return sorted(away) if not record.in_sync or away == members else []
+        return sorted(away) if away == members else []
""",
        "when nobody is in sync, the first that accepts leads, though another one has more",
        "lost-too-much",
    ),
    Mutant(
        "leaders-compared-by-the-sum-of-their-logs",
        _CHANGE,
        """
-            sum(size > 0 for size in missing),
-            sum(missing),
+            -sum(held.values()),
""",
        "of those that lost power the one with most bytes leads, deleted topics counted, too",
        "lost-too-much",
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
-        # Who was in sync has all that was flushed before it was acknowledged, whatever it lost.
-        for known in (members, {*record.in_sync, *record.lost}):
-            best = [one for one in best if one.broker in known] or best
""",
        "when all that were in sync lost power, a replica that was not in sync may lead",
        "lost-too-much",
    ),
    Mutant(
        "lost-without-an-order",
        "octopi.coordination.elections",
        """
             replaced={one.broker for one in brokers if one.replaced},
-            ordered=ordered,
+            ordered=True,
""",
        "when all that were in sync are damaged, the register gives up by itself what they lack, "
        "and nobody is asked whether files can be restored",
        "lost-unasked",
    ),
    Mutant(
        "in-sync-set-given-up-unasked",
        "octopi.coordination.elections",
        """
-        if missing and not ordered:
-            return None
+        ordered = ordered or bool(missing)
""",
        "the register gives up what only those hold that were in sync and are away, though they "
        "may come back whole, and appoints the best of those that are there",
        "lost-unasked",
    ),
    Mutant(
        "refilled-in-part-and-sound",
        "octopi.replication.replica_logs",
        """
-            sound=log.sound and whole,
+            sound=log.sound,
""",
        "a replica whose damage was taken out of its log says that nothing is missing, before it "
        "has copied that again, and may lead without an order",
        "lost-unasked",
    ),
    Mutant(
        "ordered-loss-not-told",
        "octopi.roles.register.election_driver",
        """
-        if decision.losses is not None:
+        if decision.losses is not None and not decision.ordered:
             self._tell_loss(decision, decision.losses)
""",
        "what is lost by an operator's order is in no log, event or metric",
        "complaint",
    ),
    Mutant(
        "known-loss-not-told",
        _CHANGE,
        """
-                known[log.topic_id] = max(known.get(log.topic_id, 0), log.end, log.held_end)
+                known[log.topic_id] = max(known.get(log.topic_id, 0), log.end)
""",
        "what a replica knows that it lost is not told to be lost",
        "lost-untold",
    ),
    Mutant(
        "worst-leads-by-order",
        _CHANGE,
        """
-        leader = choose_leader(agreed, elections, topics)
+        leader = min(agreed, key=lambda one: sum(log.end for log in one.ends))
""",
        "of the replicas that are left the one with the fewest bytes leads by an operator's order",
        "lost-too-much",
    ),
    Mutant(
        "damaged-leads-by-order",
        _CHANGE,
        """
-        best = sound or (accepted if ordered else [])
+        best = accepted if ordered else sound
""",
        "a damaged replica that was in sync last leads by an operator's order, though one is left "
        "that lacks nothing",
        "lost-too-much",
    ),
    Mutant(
        "lost-data-told-once",
        "octopi.replication.partition_replica",
        """
         self.registered = True
-        return []
+        return self._store(intact=True)
""",
        "a broker that lost data says so to a register that is still learning, and not again to "
        "the one that decides",
        "incomplete-leader",
    ),
)
