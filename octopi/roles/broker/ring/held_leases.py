"""The rights to lead that this broker was granted (`octopi.agreement.lease`)."""

from __future__ import annotations

from math import inf

from octopi.agreement.lease import Lease
from octopi.identifiers import Epoch, PartitionId
from octopi.ring.partition import RingPartition
from octopi.wire.ring import LedEpoch, Pulse, PulseHeard


class HeldLeases:
    """The leases of the partitions that this broker leads, each for the newest epoch in which it
    leads."""

    def __init__(self) -> None:
        self._leases: dict[PartitionId, tuple[Epoch, Lease]] = {}

    def granted(self, pulse: Pulse, answer: PulseHeard, sent_at: float) -> None:
        """*pulse*, which was sent at *sent_at*, was answered."""
        for one in pulse.leads:
            if one.partition in answer.granted:
                self._of(one).granted(answer.acceptor, sent_at)

    def may_act(self, machine: RingPartition, epoch: Epoch, now: float) -> bool:
        """Whether this broker, which leads in *epoch*, has the right to act as the leader."""
        return now < self.acts_until(machine, epoch)

    def acts_until(self, machine: RingPartition, epoch: Epoch) -> float:
        """Until when it has that right; -inf: it has none."""
        known, lease = self._leases.get(machine.partition, (None, Lease()))
        return machine.acts_until(lease, epoch) if known == epoch else -inf

    def _of(self, led: LedEpoch) -> Lease:
        known = self._leases.get(led.partition)
        if known is None or known[0] < led.epoch:
            known = self._leases[led.partition] = (led.epoch, Lease())
        # What is granted for an older epoch counts for nothing.
        return known[1] if known[0] == led.epoch else Lease()
