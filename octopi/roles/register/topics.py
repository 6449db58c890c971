"""Topics of a register: creates, finds and deletes them, and has brokers carry that out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection

import attrs
import trio

from octopi.coordination.controller import Controller
from octopi.coordination.decisions import (
    TopicAlterationDecision,
    TopicCreationDecision,
    TopicDeletionDecision,
)
from octopi.coordination.topic_placement import TopicPlacement
from octopi.environment import Environment
from octopi.errors import InvalidTopicError, NotReadyError, OctopiError, Status
from octopi.identifiers import BrokerId, PartitionId, system_name_fault, topic_name
from octopi.limits import LIST_COUNT_MAX
from octopi.logger import get_logger
from octopi.roles.register.decision_log import DecisionLog
from octopi.roles.register.gathering import Gathering
from octopi.roles.register.members import Members
from octopi.roles.register.register_tracer import RegisterTracer
from octopi.roles.register.relay_sets import RelaySets
from octopi.roles.topic_service import KeptTopics
from octopi.security.quotas import NOBODY, Creator
from octopi.wire.messages import (
    RemovedTopic,
    StreamDefinition,
    TopicInfo,
    TopicKind,
    TopicOptions,
    TopicRecord,
)

_log = get_logger(__name__)


class Topics(KeptTopics):
    """The topics of one register, from an order to the brokers that carried it out."""

    def __init__(
        self,
        environment: Environment,
        controller: Controller,
        decisions: DecisionLog,
        tracer: RegisterTracer,
        gathering: Gathering,
        members: Members,
        relay_sets: RelaySets,
        placement: Callable[[], TopicPlacement],
        tasks: trio.Nursery,
    ) -> None:
        """*placement*: what the partitions of a new topic are chosen by.  *tasks*: the nursery of
        the tasks that tell brokers, even if the client that asked is gone."""
        self._environment = environment
        self._controller = controller
        self._decisions = decisions
        self._tracer = tracer
        self._gathering = gathering
        self._members = members
        self._relay_sets = relay_sets
        self._placement = placement
        self._tasks = tasks
        self._installing: dict[str, trio.Event] = {}
        """By topic id, an event for each topic that brokers are being told of."""
        self._removing: dict[str, trio.Event] = {}
        """By name, an event for the last deleted topic of that name, if brokers are being told of
        its deletion."""

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
        kind: str = TopicKind.LOG,
    ) -> TopicRecord:
        """Create a topic and wait until it is installed.  It is installed even if this is
        cancelled.

        Raises:
          OctopiError: see `TopicDecisions.create`; `NotReadyError` while gathering;
              `InvalidTopicError` if the name is one of the cluster's own topics.
        """
        if fault := system_name_fault(name):
            raise InvalidTopicError(fault)
        self._gathering.require_learned()
        topic_id = self._environment.randomness.token_bytes(8).hex()
        creation = self._controller.topics.create(
            name,
            topic_id,
            partition_count=partition_count,
            partitions=partitions,
            beside=beside,
            options=options or TopicOptions(),
            creator=creator,
            stream=stream,
            kind=kind,
            placement=self._placement(),
        )
        self._decisions.persist(creation)
        installing = self._installing[topic_id] = trio.Event()
        # Not a task of the request: else, if the client is lost, no broker would hold the topic.
        self._tasks.start_soon(self._install, creation, self._removing.get(name))
        await installing.wait()
        await self._finished()
        return creation.topic

    async def create_relayed(
        self,
        name: str,
        *,
        partition_count: int,
        partitions: list[PartitionId] | None,
        beside: str,
        options: TopicOptions,
        creator: Creator,
        stream: StreamDefinition | None,
    ) -> TopicRecord:
        """Create a topic in memory: see `create`."""
        return await self.create(
            name,
            partition_count=partition_count,
            partitions=partitions,
            beside=beside,
            options=options,
            creator=creator,
            stream=stream,
            kind=TopicKind.RELAY,
        )

    async def _install(
        self, creation: TopicCreationDecision, older_is_removed: trio.Event | None
    ) -> None:
        """Have brokers hold a new topic, once it and its partitions are durable, and the connected
        brokers have removed the older topic of that name."""
        topic = creation.topic
        try:
            await self._decisions.durable(creation)
            if older_is_removed is not None:
                await older_is_removed.wait()
            if placed := creation.placed:
                await self._members.tell_placed([one.partition for one in placed])
            if topic.is_relay:
                await self._relay_sets.install(topic)
                _log.info("topic created", topic=topic.topic, relay_partition=topic.partitions[0])
                return
            records = [self._controller.state.partitions[one] for one in topic.partitions]
            leaders = {record.leader for record in records}
            followers = {one for record in records for one in record.replicas} - leaders
            async with trio.open_nursery() as nursery:
                for broker in sorted(leaders):
                    nursery.start_soon(self._install_at, broker, topic)
            async with trio.open_nursery() as nursery:  # a follower needs a leader that has it
                for broker in sorted(followers & self._members.keys()):
                    nursery.start_soon(self._members[broker].install_topics, [topic])
            self._tracer.installed(topic)
            _log.info("topic created", topic=topic.topic, partitions=topic.partitions)
        except NotReadyError:
            return  # the register's disk failed: the client that asked is told so
        finally:
            self._installing.pop(topic.topic_id).set()

    async def _install_at(self, broker: BrokerId, topic: TopicRecord) -> None:
        """Have a broker hold a new topic, or alter it.  If the broker's connection has just broken,
        wait until it is back or no longer a member: a leader may hold a deleted topic of the same
        name, and would store in that what clients send to the new one, and any replica would go by
        the older options."""
        while (member := self._members.get(broker)) is not None:
            await member.install_topics([topic])
            if not (member.is_closed or member.is_silent):
                break
            await member.is_over.wait()

    async def alter(self, name: str, options: TopicOptions, names: Collection[str]) -> TopicRecord:
        """Give the options *names* of a topic the values that they have in *options*, and wait
        until that is in force on the brokers that are connected.  It takes effect even if this is
        cancelled.

        Raises:
          OctopiError: see `TopicDecisions.alter`; `NotReadyError` while gathering.
        """
        self._gathering.require_learned()
        alteration = self._controller.topics.alter(name, options, names)
        self._decisions.persist(alteration)
        altered = trio.Event()
        installing = self._installing.get(alteration.topic.topic_id)
        self._tasks.start_soon(self._alter_everywhere, alteration, installing, altered)
        await altered.wait()
        await self._finished()
        return self._controller.topics.of_id(alteration.topic.topic_id)

    async def _alter_everywhere(
        self,
        alteration: TopicAlterationDecision,
        installing: trio.Event | None,
        altered: trio.Event,
    ) -> None:
        """Tell brokers the new options of a topic, once they are durable and the topic is
        installed."""
        topic = alteration.topic
        try:
            await self._decisions.durable(alteration)
            if installing is not None:
                await installing.wait()
            partitions = self._controller.state.partitions
            records = [partitions[number] for number in topic.log_partitions]
            holders = {one for record in records for one in record.replicas}
            async with trio.open_nursery() as nursery:
                for broker in sorted(holders):
                    nursery.start_soon(self._install_at, broker, topic)
            _log.info("topic altered", topic=topic.topic, options=attrs.asdict(topic.options))
        except NotReadyError:
            return  # the register's disk failed: the client that asked is told so
        finally:
            altered.set()

    async def find(self, name: str, *, creator: Creator | None) -> TopicRecord:
        """The topic of that name, once it is installed.  If it is missing, *creator* creates it.

        Raises:
          OctopiError: InvalidTopicError, UnknownTopicError, or what `create` raises.
        """
        checked = topic_name(name)
        record = self._controller.state.topic(checked)
        if record is None:
            self._gathering.require_learned()
            if creator is not None:
                return await self.create(checked, creator=creator)
            return self._controller.topics.require(checked)
        installing = self._installing.get(record.topic_id)
        if installing is not None:
            await installing.wait()
        await self._decisions.durable()
        return record

    def ready(self, name: str) -> TopicRecord | None:
        """The topic, if it can be described without waiting."""
        record = self._controller.state.topic(name)
        if record is None or record.topic_id in self._installing or not self._decisions.is_durable:
            return None
        return record

    def newest(self, name: str) -> TopicRecord | None:
        """The topic as it is decided now; None: there is none."""
        return self._controller.state.topic(name)

    def info(self, record: TopicRecord) -> TopicInfo:
        """Where *record*'s partitions are now."""
        return self._controller.view.topic(record)

    def page(self, after: str, count_max: int) -> list[TopicRecord]:
        """Topics behind *after*, in order."""
        self._gathering.require_over()
        return self._controller.state.topics_after(after, max(1, min(count_max, LIST_COUNT_MAX)))

    async def delete(self, name: str) -> None:
        """Delete a topic, even if this is cancelled.  Brokers that are away are told when they come
        back.

        Raises:
          OctopiError: InvalidTopicError, UnknownTopicError, NotReadyError.
        """
        topic_name(name)
        self._gathering.require_learned()
        await self._delete(self._controller.topics.delete(name))

    async def delete_by_id(self, topic_id: str) -> None:
        """Delete the topic with that id, whatever its name is.

        Raises:
          OctopiError: UnknownTopicError, NotReadyError.
        """
        self._gathering.require_over()
        await self._delete(self._controller.topics.delete_by_id(topic_id))

    async def delete_expired(self, topic_id: str, broker: BrokerId) -> None:
        """*broker* says that a topic has expired: delete it, if the topic can expire and the broker
        leads it."""
        record, state = self._controller.state.topic_of_id(topic_id), self._controller.state
        if record is None or record.stream is None or not record.stream.can_expire:
            return
        if all(state.partitions[one].leader != broker for one in record.partitions):
            return
        with contextlib.suppress(OctopiError):  # the broker says it again
            await self.delete_by_id(topic_id)

    async def _delete(self, deletion: TopicDeletionDecision) -> None:
        self._decisions.persist(deletion)
        name, removed = deletion.topic.topic, trio.Event()
        self._tasks.start_soon(self._remove_everywhere, deletion, self._removing.get(name), removed)
        self._removing[name] = removed
        await removed.wait()
        await self._finished()

    async def _finished(self) -> None:
        """What was decided about a topic was told.

        Raises:
          NotReadyError: with ANSWER_LOST, if it is not known to be durable, or if the cluster was
              handed over before it was told: its brokers do that now.
        """
        await self._decisions.durable()
        if self._controller.state.handed_over is not None:
            raise NotReadyError(
                "the register has handed the cluster over meanwhile", Status.ANSWER_LOST
            )
        await self._decisions.shorten()

    async def _remove_everywhere(
        self,
        deletion: TopicDeletionDecision,
        older_is_removed: trio.Event | None,
        removed: trio.Event,
    ) -> None:
        """Have brokers remove a topic, once its deletion is durable."""
        topic = deletion.topic
        try:
            await self._decisions.durable(deletion)
            if older_is_removed is not None:
                await older_is_removed.wait()
            _log.info("topic deleted", topic=topic.topic)
            removal = self._controller.state.removals.get(topic.topic_id)
            told = [RemovedTopic(topic.topic, topic.topic_id)]
            removing = removal.brokers & self._members.keys() if removal else set[BrokerId]()
            async with trio.open_nursery() as nursery:
                for broker in sorted(removing):
                    nursery.start_soon(self._members.have_removed, self._members[broker], told)
        except NotReadyError:
            return  # the register's disk failed: the client that asked is told so
        finally:
            if self._removing.get(topic.topic) is removed:
                del self._removing[topic.topic]
            removed.set()
