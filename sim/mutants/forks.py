"""Bugs of anchors, with which readers learn that records that they have read are lost."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import HISTORY, Mutant

MUTANTS: Final = (
    Mutant(
        "anchors-not-looked-at",
        "octopi.roles.broker.readable_log",
        """
         read = epochs_of(checked_anchor(anchor))
-        if not read:
+        if offset >= 0:
             return
""",
        "a broker accepts a reader at any offset that its log has, without comparing the reader's "
        "anchor",
        HISTORY,
        ("goes_on_differently",),
    ),
    Mutant(
        "anchors-not-sent",
        "octopi.clients.consuming.log_subscriber",
        """
-            place.anchor,
+            "",
""",
        "a consumer doesn't send the anchor of its position",
        HISTORY,
        ("goes_on_differently",),
    ),
    Mutant(
        "anchors-forgotten-in-positions",
        "octopi.clients.consuming.consumer",
        """
-        return Place(self._offset(partition), anchor)
+        return Place(self._offset(partition))
""",
        "a stored position has offsets, but no anchors",
        HISTORY,
        ("goes_on_differently",),
    ),
    Mutant(
        "forks-where-the-log-ends",
        "octopi.replication.epoch_history",
        """
-            return self._common(offset, read, log_end) if is_over or is_leader else None
+            return min(offset - 1, log_end) if is_over or is_leader else None
""",
        "a reader is sent back to an offset behind the last common offset",
        HISTORY,
        ("goes_on_differently",),
    ),
    Mutant(
        "forks-where-older-epochs-end",
        "octopi.replication.epoch_history",
        """
-            return self._common(offset, read, log_end) if is_over or is_leader else None
+            return end if is_over or is_leader else None
""",
        "a reader of an epoch that is lost is sent back to where this log's older epochs end, "
        "even if the lost epoch began before that",
        HISTORY,
        ("leads_with_what_nobody_heard",),
    ),
    Mutant(
        "ends-told-before-they-are-published",
        "octopi.replication.log_leader",
        """
-        return highwater >= self.started_at
+        return self.log.highwater >= self.started_at
""",
        "a new leader tells the end of a log before it has published the highwater mark of the "
        "records that it found, so the end is below acknowledged records",
        "complaint",
        ("ends_are_asked_for",),
    ),
)
