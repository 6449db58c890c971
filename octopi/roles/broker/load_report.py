"""What a broker reports to the register about its load: how much it did for each partition that it
leads.

Nothing is counted for it where messages are handled: each log has counted its bytes ever since, for
the metrics, and every few seconds this looks at the counters, some logs at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Protocol

from octopi.environment import Environment
from octopi.identifiers import PartitionId, TopicId, is_internal
from octopi.replication.partition_replica import Role
from octopi.roles.broker.readers import Readers
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.storage.time_slices import Slices, in_groups, in_turns
from octopi.tracing import steps
from octopi.wire.messages import BrokerLoad, PartitionLoad, TopicRecord

_PAGE = 1_000


class CountedLog(Protocol):
    """A log with its counters, which begin when it is opened."""

    topic: TopicRecord
    topic_id: TopicId
    partition: PartitionId
    appended_bytes: int
    delivered_bytes: int


class LoadLink(Protocol):
    """The way to the register."""

    @property
    def is_joined(self) -> bool:
        """Whether the register counts this broker as a live member now."""

    async def joined(self) -> None:
        """Wait until the broker is a member for the first time."""

    def report(self, status: BrokerLoad) -> None:
        """Report a load, if the register knows of loads."""


class LoadReport:
    """The looks of one broker at its counters."""

    def __init__(self) -> None:
        self._looked_at: float | None = None
        self._led: frozenset[PartitionId] = frozenset()
        """The partitions that it led at the last look."""
        self._bytes: dict[tuple[TopicId, PartitionId], int] = {}
        """The counters of the last look, but for logs that were never used."""

    def look(
        self,
        now: float,
        led: Collection[PartitionId],
        logs: list[CountedLog],
        readings: Mapping[PartitionId, int],
    ) -> Slices[list[PartitionLoad]]:
        """The loads since the last look, at *now* (monotonic, s), of the partitions that were *led*
        at both looks: a follower appends, too, but that is not its own work."""
        last, before = self._looked_at, self._bytes
        both = self._led.intersection(led)
        found: dict[tuple[TopicId, PartitionId], int] = {}
        totals: Counter[PartitionId] = Counter()
        busiest: dict[PartitionId, tuple[int, str]] = {}
        for some in in_groups(logs):
            for log in some:
                if not (count := log.appended_bytes + log.delivered_bytes):
                    continue
                name = log.topic_id, log.partition
                found[name] = count
                if log.partition in both and (grown := count - before.get(name, 0)) > 0:
                    totals[log.partition] += grown
                    if not is_internal(log.topic.topic):
                        most = busiest.get(log.partition, (0, ""))
                        busiest[log.partition] = max(most, (grown, log.topic.topic))
            yield
        self._looked_at, self._led, self._bytes = now, frozenset(led), found
        if last is None or now <= last:
            return []
        return [
            PartitionLoad(
                one,
                round(totals[one] / (now - last)),
                readings.get(one, 0),
                busiest.get(one, (0, ""))[1],
            )
            for one in sorted(both)
        ]


def messages_of(loads: list[PartitionLoad]) -> list[BrokerLoad]:
    """What is sent of *loads*: one message at least, so the register knows that it was told."""
    return [BrokerLoad(loads[at : at + _PAGE]) for at in range(0, max(1, len(loads)), _PAGE)]


async def report_loads(
    environment: Environment,
    replicas: ReplicaManager,
    readers: Readers,
    link: LoadLink,
    interval_s: float,
) -> None:
    """Look every *interval_s* and report what was found over *link*, until cancelled."""
    clock, reports, trace = environment.clock, LoadReport(), environment.trace
    await link.joined()
    while True:
        led = {one.partition for one in replicas.replicas if one.machine.role == Role.LEADER}
        partitions = (one.log_partition for one in readers.readings)
        readings = Counter(one for one in partitions if one is not None)
        loads = await in_turns(reports.look(clock.now(), led, list(replicas.store), readings))
        for message in messages_of(loads) if link.is_joined else ():
            if trace is not None:
                trace(steps.H1Reporting(message.partitions))
            link.report(message)
            if trace is not None:
                trace(steps.H1Reported(message.partitions))
        await clock.sleep_until(clock.now() + interval_s)
