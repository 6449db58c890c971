"""Bugs in how a register learns again, and in what it does when all copies lost something."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

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
        _REGISTRAR,
        """
-        return partition in self._rebuild.newest
+        return False
""",
        "a register with an older journal decides by its own record, though a broker was told a "
        "newer one",
        "incomplete-leader",
    ),
)
