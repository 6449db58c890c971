"""One log of a broker: the machine that leads it, its files, and who waits for it.

Performs the effects of `LogLeader` in their order.  Appends happen in the call itself, so
a produce to the page cache is answered without any task switch; only flushes, and the
first produce of an epoch, wait for the device.

The log's checkpoint file holds what is not in the segments: the topic's record, the
epoch history, the producers' sequences and where recovery begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs
import trio

from octopi import record, steps
from octopi.environment import Environment
from octopi.errors import (
    ChecksumError,
    CorruptLogError,
    DiskFullError,
    NotLeaderError,
    RefusedError,
    Status,
    StorageError,
)
from octopi.identifiers import Epoch, Offset, PartitionId
from octopi.limits import (
    FETCH_BYTES_DEFAULT,
    FLUSH_BYTES,
    FLUSH_INTERVAL_S,
    FLUSH_MESSAGES,
    MIB,
    SEGMENT_BYTES_MAX,
)
from octopi.logger import get_logger
from octopi.replication.effects import (
    Answer,
    Append,
    Effect,
    FindDuplicate,
    Flush,
    PublishHighwater,
    Refusal,
    Reply,
)
from octopi.replication.epoch_history import EpochHistory
from octopi.replication.leader import LogLeader
from octopi.replication.log_state import LogState
from octopi.replication.producer_sequences import ProducerSequences
from octopi.roles.broker.flusher import Flusher
from octopi.storage import checkpoint
from octopi.storage.flush_policy import FlushPolicy
from octopi.storage.recovery import Recovery
from octopi.storage.segmented_log import LogOptions, SegmentedLog
from octopi.wire.messages import LogInfo, TopicOptions, TopicRecord

_log = get_logger(__name__)

_CHECKPOINT_EVERY_BYTES: Final = 64 * MIB
"""Bounds what recovery has to scan, to about a second's work."""


@attrs.frozen
class FlushOptions:
    """What a power failure may take from a sole replica."""

    messages: int = FLUSH_MESSAGES
    bytes: int = FLUSH_BYTES
    interval_s: float = FLUSH_INTERVAL_S


