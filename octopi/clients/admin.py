"""Operating a cluster: its brokers, partitions, replicas and durable subscriptions.

An attempt whose answer was lost may have been carried out.  For an operation that must not be
carried out twice, the next attempt therefore looks at the cluster first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Literal

from octopi.clients.answers import (
    BrokerCount,
    BrokerLog,
    BrokerReading,
    ClusterInfo,
    ClusterLoads,
    NodeInfo,
    PartitionWork,
)
from octopi.clients.consuming.start_position import Start
from octopi.clients.log_pages import counted_logs, described_logs
from octopi.clients.options import not_negative, within
from octopi.clients.reshaping import (
    GROW_CALL_TIMEOUT_S,
    add_partitions,
    grow_topic,
    move_replica,
    move_topic,
)
from octopi.clients.routing import RequestRouter
from octopi.clients.subscribing.administration import (
    Creation,
    MarkReset,
    SubscriptionAdministration,
    SubscriptionStatus,
)
from octopi.clients.subscribing.subscription_options import subscription_options
from octopi.errors import ConnectionLostError, UnknownTopicError
from octopi.identifiers import BrokerId, PartitionId, topic_name
from octopi.limits import (
    DRAIN_TIMEOUT_S,
    LIST_COUNT_MAX,
    MOVE_TIMEOUT_S,
    PARTITIONS_PER_TOPIC_MAX,
)
from octopi.model import SubscriptionDefinition
from octopi.wire.messages import (
    LOAD_UNIT,
    BrokerInfo,
    ClusterDescription,
    DeleteTopic,
    DeleteTopicById,
    DescribeCluster,
    DescribeEvents,
    DescribeLoads,
    DescribeReadings,
    Done,
    DrainBroker,
    EventList,
    ListTopics,
    LoadList,
    PartitionRecovery,
    ReadingList,
    RecoverPartition,
    RemoveBroker,
    SetRelays,
    TopicInfo,
    TopicList,
)


class Admin:
    """Operates a cluster.  Made by `Client`, as its attribute ``admin``.

    All calls are retried, and raise errors, as those of `Client` do.
    """

    def __init__(self, router: RequestRouter) -> None:
        self._router = router
        self._subscriptions = SubscriptionAdministration(router)

    async def describe_cluster(self) -> ClusterInfo:
        """The brokers and partitions of the cluster."""
        found = await _describe(self._router)
        return ClusterInfo(
            found.cluster,
            found.topic_count,
            found.partition_count,
            found.brokers,
            found.partitions,
            found.learns,
            found.learns_from,
            found.unserved,
            found.relays,
        )

    async def describe_loads(self) -> ClusterLoads:
        """How much brokers have to do.

        Raises:
          RefusedError: INVALID_OPTION in a cluster without a register, UNSUPPORTED_VERSION if the
              node is of an earlier version.
        """
        found = await self._router.ask_register("describe loads", DescribeLoads, LoadList)
        return ClusterLoads(
            found.is_on,
            found.goes_by_load,
            found.moved_count,
            {
                one.broker: None if one.load is None else one.load / LOAD_UNIT
                for one in found.brokers
            },
            [
                PartitionWork(one.partition, one.load / LOAD_UNIT, one.hot, one.topic)
                for one in found.partitions
            ],
        )

    async def describe_node(self, address: str | None = None) -> NodeInfo:
        """The program, version and uptime of the node at *address*; None: of the node that this
        client's questions go to, which is the first of its servers while that answers."""
        return await self._router.describe_node(address)

    async def describe_logs(
        self, topic: str | None = None, *, brokers: Iterable[BrokerInfo] | None = None
    ) -> list[BrokerLog]:
        """The logs of *topic* (None: of all topics), once for each broker that holds one.

        *brokers*: the brokers to ask, as `describe_cluster` returned them; None: all live ones.
        They are asked one after the other, so the answers are not from one moment.

        Raises:
          UnknownTopicError: if there is no such topic.
        """
        name, asked = await self._named(topic), await self._asked(brokers)
        logs = [
            BrokerLog(broker.broker, broker.address, log)
            for broker in asked
            for log in await described_logs(self._router, broker, name)
        ]
        return sorted(logs, key=lambda one: (one.log.topic, one.log.partition, one.broker))

    async def count_messages(
        self, topic: str | None = None, *, brokers: Iterable[BrokerInfo] | None = None
    ) -> list[BrokerCount]:
        """How many committed messages the logs of *topic* (None: of all topics) have, once for each
        broker that holds one.  *brokers*: see `describe_logs`.

        Raises:
          UnknownTopicError: if there is no such topic.
          RefusedError: UNSUPPORTED_VERSION, if a broker is of a version that doesn't count.
        """
        name, asked = await self._named(topic), await self._asked(brokers)
        counts = [
            BrokerCount(broker.broker, broker.address, log)
            for broker in asked
            for log in await counted_logs(self._router, broker, name)
        ]
        return sorted(counts, key=lambda one: (one.log.topic, one.log.partition, one.broker))

    async def _named(self, topic: str | None) -> str:
        """The name of *topic*, which has to exist; empty for None, which means all topics."""
        if topic is None:
            return ""
        return (await self._router.describe_topic(topic_name(topic))).topic

    async def _asked(self, brokers: Iterable[BrokerInfo] | None) -> Iterable[BrokerInfo]:
        """*brokers*; all live ones instead of None."""
        if brokers is not None:
            return brokers
        return [one for one in (await self.describe_cluster()).brokers if one.live]

    async def describe_readings(self, topic: str | None = None) -> list[BrokerReading]:
        """The open readings of *topic* (None: of all topics): one for each log that a consumer
        reads.  Those that are farthest behind come first.

        The live brokers are asked one after the other.  A broker describes at most 2,000 readings.

        Raises:
          UnknownTopicError: if there is no such topic.
        """
        name = await self._named(topic)
        found: list[BrokerReading] = []
        for broker in await self._asked(None):
            answer = await self._router.ask_broker(
                f"describe the readings of broker {broker.broker}",
                broker.address,
                lambda request: DescribeReadings(request, name),
                ReadingList,
            )
            some = answer.readings
            found += [BrokerReading(broker.broker, broker.address, one) for one in some]
        return sorted(found, key=lambda one: one.reading.least_lag_bytes, reverse=True)

    async def describe_events(self, after: int = 0) -> EventList:
        """What the register decided and saw lately, the oldest first: at most the newest 1,000.

        *after*: leave out the events up to this number.  The numbers begin anew, and
        `EventList.life` changes, when the register is started.
        """
        not_negative(after=after)
        return await self._router.ask_register(
            "describe events", lambda request: DescribeEvents(request, after), EventList
        )

    async def create_subscription(
        self,
        topic: str,
        name: str,
        *,
        mode: Literal["exclusive", "failover", "shared", "key_shared"] = "exclusive",
        start: Literal["earliest", "latest"] = "earliest",
        session_timeout_s: float = 10.0,
        release_timeout_s: float = 10.0,
        expires: timedelta | None = timedelta(days=7),
        attempts: int | None = 5,
        ack_timeout_s: float = 30.0,
        window: int = 1_000,
        exist_ok: bool = False,
    ) -> SubscriptionDefinition:
        """Create a durable subscription, with its mark at *start* in each log.  The options are
        those of `Client.subscription`.  For a queue (``shared``, ``key_shared``) this also creates
        the topic for its dead letters, on the same partitions.

        Raises:
          SubscriptionExistsError: if it exists (unless *exist_ok*, and it is the same).
          UnknownTopicError: if there is no such topic.
          InvalidOptionError: if an option is out of its range, or not for that mode.
        """
        options = subscription_options(
            mode, session_timeout_s, release_timeout_s, expires, attempts, ack_timeout_s, window
        )
        info = await self._router.describe_topic(topic_name(topic))
        create: Creation = "create_or_attach" if exist_ok else "create"
        return await self._subscriptions.have(info, name, mode, options, start, create)

    async def describe_subscription(self, topic: str, name: str) -> SubscriptionStatus:
        """A durable subscription, its members, and how far it is in each log.

        Raises:
          UnknownTopicError, UnknownSubscriptionError: if there is no such topic or subscription.
        """
        return await self._subscriptions.describe(topic, name)

    async def subscriptions(self, topic: str | None = None) -> list[SubscriptionDefinition]:
        """The durable subscriptions of *topic* (None: of all topics), in the order of topic and
        name.

        Raises:
          UnknownTopicError: if there is no such topic.
        """
        if topic is not None:
            return await self._subscriptions.of_topic(topic)
        names = [one.topic for one in await list_topics(self._router)]
        return [one for name in names for one in await self._subscriptions.of_topic(name)]

    async def reset_subscription(
        self,
        topic: str,
        name: str,
        to: Start,
        *,
        partition: int | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> list[MarkReset]:
        """Set the marks of a durable subscription to *to*, which is given as the start of a
        consumer is; in one *partition*, or in all (None).  Return what was done, or, with
        *dry_run*, what would be done.

        With *force*, a log that a member has is taken from it, and given back with the new mark.

        Raises:
          SubscriptionBusyError: if a member has a log, unless *force*.
          UnknownTopicError, UnknownSubscriptionError: if there is no such topic or subscription.
          InvalidOptionError: if *to* is no place in the topic.
          OffsetOutOfRangeError, OffsetInsideRecordError: if no record starts at an offset.
        """
        return await self._subscriptions.reset(
            topic, name, to, partition=partition, force=force, dry_run=dry_run
        )

    async def delete_subscription(self, topic: str, name: str) -> None:
        """Delete a durable subscription; its members are told.  The dead letters of a queue stay
        in their topic.

        Raises:
          UnknownTopicError, UnknownSubscriptionError: if there is no such topic or subscription.
        """
        await self._subscriptions.delete(topic, name)

    async def drain_broker(self, broker: int, *, timeout_s: float = DRAIN_TIMEOUT_S) -> None:
        """Hand the leaderships of *broker* to other in-sync replicas, and return when it leads
        no partition.  It leads none again until it has rejoined the cluster.

        Raises:
          RefusedError: INVALID_OPTION, if there is no such broker; NOT_READY, if for some
              partitions no other replica could lead within *timeout_s*: it still leads those.
        """
        not_negative(broker=broker)
        await self._router.retry(
            f"drain broker {broker}",
            lambda: self._router.ask_register_once(
                lambda request: DrainBroker(request, BrokerId(broker)), Done, timeout_s
            ),
            timeout_s,
        )

    async def remove_broker(self, broker: int) -> None:
        """Remove *broker*, which is gone for good, from the cluster.  Its id is never reused.

        Raises:
          RefusedError: INVALID_OPTION, if there is no such broker; BROKER_IN_USE, if it runs or
              holds replicas.
        """
        not_negative(broker=broker)
        what = f"remove broker {broker}"
        await self._router.ask_register(
            what, lambda request: RemoveBroker(request, BrokerId(broker)), Done
        )

    async def add_partitions(self, count: int) -> int:
        """Add *count* partitions, for topics that are created from now on; return the number of
        partitions of the cluster.

        Raises:
          RefusedError: INVALID_OPTION, if there would be too many.
        """
        not_negative(count=count)
        return await add_partitions(self._router, count)

    async def move_replica(
        self, partition: int, leaving: int, joining: int, *, timeout_s: float = MOVE_TIMEOUT_S
    ) -> None:
        """Move a replica of *partition* from the broker *leaving* to the broker *joining*.  Return
        when the new one is in sync and the old one is gone.

        After a cancellation or time-out both brokers may hold a replica.  Call it again: the
        register continues the move.

        Raises:
          RefusedError: UNKNOWN_PARTITION, if the partition lies on no broker; INVALID_OPTION,
              if *leaving* holds no replica or there is no broker *joining*; NO_BROKER, if
              *joining* doesn't run; NOT_READY, if it isn't in sync in time.
        """
        not_negative(partition=partition, leaving=leaving, joining=joining)
        await move_replica(self._router, partition, leaving, joining, timeout_s)

    async def grow_topic(
        self, topic: str, partitions: int, *, timeout_s: float = GROW_CALL_TIMEOUT_S
    ) -> TopicInfo:
        """Have a topic grow to so many *partitions*, while it is in use.  Return it when they are
        in force: from then on keys choose one of all of them.

        No message is copied.  Messages to the topic wait a moment, and every client has to be of a
        version that can follow.

        Raises:
          UnknownTopicError: if there is no such topic.
          RefusedError: INVALID_OPTION, if the topic can't grow to that, or is a stream over HTTP,
              or the cluster has no register; WRONG_KIND, if it is in memory; NO_BROKER, if a broker
              with its logs is away or of an earlier version; NOT_READY, if it is getting other
              partitions already, or a leader didn't confirm in time: it keeps those that it has.
        """
        within("partitions", partitions, 1, PARTITIONS_PER_TOPIC_MAX)
        return await grow_topic(self._router, topic_name(topic), partitions, timeout_s)

    async def move_topic(
        self, topic: str, partition: int, *, timeout_s: float = GROW_CALL_TIMEOUT_S
    ) -> TopicInfo:
        """Have a topic of one partition go on in another *partition*, while it is in use.  Return
        it when that is in force: see `grow_topic`.

        What is stored stays where it is, and consumers read it first.

        Raises:
          RefusedError: UNKNOWN_PARTITION, if the cluster has no such partition; INVALID_OPTION, if
              the topic has several, or a sealed log in that one.  Otherwise as `grow_topic`.
        """
        within("partition", partition, 0, LIST_COUNT_MAX - 1)
        return await move_topic(self._router, topic_name(topic), partition, timeout_s)

    async def set_relays(
        self, partition: int, members: Sequence[int], *, timeout_s: float = MOVE_TIMEOUT_S
    ) -> None:
        """Give a relay partition these *members*.  One after the other is added or removed; return
        when the last of these changes is in force.  After a time-out, call it again.

        They stay members while they are there.  With an empty list the register may move them
        again, so that each broker is in about as many sets as others.

        Raises:
          RefusedError: UNKNOWN_PARTITION; INVALID_OPTION, if there is no such broker, two are on
              one host, or they are too few; NO_BROKER, if a new one doesn't run; NOT_READY, if the
              members didn't bring a change into force in time.
        """
        not_negative(partition=partition)
        wanted = [BrokerId(one) for one in members]
        await self._router.retry(
            f"set the members of relay partition {partition}",
            lambda: self._router.ask_register_once(
                lambda request: SetRelays(request, PartitionId(partition), wanted), Done, timeout_s
            ),
            timeout_s,
        )

    async def recover_partition(
        self, partition: int, *, accept_loss: bool = False, empty_on: int | None = None
    ) -> PartitionRecovery:
        """Recover a partition that has no leader.  Return what its replicas hold, and what is known
        to be lost if the best of the answering replicas leads.  With *accept_loss* that replica
        becomes the leader, and messages that were acknowledged may be lost; otherwise nothing
        changes.

        *empty_on*: for a partition none of whose replicas will come back.  With *accept_loss* the
        partition starts empty on this broker, and all messages that it had are lost.

        Raises:
          RefusedError: UNKNOWN_PARTITION, if the partition lies on no broker; INVALID_OPTION,
              while an in-sync replica runs (with *empty_on*: while any replica runs), or if there
              is no such broker; NO_BROKER, with *accept_loss*, if no replica runs, or the broker
              *empty_on* doesn't.
          NotReadyError: if the partition will be available without that; wait.
        """
        not_negative(partition=partition)
        return await self._router.ask_register(
            f"recover partition {partition}",
            lambda request: RecoverPartition(
                request,
                PartitionId(partition),
                accept_loss,
                None if empty_on is None else BrokerId(empty_on),
            ),
            PartitionRecovery,
        )

    async def delete_topic_by_id(self, topic_id: str) -> None:
        """Delete the topic with this id, and its messages on all brokers.  It may be a topic whose
        name is not legal, so `Client.delete_topic` doesn't accept it, or one that only brokers
        know (`ClusterInfo.unserved`).

        Raises:
          UnknownTopicError: if there is no such topic.
        """
        await delete(
            self._router,
            f"delete the topic with id {topic_id}",
            lambda request: DeleteTopicById(request, topic_id),
        )


async def delete(
    router: RequestRouter, what: str, question: Callable[[int], DeleteTopic | DeleteTopicById]
) -> None:
    """Delete a topic.

    Raises:
      UnknownTopicError: if there is no such topic.
    """
    is_lost = False

    async def attempt() -> None:
        nonlocal is_lost
        try:
            await router.ask_register_once(question, Done)
        except ConnectionLostError:
            is_lost = True
            raise
        except UnknownTopicError:
            if not is_lost:  # otherwise an attempt whose answer was lost may have deleted it
                raise

    await router.retry(what, attempt)


async def _describe(router: RequestRouter) -> ClusterDescription:
    return await router.ask_register("describe the cluster", DescribeCluster, ClusterDescription)


async def list_topics(router: RequestRouter) -> list[TopicInfo]:
    """All topics, in the order of their names."""
    topics: list[TopicInfo] = []
    while True:
        after = topics[-1].topic if topics else ""

        def question(request: int, after: str = after) -> ListTopics:
            return ListTopics(request, after, LIST_COUNT_MAX // 10)

        page = await router.ask_register("list topics", question, TopicList)
        topics += page.topics
        if not page.more or not page.topics:
            return topics
