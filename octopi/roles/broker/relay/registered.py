"""The relay partitions of a broker with a register, which also keeps logs.

The register says in which relay sets the broker is, and which topics they have; the broker tells it
which sets are in force.  Everything else the members agree on by themselves, so they go on while
the register is away.  Nothing runs here before the broker is in a relay set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import NotLeaderError, NotReadyError, RefusedError, StorageError
from octopi.identifiers import BrokerId, ClusterId, Incarnation, PartitionId, TopicId, TopicName
from octopi.limits import RELAY_MEMORY_BYTES, RELAY_TICK_S
from octopi.logger import get_logger
from octopi.model import RelaySetRecord, TopicOptions, TopicRecord
from octopi.relay.buffer import BufferBounds
from octopi.relay.incarnations import RelayLife
from octopi.relay.memory import RelayMemory
from octopi.relay.message_ids import MessageIds, node_name
from octopi.relay.messages import RelayMessage
from octopi.relay.relay_set import RelaySet
from octopi.roles.broker.identity import BrokerIdentity, store_identity
from octopi.roles.broker.local_stream import LocalStream
from octopi.roles.broker.memory_topics import MemoryTopics
from octopi.roles.broker.readers import Readers
from octopi.roles.broker.relay.context import RelayServing
from octopi.roles.broker.relay.links import OwnGreeting, PartitionLinks, RelayLinks
from octopi.roles.broker.relay.mesh import RegisterMesh
from octopi.roles.broker.relay.partition import (
    RelayPartition,
    hand_over,
    make_room,
    why_not_normal,
)
from octopi.roles.broker.relay.relay_sets_file import KnownSets, RelaySetsFile
from octopi.roles.broker.relay.services import produce
from octopi.roles.broker.relay.session import RelaySession
from octopi.roles.broker.relay.store import RelayStore
from octopi.roles.broker.relay.stream_log import StreamLog
from octopi.roles.broker.relay.view_service import relay_list, stream_description
from octopi.storage.time_slices import Slices, in_groups
from octopi.transport.connection import Connection
from octopi.transport.handshake import NodeCredentials
from octopi.wire import messages as m

_log = get_logger(__name__)


class BrokerRelays(MemoryTopics):
    """The relay partitions of one broker, and the orders of its register about them."""

    def __init__(
        self,
        environment: Environment,
        data_directory: str,
        agent: str,
        credentials: NodeCredentials,
        readers: Readers,
        nursery: trio.Nursery,
        report: Callable[[m.RelayReport], None],
        memory_bytes: int = RELAY_MEMORY_BYTES,
    ) -> None:
        """*nursery*: the broker's.  *report*: tells the register something, if it is there.
        *memory_bytes*: what all streams may hold together."""
        self._environment = environment
        self._data_directory = data_directory
        self._agent, self._credentials = agent, credentials
        self._readers = readers
        self._nursery = nursery
        self._report = report
        self.memory = RelayMemory(memory_bytes)
        self._store = RelayStore(environment.disk, data_directory)
        self._file = RelaySetsFile(environment.disk, data_directory)
        self._known = KnownSets()
        self._storing = trio.Lock()
        self._wished: dict[PartitionId, BrokerId] = {}
        """Who is to be the sequencer, as the register said last."""
        self._identity: BrokerIdentity | None = None
        self._serving: RelayServing | None = None
        self._mesh = RegisterMesh(ClusterId(""))
        self._ids: MessageIds | None = None
        self.partitions: dict[PartitionId, RelayPartition] = {}
        """Those that this broker is a member of."""

    def load(self, identity: BrokerIdentity) -> None:
        """Take part as this broker did when it ran last.

        Raises:
          StorageError: if the files are damaged, or can't be read.
        """
        self._store.load()
        self._known = self._file.load()
        self._identity = identity
        if self._known.sets and identity.broker is not None:
            self._act()

    @property
    def why_not_ready(self) -> str:
        """Why this broker is not part of an epoch in one of its relay partitions; empty: it is."""
        return why_not_normal(self.partitions.values())

    # --- orders --------------------------------------------------------------------------

    async def install(
        self,
        identity: BrokerIdentity,
        sets: Sequence[RelaySetRecord],
        topics: Sequence[TopicRecord],
        brokers: Iterable[m.BrokerInfo],
        wished: Iterable[m.WishedSequencer] = (),
    ) -> list[m.Undone]:
        """Store what the register has decided about relay sets, and act on it; return what could
        not be done."""
        me = identity.broker
        assert me is not None
        self._identity = identity
        async with self._storing:
            known = {one.partition: one for one in self._known.sets}
            for record in sets:
                before = known.get(record.partition)
                if before is None or before.number <= record.number:
                    known[record.partition] = record
            mine = {
                number: one
                for number, one in known.items()
                if me in one.members or (number in self.partitions and not one.in_force)
            }
            held = {one.topic_id: one for one in (*self._known.topics, *topics)}
            named = {one for record in mine.values() for one in record.members}
            addresses = self._known.addresses | {one.broker: one.address for one in brokers}
            newest = KnownSets(
                tuple(mine.values()),
                tuple(one for one in held.values() if one.partitions[0] in mine),
                {one: address for one, address in addresses.items() if one in named},
            )
            self._wished |= {one.partition: one.broker for one in wished}
            undone = await self._keep(newest, [one.partition for one in sets])
            self._wish()
            return undone

    async def remove(self, topics: Iterable[m.RemovedTopic]) -> list[m.Undone]:
        """Forget deleted topics, as far as they are in memory; return what could not be done."""
        ids = {one.topic_id for one in topics}
        async with self._storing:
            gone = [one for one in self._known.topics if one.topic_id in ids]
            if not gone:
                return []
            kept = tuple(one for one in self._known.topics if one.topic_id not in ids)
            undone = await self._keep(attrs.evolve(self._known, topics=kept), [])
            if undone:
                return undone
            for topic in gone:
                partition = self.partitions.get(topic.partitions[0])
                if partition is not None:
                    partition.remove(TopicId(topic.topic_id))
            return []

    async def _keep(self, known: KnownSets, partitions: Sequence[PartitionId]) -> list[m.Undone]:
        if known != self._known:
            try:
                await self._file.store(known)
            except StorageError as error:
                _log.error("relay sets not stored", why=str(error))
                return [m.Undone(one, "", str(error)) for one in partitions]
            self._known = known
            self._act()
        return []

    def reported(self) -> tuple[Sequence[RelaySetRecord], Sequence[TopicRecord]]:
        """See `RelayOrders`."""
        return self._known.sets, self._known.topics

    def joined(self) -> None:
        """The register has let this broker in: say which sets are in force."""
        for partition in self.partitions.values():
            if partition.is_agreed:
                self._tell(partition)

    def _tell(self, partition: RelayPartition) -> None:
        version = partition.relay_set.version
        self._report(m.RelayReport(partition.number, version, partition.epoch))

    # --- acting on them ------------------------------------------------------------------

    def _act(self) -> None:
        """Take part in exactly the sets that are known."""
        known, me = self._known, self._begun().me
        self._mesh.relays = dict(known.addresses)
        self._mesh.topics = {TopicName(one.topic): one for one in known.topics}
        for number in self.partitions.keys() - {one.partition for one in known.sets}:
            self.partitions.pop(number).leave()
        for record in known.sets:
            relay_set = RelaySet(record.partition, record.members, record.version)
            partition = self.partitions.get(record.partition)
            if partition is None and me in relay_set:
                partition = self.partitions[record.partition] = self._new(relay_set)
            elif partition is not None:
                partition.know_set(relay_set)
        for topic in known.topics:
            partition = self.partitions.get(topic.partitions[0])
            if partition is not None:
                partition.bound(TopicId(topic.topic_id), bounds_of(topic.options))
        self._begun().links.meet()

    def _wish(self) -> None:
        for number, partition in self.partitions.items():
            if number in self._wished:
                partition.wish(self._wished[number])

    def _begun(self) -> RelayServing:
        """The parts that all partitions share; they begin with the first one."""
        if self._serving is not None:
            return self._serving
        identity = self._identity
        assert identity is not None
        assert identity.broker is not None
        self._mesh = RegisterMesh(ClusterId(identity.cluster))
        self._ids = MessageIds(node_name(identity.broker, identity.incarnation))
        links = RelayLinks(
            self._environment,
            self._mesh,
            OwnGreeting(identity.broker, identity.incarnation, identity.nonce),
            self._agent,
            self._credentials,
            self._take,
            self._forgot,
        )
        self._serving = RelayServing(
            self._environment,
            self._mesh,
            identity.broker,
            identity.incarnation,
            self.partitions,
            links,
            self._readers,
        )
        self._nursery.start_soon(links.run)
        self._nursery.start_soon(self._keep_time)
        return self._serving

    def _new(self, relay_set: RelaySet) -> RelayPartition:
        serving = self._begun()
        assert self._ids is not None
        partition = RelayPartition(
            self._environment,
            relay_set,
            serving.me,
            serving.incarnation,
            self._store,
            self._ids,
            BufferBounds(),
            self.memory,
            PartitionLinks(serving.links, relay_set.partition),
            self._nursery,
            lambda error: _log.error("generation not stored", why=str(error)),
        )
        partition.begun = self._tell
        return partition

    def _take(
        self, sender: BrokerId, partition: PartitionId, life: RelayLife, message: RelayMessage
    ) -> None:
        if (found := self.partitions.get(partition)) is not None:
            found.receive(sender, life, message)

    def _forgot(self, known: Incarnation) -> None:
        self._nursery.start_soon(self._count_on, known)

    async def _count_on(self, known: Incarnation) -> None:
        """Another relay knows a later start of this broker: its data directory was lost.  Have the
        next start count on from there, and end.

        Raises:
          StorageError: always.
        """
        identity = self._identity
        assert identity is not None
        later = attrs.evolve(identity, incarnation=known)
        await store_identity(self._environment, self._data_directory, later)
        raise StorageError(
            f"{self._data_directory} has forgotten starts of this broker: it counts "
            f"{identity.incarnation}, and another relay knows {known}; start it again, and it "
            "counts on from there"
        )

    async def _keep_time(self) -> None:
        clock = self._environment.clock
        while True:
            for one in list(self.partitions.values()):
                one.tick()
            make_room(self.memory, self.partitions.values(), clock.now())
            await clock.sleep_until(clock.now() + RELAY_TICK_S)

    async def hand_over(self) -> None:
        """Have others be the sequencers: this broker is about to stop."""
        if self.partitions:
            await hand_over(self._environment.clock, list(self.partitions.values()))

    # --- other relays, and clients -------------------------------------------------------

    def session(self, connection: Connection) -> RelaySession:
        """A connection of another relay."""
        return RelaySession(self._links, connection)

    @property
    def clocks(self) -> dict[BrokerId, float]:
        """See `RelayLinks.clocks`; empty: this broker keeps no topics in memory."""
        return {} if self._serving is None else self._serving.links.clocks

    def _links(self) -> RelayLinks:
        """The connections with other relays.

        Raises:
          NotReadyError: if this broker is in no relay set, as far as it knows.
        """
        if self._serving is None:
            raise NotReadyError("this broker is in no relay set (yet)")
        return self._serving.links

    def has(self, topic: str) -> bool:
        return topic in self._mesh.topics

    def is_one(self, stream: LocalStream) -> bool:
        return isinstance(stream, StreamLog)

    def served(self, topic: str, partition: PartitionId) -> StreamLog:
        serving = self._begun()
        try:
            return serving.served(topic, partition)
        except NotLeaderError as error:
            raise serving.redirected(error, partition) from error

    def redirected(self, error: NotLeaderError, partition: PartitionId) -> RefusedError:
        return self._begun().redirected(error, partition)

    def produce(self, connection: Connection, message: m.Produce) -> None:
        serving = self._begun()
        try:
            produce(serving, connection, message)
        except NotLeaderError as error:
            raise serving.redirected(error, message.partition) from error

    def describe(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[m.LogInfo]]:
        found: list[m.LogInfo] = []
        for some in in_groups(self._held(topic, after, count_max, covers)):
            found += [one.describe() for one in some]
            yield
        return found

    def count(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[m.LogCount]]:
        found: list[m.LogCount] = []
        for one in self._held(topic, after, count_max, covers):
            counted = yield from one.count()
            found.append(counted)
        return found

    def _held(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> list[StreamLog]:
        if self._serving is None:
            return []
        return self._serving.held(self._mesh.topics, topic, after, count_max, covers)

    def relays(self, request: int) -> m.RelayList:
        return (
            m.RelayList(request, ())
            if self._serving is None
            else relay_list(self._serving, request)
        )

    def stream_description(self, message: m.DescribeRelayStream) -> m.RelayStreamDescription:
        serving = self._serving
        if serving is None:
            raise NotLeaderError(f"this broker has no topic {message.topic[:200]} in memory")
        return stream_description(serving, message)


def bounds_of(options: TopicOptions) -> BufferBounds:
    """The bounds of the stream of a topic with *options*."""
    usual = BufferBounds()
    size, count, age_ms = options.buffer_bytes, options.buffer_count, options.buffer_age_ms
    return BufferBounds(
        usual.size_bytes if size is None else size,
        usual.count if count is None else count,
        usual.age_s if age_ms is None else age_ms / 1000,
    )
