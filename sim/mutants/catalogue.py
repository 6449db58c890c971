"""All mutants."""

from __future__ import annotations

from typing import Final

from sim.mutants import (
    bounds,
    clients,
    cluster_start,
    departures,
    durable_state,
    entrances,
    forks,
    groups,
    orders,
    pipes,
    queues,
    recovery,
    register,
    relays,
    replication,
    rings,
    storage,
    subscriptions,
)
from sim.mutants.mutant import Mutant

MUTANTS: Final[dict[str, Mutant]] = {
    mutant.name: mutant
    for mutant in (
        *replication.MUTANTS,
        *register.MUTANTS,
        *clients.MUTANTS,
        *forks.MUTANTS,
        *cluster_start.MUTANTS,
        *storage.MUTANTS,
        *departures.MUTANTS,
        *recovery.MUTANTS,
        *orders.MUTANTS,
        *bounds.MUTANTS,
        *durable_state.MUTANTS,
        *subscriptions.MUTANTS,
        *queues.MUTANTS,
        *entrances.MUTANTS,
        *groups.MUTANTS,
        *rings.MUTANTS,
        *relays.MUTANTS,
        *pipes.MUTANTS,
    )
}
"""All mutants by name, in the order in which they are listed."""
