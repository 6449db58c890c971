"""Carries out the order to have the logs of topics: makes those that are missing, and alters
those whose topic has other options now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from octopi.environment import Environment
from octopi.errors import StorageError
from octopi.identifiers import PartitionId
from octopi.limits import LOGS_MADE_AT_ONCE_MAX
from octopi.roles.broker.alteration import alter_log
from octopi.roles.broker.broker_health import BrokerHealth
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.log_store import LogStore
from octopi.roles.broker.order_parts import at_once
from octopi.roles.broker.replica_driver import ReplicaDriver
from octopi.wire import messages as m
from octopi.wire.messages import TopicRecord

_Wanted: TypeAlias = tuple[TopicRecord, PartitionId]
"""A topic that is to have a log in a partition."""


class TopicInstallation:
    """Gives the replicas of a broker the logs that its controller wants them to have."""

    def __init__(
        self,
        environment: Environment,
        store: LogStore,
        replicas: Mapping[PartitionId, ReplicaDriver],
        health: BrokerHealth,
    ) -> None:
        self._environment = environment
        self._store = store
        self._replicas = replicas
        self._health = health

    async def install(self, topics: Sequence[TopicRecord]) -> list[m.Undone]:
        """Ensure that there is a log of each of *topics* in each of its partitions that this broker
        holds, by the topic's options; return the ones that failed, with reasons."""
        wanted = [(topic, partition) for topic in topics for partition in topic.partitions]
        undone: dict[str, m.Undone] = {}
        for at in range(0, len(wanted), LOGS_MADE_AT_ONCE_MAX):
            await self._install(wanted[at : at + LOGS_MADE_AT_ONCE_MAX], undone)
        return list(undone.values())

    async def _install(self, wanted: Sequence[_Wanted], undone: dict[str, m.Undone]) -> None:
        """Ensure that there are the logs *wanted*, as far as this broker holds their partitions;
        add the topics that failed to *undone*, by their ids."""
        held = [one for one in wanted if one[1] in self._replicas]
        replicas = {partition: self._replicas[partition] for _, partition in held}

        def fail(topic: TopicRecord, partition: PartitionId, error: StorageError) -> None:
            undone[topic.topic_id] = self._health.undone(error, [partition], topic.topic_id)

        made = await self._store.create(held)
        for topic, partition in held:  # at once: a log that is in the store may be removed
            match made.get((topic.topic, partition)):
                case LocalLog() as log:
                    replicas[partition].add_log(log)
                    self._health.done(partition, topic.topic_id)
                case StorageError() as error:
                    fail(topic, partition, error)

        async def alter(one: _Wanted) -> None:
            topic, partition = one
            if (log := self._store.logs.get((topic.topic, partition))) is not None:
                try:
                    await alter_log(self._environment, replicas[partition], log, topic)
                    self._health.done(partition, topic.topic_id)
                except StorageError as error:
                    fail(topic, partition, error)

        await at_once(alter, [one for one in held if (one[0].topic, one[1]) not in made])
