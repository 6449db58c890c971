"""The durable subscriptions of all partitions that this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Container
from itertools import count

import trio

from octopi.environment import Environment
from octopi.errors import NotLeaderError, RefusedError
from octopi.identifiers import PartitionId, TopicId, TopicName
from octopi.limits import REPLICA_TICK_S
from octopi.metrics.subscription_counts import SubscriptionCounts
from octopi.replication.effects import Answer
from octopi.replication.partition_leader import PartitionLeader
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.redirects import redirect
from octopi.roles.broker.replica_driver import ReplicaDriver
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.subscriptions.led_partition import LedPartition
from octopi.roles.broker.subscriptions.ports import Leadership, StateLogs
from octopi.storage.time_slices import in_groups


class ReplicaLeadership:
    """The leadership that a replica of this broker has; see `Leadership`."""

    def __init__(
        self, manager: ReplicaManager, replica: ReplicaDriver, leader: PartitionLeader
    ) -> None:
        self.partition = replica.partition
        self.epoch = leader.epoch
        self._manager = manager
        self._replica = replica
        self._leader = leader

    @property
    def is_over(self) -> bool:
        """Whether this broker leads no more, or leads anew, or may not serve clients now."""
        is_led = self._replica.leads and self._replica.machine.leader is self._leader
        return not is_led or self._manager.fence(self.partition) is not None

    def log(self, topic_id: TopicId) -> LocalLog | None:
        """The partition's log of a topic."""
        return self._replica.logs.get(topic_id)

    def log_named(self, topic: TopicName) -> LocalLog | None:
        """The partition's log of the topic that has that name now."""
        try:
            return self._manager.store.find(topic, self.partition)
        except RefusedError:
            return None

    def is_removed(self, topic_id: TopicId) -> bool:
        """See `Leadership`."""
        return self._manager.store.is_removed(topic_id)

    def produce(self, log: LocalLog, records: bytes, done: Answer) -> None:
        """See `Leadership`."""
        self._replica.produce(log, records, done)

    def redirect(self) -> NotLeaderError:
        """Says who leads."""
        reason = f"this broker does not lead partition {self.partition} any more"
        return redirect(self._manager, reason, self.partition)


def leaderships(
    manager: ReplicaManager, known: Container[PartitionId]
) -> dict[PartitionId, Leadership]:
    """Those that this broker has at this moment, but for the *known* partitions."""
    return {
        replica.partition: ReplicaLeadership(manager, replica, replica.machine.leader)
        for replica in manager.replicas
        if replica.partition not in known
        and replica.leads
        and replica.machine.leader is not None
        and manager.fence(replica.partition) is None
    }


class BrokerSubscriptions:
    """Begins with each leadership, and ends with it."""

    def __init__(
        self,
        environment: Environment,
        states: StateLogs,
        leaderships: Callable[[Container[PartitionId]], dict[PartitionId, Leadership]],
        tasks: trio.Nursery,
    ) -> None:
        """*leaderships*: those that this broker has now, but for the partitions that it is given.
        *tasks*: the broker's nursery."""
        self._environment = environment
        self._states = states
        self._leaderships = leaderships
        self._tasks = tasks
        self._led: dict[PartitionId, LedPartition] = {}
        self._sessions = count(1)
        self.counts = SubscriptionCounts()

    async def run(self) -> None:
        """Look after all of them, until cancelled."""
        clock = self._environment.clock
        while True:
            await clock.sleep_until(clock.now() + REPLICA_TICK_S)
            self._see_to_leaderships()
            for some in in_groups(list(self._led.values())):
                for one in some:
                    one.look(clock.now())
                await trio.lowlevel.checkpoint()

    def _see_to_leaderships(self) -> None:
        for partition, one in list(self._led.items()):
            if one.leadership.is_over:
                one.end()
            if one.has_ended:
                del self._led[partition]
        for partition, leadership in self._leaderships(self._led).items():
            begun = self._led[partition] = LedPartition(
                self._environment,
                leadership,
                self._states,
                self._sessions.__next__,
                self.counts,
                self._tasks,
            )
            self._tasks.start_soon(begun.begin)

    def led(self, partition: PartitionId) -> LedPartition:
        """The subscriptions of *partition*.

        Raises:
          NotLeaderError: if this broker doesn't lead it.
        """
        one = self._led.get(partition)
        if one is None or one.has_ended or one.leadership.is_over:
            self._see_to_leaderships()
            one = self._led.get(partition)
        if one is None:
            raise NotLeaderError(f"this broker does not lead partition {partition}")
        return one

    def all_led(self) -> list[LedPartition]:
        """Those of all partitions, for looking."""
        return list(self._led.values())

    async def prepare(self, partition: PartitionId) -> None:
        """Have all marks of *partition* committed, before another broker leads it."""
        if (one := self._led.get(partition)) is not None:
            await one.store_all()

    async def prepare_all(self) -> None:
        """The same for all partitions: this broker is to stop."""
        async with trio.open_nursery() as nursery:
            for one in list(self._led.values()):
                nursery.start_soon(one.store_all)
