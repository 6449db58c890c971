"""Which brokers take records, and which of their replicas don't: as they say themselves.

Observed, like liveness: what a broker says counts while its membership connection is up, and
it says it anew when it joins again.
"""

from __future__ import annotations

from collections.abc import Collection

from octopi.identifiers import BrokerId, PartitionId
from octopi.wire.messages import BrokerStatus, ReplicaTroubleAt

_UNTOLD = "it could not store what the register decided about the partition"


class Health:
    """What the brokers of one register said about their replicas.

    Three things keep a replica from serving: its broker has not been told all decisions yet,
    it could not store the newest one, or it takes no records and said why.

    Invariant: it knows nothing of brokers that were forgotten and not told of since.
    """

    def __init__(self) -> None:
        self._informed: set[BrokerId] = set()
        self._unstored: dict[BrokerId, frozenset[PartitionId]] = {}
        self._statuses: dict[BrokerId, BrokerStatus] = {}
        self._replicas: dict[BrokerId, dict[PartitionId, str]] = {}

    # --- what is observed ------------------------------------------------------------

    def informed(self, broker: BrokerId) -> None:
        """The broker has answered to all decisions that it has to know."""
        self._informed.add(broker)

    def unstored(self, broker: BrokerId, partitions: Collection[PartitionId]) -> bool:
        """The broker could not store the newest decisions about *partitions*, and no others; say
        whether that is news."""
        before = self._unstored.pop(broker, frozenset())
        if partitions:
            self._unstored[broker] = frozenset(partitions)
        return before != frozenset(partitions)

    def told(self, broker: BrokerId, status: BrokerStatus) -> bool:
        """The broker said how it is; say whether another replica serves now, or one no more."""
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
        """The broker, in the same life, has a new connection: it says anew how it is."""
        for told in (self._unstored, self._statuses, self._replicas):
            told.pop(broker, None)

    # --- questions -------------------------------------------------------------------

    def is_informed(self, broker: BrokerId) -> bool:
        """Whether the broker has answered to all decisions."""
        return broker in self._informed

    def is_led_to(self, broker: BrokerId, partition: PartitionId) -> bool:
        """Whether clients may be sent to the broker for that partition: it knows its part in it,
        and answers truly, if only with why it takes no records."""
        return broker in self._informed and partition not in self._unstored.get(broker, ())

    def trouble(self, broker: BrokerId, partition: PartitionId) -> str:
        """Why the broker's replica takes no records; empty: nothing is known against it."""
        if partition in self._unstored.get(broker, ()):
            return _UNTOLD
        return self.disk_trouble(broker) or self._replicas.get(broker, {}).get(partition, "")

    def serves(self, broker: BrokerId, partition: PartitionId) -> bool:
        """Whether the broker's replica takes records."""
        return broker in self._informed and not self.trouble(broker, partition)

    def is_troubled(self, broker: BrokerId) -> bool:
        """Whether something that the broker holds takes no records: it should not get more."""
        return bool(
            broker in self._unstored or self.disk_trouble(broker) or self._replicas.get(broker)
        )

    def disk_trouble(self, broker: BrokerId) -> str:
        """Why no replica of the broker takes records; empty: its disk has space."""
        status = self._statuses.get(broker)
        return status.disk_trouble if status is not None else ""

    def status(self, broker: BrokerId) -> BrokerStatus | None:
        """What the broker said last; None: nothing yet."""
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
        """All that something is known of."""
        return {*self._informed, *self._unstored, *self._statuses, *self._replicas}
