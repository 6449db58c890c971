"""Carries out orders about topics: each topic gets a log in each of its partitions that this broker
holds, and the log goes by the topic's options."""

from __future__ import annotations

from collections.abc import Mapping

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
from octopi.wire.messages import TopicRecord, Undone

_Wanted = tuple[TopicRecord, PartitionId]


class TopicInstallation:
    """Installs the topics of one order after the other."""

    def __init__(
        self,
        environment: Environment,
        store: LogStore,
        replicas: Mapping[PartitionId, ReplicaDriver],
        status: BrokerHealth,
    ) -> None:
        """*replicas*: those of this broker now."""
        self._environment = environment
        self._store = store
        self._replicas = replicas
        self._status = status

    async def install(
        self, topics: list[TopicRecord], only: PartitionId | None = None
    ) -> list[Undone]:
        """Install *topics*, in all of their partitions or one *only*; return the ones that failed,
        with reasons."""
        wanted = [
            (topic, partition)
            for topic in topics
            for partition in topic.log_partitions
            if only in {None, partition}
        ]
        undone: dict[str, Undone] = {}
        for at in range(0, len(wanted), LOGS_MADE_AT_ONCE_MAX):
            await self._install_logs(wanted[at : at + LOGS_MADE_AT_ONCE_MAX], undone)
        return list(undone.values())

    async def _install_logs(self, wanted: list[_Wanted], undone: dict[str, Undone]) -> None:
        """Ensure that there are the logs *wanted*, as far as this broker holds their partitions;
        add the topics that failed to *undone*, by their ids."""
        held = [one for one in wanted if one[1] in self._replicas]
        replicas = {partition: self._replicas[partition] for _, partition in held}

        def fail(topic: TopicRecord, partition: PartitionId, error: StorageError) -> None:
            undone[topic.topic_id] = self._status.undone(error, [partition], topic.topic_id)

        made = await self._store.create(held)
        for topic, partition in held:  # at once: a log that is in the store may be removed
            match made.get((topic.topic, partition)):
                case LocalLog() as log:
                    replicas[partition].add_log(log)
                    self._status.done(partition, topic.topic_id)
                case StorageError() as error:
                    fail(topic, partition, error)

        async def alter(one: _Wanted) -> None:
            topic, partition = one
            if (log := self._store.logs.get((topic.topic, partition))) is not None:
                try:
                    await alter_log(self._environment, replicas[partition], log, topic)
                    self._status.done(partition, topic.topic_id)
                except StorageError as error:
                    fail(topic, partition, error)

        await at_once(alter, [one for one in held if (one[0].topic, one[1]) not in made])
