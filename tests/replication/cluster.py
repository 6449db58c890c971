"""A small cluster of the machines, with plain lists for disks and network.

The shells are simulated: effects are performed in order, and a broker can stop between any
two of them.  Beside the cluster, the *ghost* knows what a bystander who sees everything
knows: what was committed, in which order, and what producers were told.  It is compared
with every broker after every step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from itertools import count
from typing import Any, Final

import attrs

from octopi.coordination.controller import Controller
from octopi.coordination.journal_entries import Entry, PartitionDecided
from octopi.identifiers import Epoch, Offset, ProducerEpoch, ProducerId, Sequence, TopicId
from octopi.record import BatchBuilder, Scan, scan
from octopi.replication import effects as fx
from octopi.replication.epoch_history import EpochHistory
from octopi.replication.log_state import LogState
from octopi.replication.partition_replica import PartitionReplica, Role
from octopi.replication.producer_sequences import ProducerSequences
from octopi.wire import messages as m

PARTITION: Final = 0
Message = tuple[int, int]
"""(producer, sequence): what a record says."""
Row = tuple[int, Message]
"""(epoch, message): a record as the ghost sees it."""


class ViolationError(AssertionError):
    """The cluster did what it promises never to do."""


def require(holds: bool, promise: str) -> None:
    """Raise if a promise is broken."""
    if not holds:
        raise ViolationError(promise)


@cache
def encode(message: Message) -> bytes:
    """The record of *message*; all have one size."""
    builder = BatchBuilder()
    builder.add(b"")
    producer, sequence = message
    return builder.encode(
        ProducerId(bytes([producer + 1]) * 16), ProducerEpoch(0), Sequence(sequence)
    )


RECORD_BYTES: Final = len(encode((0, 0)))


@attrs.define
class DiskLog:
    """The bytes of one log: rows, of which the first so many are on the device."""

    rows: list[Row] = attrs.field(factory=list)
    synced: int = 0
    epochs: list[list[int]] = attrs.field(factory=list)
    highwater: int = 0

    def data(self, first: int, count: int) -> bytes:
        return b"".join(encode(message) for _, message in self.rows[first : first + count])

    def sequences(self) -> ProducerSequences:
        table = ProducerSequences()
        table.note(scan(self.data(0, len(self.rows))), Offset(0))
        return table


class Node:
    """A broker: its disk, and while it runs, its replica."""

    def __init__(self, cluster: Cluster, broker: int, topics: list[TopicId]) -> None:
        self.cluster = cluster
        self.broker = broker
        self.state = fx.ReplicaState()
        self.logs = {topic: DiskLog() for topic in topics}
        self.incarnation = 0
        self.nonce = ""
        self.ancestors: list[str] = []
        self.lost_power = False
        self.copied: tuple[fx.ReplicaState, dict[TopicId, DiskLog], int, str, list[str]] | None = (
            None
        )
        self.replica: PartitionReplica | None = None
        self.wants_stream = False
        self.wants_flush: set[TopicId] = set()
        self.cursors: dict[tuple[int, int, int, TopicId], int] = {}
        self.alters: deque[m.AlterInSync] = deque()

    # --- life ------------------------------------------------------------------------

    def start(self) -> None:
        if self.incarnation:
            self.ancestors = [*self.ancestors, self.nonce]
        self.incarnation += 1
        self.nonce = self.cluster.next_nonce()
        logs = {
            topic: LogState(
                Offset(len(log.rows) * RECORD_BYTES),
                Offset(log.highwater * RECORD_BYTES),
                Offset(log.synced * RECORD_BYTES),
                epochs=EpochHistory.load(log.epochs),
                sequences=log.sequences(),
                flush_before_ack=False,
                min_insync=self.cluster.min_insync,
            )
            for topic, log in self.logs.items()
        }
        self.replica = PartitionReplica(
            PARTITION,
            self.broker,
            self.incarnation,
            self.state,
            logs,
            lost_power=self.lost_power,
            lag_s_max=1.0,
        )
        self.lost_power = False
        self.perform(self.replica.begin())

    def crash(self, *, forgets_highwater: bool = False) -> None:
        """The process ends; what it wrote is in the page cache.  Highwater marks are stored
        now and then only."""
        if forgets_highwater:
            for log in self.logs.values():
                log.highwater = 0
        self.replica = None
        self.wants_stream, self.wants_flush, self.cursors = False, set(), {}

    def lose_power(self, keep: Callable[[int, int], int]) -> None:
        """The machine stops; *keep* says how many rows stay, between synced and all."""
        self.crash()
        self.lost_power = True
        for log in self.logs.values():
            kept = keep(log.synced, len(log.rows))
            assert log.synced <= kept <= len(log.rows)
            del log.rows[kept:]
            log.synced = kept
            log.highwater = min(log.highwater, kept)

    def copy(self) -> None:
        """While it is down, put a copy of its data directory aside."""
        assert self.replica is None
        self.copied = deepcopy(
            (self.state, self.logs, self.incarnation, self.nonce, self.ancestors)
        )

    def restore(self) -> None:
        """While it is down, put that copy in the place of what it has."""
        assert self.replica is None
        if self.copied is not None:
            copied = deepcopy(self.copied)
            self.state, self.logs, self.incarnation, self.nonce, self.ancestors = copied

    # --- performing effects ----------------------------------------------------------

    def perform(self, effects: list[fx.PartitionEffect], limit: int | None = None) -> None:
        """Perform *effects* and what they lead to; after *limit* of them the process ends."""
        queue = deque(effects)
        self.cluster.observe(self)
        while queue and self.replica is not None:
            if limit is not None:
                if limit == 0:
                    self.crash()
                    return
                limit -= 1
            queue.extend(self._perform(queue.popleft()))
            self.cluster.observe(self)

    def _perform(self, effect: fx.PartitionEffect) -> list[fx.PartitionEffect]:
        assert self.replica is not None
        match effect:
            case fx.OnLog(topic, inner):
                return self._perform_on_log(topic, inner)
            case fx.SyncLogs():
                return [one for topic in self.logs for one in self.flush(topic)]
            case fx.StoreState(state):
                self.state = state
            case fx.FollowLeader():
                self.wants_stream = True
            case fx.ToRegister(message):
                if isinstance(message, m.AlterInSync):
                    self.alters.append(message)
                self.cluster.send(self, 0, message)
            case fx.ToBroker(broker, message):
                if isinstance(message, m.Followed):
                    topic = TopicId(message.topic_id)
                    session = (broker, message.incarnation, message.attempt, topic)
                    self.cursors[session] = message.begin // RECORD_BYTES
                self.cluster.send(self, broker, message)
        return []

    def _perform_on_log(self, topic: TopicId, effect: fx.Effect) -> list[fx.PartitionEffect]:
        assert self.replica is not None
        log = self.logs[topic]
        match effect:
            case fx.Append(records, found, answer):
                leader = self.replica.log_leader(topic)
                base = Offset(len(log.rows) * RECORD_BYTES)
                self._append(log, leader.epoch, records)
                return self._of(topic, leader.appended(base, found, answer))
            case fx.AppendReplicated(records, found):
                state = self.replica.logs[topic]
                self._append(log, state.epochs.latest, records)
                return self.replica.replicated(topic, found)
            case fx.FindDuplicate(offset, skip, answer):
                leader = self.replica.log_leader(topic)
                at = Offset(offset + skip * RECORD_BYTES)
                return self._of(topic, leader.found_duplicate(at, answer))
            case fx.FlushLog():
                self.wants_flush.add(topic)
            case fx.PublishHighwater(offset):
                log.highwater = offset // RECORD_BYTES
            case fx.Reply(answer, content):
                answer(content)
            case fx.StoreEpochs():
                log.epochs = self.replica.logs[topic].epochs.dump()
            case fx.Truncate(end):
                del log.rows[end // RECORD_BYTES :]
                log.synced = min(log.synced, len(log.rows))
                self.replica.logs[topic].sequences = log.sequences()
            case fx.Forward():
                pass
            case _:
                raise AssertionError(f"unexpected {effect}")
        return []

    @staticmethod
    def _append(log: DiskLog, epoch: Epoch, records: bytes) -> None:
        for run in scan(records).runs:
            producer = run.producer_id[0] - 1
            first = run.first_sequence
            log.rows += [(epoch, (producer, first + at)) for at in range(run.count)]

    @staticmethod
    def _of(topic: TopicId, effects: list[fx.Effect]) -> list[fx.PartitionEffect]:
        return [fx.OnLog(topic, effect) for effect in effects]

    def flush(self, topic: TopicId) -> list[fx.PartitionEffect]:
        """The device takes all that the log holds."""
        assert self.replica is not None
        log = self.logs[topic]
        log.synced = len(log.rows)
        self.wants_flush.discard(topic)
        return self.replica.flushed(topic, Offset(log.synced * RECORD_BYTES))

    # --- what a leader's shell does ----------------------------------------------------

    def produce(self, topic: TopicId, message: Message) -> list[fx.PartitionEffect]:
        """A producer sends *message*."""
        assert self.replica is not None
        data = encode(message)

        def answer(content: fx.CommitReceipt | fx.Refusal) -> None:
            self.cluster.answered(topic, message, content)

        leader = self.replica.log_leader(topic)
        return self._of(topic, leader.receive(data, scan(data), answer))

    def stream(self, broker: int, topic: TopicId, count_max: int) -> bool:
        """Send up to *count_max* records, and the highwater mark, to a follower."""
        leader = self.replica.leader if self.replica else None
        session = leader.sessions.get(broker) if leader else None
        if leader is None or session is None:
            return False
        key = (broker, *session.number, topic)
        if key not in self.cursors:
            return False
        log, at = self.logs[topic], self.cursors[key]
        epoch = log.rows[at][0] if at < len(log.rows) else 0
        count = 0
        while count < count_max and at + count < len(log.rows) and log.rows[at + count][0] == epoch:
            count += 1
        self.cursors[key] += count
        message = m.Replicate(
            PARTITION,
            leader.epoch,
            session.incarnation,
            session.attempt,
            topic,
            at * RECORD_BYTES,
            epoch,
            log.data(at, count),
            leader.logs[topic].log.highwater,
        )
        self.cluster.send(self, broker, message)
        return True

    @property
    def leads(self) -> bool:
        return self.replica is not None and self.replica.role == Role.LEADER


@attrs.frozen
class Envelope:
    """A message on its way; to 0 is to the register."""

    sender: int
    to: int
    message: Any


class Cluster:
    """Brokers 1 to n, a register, a network that keeps every message until told otherwise."""

    def __init__(self, brokers: int = 3, topics: int = 1, min_insync: int = 1) -> None:
        self.min_insync = min_insync
        self.topics = [TopicId(f"topic-{number}") for number in range(topics)]
        self.network: list[Envelope] = []
        self.journal: list[Entry] = []
        self.records: list[m.PartitionRecord] = []
        """All that were ever decided."""
        self.committed: dict[TopicId, list[Row]] = {topic: [] for topic in self.topics}
        self.acknowledged: dict[TopicId, set[Message]] = {topic: set() for topic in self.topics}
        self.answers: list[tuple[Message, fx.CommitReceipt | fx.Refusal]] = []
        self._led: dict[int, int] = {}
        self._nonces = count()
        self.controller = Controller(1, brokers)
        self.record(self.controller.form("c" * 16, self.next_nonce(), secret="5e" * 16).entries)
        self.nodes = {one + 1: Node(self, one + 1, self.topics) for one in range(brokers)}
        for node in self.nodes.values():
            node.start()
            self.register(node)
        for number, topic in enumerate(self.topics):
            creation = self.controller.topics.create(
                f"topic-{number}",
                topic,
                partitions=[PARTITION],
                options=m.TopicOptions(min_insync=min_insync),
            )
            self.record(creation.entries)
        for node in self.nodes.values():
            self.tell(node)
            self.open_stream(node)
        while self.network:
            self.deliver(0)

    def next_nonce(self) -> str:
        """One that was never used."""
        return str(next(self._nonces))

    # --- the register ----------------------------------------------------------------

    @property
    def decided(self) -> m.PartitionRecord:
        return self.controller.state.partitions[PARTITION]

    def record(self, entries: list[Entry]) -> None:
        """Journal and apply; brokers are told by `tell`."""
        self.journal += entries
        for entry in entries:
            self.controller.apply(entry)
            if isinstance(entry, PartitionDecided):
                self.records.append(entry.record)
        self.controller.check_invariants()

    def register(self, node: Node, *, hears: bool = True) -> None:
        """A restarted broker joins; the register tells it what is in force, or it ends just
        before it *hears* so.

        Raises:
          RefusedError: if it comes with an older copy of its data directory.
        """
        assert node.replica is not None
        registered = self.controller.state.brokers.get(node.broker)
        if registered is not None:
            self.controller.left(node.broker, registered.incarnation)
        known = node.state.record
        asking = m.Join(
            1,
            "c" * 16,
            node.broker,
            node.incarnation,
            node.nonce,
            node.ancestors,
            self.controller.state.life,
            f"ws://broker-{node.broker}",
            credential=self.controller.seals.credential(node.broker),
        )
        inventory = m.Inventory([known] if known else [], [], [node.replica.report])
        admission = self.controller.admit(asking, [inventory])
        self.record(admission.entries)
        self.controller.admitted(admission)
        if not hears:
            node.crash()
            return
        node.ancestors = []
        node.perform(node.replica.joined())
        if PARTITION in self.controller.state.partitions:
            self.tell(node)

    def tell(self, node: Node, record: m.PartitionRecord | None = None) -> None:
        """The broker learns a record, by default the one in force."""
        if node.replica is not None:
            node.perform(node.replica.installed(record or self.decided, 0.0))

    def announce(self) -> None:
        self.record(self.controller.elections.begin(PARTITION).entries)

    def announced_to(self, node: Node, limit: int | None = None) -> None:
        """The broker hears of the change under way; its acceptance is sent."""
        message = self.controller.elections.announcement(PARTITION)
        if node.replica is not None and message is not None:
            node.perform(node.replica.announced(message), limit)

    def conclude(self, *, recovers: bool = True) -> bool:
        """Commit the change if that is possible; *recovers*: also if it costs records."""
        if not recovers and not self.decided.in_sync:
            return False
        decision = self.controller.elections.conclude(PARTITION)
        if decision is None:
            return False
        before = self.decided
        self.record(decision.entries)
        if self.decided.recovered_epoch == self.decided.epoch:
            known = self.controller.state.brokers
            # Who was started again since may have come with a copy, of which nobody knows.
            members = [
                self.nodes[one]
                for one in before.lost
                if self.nodes[one].incarnation == known[one].incarnation and not known[one].replaced
            ]
            self._recovered(self.nodes[self.decided.leader], members)
        return True

    def _recovered(self, leader: Node, members: list[Node]) -> None:
        """*members*, which lost data, chose *leader*: what it doesn't hold is committed no more."""
        kept = self._held(leader)
        newest = max((one.state.log_epoch for one in members), default=0)
        for one in members:
            held = self._held(one)
            more = all(theirs >= ours for theirs, ours in zip(held, kept, strict=True))
            require(
                one.state.log_epoch < newest or held == kept or not more,
                "what one of those that were in sync holds is not given up for nothing",
            )
        for (topic, rows), end in zip(list(self.committed.items()), kept, strict=True):
            self.committed[topic] = rows[:end]
            self.acknowledged[topic] &= {message for _, message in rows[:end]}

    def _held(self, node: Node) -> list[int]:
        """How much *node* holds of what is committed, for each topic."""
        return [
            next(
                (at for at, (row, held) in enumerate(zip(rows, own, strict=False)) if row != held),
                min(len(rows), len(own)),
            )
            for rows, own in ((rows, node.logs[one].rows) for one, rows in self.committed.items())
        ]

    def _is_of_the_past(self, epoch: int) -> bool:
        """Whether what a replica knew in *epoch* may have been given up since."""
        record = self.controller.state.partitions.get(PARTITION)
        return record is not None and epoch < record.recovered_epoch

    def restart_register(self, journal: list[Entry] | None = None) -> None:
        """From its journal: members have to come back, their lives are the same."""
        self.controller = Controller(1, len(self.nodes))
        entries, self.journal = journal or self.journal, []
        records = self.records
        self.record(entries)
        self.records = records
        for node in self.nodes.values():
            if node.replica is not None and node.replica.registered:
                self.controller.joined(node.broker, node.incarnation)

    # --- the network -----------------------------------------------------------------

    def send(self, sender: Node, to: int, message: object) -> None:
        self.network.append(Envelope(sender.broker, to, message))

    def open_stream(self, node: Node) -> None:
        if node.replica is not None and node.wants_stream:
            node.perform(node.replica.stream_opened())

    def deliver(self, at: int, *, keep: bool = False, limit: int | None = None) -> None:
        """Deliver a message; *keep* another copy; *limit*: see `Node.perform`."""
        envelope = self.network[at] if keep else self.network.pop(at)
        if envelope.to == 0:
            self._deliver_to_register(envelope)
            return
        node = self.nodes[envelope.to]
        replica = node.replica
        if replica is None:
            return
        match envelope.message:
            case m.Follow() as message:
                node.perform(replica.follow(message), limit)
            case m.Followed() as message:
                node.perform(replica.followed(message), limit)
            case m.Replicate() as message:
                found = scan(message.records) if message.records else _NOTHING
                node.perform(replica.receive(message, found), limit)
            case m.Acknowledge() as message:
                node.perform(replica.acknowledge(message), limit)
            case m.InSyncAltered() as message:
                node.perform(replica.in_sync_altered(message, 0.0), limit)
            case m.FollowRefused():
                pass
            case unexpected:
                raise AssertionError(unexpected)

    def _deliver_to_register(self, envelope: Envelope) -> None:
        match envelope.message:
            case m.AcceptEpoch() as message:
                self.controller.elections.accept(message)
            case m.AlterInSync() as message:
                judged = self.controller.elections.alter(message)
                if judged is not None:
                    self.record(judged.entries)
                    self.network.append(Envelope(0, envelope.sender, judged.answer))

    # --- the ghost -------------------------------------------------------------------

    def answered(
        self, topic: TopicId, message: Message, content: fx.CommitReceipt | fx.Refusal
    ) -> None:
        self.answers.append((message, content))
        if isinstance(content, fx.CommitReceipt) and not self._is_of_the_past(content.epoch):
            self.acknowledged[topic].add(message)
            at = content.offset // RECORD_BYTES
            rows = self.committed[topic]
            require(at < len(rows) and rows[at][1] == message, "a receipt names what is committed")
            require(rows[at][0] == content.epoch, "a receipt names the epoch of its record")

    def observe(self, node: Node) -> None:
        """Take note of what *node* commits or begins to lead, then check every promise."""
        replica = node.replica
        if (
            replica is not None
            and replica.leader is not None
            and not self._is_of_the_past(replica.leader.epoch)
        ):
            for topic, leader in replica.leader.logs.items():
                self._committed(
                    topic, node.logs[topic].rows[: leader.log.highwater // RECORD_BYTES]
                )
            epoch = replica.leader.epoch
            if epoch == self.decided.epoch and self._led.get(node.broker) != epoch:
                self._led[node.broker] = epoch
                for topic, rows in self.committed.items():
                    own = node.logs[topic].rows
                    require(own[: len(rows)] == rows, "a leader holds all that was committed")
                    messages = {message for _, message in own}
                    require(
                        self.acknowledged[topic] <= messages, "a leader holds what was promised"
                    )
        self.check()

    def _committed(self, topic: TopicId, rows: list[Row]) -> None:
        before = self.committed[topic]
        shared = min(len(before), len(rows))
        require(rows[:shared] == before[:shared], "what is committed at an offset never changes")
        if len(rows) <= len(before):
            return
        messages = [message for _, message in rows]
        require(len(set(messages)) == len(messages), "nothing is committed twice")
        for producer in {producer for producer, _ in messages}:
            sequences = [sequence for one, sequence in messages if one == producer]
            require(sequences == list(range(len(sequences))), "sequences have no gap")
        self.committed[topic] = rows

    def check(self) -> None:
        """Check what holds after every step."""
        led = [
            one.replica.state.promised for one in self.nodes.values() if one.leads and one.replica
        ]
        require(len(set(led)) == len(led), "an epoch has one leader")
        for topic in self.topics:
            committed = self.committed[topic]
            logs = [node.logs[topic] for node in self.nodes.values()]
            for node, log in zip(self.nodes.values(), logs, strict=True):
                served = log.rows[: log.highwater]
                is_told = node.replica is not None and not self._is_of_the_past(
                    node.replica.state.log_epoch
                )
                require(
                    not is_told or served == committed[: log.highwater],
                    "a broker serves only what is committed",
                )
            for one in logs:
                for other in logs:
                    _check_matching(one.rows, other.rows)
            for log in logs:
                _check_history(log)
        for node in self.nodes.values():
            if node.replica is not None:
                node.replica.check_invariants()


def _check_matching(one: list[Row], other: list[Row]) -> None:
    for at in reversed(range(min(len(one), len(other)))):
        if one[at][0] == other[at][0]:
            require(one[: at + 1] == other[: at + 1], "epoch and offset name one record")
            return


def _check_history(log: DiskLog) -> None:
    """What a restart would find, at any moment."""
    epochs = EpochHistory.load(log.epochs)
    for at, (epoch, _) in enumerate(log.rows):
        require(epochs.epoch_at(Offset(at * RECORD_BYTES)) == epoch, "epoch histories are right")


_NOTHING: Final = Scan(0, 0, [], [], -1, None)
