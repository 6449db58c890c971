"""Which brokers take records, and which of their replicas don't, as the brokers report it.

Health is observed, like liveness: a report counts while the broker's membership connection is up,
and the broker reports again when it joins again.
"""

from __future__ import annotations

from collections.abc import Collection

from octopi.identifiers import BrokerId, PartitionId
from octopi.wire.messages import BrokerStatus, ReplicaTroubleAt

_UNTOLD = "it could not store what the register decided about the partition"


class Health:
    """The reports of a register's brokers about their replicas.

    A replica doesn't serve for one of three reasons: its broker has not confirmed all decisions
    yet, the broker could not store the newest decision, or the broker reported why the replica
    takes no records.

    Invariant: nothing is known of a broker after `forget` until the next report.
    """

    def __init__(self) -> None:
        self._informed: set[BrokerId] = set()
        self._unstored: dict[BrokerId, frozenset[PartitionId]] = {}
        self._statuses: dict[BrokerId, BrokerStatus] = {}
        self._replicas: dict[BrokerId, dict[PartitionId, str]] = {}

    # --- what is observed ------------------------------------------------------------

    def informed(self, broker: BrokerId) -> None:
        """The broker has answered all decisions that it has to know."""
        self._informed.add(broker)

    def unstored(self, broker: BrokerId, partitions: Collection[PartitionId]) -> bool:
        """The broker could not store the newest decisions about exactly these *partitions*.  Return
        whether that has changed."""
        before = self._unstored.pop(broker, frozenset())
        if partitions:
            self._unstored[broker] = frozenset(partitions)
        return before != frozenset(partitions)

    def told(self, broker: BrokerId, status: BrokerStatus) -> bool:
        """The broker reported its status.  Return whether other replicas may serve now than
        before."""
        before = self._statuses.get(broker)
        self._statuses[broker] = status
        troubled = self._replicas.setdefault(broker, {})
        for one in status.replicas:
            if one.reason:
                troubled[one.partition] = one.reason
            else:
                troubled.pop(one.partition, None)
        return bool(status.replicas) or (before.disk_trouble if before else "") != (
            status.disk_trouble
        )

    def forget(self, broker: BrokerId) -> None:
        """The broker is gone."""
        self._informed.discard(broker)
        self.reconnected(broker)

    def reconnected(self, broker: BrokerId) -> None:
        """The broker has a new connection, with the same incarnation; it will report its status
        again."""
        for told in (self._unstored, self._statuses, self._replicas):
            told.pop(broker, None)

    # --- questions -------------------------------------------------------------------

    def is_informed(self, broker: BrokerId) -> bool:
        """Whether the broker has answered all decisions."""
        return broker in self._informed

    def is_led_to(self, broker: BrokerId, partition: PartitionId) -> bool:
        """Whether clients may be sent to the broker for that partition: the broker knows its role
        there, so its answer is right, even if it is only the reason why it takes no records."""
        return broker in self._informed and partition not in self._unstored.get(broker, ())

    def trouble(self, broker: BrokerId, partition: PartitionId) -> str:
        """Why the broker's replica takes no records; empty: no reason is known."""
        if partition in self._unstored.get(broker, ()):
            return _UNTOLD
        return self.disk_trouble(broker) or self._replicas.get(broker, {}).get(partition, "")

    def serves(self, broker: BrokerId, partition: PartitionId) -> bool:
        """Whether the broker's replica takes records."""
        return broker in self._informed and not self.trouble(broker, partition)

    def is_troubled(self, broker: BrokerId) -> bool:
        """Whether any replica of the broker takes no records; then it should not get more."""
        return bool(
            broker in self._unstored or self.disk_trouble(broker) or self._replicas.get(broker)
        )

    def disk_trouble(self, broker: BrokerId) -> str:
        """Why no replica of the broker takes records; empty: its disk has space."""
        status = self._statuses.get(broker)
        return status.disk_trouble if status is not None else ""

    def status(self, broker: BrokerId) -> BrokerStatus | None:
        """The newest status that the broker reported; None: none yet."""
        return self._statuses.get(broker)

    def troubles(
        self, partition: PartitionId, brokers: Collection[BrokerId]
    ) -> list[ReplicaTroubleAt]:
        """The replicas of *partition* on *brokers* that take no records, and why."""
        found = [(one, self.trouble(one, partition)) for one in brokers]
        return [ReplicaTroubleAt(broker, reason) for broker, reason in found if reason]

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert all(self._unstored.values())
        assert all(reason for told in self._replicas.values() for reason in told.values())

    @property
    def brokers(self) -> set[BrokerId]:
        """All brokers of which something is known."""
        return {*self._informed, *self._unstored, *self._statuses, *self._replicas}
