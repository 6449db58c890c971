"""The topics of all partitions that this broker leads, and the way to those of the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from itertools import count

import attrs
import trio

from octopi.coordination.consistent_hash import HashCircle
from octopi.environment import Clock, Environment
from octopi.errors import (
    ConnectionLostError,
    NotLeaderError,
    NotReadyError,
    RefusedError,
    Status,
    UnknownTopicError,
)
from octopi.identifiers import BrokerId, Epoch, PartitionId, TopicName, topic_name
from octopi.limits import REPLICA_TICK_S, TOPIC_ORDER_S
from octopi.model import StreamDefinition, TopicOptions, TopicRecord
from octopi.ring.cluster_record import PartitionKind
from octopi.ring.homes import Entry, home_of
from octopi.roles.broker.internal_logs import InternalLogs
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.ring.cluster_view import RingView
from octopi.roles.broker.ring.partitions import RingPartitions
from octopi.roles.broker.ring.routes import KnowsBrokers, RingRoutes
from octopi.roles.broker.ring.topics.led import LedTopics
from octopi.roles.broker.ring.topics.ports import TopicCluster
from octopi.roles.broker.subscriptions.broker_subscriptions import leaderships
from octopi.roles.noted_events import NotedEvents
from octopi.roles.topic_service import KeptTopics
from octopi.security.quotas import NOBODY, Creator
from octopi.transport.failures import refusal
from octopi.wire import messages as m


@attrs.frozen
class HomeLeader:
    """The broker that leads a home."""

    is_me: bool
    address: str
    """Empty: it is not known."""


class RingTopics(TopicCluster):
    """Begins with each leadership, and ends with it.  `run` is one task of the broker's nursery."""

    def __init__(
        self,
        environment: Environment,
        replicas: ReplicaManager,
        partitions: RingPartitions,
        routes: RingRoutes,
        known: KnowsBrokers,
        logs: InternalLogs,
        tasks: trio.Nursery,
    ) -> None:
        """*known*: the record of the cluster.  *tasks*: the broker's nursery."""
        self.view = RingView(partitions, routes)
        self._environment = environment
        self._replicas = replicas
        self._partitions = partitions
        self._routes = routes
        self._known = known
        self._hosted = partitions.hosted
        self._logs = logs
        self._tasks = tasks
        self._led: dict[PartitionId, LedTopics] = {}
        self._numbers = count(1)
        self._circle: HashCircle | None = None

    async def run(self) -> None:
        """Look after the leaderships of this broker, until cancelled."""
        clock = self._environment.clock
        while True:
            for partition, one in list(self._led.items()):
                if one.is_over:
                    del self._led[partition]
            for partition, leadership in leaderships(self._replicas, self._led).items():
                led = LedTopics(leadership, self, self._logs, self._hosted, self._tasks)
                self._led[partition] = led
                self._tasks.start_soon(led.begin)
            await clock.sleep_until(clock.now() + REPLICA_TICK_S)

    @property
    def topic_count(self) -> int:
        """The number of topics whose records this broker keeps now, as it leads their homes."""
        return sum(len(one.topics) for one in self._led.values() if one.is_ready)

    def led(self, partition: PartitionId) -> LedTopics:
        """The topics of a partition that this broker leads.

        Raises:
          NotLeaderError: if it doesn't.
          NotReadyError: if it has just begun to.
        """
        found = self._led.get(partition)
        if found is None or found.is_over:
            raise NotLeaderError(f"this broker does not lead partition {partition}")
        if not found.is_ready:
            raise NotReadyError(f"this broker has just begun to lead partition {partition}")
        return found

    def home_of(self, name: str) -> PartitionId:
        """The home of the topic *name*.

        Raises:
          InvalidTopicError: if that is no name of a topic.
          NotReadyError: if the record of the cluster is not known yet.
        """
        checked = topic_name(name)
        record = self._known.record
        if record is None:
            raise NotReadyError("this broker does not know the record of its cluster yet")
        if self._circle is None:
            self._circle = HashCircle(record.home_count)  # which never changes
        return home_of(checked, self._circle)

    def homes_by_leader(self) -> dict[BrokerId, list[PartitionId]]:
        """All homes, by the brokers that lead them as far as it is known here."""
        record = self._known.record
        found: dict[BrokerId, list[PartitionId]] = {}
        for number in range(0 if record is None else record.home_count):
            partition = PartitionId(number)
            found.setdefault(self._partitions.leader(partition), []).append(partition)
        return found

    def leader(self, home: PartitionId) -> HomeLeader:
        """Who leads *home*, as far as it is known here.

        Raises:
          NotReadyError: if nothing is known.
        """
        broker = self._partitions.leader(home)
        is_me = broker == self._partitions.me.broker
        return HomeLeader(is_me, self._routes.addresses().get(broker, ""))

    async def receive(self, order: m.HostTopic) -> None:
        """Another broker orders something about a topic.

        Raises:
          OctopiError: if it is not known to be carried out.
        """
        await self.led(order.partition).host(order)

    # --- for the topics of a partition ---------------------------------------------------------

    @property
    def clock(self) -> Clock:
        return self._environment.clock

    @property
    def events(self) -> NotedEvents:
        return self._partitions.events

    @property
    def partition_count(self) -> int:
        record = self._known.record
        return 0 if record is None else record.partition_count(PartitionKind.LOG)

    def replicas(self, partition: PartitionId) -> Collection[BrokerId]:
        machine = self._partitions.partition(partition)
        return () if machine is None else machine.agreed.record.replicas

    def handed_over(self, partition: PartitionId) -> Sequence[Entry] | None:
        record, hand_over = self._known.record, self._partitions.hand_over
        if record is None or partition >= record.taken_over:
            return None
        if hand_over is None:
            raise NotReadyError(
                f"the topics of partition {partition} are not in its log yet, and this broker "
                "joined after a register had handed them over"
            )
        return hand_over.topic_entries(partition)

    def require_open(self, partition: PartitionId) -> None:
        record, machine = self._known.record, self._partitions.partition(partition)
        ending = None if record is None else record.ending
        # The value by which this broker leads may say more than the record that it knows.
        rests_in = 0 if machine is None else machine.agreed.ending
        is_newer = rests_in > (0 if ending is None else ending.attempt)
        if is_newer or (ending is not None and (ending.is_under_way or ending.is_over)):
            raise NotReadyError(
                "the brokers are handing their cluster over to a register: topics can be created, "
                "altered and deleted again in a moment"
            )

    def is_at_rest(self, partition: PartitionId) -> Epoch | None:
        """The epoch in which this broker leads *partition* and has finished all that was begun
        about topics; None: it doesn't, or hasn't."""
        found = self._led.get(partition)
        return found.leadership.epoch if found is not None and found.is_at_rest else None

    def new_id(self) -> str:
        return self._environment.randomness.token_bytes(8).hex()

    def next_number(self) -> int:
        return next(self._numbers)

    async def order(self, order: m.HostTopic) -> None:
        leader = self._partitions.leader(order.partition)
        if leader == self._partitions.me.broker:
            await self.receive(order)
            return
        answered = trio.Event()
        answers: list[object] = []

        def take(answer: object) -> None:
            answers.append(answer)
            answered.set()

        self._routes.ask(leader, order, take)
        with self.clock.timeout(TOPIC_ORDER_S / 2):
            await answered.wait()
        match answers:
            case [m.TopicHosted()]:
                return
            case [m.Failure() as failure]:
                raise refusal(failure)
            case [ConnectionLostError() as error]:
                raise error
        raise NotReadyError(f"broker {leader} did not answer in time")


