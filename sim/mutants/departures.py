"""Bugs of brokers that stop, and of connections with the register that break."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import LIVENESS, Mutant

_REPLICA: Final = "octopi.replication.partition_replica"
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
        ("made_again_unheard",),
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
        _REPLICA,
        """
-        self.is_stopping = True
+        pass
""",
        "a leader that is about to stop proposes to remove replicas from the in-sync set that stay",
        "stopping-proposes",
        ("stops_when_a_follower_dies", "stops_in_the_end"),
    ),
    Mutant(
        "stopping-leaders-say-what-they-decided",
        _REPLICA,
        """
-        return not self.is_stopping and (self.leader is None or self.leader.stands_by(change))
+        return self.leader is None or self.leader.stands_by(change)
""",
        "a leader that was asked to stop sends a proposal that had been waiting for its device",
        "stopping-proposes",
        ("stops_in_the_end", "stops_while_it_decides"),
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
        ("full_beside_sleepers", "refuses_beside_a_sleeper"),
    ),
)
