"""Which brokers and replicas take no records, as their brokers tell with their pulses.  No I/O."""

from __future__ import annotations

import attrs

from octopi.identifiers import BrokerId, Incarnation, PartitionId
from octopi.wire.membership import BrokerStatus


@attrs.frozen
class _Told:
    incarnation: Incarnation
    status: BrokerStatus
    troubles: dict[PartitionId, str]


class ToldHealth:
    """The newest status of each broker.  Whoever asks knows whether the broker is there."""

    def __init__(self) -> None:
        self._told: dict[BrokerId, _Told] = {}

    def told(self, broker: BrokerId, incarnation: Incarnation, status: BrokerStatus) -> None:
        """A broker told all that is to be known: what *status* does not name is well."""
        known = self._told.get(broker)
        if known is None or known.incarnation <= incarnation:
            troubles = {one.partition: one.reason for one in status.replicas if one.reason}
            self._told[broker] = _Told(incarnation, status, troubles)

    def status(self, broker: BrokerId) -> BrokerStatus | None:
        """What a broker told last; None: nothing yet."""
        known = self._told.get(broker)
        return None if known is None else known.status

    def trouble(self, broker: BrokerId, partition: PartitionId) -> str:
        """Why the broker's replica of a partition takes no records; empty: no reason is known."""
        known = self._told.get(broker)
        if known is None:
            return ""
        return known.status.disk_trouble or known.troubles.get(partition, "")

    def is_troubled(self, broker: BrokerId) -> bool:
        """Whether any replica of the broker takes no records."""
        known = self._told.get(broker)
        return known is not None and bool(known.status.disk_trouble or known.troubles)
