"""Waits until a cluster is at rest, and does what an operator does for that.

`octopi.simulation.quiescence` determines what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Final

from octopi.clients.client import Client
from octopi.errors import OctopiError
from octopi.identifiers import BrokerId, Offset, PartitionId, TopicName
from octopi.record import Message, decode
from octopi.retry import may_pass
from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.disk.log_bytes import ReplicaBytes
from octopi.simulation.history.events import LogName
from octopi.simulation.quiescence import Quiescence
from octopi.wire.messages import PartitionRecord

_MOVE_TIMEOUT_S: Final = 20.0


class Settling:
    """Settles *simulated*.  *operator* opens a client that may move replicas.  *replace_unfit*
    replaces disks, and returns the names of hosts that still need another disk."""

    def __init__(
        self,
        simulated: SimulatedCluster,
        operator: Callable[[], AbstractAsyncContextManager[Client]],
        replace_unfit: Callable[[], str],
    ) -> None:
        self._simulated = simulated
        self._operator = operator
        self._replace_unfit = replace_unfit
        self._rest = Quiescence(simulated)

    async def problem(self) -> str:
        """Why the cluster is not at rest; empty if it is.

        This does what an operator does (docs/operations.md): a broker that lost its disk gets the
        replicas of the broker that ran on its host before.
        """
        unfit = self._replace_unfit()
        if unfit:
            return f"{unfit} needs another disk"
        waiting = self._rest.not_serving()
        if waiting:
            return f"{waiting} doesn't serve"
        for record, broker in self._rest.lost():
            await self._replace(record, broker)
            return f"partition {record.partition} counts on a broker that is gone"
        for record, behind in self._rest.behind():
            hosts = sorted(map(self._simulated.host_of, behind))
            return f"{', '.join(hosts)} is not in sync on partition {record.partition}"
        for log in self._names():
            if len(set(map(_records_of, self._rest.replicas(log)))) > 1:
                return f"the replicas of {log} differ"
        return ""

    def logs(self) -> Iterator[tuple[LogName, list[Message]]]:
        """All logs, with the messages that their leaders have."""
        for log in self._names():
            leader = self._rest.replica(self._simulated.leader(log.partition), log)
            start, data = _records_of(leader)
            topic, partition = TopicName(log.topic), PartitionId(log.partition)
            yield log, decode(data, Offset(start), topic, partition)

    def _names(self) -> list[LogName]:
        state = self._simulated.decided.state
        return [
            LogName(topic.topic, partition)
            for topic in state.topics_after("", state.topic_count)
            for partition in topic.partitions
        ]

    async def _replace(self, record: PartitionRecord, broker: BrokerId) -> None:
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


def _records_of(replica: ReplicaBytes) -> tuple[int, bytes]:
    """The offset where a replica starts, and its records."""
    return replica.start, replica.read(replica.start, replica.end)
