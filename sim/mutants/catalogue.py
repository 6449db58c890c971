"""All mutants."""

from __future__ import annotations

from typing import Final

from sim.mutants import (
    bounding,
    deciding,
    finding,
    forks,
    forming,
    keeping,
    leaving,
    recovering,
    replicating,
    serving,
    storing,
)
from sim.mutants.mutant import Mutant

MUTANTS: Final[dict[str, Mutant]] = {
    mutant.name: mutant
    for mutant in (
        *replicating.MUTANTS,
        *deciding.MUTANTS,
        *finding.MUTANTS,
        *forks.MUTANTS,
        *forming.MUTANTS,
        *keeping.MUTANTS,
        *leaving.MUTANTS,
        *recovering.MUTANTS,
        *serving.MUTANTS,
        *bounding.MUTANTS,
        *storing.MUTANTS,
    )
}
"""By their names, in the order in which they are listed."""
