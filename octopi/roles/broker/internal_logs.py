"""The internal logs of a broker's partitions: appended to, read, and kept short.

What stands in them is in `octopi.replication.internal_log`.  They are replicated like the logs of
topics, by the same machines, and no client reads or writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import trio

from octopi.environment import Environment
from octopi.errors import NotLeaderError, OffsetOutOfRangeError, RefusedError, Status, StorageError
from octopi.identifiers import SUBSCRIPTIONS_LOG, Epoch, Offset, PartitionId, TopicId
from octopi.limits import (
    FETCH_BYTES_DEFAULT,
    INTERNAL_SEGMENT_BYTES_MAX,
    SNAPSHOT_BYTES_MIN,
    SNAPSHOT_PIECE_BYTES,
)
from octopi.logger import get_logger
from octopi.replication.effects import Answer, CommitReceipt, Refusal
from octopi.replication.internal_log import (
    EncodedEntry,
    Fold,
    SnapshotFinder,
    Value,
    begin_entry,
    encode,
    end_entry,
    outdated_end,
    snapshot_due_at,
)
from octopi.replication.partition_leader import PartitionLeader
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.replica_driver import ReplicaDriver

_log = get_logger(__name__)

NOT_LED = "this broker does not lead the partition (any more)"


class InternalLogs:
    """The logs ``~subscriptions`` of the replicas on one broker."""

    def __init__(
        self,
        environment: Environment,
        replica_of: Callable[[PartitionId], ReplicaDriver | None],
        name: str = SUBSCRIPTIONS_LOG,
    ) -> None:
        """*replica_of*: this broker's replica of a partition, if it has one."""
        self._environment = environment
        self._replica_of = replica_of
        self._name = name
        self._topic_id = TopicId(name)
        self._due_at: dict[PartitionId, Offset] = {}
        """Where the log of a partition has to end for a snapshot to be due, by what was live when
        that was looked at last."""
        self._wanted: dict[PartitionId, None] = {}
        """Partitions of which it is to be looked at whether a snapshot is due."""
        self._is_wanted = trio.Event()
        self._in_progress: set[PartitionId] = set()
        """Partitions of which a snapshot is being made."""
        self._found: dict[PartitionId, tuple[LocalLog, Epoch, SnapshotFinder]] = {}
        """How far logs were searched for snapshots, of those that are long enough."""

    # --- appending -----------------------------------------------------------------------

    def append(self, partition: PartitionId, key: str, value: Value | None, done: Answer) -> None:
        """Set *key* to *value* in the log of *partition*; without a value, remove the key.

        *done* is called once, from here or later, and must not wait: with the `CommitReceipt` when
        the entry is committed, which no failure but one that loses messages, too, takes back; with
        a `Refusal` if that is not known.  With status UNCOMMITTED the entry may be committed later
        all the same, and with NOT_LEADER another broker leads.  What is appended first lies
        first in the log.

        Raises:
          ValueError: if key or value have no stored form; nothing is appended, and *done* is not
              called.
        """
        self.append_all(partition, [(key, value)], done)

    def append_all(
        self, partition: PartitionId, entries: Sequence[tuple[str, Value | None]], done: Answer
    ) -> None:
        """The same for several entries, in this order; they are appended together, or none is.

        Raises:
          ValueError: as `append`.
        """
        encoded = [encode(self._name, key, value) for key, value in entries]
        self._append(partition, lambda: encoded, done)

    def _append(
        self, partition: PartitionId, entries: Callable[[], list[EncodedEntry]], done: Answer
    ) -> None:
        replica = self._replica_of(partition)
        log = replica.logs.get(self._topic_id) if replica is not None else None
        if replica is None or log is None:
            done(Refusal(Status.NOT_LEADER, NOT_LED))
        else:
            replica.append_internal(log, entries, done)
            if log.end >= self._due_at.get(partition, log.start + SNAPSHOT_BYTES_MIN):
                self._wanted[partition] = None
                self._is_wanted.set()

    def require_in_sync(self, partition: PartitionId, count: int) -> None:
        """Commit nothing in the log of *partition* from here on while fewer replicas than *count*
        are in sync.  *count* is the greatest ``min_insync`` of the topics whose subscriptions are
        kept there, 1 if there is none."""
        replica = self._replica_of(partition)
        if replica is not None:
            replica.require_in_sync(self._topic_id, count)

    # --- reading -------------------------------------------------------------------------

    async def load(self, partition: PartitionId) -> Fold:
        """Read the log of *partition*, which this broker leads, from its start to its end, and wait
        until all of that is committed.

        Others have their turn meanwhile.  Call it once a leadership begins, before the first
        append; entries that are appended while it reads may be in the result or not.

        Raises:
          NotLeaderError: if this broker doesn't lead the partition, or not any more.
          DamagedEntryError: if there is an entry that this version doesn't know or that is damaged.
          StorageError: if the log can't be read.
        """
        replica, log = self._led(partition)
        leader = replica.machine.leader
        while True:
            fold = Fold(self._name, partition, log.start)
            try:
                await self._read_on(fold, log)
                break
            except OffsetOutOfRangeError:
                # The segments before a snapshot went meanwhile: what is left says the same.
                if log.start <= fold.end:
                    raise
        self._due_at[partition] = fold.snapshot_due_at
        await self._committed(replica, log, leader, fold.end)
        return fold

    async def _committed(
        self, replica: ReplicaDriver, log: LocalLog, leader: PartitionLeader | None, end: Offset
    ) -> None:
        """Wait until *log* is committed up to *end* by *leader*.

        Raises:
          NotLeaderError: if it leads no longer.
        """
        changed = trio.Event()

        def wake() -> None:
            changed.set()

        log.add_waker(wake)
        try:
            while leader is not None and replica.machine.leader is leader:
                if log.highwater >= end:
                    return
                changed = trio.Event()
                await changed.wait()
        finally:
            log.remove_waker(wake)
        raise NotLeaderError(NOT_LED)

    async def _read_on(self, fold: Fold, log: LocalLog) -> None:
        """Have *fold* know what lies behind its end, up to the end of *log*."""
        while fold.end < log.end:
            await log.prove(fold.end)
            fold.read(log.read_uncommitted(fold.end, FETCH_BYTES_DEFAULT))
            await trio.lowlevel.checkpoint()

    # --- snapshots -----------------------------------------------------------------------

    async def run(self) -> None:
        """Make snapshots of logs that have grown long, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._is_wanted.wait()
                self._is_wanted = trio.Event()
                wanted, self._wanted = self._wanted, {}
                for partition in wanted:
                    if partition not in self._in_progress:
                        self._in_progress.add(partition)
                        nursery.start_soon(self._see_to_snapshot, partition)

    async def _see_to_snapshot(self, partition: PartitionId) -> None:
        try:
            await self._make_snapshot(partition)
        except NotLeaderError:
            pass  # who leads now sees to it
        except StorageError as error:
            _log.error("no snapshot of an internal log", partition=partition, why=str(error))
            # Not again with each append.
            log = self._led(partition)[1] if self._leads(partition) else None
            if log is not None:
                self._due_at[partition] = Offset(log.end + SNAPSHOT_BYTES_MIN)
        finally:
            self._in_progress.discard(partition)

    async def _make_snapshot(self, partition: PartitionId) -> None:
        """Append all live entries of a log again, piece by piece, if that is due.

        Raises:
          NotLeaderError: if this broker doesn't lead the partition, or not any more.
          StorageError: if the log can't be read, or takes nothing.
        """
        _, log = self._led(partition)
        fold = Fold(self._name, partition, log.start)
        await self._read_on(fold, log)
        self._due_at[partition] = fold.snapshot_due_at
        if log.end < fold.snapshot_due_at:
            return
        pieces: list[list[str]] = []
        begin = log.end

        def first() -> list[EncodedEntry]:
            nonlocal begin
            self._catch_up(fold, log)
            begin = log.end
            pieces.extend(fold.pieces(SNAPSHOT_PIECE_BYTES))
            return [begin_entry(self._name)]

        await self._append_in_turn(partition, first)
        for keys in pieces:
            await self._read_on(fold, log)
            await self._append_in_turn(partition, partial(self._live, fold, log, keys))
        await self._append_in_turn(partition, lambda: [end_entry(self._name, begin)])
        self._due_at[partition] = snapshot_due_at(begin, fold.live_bytes)
        _log.info("snapshot made", log=self._name, partition=partition, begin=begin)

    def _live(self, fold: Fold, log: LocalLog, keys: list[str]) -> list[EncodedEntry]:
        self._catch_up(fold, log)
        return fold.live(keys)

    def _catch_up(self, fold: Fold, log: LocalLog) -> None:
        """The same as `_read_on`, for the little that was appended since."""
        while fold.end < log.end:
            fold.read(log.read_uncommitted(fold.end, FETCH_BYTES_DEFAULT))

    async def _append_in_turn(
        self, partition: PartitionId, entries: Callable[[], list[EncodedEntry]]
    ) -> None:
        """Append what *entries* gives, and wait until it is committed.

        Raises:
          NotLeaderError: if this broker doesn't lead the partition any more.
          StorageError: if it is not known to be committed.
        """
        answered = trio.Event()
        answers: list[CommitReceipt | Refusal] = []

        def take(answer: CommitReceipt | Refusal) -> None:
            answers.append(answer)
            answered.set()

        self._append(partition, entries, take)
        await answered.wait()
        match answers[0]:
            case Refusal(Status.NOT_LEADER, reason):
                raise NotLeaderError(reason)
            case Refusal(status, reason):
                raise StorageError(f"not appended ({status.name.lower()}): {reason}")

    # --- what is outdated ----------------------------------------------------------------

    async def apply_retention(self, log: LocalLog) -> None:
        """Remove the segments of the internal log *log*, of a replica of this broker, that lie
        before the newest snapshot which is committed and on this broker's device as a whole."""
        if log.end - log.start <= INTERNAL_SEGMENT_BYTES_MAX:
            return  # it has one segment
        finder = self._finder(log)
        try:
            while finder.end < log.highwater:
                await log.prove(finder.end)
                records = log.read_uncommitted(finder.end, FETCH_BYTES_DEFAULT)
                finder.read(records[: log.highwater - finder.end])
                await trio.lowlevel.checkpoint()
        except (StorageError, RefusedError) as error:
            del self._found[log.partition]
            _log.error("internal log not kept short", partition=log.partition, why=str(error))
            return
        below = outdated_end(finder.snapshot, log.highwater, log.state.flushed_end)
        await log.apply_retention(outdated_below=below)

    def _finder(self, log: LocalLog) -> SnapshotFinder:
        """What searches *log* for snapshots, as far as it came the last time.  It begins anew in
        another epoch: a loss that an operator accepted takes committed records out of a log."""
        known, epoch, finder = self._found.get(log.partition, (None, log.epoch, None))
        is_good = known is log and epoch == log.epoch
        if finder is None or not is_good or not log.start <= finder.end <= log.highwater:
            finder = SnapshotFinder(self._name, log.partition, log.start)
            self._found[log.partition] = log, log.epoch, finder
        return finder

    def _leads(self, partition: PartitionId) -> bool:
        replica = self._replica_of(partition)
        return replica is not None and replica.leads and self._topic_id in replica.logs

    def _led(self, partition: PartitionId) -> tuple[ReplicaDriver, LocalLog]:
        """The replica and its log, if this broker leads.

        Raises:
          NotLeaderError: if it doesn't.
        """
        replica = self._replica_of(partition)
        log = replica.logs.get(self._topic_id) if replica is not None else None
        if replica is None or log is None or not replica.leads:
            raise NotLeaderError(NOT_LED)
        return replica, log
