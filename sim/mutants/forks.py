"""Bugs of how readers are told that what they read is gone from the log."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import HISTORY, Mutant

MUTANTS: Final = (
    Mutant(
        "anchors-not-looked-at",
        "octopi.roles.broker.readable_log",
        """
         read = epochs_of(anchor)
-        if not read:
+        if offset >= 0:
             return
""",
        "a broker takes any reader on at an offset that it has, whatever the reader had there",
        HISTORY,
    ),
    Mutant(
        "anchors-not-sent",
        "octopi.clients.consuming.log_subscriber",
        """
-            request, session.topic, session.partition, place.offset, session.credit, place.anchor
+            request, session.topic, session.partition, place.offset, session.credit
""",
        "a consumer doesn't say what it read before the place where it goes on",
        HISTORY,
    ),
    Mutant(
        "anchors-forgotten-in-positions",
        "octopi.clients.consuming.consumer",
        """
-        return Place(offset, session.start_anchor if anchor is None else anchor)
+        return Place(offset)
""",
        "a position that is stored has the offsets, and nothing of what was read before them",
        HISTORY,
    ),
    Mutant(
        "forks-where-the-log-ends",
        "octopi.replication.epoch_history",
        """
-            return self._common(offset, read, log_end) if is_over or is_leader else None
+            return min(offset - 1, log_end) if is_over or is_leader else None
""",
        "a reader is sent back less far than to the last common offset",
        HISTORY,
    ),
    Mutant(
        "forks-where-older-epochs-end",
        "octopi.replication.epoch_history",
        """
-            return self._common(offset, read, log_end) if is_over or is_leader else None
+            return end if is_over or is_leader else None
""",
        "a reader of an epoch that is lost is sent back to where this log's older epochs end, also "
        "if the lost one began before that",
        HISTORY,
    ),
    Mutant(
        "ends-told-before-they-are-published",
        "octopi.replication.log_leader",
        """
-        return highwater >= self.started_at
+        return self.log.highwater >= self.started_at
""",
        "a new leader that has committed what it found tells where the log ends before its mark is "
        "published: below what was acknowledged",
        "complaint",
    ),
)
