"""Who is the sequencer of which relay partition, as the members say.  It is for look-ups alone: the
members agree on it by themselves, and anybody among them takes what is produced."""

from __future__ import annotations

from collections.abc import Mapping

from octopi.identifiers import NO_EPOCH, BrokerId, Epoch, Incarnation, PartitionId


class RelaySequencers:
    """The sequencers of which a register has heard.

    Invariant: of two reports about a partition, the one from the greater epoch counts.
    """

    def __init__(self, live: Mapping[BrokerId, Incarnation]) -> None:
        """*live* is the caller's: broker -> incarnation."""
        self._live = live
        self._said: dict[PartitionId, tuple[Epoch, BrokerId]] = {}

    def told(self, partition: PartitionId, epoch: Epoch, broker: BrokerId) -> None:
        """*broker* says that it is the sequencer in *epoch*."""
        self._said[partition] = max((epoch, broker), self._said.get(partition, (NO_EPOCH, broker)))

    def of(self, partition: PartitionId) -> tuple[Epoch, BrokerId | None]:
        """The newest epoch of a relay partition, and its sequencer if that broker is live."""
        epoch, broker = self._said.get(partition, (NO_EPOCH, None))
        return epoch, broker if broker in self._live else None
