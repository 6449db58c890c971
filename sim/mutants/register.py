"""Bugs of the register."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import LIVENESS, Mutant

_CHANGE: Final = "octopi.coordination.election"
_IN_SYNC: Final = "octopi.coordination.in_sync_changes"
_LEADERSHIPS: Final = "octopi.coordination.elections"
_CONTROLLER: Final = "octopi.coordination.controller"
_REBUILD: Final = "octopi.coordination.rebuild"
_JOURNAL: Final = "octopi.storage.journal"

MUTANTS: Final = (
    Mutant(
        "leader-from-outside-the-in-sync-set",
        _CHANGE,
        """
-        members = [one for one in record.in_sync if one in replicas]
+        members = [one for one in replicas if one in live]
""",
        "any live replica may lead (unclean election)",
        "incomplete-leader",
        ("left_alone", "last_one"),
    ),
    Mutant(
        "everybody-stays-in-sync",
        _CHANGE,
        """
-            in_sync = [one.broker for one in staying]
+            in_sync = members
""",
        "a replica that did not accept the epoch stays in the in-sync set, and commits wait for it",
        "in-sync-unasked",
        ("only_one_is_left",),
        "Commits wait for such a replica until the leader removes it, as for one that just died.",
    ),
    Mutant(
        "restarted-joiner-accepted",
        _IN_SYNC,
        """
-        if incarnations.get(broker) != request.joiner_incarnation:
+        if False:
""",
        "a broker joins the in-sync set because of records that an earlier incarnation of it held "
        "(KIP-903)",
        "in-sync-unasked",
        ("joiner_dies",),
    ),
    Mutant(
        "damaged-brokers-stay-in-sync",
        _CONTROLLER,
        """
-            elif partition in damaged and broker in record.in_sync:
+            elif False:
""",
        "a broker that has lost records stays in the in-sync set (KIP-966)",
        "incomplete-leader",
        ("back_with_less", "disk_is_lost"),
    ),
    Mutant(
        "empty-disk-not-noticed",
        _CONTROLLER,
        """
-        if has_lost_data:
-            damaged.update(partitions)
""",
        "a broker with an empty data directory stays in the in-sync set",
        "incomplete-leader",
        ("back_with_less", "disk_is_lost"),
    ),
    Mutant(
        "rebuilt-from-the-first-report",
        _REBUILD,
        """
-            if partition not in accepted and not newest_set(record) <= self._standings.keys():
-                continue
""",
        "a register that has lost its journal decides from the report of the first broker alone",
        "two-leaders",
        ("memory_is_lost", "records_of_different_age"),
    ),
    Mutant(
        "epochs-used-again",
        _REBUILD,
        """
-            promised = max(record.epoch, self._promised.get(partition, NO_EPOCH))
+            promised = record.epoch
""",
        "a register that has lost its journal announces an epoch that was promised before",
        LIVENESS,
        ("spent_epoch",),
    ),
    Mutant(
        "decisions-told-before-they-are-durable",
        _JOURNAL,
        """
-        while log.flushed_end < end:
-            await log.flush()
         if observer is not None:
             observer.flushed(end)
""",
        "the register doesn't flush its journal",
        LIVENESS,
        ("register_fails", "memory_is_lost"),
    ),
    Mutant(
        "what-was-decided-told-by-the-way",
        "octopi.roles.register.member",
        """
-            await self._decisions.durable()
+            pass
         except NotReadyError:
             return False
         return True
""",
        "a decision that is not flushed yet is sent together with another message",
        "undecided-told",
        ("register_fails", "memory_is_lost"),
    ),
    Mutant(
        "in-sync-answer-before-durable",
        "octopi.roles.register.decision_log",
        """
         self.persist(decision)
-        await self.durable(decision)
+        self._tracer.durable(decision)
""",
        "a leader is told its in-sync set before that is durable in the register's journal",
        "undecided-told",
        ("register_fails", "memory_is_lost"),
    ),
    Mutant(
        "nobody-looks-for-a-leader",
        "octopi.roles.register.departures",
        """
             _log.warning("broker left", broker=broker, incarnation=incarnation)
-            self._election_driver.look()
""",
        "the register notices that a leader died, but begins no election",
        LIVENESS,
        ("one_dies",),
    ),
)
