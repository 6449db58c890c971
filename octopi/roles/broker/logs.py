"""All logs of a broker, and its replicas of partitions.

What the register decided is in `octopi.roles.broker.partition_table`; how logs are opened and
deleted is in `octopi.roles.broker.opening` and `octopi.roles.broker.deletion`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import trio

from octopi.environment import Environment
from octopi.errors import NotLeaderError, StorageError
from octopi.identifiers import Offset, PartitionId
from octopi.limits import DELETION_RETRY_S, NOTES_SYNC_S, REPLICA_TICK_S, RETIRED_KEEP_S
from octopi.logger import get_logger
from octopi.position import checked_anchor
from octopi.replication.replica import Role
from octopi.roles.broker.broker_log import BrokerLog
from octopi.roles.broker.catching_up import CatchingUp
from octopi.roles.broker.controller_link import ControllerLink
from octopi.roles.broker.fan_out import FanOut
from octopi.roles.broker.flusher import Flusher
from octopi.roles.broker.follower_stream import FollowerStream
from octopi.roles.broker.giving_up import GivingUp
from octopi.roles.broker.log_files import log_directory
from octopi.roles.broker.opening import Opening
from octopi.roles.broker.own_status import OwnStatus
from octopi.roles.broker.partition_replica import PartitionReplica, Peers
from octopi.roles.broker.partition_table import PartitionTable
from octopi.roles.broker.preparation import Preparation
from octopi.roles.broker.stream_keys import StreamKeys
from octopi.roles.broker.walks import Walks
from octopi.security.quotas import LogName
from octopi.storage.brief_lock import BriefLock
from octopi.storage.directories import make_durable_directory
from octopi.storage.flush_policy import FlushOptions
from octopi.storage.slices import Slices, in_groups
from octopi.tracing import steps
from octopi.transport.handshake import NodeCredentials
from octopi.wire import messages as m
from octopi.wire.messages import LogInfo, PartitionRecord, SubscriptionInfo, TopicRecord

if TYPE_CHECKING:
    from octopi.roles.broker.follow_session import FollowSession
    from octopi.roles.broker.subscription import Subscription

_log = get_logger(__name__)


class Logs(Peers):
    """The logs and replicas in one data directory."""

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
    ) -> None:
        self._environment = environment
        self._data_directory = data_directory
        self._tasks = tasks
        self._agent = agent
        self._credentials = credentials or NodeCredentials()
        self._lost_power = lost_power
        self._opening = Opening(
            environment,
            data_directory,
            flusher,
            flush_options,
            lost_power=lost_power,
            keep_retired_s=keep_retired_s,
        )
        self.retired = self._opening.retired
        """Replicas that were given up, and are kept for a while."""
        self._logs, self._ends = self._opening.logs, self._opening.ends
        self._deletion = self._opening.deletion
        self._replicas: dict[int, PartitionReplica] = {}
        self._retiring: dict[int, PartitionReplica | None] = {}
        """Given up, and not all of their files are moved or deleted; None: by an earlier life."""
        self._giving_up = BriefLock()
        self._noted_at = 0.0
        """When marks were noted last that moved without a flush."""
        self._following: dict[int, FollowerStream] = {}
        self._away: frozenset[int] = frozenset()
        self._stopping: frozenset[int] = frozenset()
        self._is_stopping = False
        self._identity: tuple[int, int] | None = None
        self.stream_keys = StreamKeys()
        """By which leaders and followers know each other."""
        self.streams: dict[tuple[int, int], FollowSession] = {}
        """The newest stream of each follower, by partition and broker."""
        self.subscriptions: dict[Subscription, None] = {}
        """All that are open."""
        self.fan_out = FanOut(environment.clock)
        """Serves those that have all of their log."""
        self.walks = Walks()
        """Long look-ups."""
        self.catching_up = CatchingUp(environment.clock, catch_up_slowdown_max)
        """The followers that are far behind."""
        self.preparation = Preparation(environment)
        """What is done before another broker leads."""
        self.status = OwnStatus(environment, data_directory)
        self.controller: ControllerLink | None = None
        """The way to what decides; None before there is one."""
        self._table = PartitionTable(environment, f"{data_directory}/partitions")
        self._given_up = GivingUp(
            environment, data_directory, self._opening, self._table, self.status
        )

    async def open_all(self, broker: int | None = None) -> None:
        """Open, and recover, every log in the data directory of *broker* (None: not known yet).

        A log that is not what was noted of it makes its replica count as not intact, which is on
        the device before anything is changed.  One that can't be read is left out, and the same
        holds: the others serve.

        Raises:
          StorageError: if the partition table can't be read, or what logs there are, or the disk
              doesn't take what was found.
        """
        disk = self._environment.disk
        await make_durable_directory(disk, f"{self._data_directory}/replicas")
        self._table.load()
        for number in self._opening.partitions():
            await self._opening.open(number, self._table.partitions.get(number), broker)

    def _replica_path(self, partition_id: int) -> str:
        return f"{self._data_directory}/replicas/{partition_id}"

    # --- replicas ------------------------------------------------------------------------

    async def identified(self, broker: int, incarnation: int) -> None:
        """This broker is known: begin its part in the partitions that it has."""
        if self._identity is not None:
            return
        self._identity = (broker, incarnation)
        for partition in await self._given_up.finish(broker):
            self._retiring.setdefault(partition, None)
        for decided in self._table.partitions.values():
            if broker in decided.replicas:
                await self._begin_replica(decided.partition)
        for replica in self._replicas.values():
            await replica.settled()  # what was found missing is on the device before joining

    async def _begin_replica(self, partition_id: int) -> PartitionReplica:
        assert self._identity is not None, "a broker without a name holds nothing"
        if partition_id not in self._ends:
            await self._opening.begin_ends(PartitionId(partition_id), {})
        logs = {log.topic_id: log for log in self if log.partition == partition_id}
        replica = self._replicas[partition_id] = PartitionReplica(
            self._environment,
            self._replica_path(partition_id),
            partition_id,
            *self._identity,
            logs,
            self,
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

    def replica(self, partition_id: int) -> PartitionReplica | None:
        """This broker's replica of a partition, if it has one."""
        return self._replicas.get(partition_id)

    def check_anchor(self, log: BrokerLog, offset: Offset, anchor: str) -> None:
        """See `octopi.roles.broker.readable_log.ReadableLog.check_anchor`; *log* is served."""
        replica = self._replicas.get(log.partition)
        leads = replica is not None and replica.leads
        log.check_anchor(offset, checked_anchor(anchor), is_leader=leads)

    def standings(self) -> list[m.Standing]:
        """How this broker stands with its partitions."""
        return [replica.machine.standing for replica in self._replicas.values()]

    def decisions(self) -> list[PartitionRecord]:
        """The newest decision about each partition that this broker heard of.  The table doesn't
        have them all: what a leader asked for it hears as the answer to its replica."""
        newest = dict(self._table.partitions)
        for replica in self._replicas.values():
            known, own = newest.get(replica.partition), replica.machine.state.record
            if own and (known is None or (known.epoch, known.version) < (own.epoch, own.version)):
                newest[replica.partition] = own
        return [newest[partition] for partition in sorted(newest)]

    def joined(self) -> None:
        """The register knows this life of the broker, and orders all that it has to do."""
        self.status.joined()
        self._tell_status()
        for replica in self._replicas.values():
            replica.joined()

    async def keep_time(self) -> None:
        """Have the replicas look after their in-sync sets, until cancelled."""
        clock = self._environment.clock
        while True:
            await clock.sleep_until(clock.now() + REPLICA_TICK_S)
            if clock.now() - self._noted_at >= NOTES_SYNC_S:
                self._noted_at = clock.now()
                for replica in self._replicas.values():
                    replica.note_ends()
            for replica in self._replicas.values():
                # Again, as it may be lost; but not before what it relies on is on the device.
                if (change := replica.machine.repeated) is not None and replica.is_settled:
                    self.to_register(change)
                replica.submit(partial(replica.machine.tick, clock.now()))
                self._see_to_stream(replica)
            self._tell_status()

    def _tell_status(self) -> None:
        """Tell the register what is new about this broker, if it is there."""
        if self.controller is not None and self.controller.is_joined:
            self.status.tell(self._replicas.values(), self.controller.report)

    def _see_to_stream(self, replica: PartitionReplica) -> None:
        """A follower has a stream, also if the disk failed just when it was to be opened."""
        record = replica.machine.state.record
        follows = (
            replica.machine.role == Role.FOLLOWER and replica.failure is None and replica.is_settled
        )
        if follows and record is not None and replica.partition not in self._following:
            self.follow(replica.partition, record.leader)

    @property
    def partitions(self) -> Mapping[int, PartitionRecord]:
        """The newest decision about each partition of the cluster that is in the table."""
        return self._table.partitions

    @property
    def replicas(self) -> Iterable[PartitionReplica]:
        """This broker's replicas."""
        return self._replicas.values()

    @property
    def addresses(self) -> Iterable[str]:
        """Where brokers are, as the register said last."""
        return self._table.addresses.values()

    # --- Peers -----------------------------------------------------------------------------

    def disk_refused(self, error: StorageError) -> None:
        self.status.refused(error)

    def to_register(self, message: m.AlterInSync | m.AcceptEpoch | m.Resign) -> None:
        controller = self.controller
        if controller is None:
            return
        match message:
            case m.AlterInSync():
                controller.propose(message)
            case m.AcceptEpoch():
                controller.accept(message)
            case m.Resign():
                controller.resign(message)

    def to_broker(
        self,
        partition: int,
        broker: int,
        message: m.Follow | m.Followed | m.FollowRefused | m.Acknowledge,
    ) -> None:
        if isinstance(message, m.Follow | m.Acknowledge):
            following = self._following.get(partition)
            if following is not None and following.leader == broker:
                following.post(self.stream_keys.signed(broker, message))
        else:
            stream = self.streams.get((partition, broker))
            if stream is not None:
                stream.post(message)

    def follow(self, partition: int, leader: int) -> None:
        self.stop_following(partition)
        replica = self._replicas[partition]
        stream = FollowerStream(
            self._environment, replica, leader, self.address_of, self._agent, self._credentials
        )
        self._following[partition] = stream
        self._tasks.start_soon(stream.run)

    def follow_anew(self, partition: int) -> None:
        stream = self._following.get(partition)
        if stream is not None:
            stream.reopen()

    def produced(self, size_bytes: int) -> None:
        self.catching_up.produced(size_bytes)

    def stop_following(self, partition: int) -> None:
        stream = self._following.pop(partition, None)
        if stream is not None:
            stream.scope.cancel()

    def address_of(self, broker: int) -> str:
        """Where a broker is, as the register said last; empty: not known."""
        return self._table.addresses.get(broker, "")

    # --- what the register decides -----------------------------------------------------

    async def install_partitions(
        self, records: list[PartitionRecord], brokers: list[m.BrokerInfo]
    ) -> list[m.Undone]:
        """Remember decisions, durably, then act on them; return what the disk did not let it do.
        What is not remembered is not acted on."""
        assert self._identity is not None
        self.stream_keys.learn(brokers)
        if (trace := self._environment.trace) is not None:
            trace(steps.E10Installing(records=records))
        undone: list[m.Undone] = []
        try:
            await self._table.remember(records, brokers)
        except StorageError as error:
            undone = [
                self.status.undone(error, [one.partition])
                for one in records
                if not self._table.knows(one)
            ]
        failed = {one.partition for one in undone}
        stored = [one for one in records if one.partition not in failed]
        if trace is not None and stored:
            trace(steps.E10Installed(records=stored))
        self._note_away(frozenset(one.broker for one in brokers if not one.live))
        for decided in stored:
            try:
                await self._act_on(decided, self._identity[0])
                self.status.done(decided.partition)
            except StorageError as error:
                undone.append(self.status.undone(error, [decided.partition]))
        return undone

    async def _act_on(self, decided: PartitionRecord, broker: int) -> None:
        """Act on a decision that is remembered.

        Raises:
          StorageError: if the disk fails.
        """
        partition = decided.partition
        async with self._giving_up:
            if partition in self._retiring:
                await self._retire(partition)
        replica = self._replicas.get(partition)
        if replica is None:
            if broker not in decided.replicas:
                return
            replica = await self._begin_replica(partition)
            replica.submit(replica.machine.joined)
        now = self._environment.clock.now()
        replica.submit(partial(replica.machine.installed, decided, now))
        await replica.settled()
        if broker not in self._table.partitions[partition].replicas:
            self._retiring[partition] = self._replicas.pop(partition)
            self.status.gave_up(partition)
            async with self._giving_up:
                await self._retire(partition)

    def _note_away(self, brokers: frozenset[int]) -> None:
        """The register has no connection with *brokers*: leaders wait for none of them that
        doesn't follow."""
        if brokers == self._away:
            return
        self._away = brokers
        for replica in self._replicas.values():
            now = self._environment.clock.now()
            replica.submit(partial(replica.machine.told_away, brokers, now))

    def brokers_stopping(self, brokers: list[int]) -> None:
        """The register says that these and no others are about to stop."""
        self._stopping = frozenset(brokers)
        for replica in self._replicas.values():
            now = self._environment.clock.now()
            replica.submit(partial(replica.machine.told_stopping, self._stopping, now))

    def stop(self) -> None:
        """This broker is about to stop: its replicas propose nothing any more."""
        self._is_stopping = True
        for replica in self._replicas.values():
            replica.machine.stopping()

    def announced(self, message: m.AnnounceEpoch) -> None:
        """The register begins a new epoch."""
        replica = self._replicas.get(message.partition)
        if replica is not None:
            if (trace := self._environment.trace) is not None:
                trace(steps.E4Heard(partition=message.partition, epoch=message.epoch))
            replica.submit(partial(replica.machine.announced, message))

    def in_sync_altered(self, message: m.InSyncAltered) -> None:
        """The register answered a proposal."""
        replica = self._replicas.get(message.record.partition)
        if replica is not None:
            now = self._environment.clock.now()
            replica.submit(partial(replica.machine.in_sync_altered, message, now))

    async def prepare_hand_over(self, partition: int) -> None:
        """Do what has to be done before another broker leads the partition."""
        await self.preparation.prepare(partition)

    async def install_topics(self, topics: list[TopicRecord]) -> list[m.Undone]:
        """Have a log for each of *topics* in each partition that this broker is a replica of;
        return those that lack one, and why."""
        undone: list[m.Undone] = []
        for topic in topics:
            held = [PartitionId(one) for one in topic.partitions if one in self._replicas]
            failed = None
            for partition_id in held:
                try:
                    await self._install_topic(topic, partition_id)
                    self.status.done(partition_id, topic.topic_id)
                except StorageError as error:
                    failed = self.status.undone(error, [partition_id], topic.topic_id)
            if failed is not None:
                undone.append(failed)
        return undone

    async def _install_topic(self, topic: TopicRecord, partition_id: PartitionId) -> None:
        """Have a log of *topic* in the partition.

        Raises:
          StorageError: if the disk fails, or keeps records of another creation of the topic:
              until the register has those removed, this one has no place.
        """
        known = self._logs.get((topic.topic, partition_id))
        if known is None:
            await self._create(topic, partition_id)
        elif known.topic.topic_id != topic.topic_id:
            raise StorageError(
                f"{known.directory} keeps records of an older topic of that name, with id "
                f"{known.topic.topic_id}, which the register has not had removed here"
            )

    async def _create(self, topic: TopicRecord, partition_id: PartitionId) -> None:
        directory = log_directory(self._data_directory, partition_id, topic.topic)
        if (trace := self._environment.trace) is not None:
            trace(steps.T3Making(topic.topic, topic.topic_id, partition_id))
        await self._deletion.delete(lambda log: log.directory == directory)
        log = await self._opening.make(directory, topic, partition_id)
        if trace is not None:
            trace(steps.T3Made(topic.topic, topic.topic_id, partition_id))
        self._replicas[partition_id].add_log(log)

    async def remove_topics(self, topics: list[m.RemovedTopic]) -> list[m.Undone]:
        """Delete those creations of topics; return those of which files are left, and why.

        From here on their logs belong to no replica, whatever becomes of their files: a replica
        gets in sync without them.
        """
        removed = {one.topic_id for one in topics}
        self.status.removed(removed)
        for key, log in list(self._logs.items()):
            if log.topic_id not in removed:
                continue
            self._deletion.doom(self._logs.pop(key))
            replica = self._replicas.get(log.partition)
            if replica is not None:
                replica.remove_log(log.topic_id)
                await replica.settled()
        undone: list[m.Undone] = []
        unknown = None
        try:
            await self._deletion.doom_unused(topics, self._logs)
        except StorageError as error:
            unknown = error
        for topic_id in sorted(self._deletion.topic_ids & removed):
            try:
                await self._deletion.delete(lambda log: log.topic_id == topic_id)  # noqa: B023
            except StorageError as error:
                undone.append(self.status.undone(error, [], topic_id))
        if unknown is not None:
            named = {one.topic_id for one in undone}
            undone += (self.status.undone(unknown, [], one) for one in sorted(removed - named))
        return undone

    async def _retire(self, partition_id: int) -> None:
        """The partition lives elsewhere now: what was kept here is put away.

        Raises:
          StorageError: if the disk fails.
        """
        self.stop_following(partition_id)
        # None: an earlier life's.
        replica = self._retiring.get(partition_id)
        await self._given_up.put_away(PartitionId(partition_id), replica)
        self._retiring.pop(partition_id, None)

    async def keep_deleting(self) -> None:
        """Delete what could not be deleted before, and retired replicas whose time is over, now
        and then, until cancelled."""
        clock = self._environment.clock
        while True:
            await clock.sleep_until(clock.now() + DELETION_RETRY_S)
            await self.delete_again()
            await self.retired.turn(is_full=bool(self.status.disk.trouble))

    async def delete_again(self) -> None:
        """Delete what could not be deleted before, as far as that can be done now."""
        await self._deletion.try_again()
        async with self._giving_up:
            for partition_id in list(self._retiring):
                with suppress(StorageError):
                    await self._retire(partition_id)

    # --- looking up --------------------------------------------------------------------

    def find(self, topic: str, partition: int) -> BrokerLog:
        """The log of (topic, partition).

        Raises:
          NotLeaderError: if it isn't here; the register knows where it is, or that it is
              nowhere.
        """
        log = self._logs.get((topic, partition))
        if log is None:
            raise NotLeaderError(
                f"this broker keeps no log of topic {topic[:200]!r} in partition {partition}: "
                "ask the register"
            )
        return log

    def bounds(self, name: LogName) -> tuple[int, int] | None:
        """Where a log begins and ends; None: it is not here any more."""
        topic, topic_id, partition = name
        log = self._logs.get((topic, partition))
        return None if log is None or log.topic.topic_id != topic_id else (log.start, log.end)

    def __iter__(self) -> Iterator[BrokerLog]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def describe(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[LogInfo]]:
        """Up to *count_max* logs behind *after* in order, of *topic* or (empty) of all that
        *covers* is true of."""
        keys: list[tuple[str, int]] = []
        for some in in_groups(list(self._logs)):
            keys += [
                key for key in some if key > after and topic in {"", key[0]} and covers(key[0])
            ]
            yield
        found: list[LogInfo] = []
        for some in in_groups(sorted(keys)[:count_max]):
            found += [self._logs[key].describe() for key in some if key in self._logs]
            yield
        return found

    def describe_subscriptions(
        self, topic: str, count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[SubscriptionInfo]]:
        """Up to *count_max* subscriptions, as `describe` does."""
        found: list[SubscriptionInfo] = []
        for some in in_groups(list(self.subscriptions)):
            found += [
                one.describe() for one in some if topic in {"", one.topic} and covers(one.topic)
            ]
            if len(found) >= count_max:
                break
            yield
        return found[:count_max]

    def topics(self) -> list[TopicRecord]:
        """The topics that have logs here, each once."""
        return list({log.topic.topic_id: log.topic for log in self._logs.values()}.values())

    async def close(self) -> None:
        """Close all, cleanly, a few at a time."""
        for number in list(self._following):
            self.stop_following(number)
        for replica in self._replicas.values():
            replica.submit(replica.machine.clean_shutdown)
        for replica in self._replicas.values():
            await replica.settled()
        limit = trio.CapacityLimiter(8)

        async def close_one(log: BrokerLog) -> None:
            async with limit:
                await log.close()

        async with trio.open_nursery() as nursery:
            for log in self:
                nursery.start_soon(close_one, log)
        for ends in self._ends.values():
            try:
                await ends.sync()
            except StorageError as error:
                _log.error("what is durable was not noted", why=str(error))
            ends.close()
