"""Bugs of several registers that keep one journal."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

_REPLICA: Final = "octopi.agreement.journal.replica"
_HISTORY: Final = "octopi.agreement.journal.history"
_GROUP: Final = "octopi.roles.register.group.group"
_AGREED: Final = "octopi.roles.register.group.agreed_journal"
_STORED: Final = "octopi.roles.register.group.stored_journal"

MUTANTS: Final = (
    Mutant(
        "registers-flush-nothing",
        _GROUP,
        """
             try:
-                await self._stored.flush()
+                await trio.lowlevel.checkpoint()
             except StorageError as error:
""",
        "a register tells its vote, and acknowledges entries, before they are on its device",
        "vote-unheld",
        ("voter_forgets", "registers_lose_power"),
    ),
    Mutant(
        "entries-acknowledged-before-they-are-durable",
        _REPLICA,
        """
         stored = EntriesStored(self.identity, self.term, end)
-        return [*effects, SendWhenDurable(address, stored)]
+        return [*effects, SendNow(address, stored)]
""",
        "a standby acknowledges entries that are not on its device yet",
        "undecided-told",
        ("stored_on_two", "registers_lose_power"),
    ),
    Mutant(
        "told-before-a-majority-has-it",
        _AGREED,
        """
-        while not self.is_over and self._group.replica.committed < end:
-            await self._group.changed()
         if self.is_over:
""",
        "the active register tells what only it has",
        "undecided-told",
        ("active_register_dies",),
    ),
    Mutant(
        "one-register-is-enough",
        _REPLICA,
        """
-        end = ends[len(voters) // 2]
+        end = ends[0]
""",
        "an entry counts as committed when one register has it",
        "undecided-told",
        ("active_register_dies", "active_register_is_cut_off"),
    ),
    Mutant(
        "active-before-its-term-is-committed",
        _REPLICA,
        """
-        return self.is_active and self.committed > self._begins
+        return self.is_active
""",
        "a new active register decides before an entry of its own term is committed, so it may "
        "not know yet what was decided before",
        "decision-undone",
        ("active_registers_die_in_turn",),
    ),
    Mutant(
        "snapshot-forgets-the-last-term",
        _HISTORY,
        """
-            JournalSnapshot(end, self.term_before(end), self.voters_at(end), tuple(contents))
+            JournalSnapshot(end, 0, self.voters_at(end), tuple(contents))
""",
        "a folded journal looks older than it is",
        "journals-differ",
        ("journals_are_folded",),
    ),
    Mutant(
        "votes-twice-in-a-term",
        _REPLICA,
        """
-            is_free = asked.term == self.term and self.vote in (None, sender)
+            is_free = asked.term == self.term
""",
        "a register votes for each candidate of a term",
        "two-active",
        ("active_registers_die_in_turn", "voter_forgets"),
    ),
    Mutant(
        "votes-for-an-older-journal",
        _REPLICA,
        """
-        is_as_new = (asked.end_term, asked.end) >= (history.end_term, history.end)
+        is_as_new = True
""",
        "a register becomes active without what is committed",
        "journals-differ",
        ("stored_on_two", "journals_are_folded"),
    ),
    Mutant(
        "registers-are-known-by-their-address",
        "octopi.agreement.journal.voters",
        """
-    return 2 * len(set(have).intersection(voters)) > len(voters)
+    return 2 * len({one.address for one in have}) > len(voters)
""",
        "a register that has lost its disk counts in elections",
        "journals-differ",
        ("disk_is_lost_beside_one_behind",),
    ),
    Mutant(
        "entries-stored-behind-any",
        _REPLICA,
        """
-        elif history.term_before(start) != sent.term_before:
+        elif False:
             return [self._missed(address, max(history.term_start(start), self.committed))]
""",
        "a standby stores entries behind others than those that are before them",
        "journals-differ",
        ("active_register_is_cut_off", "active_register_sleeps"),
    ),
    Mutant(
        "what-comes-while-folding-is-lost",
        _STORED,
        """
             kept, self._kept = self._kept, None
-            if kept:
-                self._journal.append(kept)
""",
        "entries that come while a register folds its journal are not stored",
        "entries-unheld",
        ("journals_are_folded",),
    ),
    Mutant(
        "acknowledges-while-folding",
        _GROUP,
        """
-            while self._stored.is_replaced:
-                await self._replaced.wait()
             self._has_waiting = trio.Event()
""",
        "entries that come while a register folds its journal are acknowledged before they are "
        "stored",
        "entries-unheld",
        ("journals_are_folded",),
    ),
    Mutant(
        "deposed-register-serves-on",
        _AGREED,
        """
-        is_active = replica.may_decide and replica.term == self._term
+        is_active = replica.term >= self._term
""",
        "a register that another one has replaced goes on serving brokers and clients",
        "undecided-told",
        ("active_register_is_cut_off", "active_register_sleeps"),
    ),
    Mutant(
        "failed-sync-believed-after-a-restart",
        "octopi.storage.recovery",
        """
             try:
-                yield from segment.rewrite(max(0, durable_end - segment.base))
+                yield
             except OSError as error:
""",
        "a register that was restarted after a failed sync acknowledges what is in the page cache "
        "and not on its device",
        "entries-unheld",
        ("sync_of_a_register_fails",),
    ),
)
