"""The internal logs of a broker's partitions: appending, reading, and snapshots.

`octopi.replication.internal_log` describes their entries.  The machines that replicate the logs of
topics replicate these logs, too; no client reads or writes them.
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
    next_records,
    outdated_end,
    snapshot_due_at,
)
from octopi.replication.log_leader import LogLeader
from octopi.replication.partition_leader import PartitionLeader
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.replica_driver import ReplicaDriver

_log = get_logger(__name__)

NOT_LED = "this broker does not lead the partition (any more)"


class InternalLogs:
    """The internal logs of one name, of the replicas on this broker."""

    def __init__(
        self,
        environment: Environment,
        replica_of: Callable[[PartitionId], ReplicaDriver | None],
        name: str = SUBSCRIPTIONS_LOG,
    ) -> None:
        """*replica_of*: finds this broker's replica of a partition, if it has one."""
        self._environment = environment
        self._replica_of = replica_of
        self.name = name
        self._topic_id = TopicId(name)
        self._due_at: dict[PartitionId, Offset] = {}
        """The log end at which the next snapshot of a partition is due, by the size of the live
        entries when that was checked last."""
        self._wanted: dict[PartitionId, None] = {}
        """Partitions for which to check whether a snapshot is due."""
        self._is_wanted = trio.Event()
        self._in_progress: set[PartitionId] = set()
        """Partitions for which a snapshot is being made."""
        self._found: dict[PartitionId, tuple[LocalLog, Epoch, SnapshotFinder]] = {}
        """How far the logs that are long enough were searched for snapshots."""

    # --- appending -----------------------------------------------------------------------

    def append(self, partition: PartitionId, key: str, value: Value | None, done: Answer) -> None:
        """Set *key* to *value* in the log of *partition*; without a value, remove the key.

        *done* is called once, during this call or later, and must not wait.  Its argument is the
        `CommitReceipt` when the entry is committed; then only a failure that loses messages, too,
        can take the entry back.  Its argument is a `Refusal` if the entry isn't known to be
        committed: with status UNCOMMITTED the entry may still be committed later, and with
        NOT_LEADER another broker leads.  Entries lie in the log in the order of the calls.

        Raises:
          ValueError: if *key* or *value* have no stored form; then nothing is appended, and *done*
              is not called.
        """
        self.append_all(partition, [(key, value)], done)

    def append_all(
        self, partition: PartitionId, entries: Sequence[tuple[str, Value | None]], done: Answer
    ) -> None:
        """Like `append` for several entries, in this order.  Either all of them are appended, or
        none.

        Raises:
          ValueError: as for `append`.
        """
        encoded = [encode(self.name, key, value) for key, value in entries]
        self._append(partition, lambda: encoded, done)

    def append_fence(
        self, partition: PartitionId, fence: Callable[[], EncodedEntry | None], done: Answer
    ) -> None:
        """Append the entry that *fence* returns, in the log of *partition*.  *fence* is called when
        all earlier appends are in the logs of the partition; if it raises an `OctopiError`, *done*
        gets a `Refusal`.  If it returns none, *done* is called at once with a `CommitReceipt` of
        the log's end.  *done*: as for `append`."""

        def entries() -> list[EncodedEntry]:
            entry = fence()
            return [] if entry is None else [entry]

        self._append(partition, entries, done)

    async def committed(self, partition: PartitionId, log: LocalLog, end: Offset) -> None:
        """Wait until the present leader of *partition* has committed *log*, one of its logs, up to
        *end*.

        Raises:
          NotLeaderError: if this broker doesn't lead the partition, or leads it no longer.
        """
        replica, _ = self._led(partition)
        await self._committed(replica, log, replica.machine.leader, end)

    def _append(
        self, partition: PartitionId, entries: Callable[[], list[EncodedEntry]], done: Answer
    ) -> None:
        replica = self._replica_of(partition)
        log = replica.logs.get(self._topic_id) if replica is not None else None
        if replica is None or log is None:
            done(Refusal(Status.NOT_LEADER, NOT_LED))
        else:

            def make(leader: LogLeader) -> bytes:
                given = entries()
                now_ms = self._environment.clock.wall_ms()
                return next_records(self._topic_id, leader, given, now_ms) if given else b""

            replica.append_made(log, make, done)
            if log.end >= self._due_at.get(partition, log.start + SNAPSHOT_BYTES_MIN):
                self._wanted[partition] = None
                self._is_wanted.set()

    def require_in_sync(self, partition: PartitionId, count: int) -> None:
        """From now on commit nothing in the log of *partition* while fewer than *count* replicas
        are in sync.  *count* is the greatest ``min_insync`` of the topics whose subscriptions are
        kept in this log, and 1 if there are none."""
        replica = self._replica_of(partition)
        log = replica.logs.get(self._topic_id) if replica is not None else None
        if replica is not None and log is not None:
            replica.require(self._topic_id, count, flush=log.state.flush_before_ack)

    # --- reading -------------------------------------------------------------------------

    async def load(self, partition: PartitionId) -> Fold:
        """Read the log of *partition*, which this broker leads, from its start to its end, and wait
        until everything read is committed.

        Other tasks run meanwhile.  Call this when a leadership begins, before the first append; the
        result may or may not contain entries that are appended during the call.

        Raises:
          NotLeaderError: if this broker doesn't lead the partition.
          DamagedEntryError: if an entry is damaged, or this version doesn't know it.
          StorageError: if the log can't be read.
        """
        replica, log = self._led(partition)
        leader = replica.machine.leader
        while True:
            fold = Fold(self.name, partition, log.start)
            try:
                await self._read_on(fold, log)
                break
            except OffsetOutOfRangeError:
                # Retention removed the segments before a snapshot meanwhile; the rest of the log
                # has the same live entries.
                if log.start <= fold.end:
                    raise
        self._due_at[partition] = fold.snapshot_due_at
        await self._committed(replica, log, leader, fold.end)
        return fold

    async def _committed(
        self, replica: ReplicaDriver, log: LocalLog, leader: PartitionLeader | None, end: Offset
    ) -> None:
        """Wait until *leader* has committed *log* up to *end*.

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
        """Read *log* into *fold*, from the end of *fold* to the end of *log*."""
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
            pass  # the next leader makes the snapshot
        except StorageError as error:
            _log.error("no snapshot of an internal log", partition=partition, why=str(error))
            # Don't try again at each append.
            log = self._led(partition)[1] if self._leads(partition) else None
            if log is not None:
                self._due_at[partition] = Offset(log.end + SNAPSHOT_BYTES_MIN)
        finally:
            self._in_progress.discard(partition)

    async def _make_snapshot(self, partition: PartitionId) -> None:
        """If a snapshot is due, append all live entries of the log again, piece by piece.

        Raises:
          NotLeaderError: if this broker doesn't lead the partition.
          StorageError: if the log can't be read or appended to.
        """
        _, log = self._led(partition)
        fold = Fold(self.name, partition, log.start)
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
            return [begin_entry(self.name)]

        await self._append_in_turn(partition, first)
        for keys in pieces:
            await self._read_on(fold, log)
            await self._append_in_turn(partition, partial(self._live, fold, log, keys))
        await self._append_in_turn(partition, lambda: [end_entry(self.name, begin)])
        self._due_at[partition] = snapshot_due_at(begin, fold.live_bytes)
        _log.info("snapshot made", log=self.name, partition=partition, begin=begin)

    def _live(self, fold: Fold, log: LocalLog, keys: list[str]) -> list[EncodedEntry]:
        self._catch_up(fold, log)
        return fold.live(keys)

    def _catch_up(self, fold: Fold, log: LocalLog) -> None:
        """Like `_read_on`, but without waiting, for the few entries that were appended since."""
        while fold.end < log.end:
            fold.read(log.read_uncommitted(fold.end, FETCH_BYTES_DEFAULT))

    async def _append_in_turn(
        self, partition: PartitionId, entries: Callable[[], list[EncodedEntry]]
    ) -> None:
        """Append the entries that *entries* returns, and wait until they are committed.

        Raises:
          NotLeaderError: if this broker doesn't lead the partition any more.
          StorageError: if the entries aren't known to be committed.
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

    # --- retention -----------------------------------------------------------------------

    async def apply_retention(self, log: LocalLog) -> None:
        """Remove the segments of the internal log *log*, of a replica on this broker, that lie
        before the newest snapshot which is committed and durable on this broker as a whole."""
        if log.end - log.start <= INTERNAL_SEGMENT_BYTES_MAX:
            return  # the log has only one segment
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
        """The search of *log* for snapshots, continued from the last call.  In another epoch it
        begins anew, because an operator may have accepted a loss of committed records."""
        known, epoch, finder = self._found.get(log.partition, (None, log.epoch, None))
        is_good = known is log and epoch == log.epoch
        if finder is None or not is_good or not log.start <= finder.end <= log.highwater:
            finder = SnapshotFinder(self.name, log.partition, log.start)
            self._found[log.partition] = log, log.epoch, finder
        return finder

    def _leads(self, partition: PartitionId) -> bool:
        replica = self._replica_of(partition)
        return replica is not None and replica.leads and self._topic_id in replica.logs

    def _led(self, partition: PartitionId) -> tuple[ReplicaDriver, LocalLog]:
        """The replica and its internal log, if this broker leads the partition.

        Raises:
          NotLeaderError: if it doesn't lead.
        """
        replica = self._replica_of(partition)
        log = replica.logs.get(self._topic_id) if replica is not None else None
        if replica is None or log is None or not replica.leads:
            raise NotLeaderError(NOT_LED)
        return replica, log
