"""What of the knowledge about partitions counts no more, because records may be lost.

Where a decision notes that acknowledged records may be lost, or where a broker leads whose disk was
changed in a way that it can't notice, all that was known about that partition counts no more.
"""

from __future__ import annotations

from collections.abc import Callable

from octopi.identifiers import PartitionId
from octopi.simulation.cluster import WIPE, SimulatedCluster
from octopi.simulation.faults.actions import BitFlip, RollBack, Wipe, goes_unnoticed
from octopi.simulation.faults.damage import Damage
from octopi.simulation.faults.injector import FAULT
from octopi.simulation.invariants.recoveries import Recoveries
from octopi.simulation.kernel.host import LOSE_POWER
from octopi.simulation.kernel.world import Event
from octopi.simulation.step_handlers import StepHandlers
from octopi.tracing import steps


class Losses:
    """Observes what it needs through *handlers*; *forget* is called with each partition of which
    nothing counts any more."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        handlers: StepHandlers,
        forget: Callable[[PartitionId], None],
    ) -> None:
        self._cluster = cluster
        self._tell = forget
        self._recoveries = Recoveries(cluster)
        self.lossy: set[PartitionId] = set()
        """Partitions that may have lost records: offsets were used twice there."""
        self.is_harmed = False
        """Whether a disk was damaged, or a machine lost its power."""
        self._spoiled: set[str] = set()
        """Hosts whose disk holds what they never wrote there, and that can't notice it: they lead
        with what they find."""
        self._serving_less: set[tuple[str, PartitionId]] = set()
        """Hosts and partitions that have no other replica, and whose disk is damaged: what lies
        before the damage is served, and nothing stored, until an operator gives up the rest."""
        handlers.on(self._see_recovery, steps.E7Counted, steps.E8Decided, steps.J5Admitted)
        handlers.on_word(self._see_recovery, LOSE_POWER)
        handlers.on_word(self._see_fault, FAULT)
        handlers.on_word(self._note_empty_disk, WIPE)

    def leads_with_less(self, host: str, partition: PartitionId) -> bool:
        """Whether *host* may lead without what was committed, and can't know it."""
        return host in self._spoiled or (host, partition) in self._serving_less

    def forget(self, partition: PartitionId) -> None:
        """Records may be lost, in the logs of that partition and in what it knew."""
        self.lossy.add(partition)
        self._tell(partition)

    def _see_fault(self, event: Event) -> None:
        action = event.facts["action"]
        self.is_harmed |= isinstance(action, Damage | Wipe | BitFlip | RollBack)
        if isinstance(action, Damage):
            for record in self._cluster.decided.state.partitions.values():
                if [self._cluster.host_of(one) for one in record.replicas] == [event.host]:
                    self._serving_less.add((event.host, record.partition))
        if goes_unnoticed(action):
            self._spoiled.add(event.host)

    def _note_empty_disk(self, event: Event) -> None:
        self._spoiled.discard(event.host)

    def _see_recovery(self, event: Event) -> None:
        self.is_harmed |= event.what == LOSE_POWER
        for record in self._recoveries.found(event):
            self.forget(record.partition)
            self._serving_less = {one for one in self._serving_less if one[1] != record.partition}
