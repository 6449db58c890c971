"""Bugs of what a broker notes of its logs, and of what it makes of damaged ones."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

_OPENING: Final = "octopi.roles.broker.opening"

MUTANTS: Final = (
    Mutant(
        "damage-taken-for-a-torn-tail",
        "octopi.storage.recovery",
        """
-            if self.why and segment.end < self._floor:
+            if False:
""",
        "what isn't sound is cut off though it had been flushed, and the replica counts as intact",
        "committed-cut",
    ),
    Mutant(
        "damaged-logs-count-as-intact",
        "octopi.replication.replica_logs",
        """
-    return all(log.sound and (flushed or log.flush_before_ack) for log in logs.values())
+    return all(flushed or log.flush_before_ack for log in logs.values())
""",
        "a broker with a damaged log tells the register that it holds all that it acknowledged",
        "incomplete-leader",
    ),
    Mutant(
        "missing-logs-made-anew-unnoticed",
        _OPENING,
        """
-            await self._forget_intact(partition_id)
-            if not noted.topic:
+            if noted.topic:
""",
        "a broker whose log is gone strikes it from what it noted, says that it is intact, and "
        "makes an empty one when it is told of the topic",
        "incomplete-leader",
    ),
    Mutant(
        "useless-directories-replaced-unnoticed",
        _OPENING,
        """
-        await self._forget_intact(partition_id)
+        for one in self.ends[partition_id].topic_ids:
+            await self.ends[partition_id].remove(one)
         parent, _, name = directory.rpartition("/")
""",
        "a broker that can't use a log's directory sets it aside, strikes what it noted of it, "
        "and says that it is intact",
        "incomplete-leader",
    ),
    Mutant(
        "older-checkpoints-believed",
        "octopi.roles.broker.log_files",
        """
-    if noted.checkpoint is None or number >= noted.checkpoint.number:
+    if True:
""",
        "a broker takes an older copy of a log's checkpoint for the newest one, so it knows no "
        "epoch that began since, and its next leader would have it cut what is committed",
        "liveness",
    ),
    Mutant(
        "renewed-checkpoints-without-epochs",
        _OPENING,
        """
-            "epochs": [list(one) for one in noted.epochs],
+            "epochs": [],
""",
        "a log whose checkpoint was made anew doesn't know which epochs wrote its records, and "
        "its next leader would have all of them cut",
        "liveness",
    ),
    Mutant(
        "committed-records-cut-on-a-leaders-word",
        "octopi.replication.log_follower",
        """
-        if gives_up and not loss_accepted:
+        if False:
""",
        "a follower cuts what it knows to be committed because a leader lacks it",
        "committed-cut",
    ),
    Mutant(
        "notes-ahead-of-the-flush",
        "octopi.roles.broker.local_log",
        """
-        flushed_end, highwater = self._files.flushed_end, self._published
+        flushed_end, highwater = self._files.end, self._published
         if self._cut_at is not None:
""",
        "what is in the page cache is noted as flushed, so a failure of power looks like damage",
        "incomplete-leader",
    ),
)
