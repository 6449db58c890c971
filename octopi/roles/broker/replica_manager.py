"""A broker's replicas: opened, begun as the controller decides, and given up.

`octopi.roles.broker.log_store` has their logs, `octopi.roles.broker.cluster_metadata` the decisions
of the controller, and `octopi.roles.broker.replica_streams` the connections with other brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

import trio

from octopi.environment import Environment
from octopi.errors import StorageError
from octopi.identifiers import INTERNAL_LOGS, BrokerId, Incarnation, PartitionId
from octopi.limits import (
    DELETION_RETRY_S,
    NOTES_SYNC_S,
    REPLICA_TICK_S,
    RETIRED_KEEP_S,
)
from octopi.logger import get_logger
from octopi.replication.effects import Refusal
from octopi.replication.partition_replica import Role
from octopi.roles.broker.broker_health import BrokerHealth
from octopi.roles.broker.catching_up import CatchingUp
from octopi.roles.broker.cluster_metadata import ClusterMetadata
from octopi.roles.broker.controller_link import ControllerLink, Decisions
from octopi.roles.broker.flusher import Flusher
from octopi.roles.broker.hand_over_preparation import HandOverPreparation
from octopi.roles.broker.installing import TopicInstallation
from octopi.roles.broker.log_store import LogStore
from octopi.roles.broker.order_parts import at_once
from octopi.roles.broker.replica_driver import ReplicaDriver
from octopi.roles.broker.replica_state import begin_state, has_state
from octopi.roles.broker.replica_streams import ReplicaStreams
from octopi.roles.broker.retirement import ReplicaRetirement
from octopi.roles.broker.sealing import Sealing
from octopi.storage.brief_lock import BriefLock
from octopi.storage.directories import make_durable_directory
from octopi.storage.flush_policy import FlushOptions
from octopi.tracing import steps
from octopi.transport.handshake import NodeCredentials
from octopi.wire import messages as m
from octopi.wire.messages import PartitionRecord, TopicRecord

_log = get_logger(__name__)


class ReplicaManager(Decisions):
    """This broker's replicas, and the orders of its controller about them."""

    def __init__(
        self,
        environment: Environment,
        data_directory: str,
        flusher: Flusher,
        tasks: trio.Nursery,
        flush_options: FlushOptions,
        agent: str,
        *,
        credentials: NodeCredentials | None = None,
        lost_power: bool,
        catch_up_slowdown_max: float,
        keep_retired_s: float = RETIRED_KEEP_S,
        internal_logs: Sequence[str] = INTERNAL_LOGS,
    ) -> None:
        """*internal_logs*: those that each replica has."""
        self._environment = environment
        self._data_directory = data_directory
        self._tasks = tasks
        self._lost_power = lost_power
        self.store = LogStore(
            environment,
            data_directory,
            flusher,
            flush_options,
            lost_power=lost_power,
            keep_retired_s=keep_retired_s,
            internal_logs=internal_logs,
        )
        """The logs of the replicas."""
        self.metadata = ClusterMetadata(environment, f"{data_directory}/partitions")
        """The decisions of the controller, and the addresses of brokers."""
        self._replicas: dict[PartitionId, ReplicaDriver] = {}
        self._retiring: dict[PartitionId, ReplicaDriver | None] = {}
        """Replicas that were given up and whose files are not all moved or deleted yet; None: an
        earlier incarnation gave it up."""
        self._lacking: set[PartitionId] = set()
        """Partitions that lack an internal log, because it could not be made or opened yet."""
        self._retirement = BriefLock()
        self._removal = BriefLock()
        self._noted_at = 0.0
        """When the ends of logs were noted last (monotonic, s)."""
        self._away: frozenset[BrokerId] = frozenset()
        self._stopping: frozenset[BrokerId] = frozenset()
        self._is_stopping = False
        self._identity: tuple[BrokerId, Incarnation] | None = None
        self.catching_up = CatchingUp(environment.clock, catch_up_slowdown_max)
        """The followers that are far behind."""
        self.preparation = HandOverPreparation(environment)
        """Prepares hand-overs of the partitions that this broker leads."""
        self.sealing: Sealing | None = None
        self.status = BrokerHealth(environment, data_directory)
        self._installation = TopicInstallation(environment, self.store, self._replicas, self.status)
        self._streams = ReplicaStreams(
            environment,
            self._replicas,
            self.metadata,
            self.status,
            self.catching_up,
            tasks,
            agent,
            credentials or NodeCredentials(),
        )
        self.stream_keys, self.streams = self._streams.keys, self._streams.serving
        self._given_up = ReplicaRetirement(
            environment, data_directory, self.store.opening, self.metadata, self.status
        )

    def reach(self, controller: ControllerLink) -> None:
        """Have the replicas send their requests to *controller* from now on."""
        self._streams.controller = controller

    async def open_all(self, broker: BrokerId | None = None) -> None:
        """Open and recover all logs in the data directory of *broker* (None: the id isn't known
        yet).

        A log that differs from what the file of ends lists makes its replica count as not intact,
        which is durable before anything is changed.  A log that can't be read is left out, its
        replica counts as not intact, too, and the other logs serve.

        Raises:
          StorageError: if the partition table can't be read, the logs can't be found out, or the
              disk fails while the result is stored.
        """
        disk = self._environment.disk
        await make_durable_directory(disk, f"{self._data_directory}/replicas")
        self.metadata.load()
        for number in self.store.opening.partitions():
            await self.store.opening.open(number, self.metadata.partitions.get(number), broker)

    def _replica_path(self, partition_id: PartitionId) -> str:
        return f"{self._data_directory}/replicas/{partition_id}"

    # --- replicas ------------------------------------------------------------------------

    async def set_identity(self, broker: BrokerId, incarnation: Incarnation) -> None:
        """The id of this broker is known: begin its replicas."""
        if self._identity is not None:
            return
        self._identity = (broker, incarnation)
        for partition in await self._given_up.finish(broker):
            self._retiring.setdefault(partition, None)
        for decided in self.metadata.partitions.values():
            if broker in decided.replicas:
                await self._begin_replica(decided.partition)
        for replica in self._replicas.values():
            await replica.settled()  # what was found missing is durable before the broker joins

    async def _begin_replica(
        self, partition_id: PartitionId, *, is_new: bool = False
    ) -> ReplicaDriver:
        """*is_new*: whether this broker had nothing of the partition before.

        Raises:
          StorageError: if the disk fails.
        """
        assert self._identity is not None, "a broker without a name holds nothing"
        if partition_id not in self.store.ends:
            await self.store.opening.begin_ends(PartitionId(partition_id), {})
        path = self._replica_path(partition_id)
        # A process that was killed may have stored the decision and nothing of the replica.
        if is_new or not has_state(self._environment, path):
            await begin_state(self._environment, path)
        await self._make_internal_logs(partition_id, is_new=is_new)
        logs = {log.topic_id: log for log in self.store if log.partition == partition_id}
        replica = self._replicas[partition_id] = ReplicaDriver(
            self._environment,
            path,
            partition_id,
            *self._identity,
            logs,
            self._streams,
            self._tasks,
            lost_power=self._lost_power,
        )
        replica.submit(replica.machine.begin)
        now = self._environment.clock.now()
        replica.submit(partial(replica.machine.told_away, self._away, now))
        replica.submit(partial(replica.machine.told_stopping, self._stopping, now))
        if self._is_stopping:
            replica.machine.stopping()
        return replica

    async def _make_internal_logs(self, partition_id: PartitionId, *, is_new: bool) -> None:
        """Make the internal logs of a replica before it follows or leads, so that nothing is
        acknowledged for a partition without them.

        A replica that isn't new begins even if one of them can't be made or opened, as when its
        files can't be read; that is tried again from time to time.

        Raises:
          StorageError: if they can't be made for a new replica.
        """
        try:
            await self.store.create_internal(partition_id)
        except StorageError as error:
            if is_new:
                raise
            self._lacking.add(partition_id)
            _log.error("a replica lacks an internal log", partition=partition_id, why=str(error))

    async def make_lacking_logs(self) -> None:
        """Make, as far as possible, the internal logs that could not be made before."""
        for partition_id in sorted(self._lacking):
            replica = self._replicas.get(partition_id)
            if replica is None:  # the replica was given up
                self._lacking.discard(partition_id)
                continue
            with suppress(StorageError):
                await self.store.create_internal(partition_id)
                for log in self.store:
                    if log.partition == partition_id and log.topic_id not in replica.logs:
                        replica.add_log(log)
                self._lacking.discard(partition_id)

    def replica(self, partition_id: PartitionId) -> ReplicaDriver | None:
        """This broker's replica of a partition, if it has one."""
        return self._replicas.get(partition_id)

    def fence(self, partition_id: PartitionId) -> Refusal | None:
        """See `octopi.roles.broker.controller_link.ControllerLink.fence`."""
        return self._streams.fence(partition_id)

    def replica_reports(self) -> list[m.ReplicaReport]:
        """The state of each of this broker's replicas."""
        return [replica.machine.report for replica in self._replicas.values()]

    def decisions(self) -> list[PartitionRecord]:
        """The newest decision about each partition that this broker was sent.  The partition table
        doesn't have them all: the answer to a leader's proposal goes to its replica only."""
        newest = dict(self.metadata.partitions)
        for replica in self._replicas.values():
            known, own = newest.get(replica.partition), replica.machine.state.record
            if own and (known is None or (known.epoch, known.version) < (own.epoch, own.version)):
                newest[replica.partition] = own
        return [newest[partition] for partition in sorted(newest)]

    def joined(self) -> None:
        """The register has let this incarnation of the broker in, and will send all its orders."""
        self.status.joined()
        self._tell_status()
        for replica in self._replicas.values():
            replica.joined()

    async def keep_time(self) -> None:
        """Have the replicas review their in-sync sets, until cancelled."""
        clock = self._environment.clock
        while True:
            await clock.sleep_until(clock.now() + REPLICA_TICK_S)
            if clock.now() - self._noted_at >= NOTES_SYNC_S:
                self._noted_at = clock.now()
                for ends in self.store.ends.values():
                    ends.note_changed()
            for replica in self._replicas.values():
                # The proposal is repeated, as it may have been lost; but not before the effects
                # that it relies on are durable.
                if (change := replica.machine.repeated) is not None and replica.is_settled:
                    self._streams.to_register(change)
                replica.submit(partial(replica.machine.tick, clock.now()))
                self._see_to_stream(replica)
            self._tell_status()

    def _tell_status(self) -> None:
        """Report to the register what it doesn't know yet about this broker, if this broker has
        joined."""
        controller = self._streams.controller
        if controller is not None and controller.is_joined:
            self.status.tell(self._replicas.values(), controller.report)

    def _see_to_stream(self, replica: ReplicaDriver) -> None:
        """Open the stream of a follower that has none, as after a failure of the disk."""
        record = replica.machine.state.record
        follows = (
            replica.machine.role == Role.FOLLOWER and replica.failure is None and replica.is_settled
        )
        if follows and record is not None and not self._streams.is_following(replica.partition):
            self._streams.follow(replica.partition, record.leader)

    @property
    def replicas(self) -> Iterable[ReplicaDriver]:
        """This broker's replicas."""
        return self._replicas.values()

    # --- decisions of the register -----------------------------------------------------

    async def install_partitions(
        self, records: list[PartitionRecord], brokers: list[m.BrokerInfo]
    ) -> list[m.Undone]:
        """Store the decisions durably, then act on them; return what could not be done.  A decision
        that can't be stored isn't acted on."""
        assert self._identity is not None
        self._streams.keys.learn(brokers)
        if (trace := self._environment.trace) is not None:
            trace(steps.E10Installing(records=records))
        undone: list[m.Undone] = []
        try:
            await self.metadata.remember(records, brokers)
        except StorageError as error:
            undone = [
                self.status.undone(error, [one.partition])
                for one in records
                if not self.metadata.knows(one)
            ]
        failed = {one.partition for one in undone}
        stored = [one for one in records if one.partition not in failed]
        if trace is not None and stored:
            trace(steps.E10Installed(records=stored))
        self._note_away(frozenset(one.broker for one in brokers if not one.live))
        broker = self._identity[0]

        async def act_on(decided: PartitionRecord) -> None:
            try:
                await self._act_on(decided, broker)
                self.status.done(decided.partition)
            except StorageError as error:
                undone.append(self.status.undone(error, [decided.partition]))

        await at_once(act_on, stored)
        return undone

    async def _act_on(self, decided: PartitionRecord, broker: BrokerId) -> None:
        """Act on a decision that is stored.

        Raises:
          StorageError: if the disk fails.
        """
        partition = decided.partition
        async with self._retirement:
            if partition in self._retiring:
                await self._retire(partition)
        replica = self._replicas.get(partition)
        if replica is None:
            if broker not in decided.replicas:
                if partition in self.store.ends:  # the disk refused to let it begin
                    self._retiring[partition] = None
                    async with self._retirement:
                        await self._retire(partition)
                return
            replica = await self._begin_replica(partition, is_new=True)
            replica.submit(replica.machine.joined)
        now = self._environment.clock.now()
        replica.submit(partial(replica.machine.installed, decided, now))
        await replica.settled()
        if broker not in self.metadata.partitions[partition].replicas:
            self._retiring[partition] = self._replicas.pop(partition)
            self.status.gave_up(partition)
            async with self._retirement:
                await self._retire(partition)

    def _note_away(self, brokers: frozenset[BrokerId]) -> None:
        """The register has no connection with *brokers*: leaders don't wait for those of them that
        aren't following."""
        if brokers == self._away:
            return
        self._away = brokers
        for replica in self._replicas.values():
            now = self._environment.clock.now()
            replica.submit(partial(replica.machine.told_away, brokers, now))

    def brokers_stopping(self, brokers: list[BrokerId]) -> None:
        """Exactly these brokers are about to stop."""
        self._stopping = frozenset(brokers)
        for replica in self._replicas.values():
            now = self._environment.clock.now()
            replica.submit(partial(replica.machine.told_stopping, self._stopping, now))

    def stop(self) -> None:
        """This broker is about to stop: its replicas propose no changes any more."""
        self._is_stopping = True
        for replica in self._replicas.values():
            replica.machine.stopping()

    def announced(self, message: m.AnnounceEpoch) -> None:
        """The register begins a new epoch of a partition."""
        replica = self._replicas.get(message.partition)
        if replica is not None:
            if (trace := self._environment.trace) is not None:
                trace(steps.E4Heard(partition=message.partition, epoch=message.epoch))
            replica.submit(partial(replica.machine.announced, message))

    def in_sync_altered(self, message: m.InSyncAltered) -> None:
        """Pass the register's answer to the replica that proposed a change."""
        replica = self._replicas.get(message.record.partition)
        if replica is not None:
            now = self._environment.clock.now()
            replica.submit(partial(replica.machine.in_sync_altered, message, now))

    def topics(self) -> list[TopicRecord]:
        """The topics that have logs here, each once."""
        return self.store.topics()

    def disk_refused(self, error: StorageError) -> None:
        """The disk failed to store something: it is full, or has a fault."""
        self.status.refused(error)

    async def prepare_hand_over(self, partition: PartitionId) -> None:
        """Do what must be done before another broker leads the partition."""
        await self.preparation.prepare(partition)

    async def seal_topic(self, order: m.SealTopic) -> m.TopicSealed:
        """Seal a log that this broker leads: see `Sealing.seal`."""
        assert self.sealing is not None, "the broker has begun"
        return await self.sealing.seal(order)

    async def install_topics(self, topics: list[TopicRecord]) -> list[m.Undone]:
        """Ensure that there is a log of each of *topics* in each of its partitions that this broker
        holds, by the topic's options; return the ones that failed, with reasons."""
        return await self._installation.install(topics)

    async def host_topics(
        self, topics: list[TopicRecord], partition: PartitionId
    ) -> list[m.Undone]:
        """Like `install_topics`, in one of their partitions."""
        return await self._installation.install(topics, partition)

    async def remove_topics(self, topics: list[m.RemovedTopic]) -> list[m.Undone]:
        """Delete the logs of these topics; return the topics of which files are left, with reasons.

        The logs are removed from their replicas at once, even if deleting their files fails, so a
        replica gets in sync without them.
        """
        async with self._removal:  # each partition of a topic may order it by itself
            return await self._remove_topics(topics)

    async def _remove_topics(self, topics: list[m.RemovedTopic]) -> list[m.Undone]:
        removed = {one.topic_id for one in topics}
        self.status.removed(removed)
        for log in self.store.doom(removed):
            replica = self._replicas.get(log.partition)
            if replica is not None:
                replica.remove_log(log.topic_id)
                await replica.settled()
        undone: list[m.Undone] = []
        unknown = None
        try:
            await self.store.doom_unused(topics)
        except StorageError as error:
            unknown = error
        for topic_id in sorted(self.store.doomed & removed):
            try:
                await self.store.delete(topic_id)
            except StorageError as error:
                undone.append(self.status.undone(error, [], topic_id))
        if unknown is not None:
            named = {one.topic_id for one in undone}
            undone += (self.status.undone(unknown, [], one) for one in sorted(removed - named))
        return undone

    async def _retire(self, partition_id: PartitionId) -> None:
        """Put away the replica of a partition that was placed on other brokers.

        Raises:
          StorageError: if the disk fails.
        """
        self._streams.stop_following(partition_id)
        # None: an earlier incarnation gave it up.
        replica = self._retiring.get(partition_id)
        await self._given_up.put_away(PartitionId(partition_id), replica)
        self._retiring.pop(partition_id, None)

    async def keep_deleting(self) -> None:
        """Delete, from time to time, what could not be deleted before, and the retired replicas
        that were kept long enough, until cancelled."""
        clock = self._environment.clock
        while True:
            await clock.sleep_until(clock.now() + DELETION_RETRY_S)
            await self.delete_again()
            await self.make_lacking_logs()
            await self.store.retired.turn(is_full=bool(self.status.disk.trouble))

    async def delete_again(self) -> None:
        """Delete, as far as possible, what could not be deleted before."""
        await self.store.delete_again()
        async with self._retirement:
            for partition_id in list(self._retiring):
                with suppress(StorageError):
                    await self._retire(partition_id)

    async def close(self) -> None:
        """Close all logs cleanly, a few at a time."""
        self._streams.close()
        for replica in self._replicas.values():
            replica.submit(replica.machine.clean_shutdown)
        for replica in self._replicas.values():
            await replica.settled()
        await self.store.close()
