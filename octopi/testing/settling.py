"""When a cluster has come to rest, and what is in its logs then.

Looks past the processes, at their disks: what nodes say of themselves is theirs to get wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Final

from octopi.clients.client import Client
from octopi.errors import OctopiError
from octopi.identifiers import Offset, PartitionId, TopicName
from octopi.record import Message, decode
from octopi.retry import may_pass
from octopi.simulation.cluster import DATA_DIRECTORY, SimulatedCluster
from octopi.simulation.disk.log_bytes import ReplicaBytes
from octopi.simulation.history.events import LogName
from octopi.wire.messages import PartitionRecord

_MOVE_TIMEOUT_S: Final = 20.0


class Quiescence:
    """Looks at *simulated*; *operator* opens a client that may be told to move replicas, and
    *replace_unfit* gives disks away and names those that wait for one."""

    def __init__(
        self,
        simulated: SimulatedCluster,
        operator: Callable[[], AbstractAsyncContextManager[Client]],
        replace_unfit: Callable[[], str],
    ) -> None:
        self._simulated = simulated
        self._operator = operator
        self._replace_unfit = replace_unfit

    async def problem(self) -> str:
        """Why the cluster is not at rest; empty: it is.

        Does what an operator does (docs/operations.md): a broker that lost its disk gets the
        replicas of the one that it was before.
        """
        unfit = self._replace_unfit()
        if unfit:
            return f"{unfit} needs another disk"
        waiting = [
            node.name for node in self._simulated.servers if not (node.host.is_up and node.url)
        ]
        if waiting:
            return f"{', '.join(waiting)} doesn't serve"
        lost = self._lost()
        if lost:
            await self._replace(*lost[0])
            return f"partition {lost[0][0].partition} counts on a broker that is gone"
        for record in self._records():
            behind = set(record.replicas) - set(record.in_sync)
            if behind:
                hosts = sorted(map(self._simulated.host_of, behind))
                return f"{', '.join(hosts)} is not in sync on partition {record.partition}"
        for log in self._names():
            if len({self._bytes(host, log) for host in self._hosts(log)}) > 1:
                return f"the replicas of {log} differ"
        return ""

    def logs(self) -> Iterator[tuple[LogName, list[Message]]]:
        """All logs, as their leaders have them."""
        for log in self._names():
            start, data = self._bytes(self._simulated.leader(log.partition), log)
            topic, partition = TopicName(log.topic), PartitionId(log.partition)
            yield log, decode(data, Offset(start), topic, partition)

    def _records(self) -> list[PartitionRecord]:
        return list(self._simulated.register_view.state.partitions.values())

    def _names(self) -> list[LogName]:
        state = self._simulated.register_view.state
        return [
            LogName(topic.topic, partition)
            for topic in state.topics_after("", state.topic_count)
            for partition in topic.partitions
        ]

    def _hosts(self, log: LogName) -> list[str]:
        record = self._simulated.register_view.state.partitions[log.partition]
        return [self._simulated.host_of(broker) for broker in record.replicas]

    def _bytes(self, host: str, log: LogName) -> tuple[int, bytes]:
        """Where a replica starts, and its records."""
        disk = self._simulated.nodes[host].host.disk
        replica = ReplicaBytes(disk, DATA_DIRECTORY, log.topic, log.partition)
        return replica.start, replica.read(replica.start, replica.end)

    def _lost(self) -> list[tuple[PartitionRecord, int]]:
        """Replicas of brokers whose disk is gone, each by its partition and broker."""
        return [
            (record, broker)
            for record in self._records()
            for broker in record.replicas
            if self._simulated.broker_of(self._simulated.host_of(broker)) != broker
        ]

    async def _replace(self, record: PartitionRecord, broker: int) -> None:
        now = self._simulated.broker_of(self._simulated.host_of(broker))
        if now is None or now in record.replicas:
            return
        async with self._operator() as client:
            try:
                await client.admin.move_replica(
                    record.partition, broker, now, timeout_s=_MOVE_TIMEOUT_S
                )
            except OctopiError as error:
                if not may_pass(error):
                    raise
