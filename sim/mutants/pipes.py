"""Bugs of pipes, from topic to topic."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

_LOG: Final = "octopi.clients.piping.pipe_log"
_PRODUCERS: Final = "octopi.roles.broker.services.producers"
_COMPLAINT: Final = "complaint"
_ALL: Final = ("pipe_members_and_leaders_fail", "pipe_members_fail")

MUTANTS: Final = (
    Mutant(
        "pipe-appends-without-condition",
        _LOG,
        """
-        condition = None if self._after is None else Condition(after=self._after)
+        condition = None
""",
        "a member that takes over appends behind whatever the one before has stored meanwhile",
        _COMPLAINT,
        _ALL,
    ),
    Mutant(
        "pipe-goes-on-behind-what-is-not-committed",
        _PRODUCERS,
        """
-                await self._internal.committed(message.partition, log, found.end)
                 if message.of_pipe and newest is not None:
""",
        "a pipe goes on behind results that a change of the leader takes back",
        _COMPLAINT,
        ("pipe_members_and_leaders_fail", "pipe_leaders_fail"),
    ),
    Mutant(
        "pipe-does-not-count-results",
        _LOG,
        """
-        self.is_checked = True
-        return not self.place.is_last
+        self.is_checked, self.place = True, None
+        return True
""",
        "a message whose results are stored in part, or in full, is processed from its beginning",
        _COMPLAINT,
        _ALL,
    ),
    Mutant(
        "pipe-goes-on-at-its-mark",
        _LOG,
        """
-        if place is not None:
-            self._reach(place)
""",
        "a member that takes over goes on at the mark, which is stored behind the results",
        _COMPLAINT,
        _ALL,
    ),
    Mutant(
        "pipe-that-looks-again-counts-from-0",
        _LOG,
        """
-        self._next_sequence = last.sequence + 1 if is_own else 0
+        self._next_sequence = 0
""",
        "new results are taken for repetitions of those that the member has sent before",
        _COMPLAINT,
        ("pipe_members_and_leaders_fail", "pipe_leaders_fail"),
    ),
)
