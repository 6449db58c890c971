"""Bugs of a register that forms a cluster."""

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
    ),
)
