"""Planted bugs of how brokers leave, and of connections with the register that break."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import LIVENESS, Mutant

_DEPARTURES: Final = "octopi.roles.register.departures"

MUTANTS: Final = (
    Mutant(
        "broken-link-never-given-up",
        _DEPARTURES,
        """
                 await session.replaced.wait()
-        self.gone(session)
""",
        "a broker whose connection broke counts as live for ever",
        LIVENESS,
    ),
    Mutant(
        "resignation-said-once",
        "octopi.roles.broker.partition_replica",
        """
-        if self._resignation is not None and leader and self._resigned_in(leader.epoch):
-            self._peers.to_register(self._resignation)
+        del leader
""",
        "a leader whose disk failed leads on when its resignation is lost with the connection",
        LIVENESS,
    ),
    Mutant(
        "membership-outlives-the-role",
        "octopi.roles.broker.node",
        """
-        logs.stop()
-        await membership.hand_over()
-        await membership.leave()
         closing.set()
""",
        "a leader that stops closes its followers' streams, proposes to be alone in sync, and goes",
        LIVENESS,
    ),
    Mutant(
        "stopped-for-good",
        "octopi.roles.register.node",
        """
-            self.hand_overs.starts_anew(admission.broker)
+            pass
""",
        "a broker that was stopped once is never in sync again",
        LIVENESS,
    ),
)
