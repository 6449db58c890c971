"""Bugs of brokers that stop, and of connections with the register that break."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import LIVENESS, Mutant

_DEPARTURES: Final = "octopi.roles.register.departures"

MUTANTS: Final = (
    Mutant(
        "broken-link-never-given-up",
        _DEPARTURES,
        """
                 await member.is_over.wait()
-        self.gone(member)
""",
        "a broker whose connection broke counts as live for ever",
        LIVENESS,
        ("one_dies",),
    ),
    Mutant(
        "topics-made-without-their-leader",
        "octopi.roles.register.topics",
        """
-            if not (member.is_closed or member.is_silent):
-                break
-            await member.is_over.wait()
+            break
""",
        "a topic counts as made before its leader, whose connection broke, has heard of it: the "
        "leader stores new messages in a deleted topic of the same name",
        "acknowledged-unheld",
        ("made_again",),
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
        ("stopped",),
    ),
    Mutant(
        "stopping-leaders-propose",
        "octopi.replication.partition_replica",
        """
-        if self.leader is not None and not self.is_stopping:
+        if self.leader is not None:
             change = self.leader.wanted_change(now)
""",
        "a leader that is about to stop proposes to remove replicas from the in-sync set that stay",
        "stopping-proposes",
        ("stops_beside_a_sleeper",),
    ),
    Mutant(
        "stopping-leaders-say-what-they-decided",
        "octopi.roles.broker.replica_driver",
        """
-            case ToRegister(AlterInSync() as change) if not self.machine.may_propose(change):
-                pass  # decided earlier, and delayed by the device
             case ToRegister(message):
""",
        "a leader that was asked to stop sends a proposal that had been waiting for its device",
        "stopping-proposes",
        ("stops_beside_a_sleeper",),
    ),
    Mutant(
        "refusing-leaders-propose",
        "octopi.roles.broker.resignation",
        """
-        self.is_refusing, leader.takes_records = True, False
+        pass
""",
        "a leader whose disk failed proposes to remove the replicas from the in-sync set that "
        "have to lead instead of it",
        "refusing-proposes",
        ("full_in_the_end", "disk_fails"),
    ),
)
