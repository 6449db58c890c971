"""Bugs of the facts that a broker notes about its logs, and of how it handles damaged logs."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

_OPENING: Final = "octopi.roles.broker.opening"

MUTANTS: Final = (
    Mutant(
        "damage-taken-for-a-torn-tail",
        "octopi.storage.recovery",
        """
-    if end < floor:
+    if False:
""",
        "records that had been flushed are missing now, and the replica counts as intact",
        "incomplete-leader",
        ("shorter", "damaged_comes_first"),
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
        ("shorter", "gone", "useless"),
    ),
    Mutant(
        "missing-logs-made-anew-unnoticed",
        _OPENING,
        """
-            await self._forget_intact(partition_id)
-            if not noted.topic:
+            if noted.topic:
""",
        "a broker whose log is missing removes it from its file of ends, reports the replica as "
        "intact, and makes an empty log for the topic",
        "incomplete-leader",
        ("gone",),
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
        "a broker that can't use a log's directory sets it aside, removes the log from its file "
        "of ends, and reports the replica as intact",
        "incomplete-leader",
        ("useless", "useless_and_dark"),
    ),
    Mutant(
        "older-checkpoints-believed",
        "octopi.roles.broker.log_files",
        """
-    if noted.checkpoint is None or number >= noted.checkpoint.number:
+    if True:
""",
        "a broker takes an older copy of a log's checkpoint for the newest one, so it doesn't "
        "know the epochs since, and the next leader has it cut committed records",
        "liveness",
        ("an_older_checkpoint",),
    ),
    Mutant(
        "renewed-checkpoints-without-epochs",
        _OPENING,
        """
-            "epochs": [list(one) for one in noted.epochs],
+            "epochs": [],
""",
        "a checkpoint is rebuilt without the log's epoch history, so the next leader has all "
        "records cut",
        "liveness",
        ("useless", "damaged_leads"),
    ),
    Mutant(
        "committed-records-cut-on-a-leaders-word",
        "octopi.replication.log_follower",
        """
-        if gives_up and not loss_accepted:
+        if False:
""",
        "a follower cuts records that it knows to be committed because its leader lacks them",
        "committed-cut",
        ("less_leads_unnoticed",),
    ),
    Mutant(
        "notes-ahead-of-the-flush",
        "octopi.roles.broker.local_log",
        """
-        flushed_end, highwater = self._files.flushed_end, self._published
+        flushed_end, highwater = self._files.end, self._published
         if self._cut_at is not None:
""",
        "records in the page cache are noted as flushed, so a power failure looks like damage",
        "incomplete-leader",
        ("power_fails", "ghost"),
    ),
    Mutant(
        "what-is-found-counts-as-durable",
        _OPENING,
        """
-        if noted is None or noted.checkpoint != log.stored_checkpoint:
-            await make_durable_directory(self._disk, directory, self._lasting)
-            await sync_names(self._disk, directory)
         if noted is None:
""",
        "a new log, or a checkpoint, that a killed process left in the page cache is noted as if "
        "it were on the device",
        "complaint",
        ("found_after_a_kill",),
    ),
)