class HomesTopics(KeptTopics):
    """The topics of some homes, all of which this broker leads."""

    def __init__(self, topics: RingTopics, homes: Sequence[PartitionId]) -> None:
        """*homes*: one, if the topic is named.

        Raises:
          NotLeaderError, NotReadyError: if this broker doesn't lead one of them, or not yet.
        """
        self._topics = topics
        self._led = [topics.led(one) for one in homes]

    def ready(self, name: str) -> TopicRecord | None:
        return next((found for one in self._led if (found := one.known(name))), None)

    newest = ready

    def info(self, record: TopicRecord) -> m.TopicInfo:
        return self._topics.view.topic(record)

    async def find(self, name: str, *, creator: Creator | None) -> TopicRecord:
        checked = topic_name(name)
        found = await self._home(name).settled(checked)
        if found is not None:
            return found
        if creator is None:
            raise UnknownTopicError(f"there is no topic {name}")
        return await self.create(checked, creator=creator)

    async def create(
        self,
        name: str,
        *,
        partition_count: int = 1,
        partitions: list[PartitionId] | None = None,
        beside: str = "",
        options: TopicOptions | None = None,
        creator: Creator = NOBODY,
        stream: StreamDefinition | None = None,
    ) -> TopicRecord:
        if beside:
            raise RefusedError(
                f"the broker that was asked did not say which partitions topic {beside} has",
                Status.INVALID_OPTION,
            )
        create = partial(self._home(name).create, topic_name(name), partition_count, partitions)
        return await create(options or TopicOptions(), creator, stream)

    async def alter(self, name: str, options: TopicOptions, names: Collection[str]) -> TopicRecord:
        return await self._home(name).alter(topic_name(name), options, names)

    async def delete(self, name: str) -> None:
        await self._home(name).delete(topic_name(name))

    async def delete_by_id(self, topic_id: str) -> None:
        for one in self._led:
            for topic in list(one.topics.values()):
                if topic.topic.topic_id == topic_id:
                    await one.delete(TopicName(topic.topic.topic))
                    return
        raise UnknownTopicError(f"there is no topic with id {topic_id}")

    def page(self, after: str, count_max: int) -> list[TopicRecord]:
        found = [
            one
            for led in self._led
            for name in led.topics
            if name > after and (one := led.known(name)) is not None
        ]
        return sorted(found, key=lambda one: one.topic)[: max(1, count_max)]

    def _home(self, name: str) -> LedTopics:
        """The topics among which *name* is.

        Raises:
          InvalidTopicError: if that is no name of a topic.
          NotReadyError: if it is none of these homes.
        """
        home = self._topics.home_of(name)
        for one in self._led:
            if one.partition == home:
                return one
        raise NotReadyError(f"partition {home} keeps the record of topic {name}: ask its leader")
