"""Bugs in how a register learns again, and in what it does when all copies lost something."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

_CHANGE: Final = "octopi.membership.leadership_change"
_REGISTRAR: Final = "octopi.membership.registrar"

MUTANTS: Final = (
    Mutant(
        "learned-while-asking",
        _REGISTRAR,
        """
-        rebuild = self._rebuild.copy()
+        rebuild = self._rebuild
""",
        "what a broker reports is forgotten when its admission can't be journaled, but that it "
        "has reported is not: an older record wins",
        "incomplete-leader",
    ),
    Mutant(
        "older-record-decided-on",
        "octopi.membership.rebuild",
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
        "lost-data-told-once",
        "octopi.replication.replica",
        """
-        return self.state.intact or leads or self.broker not in record.in_sync
+        return True
""",
        "a broker that lost data says so to a register that is still learning, and not again to "
        "the one that decides",
        "incomplete-leader",
    ),
)
