"""What a broker of a ring tells of its cluster: where topics and partitions are, and who is there.

It is what this broker knows of chosen values.  Who acts on it is sent on by the brokers that it
finds, or asks again.
"""

from __future__ import annotations

from collections import Counter

import attrs

from octopi.identifiers import PartitionId
from octopi.model import TopicRecord
from octopi.roles.broker.ring.partitions import RingPartitions
from octopi.roles.broker.ring.routes import RingRoutes
from octopi.wire.messages import BrokerInfo, PartitionInfo, ReplicaTroubleAt, TopicInfo


class RingView:
    """The cluster, as clients are told of it."""

    def __init__(self, partitions: RingPartitions, routes: RingRoutes) -> None:
        self._partitions = partitions
        self._routes = routes
        self._turns: Counter[PartitionId] = Counter()

    def topic(self, record: TopicRecord) -> TopicInfo:
        """Where *record*'s partitions are now."""
        partitions = [self.partition(one) for one in record.partitions]
        return TopicInfo(record.topic, record.topic_id, partitions, record.options)

    def partition(self, number: PartitionId) -> PartitionInfo:
        """Where a partition is now; successive calls name its readers in turn."""
        machine = self._partitions.partition(number)
        assert machine is not None, "a topic lies in partitions that there are"
        record = machine.agreed.record
        addresses = self._routes.addresses()
        gone = {one for one in record.replicas if not self._partitions.pulses.is_there(one)}
        known = machine.agreed.incarnation(record.leader)
        leads = (
            record.leader not in gone
            and machine.agreed.announced == record.epoch
            and (known is None or known.incarnation == record.leader_incarnation)
        )
        serving = [one for one in record.in_sync if one not in gone]
        readers = [addresses[one] for one in serving if one in addresses]
        if len(readers) > 1:
            self._turns[number] += 1
            turn = (number + self._turns[number]) % len(readers)
            readers = readers[turn:] + readers[:turn]
        return PartitionInfo(
            partition=number,
            epoch=record.epoch,
            leader=record.leader if leads else None,
            leader_address=addresses.get(record.leader, "") if leads else "",
            replicas=list(record.replicas),
            in_sync=list(record.in_sync),
            readers=readers,
            waits_for=[] if leads else sorted(gone.intersection(record.in_sync)),
            is_stuck=False,
            troubles=[
                ReplicaTroubleAt(one, why)
                for one in record.replicas
                if (why := self._partitions.pulses.trouble(one, number))
            ],
            recovered_epoch=record.recovered_epoch,
        )

    def brokers(self) -> list[BrokerInfo]:
        """All brokers that are known, by id."""
        led = Counter(one.agreed.record.leader for one in self._partitions)
        there = {
            one.broker
            for one in self._routes.brokers(())
            if self._partitions.pulses.is_there(one.broker)
        }
        return [self._told(one, led[one.broker]) for one in self._routes.brokers(there)]

    def _told(self, broker: BrokerInfo, led: int) -> BrokerInfo:
        status = self._partitions.pulses.status(broker.broker)
        if status is None:
            return attrs.evolve(broker, partitions_led=led)
        return attrs.evolve(
            broker,
            partitions_led=led,
            disk_free_bytes=status.disk_free_bytes,
            disk_total_bytes=status.disk_total_bytes,
            disk_trouble=status.disk_trouble,
        )

    def partitions(self) -> list[PartitionInfo]:
        """All partitions, in order."""
        return [self.partition(one.partition) for one in self._partitions]
