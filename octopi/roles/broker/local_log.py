"""One log of a broker: how its files are written, flushed, truncated and retained.

`octopi.roles.broker.readable_log` describes what readers see of a log.
`octopi.roles.broker.replica_driver` plays the role that the broker has for the log, and calls the
methods here in the order of the machine's effects.

The log's checkpoint file (`octopi.roles.broker.log_checkpoint`) keeps what is not in the segments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from octopi.environment import Environment
from octopi.errors import DiskFullError, StorageError
from octopi.identifiers import NO_EPOCH, Offset, PartitionId, TopicId
from octopi.limits import DISK_LOOK_INTERVAL_S
from octopi.logger import get_logger
from octopi.record import Scan
from octopi.replication.producer_sequences import ProducerSequences
from octopi.roles.broker.flusher import Flusher
from octopi.roles.broker.kept_start import KeptStart, kept_start
from octopi.roles.broker.log_checkpoint import LogCheckpoint, checkpoint_path
from octopi.roles.broker.log_files import (
    alter_files,
    open_files,
    opened_state,
    sequences_below,
    sequences_of,
    with_shared_options,
)
from octopi.roles.broker.readable_log import ReadableLog
from octopi.roles.broker.replica_ends import ReplicaEnds, expected
from octopi.storage import checkpoint
from octopi.storage.brief_lock import BriefLock
from octopi.storage.ends_file import NotedCheckpoint
from octopi.storage.flush_policy import FlushOptions, FlushPolicy
from octopi.storage.segmented_log import SegmentedLog
from octopi.storage.time_slices import in_turns
from octopi.subscriptions.known_marks import SlowestMark
from octopi.tracing import steps
from octopi.wire.messages import TopicRecord

_log = get_logger(__name__)

_BEGINNING: Final = Offset(0)


class LocalLog(ReadableLog):
    """The log of one (topic, partition)."""

    # A broker may have many thousands of logs; a dictionary of attributes for each would be large.
    # fmt: off
    __slots__ = (
        "_checkpoint", "_cut_at", "_environment", "_flusher", "_is_closed", "_notes",
        "_policy", "_sets_aside", "_storing",
        "appended_bytes", "appended_count", "delivered_bytes", "directory",
        "refused_cuts",
    )
    # fmt: on

    def __init__(
        self,
        environment: Environment,
        directory: str,
        topic: TopicRecord,
        partition: PartitionId,
        flusher: Flusher,
        flush_options: FlushOptions,
        ends: ReplicaEnds | None,
        files: SegmentedLog,
        stored: dict[str, Any],
        sequences: ProducerSequences,
    ) -> None:
        """Use `LocalLog.open`.  *files* were opened according to *stored*, the log's checkpoint,
        and *ends*; *sequences* are those of all records of the log."""
        super().__init__(topic, partition)
        self.directory = directory
        self.appended_count = 0
        """Records appended since the log was opened."""
        self.appended_bytes = 0
        self.delivered_bytes = 0
        """The bytes of the log that consumers were sent since the log was opened."""
        self.refused_cuts = 0
        """How often a leader asked to cut records that are known to be committed."""
        self._notes = ends
        self._cut_at: Offset | None = None
        """The new end of the log while it is being cut, else None."""
        self._environment = environment
        self._flusher = flusher
        self._policy = FlushPolicy(flush_options)
        self._storing = BriefLock()
        self._is_closed = False
        noted = ends.noted(self.topic_id) if ends is not None else None
        self._checkpoint = LogCheckpoint(
            environment, directory, stored, noted.checkpoint if noted is not None else None
        )
        self._files = files
        self._sets_aside = files.damage is not None
        """Whether damage was found that is not yet moved out of the log and noted as such."""
        self.state = opened_state(topic, files, stored, noted, sequences)
        self._published = self.state.highwater

    @classmethod
    async def open(
        cls,
        environment: Environment,
        directory: str,
        topic: TopicRecord,
        partition: PartitionId,
        flusher: Flusher,
        flush_options: FlushOptions,
        *,
        cut_altered: bool = True,
        ends: ReplicaEnds | None = None,
        lost_power: bool = False,
    ) -> LocalLog:
        """Open the log in *directory*, with recovery after an unclean end.  Other tasks run
        meanwhile, because recovery of a large log takes long.

        *ends*: the file of ends, with which the log's files are compared.  *lost_power*: the
        machine may have lost power since, so the page cache may be lost, too.

        Raises:
          AlteredTailError: see `octopi.storage.segmented_log.SegmentedLog.open`.
          StorageError: if the log can't be opened.
        """
        stored = checkpoint.load(environment.disk, checkpoint_path(directory)) or {}
        sequences = sequences_of(stored)
        if (trace := environment.trace) is not None:
            trace(
                steps.D5Recovering(topic=topic.topic, topic_id=topic.topic_id, partition=partition)
            )
        noted = ends.noted(TopicId(topic.topic_id)) if ends is not None else None
        files = await open_files(
            environment,
            directory,
            topic,
            partition,
            Offset(stored.get("recovery_point", 0)),
            sequences,
            expected(noted, lost_power=lost_power),
            cut_altered=cut_altered,
        )
        log = cls(
            environment,
            directory,
            topic,
            partition,
            flusher,
            flush_options,
            ends,
            files,
            stored,
            sequences,
        )
        if trace is not None:
            trace(
                steps.D5Recovered(
                    **log._ends(),
                    log_start=log.start,
                    highwater=log.highwater,
                    epochs=log.state.epochs.dump(),
                )
            )
        return log

    # --- writing ---------------------------------------------------------------------

    def append(self, records: bytes, scan: Scan) -> Offset:
        """Append valid records; return the offset where they begin.

        Raises:
          StorageError: if nothing was appended.
        """
        clock = self._environment.clock
        base = self._files.append(records, scan, clock.wall_ms())
        self._policy.appended(scan.count, len(records), clock.now())
        self.appended_count += scan.count
        self.appended_bytes += len(records)
        due_at = self._policy.due_at
        if due_at is not None:
            self._flusher.want(self._flush, due_at)
        return base

    async def truncate(self, end: Offset, *, keeps: bool = False) -> None:
        """Drop all records from *end* on; the machine's state ends there already.  *keeps*: keep
        their bytes in a file beside the log.

        Raises:
          StorageError: if the disk fails, or *end* is inside a record, as no sound leader says.
        """
        async with self._storing:  # no checkpoint of the cut records may be stored later
            self._cut_at = end
            try:
                await self._truncate(end, keeps=keeps)
            finally:
                self._cut_at = None
        self._published = min(self._published, end)
        self._note_later()

    async def _truncate(self, end: Offset, *, keeps: bool) -> None:
        stored, recovery_point = self._checkpoint.load(), self._checkpoint.recovery_point
        start = self._files.start
        if recovery_point <= end:
            known, behind = sequences_of(stored), max(start, recovery_point)
        else:
            known, behind = self.state.sequences.before(start), start
        self.state.sequences = await sequences_below(end, self._files, known, behind)
        if max(recovery_point, stored.get("highwater", 0)) > end:
            # A recovery point behind the end would make the next opening miss records.
            await self._note(end)
        if self._notes is not None:
            await self._notes.set_back(self.topic_id, self._files.start, end)
        if keeps:
            saved = await self._files.truncate_aside(end)
            _log.warning("what was cut is kept", topic=self.topic.topic, files=saved)
        else:
            self._files.truncate(end)
            await self._files.flush()  # else it could come back as a part of a newer epoch

    async def set_aside(self, *, refill: bool) -> None:
        """Move the damaged part and everything behind it out of the log, which then takes records
        again; harmless if nothing is damaged.  *refill*: the leader sends again what is missing
        before the first segment.

        Raises:
          StorageError: if the disk fails.
        """
        async with self._storing:
            if not self._sets_aside:
                return
            if self._files.damage is not None:  # otherwise only noting it failed the last time
                saved = await self._files.set_aside(refill=refill)
                self.state.damage_set_aside(self._files.start, self._files.end)
                _log.warning(
                    "what is damaged was set aside",
                    topic=self.topic.topic,
                    partition=self.partition,
                    log_start=self._files.start,
                    log_end=self._files.end,
                    files=saved,
                )
            start, end = self._files.start, self._files.end
            # Until the second one is stored, the log counts as damaged when it is opened.
            await self._note(end)
            if self._notes is not None:
                await self._notes.set_back(self.topic_id, start, end)
            self._sets_aside = False
        self.publish(self.state.highwater)

    async def alter(self, topic: TopicRecord) -> None:
        """Go by the options of *topic* from now on, and store them durably.

        Raises:
          StorageError: if the disk fails; then the log goes by the former ones.
        """
        async with self._storing:
            await self._checkpoint.store(self._checkpoint.altered(topic), self._ends)
            if self._notes is not None:
                await self._notes.add([topic])
            self.note_checkpoint()
            self.topic = with_shared_options(topic)
            alter_files(self._files, self.state, topic)
            self.told_generations()

    async def restart(self, start: Offset) -> None:
        """Drop all records; the log continues at *start*.

        Raises:
          StorageError: if the disk fails.
        """
        async with self._storing:
            self._cut_at = Offset(0)
            try:
                await self._note(Offset(0))
                if self._notes is not None:
                    await self._notes.set_back(self.topic_id, start, Offset(0))
                self._files.restart(start)
            finally:
                self._cut_at = None
        self._published = start
        self._note_later()

    # --- flushing --------------------------------------------------------------------

    def want_flush(self) -> None:
        """Have the log flushed soon."""
        self._flusher.want(self._flush, 0.0)

    async def _flush(self) -> None:
        """Flush the log, report that to the replica, and move the recovery point from time to
        time."""
        if self._is_closed:
            return
        self._policy.flushing()
        try:
            try:
                end = await self.flush()
            except DiskFullError:  # no file could be opened, but no write failed
                again = self._environment.clock.now() + DISK_LOOK_INTERVAL_S
                self._flusher.want(self._flush, again)
                return
            if end - self._checkpoint.recovery_point >= self._policy.options.checkpoint_bytes:
                await self._store_if_settled()
        except StorageError as error:
            if self._is_closed:
                return  # the log was deleted meanwhile
            # Records that were acknowledged from the page cache stay acknowledged.  Requests that
            # wait for the device are refused, and so are all later ones.
            if self.replica is not None:
                self.replica.flush_failed(error)
            return
        if self.replica is not None:
            self.replica.flushed(self.topic_id, lambda: self._files.flushed_end)

    async def flush(self) -> Offset:
        """Wait until all appended records are durable; return the offset where they end.

        Raises:
          StorageError: if the disk fails, or has failed before.
        """
        await self._flush_to(self._files.end)
        return self._files.flushed_end

    async def _flush_to(self, end: Offset) -> None:
        """Wait until the records below *end* are durable, or cut."""
        if self._files.flushed_end >= end:
            return
        if (trace := self._environment.trace) is not None:
            trace(steps.D1Flushing(**self._ends()))
        while self._files.flushed_end < min(end, self._files.end):
            await self._files.flush()
        self.note_ends()
        if trace is not None:
            trace(steps.D1Flushed(**self._ends()))

    def publish(self, highwater: Offset) -> None:
        super().publish(highwater)
        self._note_later()

    def _note_later(self) -> None:
        """Have the ends of this log noted soon."""
        if self._notes is not None:
            self._notes.note_later(self.topic_id, self.note_ends)

    def note_ends(self) -> None:
        """Note how far the log is durable and committed; neither waits nor fails."""
        if self._notes is None or self._is_closed or self._files.damage is not None:
            return  # more is noted of a damaged log than it still has
        flushed_end, highwater = self._files.flushed_end, self._published
        if self._cut_at is not None:
            flushed_end, highwater = min(flushed_end, self._cut_at), min(highwater, self._cut_at)
        self._notes.note(
            self.topic_id,
            start=self._files.start,
            recovery_point=flushed_end,
            highwater=highwater,
        )

    @property
    def stored_checkpoint(self) -> NotedCheckpoint:
        """What is noted of the newest checkpoint."""
        return self._checkpoint.stored

    def note_checkpoint(self) -> None:
        """Note which checkpoint is stored; neither waits nor fails."""
        if self._notes is not None:
            self._notes.note_checkpoint(self.topic_id, self._checkpoint.stored)

    async def store_checkpoint(self) -> None:
        """Flush, then store a checkpoint of the whole log.

        Raises:
          StorageError: if the disk fails.
        """
        async with self._storing:
            await self._note_all()

    async def _store_if_settled(self) -> None:
        """Store a checkpoint, unless the state is ahead of the files.  Such a checkpoint would have
        the log end where the log is still to be cut, so the records behind that would count as
        foreign."""
        async with self._storing:
            is_settled = self.replica is None or self.replica.is_settled
            if is_settled and not self._is_closed:
                await self._note_all()

    async def _note_all(self) -> None:
        if self._files.damage is not None:
            # Recovery from before the damage would cut the rest as a torn tail.
            await self._note(self._checkpoint.recovery_point, is_damaged=True)
            return
        if self._files.fault is not None:
            raise self._files.fault
        await self._note(self._files.end)

    async def _note(self, recovery_point: Offset, *, is_damaged: bool = False) -> None:
        """Store a checkpoint with this recovery point.  The caller holds `_storing`."""
        # The sequences in the checkpoint are those up to the log end of this moment.
        fields = self._checkpoint.next(
            self.topic, self.state, recovery_point, is_damaged=is_damaged
        )
        await self._flush_to(recovery_point)
        await self._checkpoint.store(fields, self._ends)
        self.note_checkpoint()

    def _ends(self) -> dict[str, Any]:
        """The fields for `Environment.trace`: which log, and its ends."""
        return {
            "topic": self.topic.topic,
            "topic_id": self.topic_id,
            "partition": self.partition,
            "log_end": self._files.end,
            "flushed_end": self._files.flushed_end,
        }

    async def close(self) -> None:
        """Make everything durable and close the files."""
        try:
            await self.flush()
            await self._store_if_settled()
            self.note_ends()
        except StorageError as error:
            _log.error("log not flushed at the end", topic=self.topic.topic, why=str(error))
        finally:
            self._is_closed = True
            self._files.close()

    async def put_away(self) -> None:
        """Like `close`, and tell the readers: the files are about to be moved."""
        await self.close()
        await self.discard()

    async def discard(self) -> None:
        """Close the files, which are about to be deleted, and tell the readers.

        This waits for a checkpoint that is being stored, because it must not get into the directory
        of a topic of the same name that is made next.
        """
        self.epoch = NO_EPOCH
        self._is_closed = True
        async with self._storing:
            self._files.close()
        self.wake()

    # --- retention -------------------------------------------------------------------

    @property
    def _retains(self) -> bool:
        """Whether retention may change the files: not while they are being deleted, and not while
        they still have records before the start of a restart, as on a disk that fails."""
        return not self._is_closed and self._files.start >= self.state.start

    async def apply_retention(
        self,
        outdated_below: Offset = _BEGINNING,
        slowest: Callable[[], SlowestMark | None] = lambda: None,
    ) -> None:
        """Remove segments that are too old or too many, or that lie before *outdated_below*.  All
        of them lie below the published highwater mark: followers may lack records that the leader
        is about to commit.

        *slowest*: how far the slowest subscription is at this moment; None: there is none to wait
        for.  As far as the topic's options permit, segments stay that it has yet to read."""
        if not self._retains:
            return
        await in_turns(self._files.retention.learn_ages(self._environment.clock.wall_ms()))
        if not self._retains:
            return
        was_at = self._files.start
        try:
            self.kept = self._keep(outdated_below, slowest())
            start = self.kept.start
            if self._notes is not None and start > was_at:
                # Note this before the files change: a noted segment that is missing is damage.
                self._notes.note(self.topic_id, start=start, recovery_point=start, highwater=start)
                await self._notes.sync()
                if not self._retains:
                    return
                self.kept = self._keep(outdated_below, slowest())  # a mark may have come meanwhile
            self._files.retention.remove_before(min(start, self.kept.start))
        except StorageError as error:
            # Some segments may have been removed before the failure.
            _log.error("retention failed", topic=self.topic.topic, why=str(error))
        if self._files.start > self.state.start:
            self.state.start = self._files.start
            if (trace := self._environment.trace) is not None:
                trace(steps.D4Retired(**self._ends(), log_start=self.start))
            self.say_removed(was_at)

    def _keep(self, outdated_below: Offset, slowest: SlowestMark | None) -> KeptStart:
        return kept_start(
            self._files,
            self._environment.clock.wall_ms(),
            below=self.highwater,
            outdated_below=outdated_below,
            slowest=slowest,
        )
