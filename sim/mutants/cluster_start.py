"""Bugs of a register that forms a cluster, and of brokers that join for the first time."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

MUTANTS: Final = (
    Mutant(
        "cluster-formed-before-its-register-began",
        "octopi.coordination.controller",
        """
-            RegisterStarted(RegisterGeneration(generation, nonce)),
             ClusterFormed(cluster, self._partition_count, secret),
+            RegisterStarted(RegisterGeneration(generation, nonce)),
""",
        "a register that died while it wrote the first entries of its cluster can't be started "
        "again",
        "exception",
        ("forms_half_a_cluster",),
    ),
    Mutant(
        "joined-unstored-is-another",
        "octopi.coordination.controller",
        """
-        is_back = is_same_life(self.state, self._live, join)
+        is_back = is_same_life(self.state, self._live, join) and bool(join.cluster)
         if broker in self._live and not is_back:
             raise RefusedError(
                 f"a live broker has the id {broker} already, at {state.brokers[broker].address}",
-                Status.DUPLICATE_BROKER,
+                Status.BROKER_FENCED,
             )
""",
        "a broker whose disk is full when it joins for the first time is refused for having its "
        "own id, and ends, if the register has not noticed that its connection broke",
        "complaint",
        ("joins_with_a_full_disk",),
        "The broker is started again until the register has noticed that its connection broke; no "
        "partition lies on a broker that has not joined yet.",
    ),
)