class BrokerLog:
    """The log of one (topic, partition)."""

    def __init__(
        self,
        environment: Environment,
        directory: str,
        topic: TopicRecord,
        partition: PartitionId,
        flusher: Flusher,
        tasks: trio.Nursery,
        flush_options: FlushOptions,
    ) -> None:
        """Open the log in *directory*, recovering what an unclean end left.

        Raises:
          StorageError: if that can't be done.
        """
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self._environment = environment
        self._flusher = flusher
        self._tasks = tasks
        self._policy = FlushPolicy(
            messages=flush_options.messages,
            bytes=flush_options.bytes,
            interval_s=flush_options.interval_s,
        )
        self._leader: LogLeader | None = None
        self._preparing: list[tuple[bytes, record.Scan, Answer]] | None = None
        self._epoch: Epoch | None = None
        self._wakers: dict[Callable[[], None], None] = {}
        stored = checkpoint.load(environment.disk, f"{directory}/checkpoint") or {}
        self._recovery_point = Offset(stored.get("recovery_point", 0))
        self._epochs = EpochHistory.load(stored.get("epochs", []))
        self._sequences = ProducerSequences.load(stored.get("producers", []))
        self._files, self.recovery = self._open_files()
        self.highwater = self._files.end
        """Consumers read below this offset; a sole replica has committed all it holds."""

    def _open_files(self) -> tuple[SegmentedLog, Recovery]:
        def rebuild(base: Offset, scan: record.Scan) -> None:
            for run in scan.runs:
                self._sequences.record(run, Offset(base + run.start))

        return SegmentedLog.open(
            self._environment.disk,
            self.directory,
            _log_options(self.topic.options),
            recovery_point=self._recovery_point,
            now_ms=self._environment.clock.wall_ms(),
            on_records=rebuild,
        )

    # --- leading ---------------------------------------------------------------------

    def lead(self, epoch: Epoch) -> None:
        """Accept produces in *epoch* from here on."""
        if self._epoch != epoch:
            self.follow_nobody("a new leader epoch begins")
            self._epoch = epoch

    def follow_nobody(self, reason: str) -> None:
        """Stop leading."""
        self._epoch = None
        waiting, self._preparing = self._preparing or [], None
        for _, _, answer in waiting:
            answer(Refusal(Status.NOT_LEADER, reason))
        leader, self._leader = self._leader, None
        if leader is not None:
            self._perform(leader.stop(reason))

    @property
    def epoch(self) -> Epoch | None:
        """The epoch that this broker leads the log in; None: it doesn't."""
        return self._epoch

    def produce(self, records: bytes, answer: Answer) -> None:
        """Take *records*; *answer* is called once, now or later.

        Raises:
          RefusedError: if they are not valid, or this broker doesn't lead.
        """
        epoch = self._epoch
        if epoch is None:
            raise NotLeaderError(f"this broker doesn't lead topic {self.topic.topic} (any more)")
        scan = record.scan(records)
        if scan.fault is not None:
            changed = isinstance(scan.fault, ChecksumError)
            status = Status.RECORD_CHECKSUM if changed else Status.MALFORMED_RECORD
            raise RefusedError(f"record at byte {scan.valid_bytes}: {scan.fault}", status)
        if not scan.count:
            raise RefusedError("a produce without records", Status.MALFORMED_RECORD)
        self._trace(steps.P1_RECEIVED, count=scan.count)
        if self._leader is None:
            if self._preparing is None:
                self._preparing = []
                self._tasks.start_soon(self._prepare, epoch)
            self._preparing.append((records, scan, answer))
        else:
            self._perform(self._leader.receive(records, scan, answer))

    async def _prepare(self, epoch: Epoch) -> None:
        """Make the epoch's beginning durable, then take what waits."""
        self._epochs.begin(epoch, self._files.end)
        try:
            await self._store_checkpoint()
        except StorageError as error:
            waiting, self._preparing = self._preparing or [], None
            for _, _, answer in waiting:
                answer(_refusal(error))
            return
        if self._epoch != epoch:
            return  # stopped leading meanwhile: who waited has been told
        log = LogState(
            self._files.end,
            highwater=self._files.end,
            flushed_end=self._files.flushed_end,
            start=self._files.start,
            epochs=self._epochs,
            sequences=self._sequences,
            flush_before_ack=self.topic.options.flush_before_ack,
        )
        self._leader = LogLeader(epoch, log)
        waiting, self._preparing = self._preparing or [], None
        for records, scan, answer in waiting:
            self._perform(self._leader.receive(records, scan, answer))

    def _perform(self, effects: list[Effect]) -> None:
        """Carry out *effects* in order; what they lead to comes right behind them."""
        queue = effects
        for effect in queue:
            match effect:
                case Append():
                    queue += self._append(effect)
                case Flush():
                    self._flusher.want(self._flush, 0.0)
                case FindDuplicate():
                    queue += self._find_duplicate(effect)
                case PublishHighwater(offset):
                    self.highwater = offset
                    self._trace(steps.P6_COMMITTED, highwater=offset)
                    for wake in list(self._wakers):
                        wake()
                case Reply(answer, content):
                    answer(content)
                    self._trace(steps.P7_ACKNOWLEDGED, receipt=content)

    def _append(self, effect: Append) -> list[Effect]:
        clock = self._environment.clock
        try:
            base = self._files.append(effect.records, effect.scan, clock.wall_ms())
        except StorageError as error:
            if not isinstance(error, DiskFullError):
                _log.error("log takes no more records", topic=self.topic.topic, why=str(error))
            return [Reply(effect.answer, _refusal(error))]
        self._trace(steps.P2_APPENDED, offset=base, end=self._files.end)
        now = clock.now()
        self._policy.appended(effect.scan.count, len(effect.records), now)
        due_at = self._policy.due_at
        if due_at is not None:
            self._flusher.want(self._flush, due_at)
        assert self._leader is not None
        return self._leader.appended(base, effect.scan, effect.answer)

    def _find_duplicate(self, effect: FindDuplicate) -> list[Effect]:
        assert self._leader is not None
        try:
            offset = self._skip(effect.offset, effect.skip)
        except StorageError as error:
            return [Reply(effect.answer, _refusal(error))]
        return self._leader.found_duplicate(offset, effect.answer)

    def _skip(self, offset: Offset, count: int) -> Offset:
        """Where the record lies that comes *count* records behind the one at *offset*."""
        while count:
            data = self._files.read(offset, FETCH_BYTES_DEFAULT, self._files.end)
            position = 0
            while count and position < len(data):
                position = record.record_end(data, position)
                count -= 1
            offset = Offset(offset + position)
        return offset

    # --- flushing --------------------------------------------------------------------

    async def _flush(self) -> None:
        """Flush, tell the machine, and move the recovery point now and then."""
        self._policy.flushing()
        try:
            if self._files.end - self._recovery_point >= _CHECKPOINT_EVERY_BYTES:
                await self._store_checkpoint()
                end = self._files.flushed_end
            else:
                end = await self._files.flush()
        except StorageError as error:
            # Nothing that was acknowledged from the page cache is taken back; what waits for
            # the device is refused, and so is all that comes.
            _log.error("flush failed", topic=self.topic.topic, why=str(error))
            if self._leader is not None:
                self._perform(self._leader.stop(str(error)))
            return
        if self._leader is not None:
            self._perform(self._leader.flushed(end))

    async def _store_checkpoint(self) -> None:
        """Flush, then note all that recovery needs up to there.

        Raises:
          StorageError: if the disk fails, or the log is damaged: a recovery point before the
              damage would have the rest cut as a torn tail next time.
        """
        if self._files.fault is not None:
            raise self._files.fault
        end = self._files.end
        state: dict[str, Any] = {
            "topic": attrs.asdict(self.topic),
            "highwater": self.highwater,
            "recovery_point": end,
            "epochs": self._epochs.dump(),
            "producers": self._sequences.dump(),
        }
        while self._files.flushed_end < end:
            await self._files.flush()
        await checkpoint.store(self._environment.disk, f"{self.directory}/checkpoint", state)
        self._recovery_point = max(self._recovery_point, end)

    async def create(self) -> None:
        """Make a new log's existence durable.

        Raises:
          StorageError: if the disk fails.
        """
        await self._store_checkpoint()

    async def close(self) -> None:
        """Stop leading, make everything durable, let go of the files."""
        self.follow_nobody("the broker is shutting down")
        try:
            await self._store_checkpoint()
        except StorageError as error:
            _log.error("log not flushed at the end", topic=self.topic.topic, why=str(error))
        finally:
            self._files.close()

    def discard(self) -> None:
        """Stop everything and let go of the files, which are about to be deleted."""
        self.follow_nobody("the topic was deleted")
        self._files.close()
        for wake in list(self._wakers):
            wake()

    # --- reading ---------------------------------------------------------------------

    @property
    def start(self) -> Offset:
        """Offset of the oldest record that is kept."""
        return self._files.start

    def read(self, offset: Offset, bytes_max: int) -> bytes:
        """Committed records from *offset* on; empty at the highwater mark.

        Raises:
          OffsetOutOfRangeError, OffsetInsideRecordError: if it is no record's start.
          CorruptLogError: if the records there are damaged.
        """
        return self._files.read(offset, bytes_max, self.highwater)

    def find(self, at: str, value: int) -> Offset:
        """See `octopi.wire.messages.FindOffset`.

        Raises:
          RefusedError: INVALID_OPTION.
          CorruptLogError: if the records there are damaged.
        """
        match at:
            case "earliest":
                return self._files.start
            case "latest":
                return self.highwater
            case "timestamp" if value >= 0:
                return self._files.find_timestamp(value, self.highwater)
            case "last" if value >= 0:
                return self._files.find_last(value, self.highwater)
        raise RefusedError(
            f"find an offset at earliest, latest, timestamp or last, not {at[:20]!r} {value}",
            Status.INVALID_OPTION,
        )

    def add_waker(self, wake: Callable[[], None]) -> None:
        """Have *wake* called, without arguments, when the highwater mark has moved or the
        log is gone."""
        self._wakers[wake] = None

    def remove_waker(self, wake: Callable[[], None]) -> None:
        """The opposite; harmless if it is not there."""
        self._wakers.pop(wake, None)

    # --- keeping ---------------------------------------------------------------------

    def apply_retention(self) -> None:
        """Remove segments that are too old or too many."""
        try:
            removed = self._files.apply_retention(
                self._environment.clock.wall_ms(), below=self.highwater
            )
        except StorageError as error:
            _log.error("retention failed", topic=self.topic.topic, why=str(error))
            return
        if removed.segment_count:
            _log.info("old segments removed", topic=self.topic.topic, log_start=self.start)

    def describe(self) -> LogInfo:
        """The log's state, for people and metrics."""
        fault = self._files.fault
        return LogInfo(
            topic=self.topic.topic,
            topic_id=self.topic.topic_id,
            partition=self.partition,
            epoch=self._epoch or 0,
            log_start=self._files.start,
            highwater=self.highwater,
            log_end=self._files.end,
            size_bytes=self._files.size_bytes,
            fault=str(fault)[:900] if fault is not None else "",
        )

    def _trace(self, step: str, **facts: object) -> None:
        trace = self._environment.trace
        if trace is not None:
            trace(step, topic=self.topic.topic, partition=self.partition, **facts)


def stored_topic(environment: Environment, directory: str) -> TopicRecord | None:
    """The topic whose log lies in *directory*; None if it was never finished.

    Raises:
      StorageError: if the checkpoint there is damaged.
    """
    stored = checkpoint.load(environment.disk, f"{directory}/checkpoint")
    if stored is None:
        return None
    fields = dict(stored["topic"])
    fields["options"] = TopicOptions(**fields["options"])
    return TopicRecord(**fields)


def log_directory(data_directory: str, partition: int, topic: str) -> str:
    """Where a log's files lie; topic names are safe as names of folders by their grammar."""
    return f"{data_directory}/logs/{partition}/{topic}"


def _log_options(options: TopicOptions) -> LogOptions:
    return LogOptions(
        segment_bytes_max=options.segment_bytes or SEGMENT_BYTES_MAX,
        retention_ms=options.retention_ms,
        retention_bytes=options.retention_bytes,
    )


def _refusal(error: StorageError) -> Refusal:
    if isinstance(error, DiskFullError):
        return Refusal(Status.DISK_FULL, str(error))
    if isinstance(error, CorruptLogError):
        return Refusal(Status.LOG_CORRUPT, str(error))
    return Refusal(Status.LOG_READ_ONLY, str(error))
