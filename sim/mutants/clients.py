"""Bugs of how clients find leaders, and of what they send again.

No bug here takes the bound from redirects (`octopi.clients.leader_route.LeaderRoute.redirected`):
no run could notice it.  A redirect names the leader of an epoch, all brokers that know an epoch
name the same leader, and that one names none.  So the redirects of honest brokers lead to later and
later epochs, and end with the newest one.  Only brokers that lie send a client in a circle;
`tests/clients/test_redirects.py` has such brokers.
"""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import HISTORY, LIVENESS, Mutant

_ROUTES: Final = "octopi.clients.leader_route"

MUTANTS: Final = (
    Mutant(
        "no-redirects",
        "octopi.roles.broker.redirects",
        """
-    return NotLeaderError(reason, address=address, epoch=decided.epoch if address else None)
+    return NotLeaderError(reason)
""",
        "a broker that doesn't lead doesn't say who does, so a producer that missed a move waits "
        "for the register",
        LIVENESS,
    ),
    Mutant(
        "version-1-records-are-always-new",
        "octopi.replication.producer_sequences",
        """
-        known = [(self._requests.get(one.request_id), one.position) for one in requests]
+        known = [(None, one.position) for one in requests]
""",
        "a version 1 record that is sent again is stored again",
        HISTORY,
    ),
    Mutant(
        "only-the-register-is-asked",
        _ROUTES,
        """
             self.looked_up()
-            if not self._brokers:
-                self._brokers.extend(self._lookup.brokers(self._topic, self._partition))
             if not self._brokers:
""",
        "a producer whose leader is gone waits for the register, though every broker knows the "
        "next one",
        LIVENESS,
    ),
    Mutant(
        "brokers-forgotten-when-nobody-leads",
        "octopi.clients.leader_lookup",
        """
-            if found := [one for one in (*place.readers, place.leader_address) if one]:
-                self.addresses[place.partition] = found
+            found = [one for one in (*place.readers, place.leader_address) if one]
+            self.addresses[place.partition] = found
""",
        "a client that heard that nobody leads a partition forgets the brokers that it knew, and "
        "waits for the register",
        LIVENESS,
    ),
)
