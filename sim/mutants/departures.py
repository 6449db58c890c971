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
                 await member.replaced.wait()
-        self.gone(member)
""",
        "a broker whose connection broke counts as live for ever",
        LIVENESS,
    ),
    Mutant(
        "stopped-for-good",
        "octopi.roles.register.admissions",
        """
-            self._hand_overs.starts_anew(admission.broker)
+            pass
""",
        "a broker that was stopped once is never in sync again",
        LIVENESS,
    ),
    Mutant(
        "stopping-leaders-propose",
        "octopi.replication.partition_replica",
        """
-        if self.leader is not None and not self.is_stopping:
+        if self.leader is not None:
             change = self.leader.wanted_change(now)
""",
        "a leader that is about to stop asks to have those out of the in-sync set that stay",
        "stopping-proposes",
    ),
    Mutant(
        "stopping-leaders-say-what-they-decided",
        "octopi.roles.broker.replica_driver",
        """
-            case ToRegister(AlterInSync() as change) if not self.machine.may_propose(change):
-                pass  # decided before, and kept waiting by the device
             case ToRegister(message):
""",
        "a leader that was asked to stop sends a proposal that its device had kept waiting",
        "stopping-proposes",
    ),
    Mutant(
        "refusing-leaders-propose",
        "octopi.roles.broker.resignation",
        """
-        self.is_refusing, leader.takes_records = True, False
+        pass
""",
        "a leader whose disk failed asks to have those out of the in-sync set that are to lead "
        "instead of it, as they accept the next epoch before it hears of that",
        "refusing-proposes",
    ),
)
