"""The readers' view of a log: its records, the offset up to which they may be read, and anchors.

Nothing in this module changes the log; `octopi.roles.broker.local_log` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from octopi.errors import (
    HistoryForkedError,
    InvalidOptionError,
    NotLeaderError,
    NotReadyError,
    RefusedError,
    Status,
    StorageError,
)
from octopi.identifiers import NO_EPOCH, Offset, PartitionId, TopicId, TopicName
from octopi.logger import get_logger
from octopi.position import Anchor, checked_anchor, epochs_of
from octopi.printable import without_directory
from octopi.replication.log_state import LogState
from octopi.replication.partition_replica import PartitionReplica
from octopi.roles.broker.flusher import FlushListener
from octopi.roles.broker.kept_start import NOTHING_KEPT
from octopi.roles.broker.log_files import with_shared_options
from octopi.roles.broker.reading_bounds import ReadBound, ReadingBounds
from octopi.storage.brief_lock import BriefLock
from octopi.storage.newest_records import NewestRecords
from octopi.storage.segmented_log import SegmentedLog
from octopi.storage.time_slices import Slices, in_turns
from octopi.wire.messages import LogCount, LogInfo, TopicRecord

_log = get_logger(__name__)


class LogReplica(FlushListener, Protocol):
    """A broker's replica of the partition of a log."""

    machine: PartitionReplica

    @property
    def leads(self) -> bool:
        """Whether this broker leads the partition."""


class ReadableLog:
    """The log of one (topic, partition), as readers see it."""

    # A broker may have many thousands of logs; a dictionary of attributes for each would be large.
    __slots__ = (
        "_bounds",
        "_files",
        "_proving",
        "_published",
        "_wakers",
        "epoch",
        "kept",
        "partition",
        "replica",
        "state",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: TopicRecord, partition: PartitionId) -> None:
        """The subclass that opens the log sets the files, the state and the published mark."""
        self.topic = with_shared_options(topic)
        self.topic_id = TopicId(topic.topic_id)
        self.partition = partition
        self._bounds = ReadingBounds(topic, partition)
        self.epoch = NO_EPOCH
        """The epoch of the leader that this broker is, or follows in agreement; 0: consumers are
        not served from this log."""
        self.replica: LogReplica | None = None
        """The broker's replica of the partition; None: not yet."""
        self._files: SegmentedLog
        self.state: LogState
        self._published: Offset
        """The highwater mark that readers see."""
        self._wakers: dict[Callable[[], None], None] = {}
        self._proving = BriefLock()
        self.kept = NOTHING_KEPT
        """What retention has decided last."""

    def keep_newest(self, newest: NewestRecords) -> None:
        """Have reads of what is appended from now on served from memory, by *newest*."""
        self._files.newest = newest

    @property
    def name(self) -> TopicName:
        """The topic."""
        return TopicName(self.topic.topic)

    # --- generations of the topic -----------------------------------------------------------

    @property
    def generation(self) -> int:
        """The generation of the topic that is in force, as far as this broker knows; 0: there never
        was another one than the first."""
        return self.state.generation

    def bound(self, generation: int) -> ReadBound | None:
        """How far a reader may read that knows the topic up to *generation*; None: all."""
        return self._bounds.of(generation)

    def told_generations(self) -> None:
        """`topic` has the newest record: readers may have come to a sealed end by it."""
        self._bounds.known(self.topic, self.partition)
        self.wake()

    def received(self, offset: Offset, generation: int) -> None:
        """Records at *offset* came from a leader that knows *generation* to be in force."""
        self._bounds.received(offset, generation, self.generation)

    # --- waiting for more ----------------------------------------------------------------

    def publish(self, highwater: Offset) -> None:
        """Let consumers and followers read up to *highwater*.  The state may have had it earlier,
        while something else had to be done first."""
        self._published = highwater
        self.wake()

    def add_waker(self, wake: Callable[[], None]) -> None:
        """Have *wake* called, without arguments, when the highwater mark has moved, or the log is
        not served any more."""
        self._wakers[wake] = None

    def wake(self) -> None:
        """Call all wakers."""
        for wake in list(self._wakers):
            wake()

    def remove_waker(self, wake: Callable[[], None]) -> None:
        """Remove a waker; harmless if it was not added."""
        self._wakers.pop(wake, None)

    # --- reading ---------------------------------------------------------------------

    @property
    def highwater(self) -> Offset:
        """Consumers read below this offset."""
        return self._published

    @property
    def end(self) -> Offset:
        """The log end, committed or not."""
        return self._files.end

    @property
    def fault(self) -> StorageError | None:
        """Why the log takes no records, or why not all of it can be read."""
        return self._files.fault

    @property
    def start(self) -> Offset:
        """The offset of the oldest record that is kept."""
        return self._files.start

    def read(self, offset: Offset, bytes_max: int) -> bytes:
        """Read committed records of one epoch from *offset* on; empty at the highwater mark.  With
        *bytes_max* 0 only the offset is checked.

        Raises:
          OffsetOutOfRangeError, OffsetInsideRecordError: if no record starts at *offset*.
          CorruptLogError: if the records there are damaged.
          NeedsTimeError: if finding that out takes long: call `prove` first.
        """
        until = self._published
        if offset < until:
            until = min(until, self.state.epochs.end_of_epoch_at(offset, until))
        return self._files.read(offset, bytes_max, until)

    def read_bytes_min(self, offset: Offset) -> int:
        """The size of the smallest result of `read` from *offset*: one record, if there is one."""
        record_bytes = self._files.search.record_bytes_at(offset) or 1
        return min(max(0, self._published - offset), record_bytes)

    def anchor_before(self, offset: Offset) -> Anchor:
        """The anchor for *offset*; empty if it isn't known."""
        return self.state.epochs.anchor_before(offset)

    def anchor_behind(self, offset: Offset) -> Anchor:
        """The anchor for each offset behind the record at *offset*, up to the end of what `read`
        returns."""
        return self.state.epochs.anchor_behind(offset)

    def anchor_opened(self, offset: Offset, given: str) -> Anchor:
        """See `octopi.roles.broker.local_stream.LocalStream`: this broker may know more epochs."""
        return self.anchor_before(offset)

    def find_message(self, identity: bytes) -> Offset:
        """See `octopi.roles.broker.local_stream.LocalStream`."""
        raise RefusedError(
            f"topic {self.name} is in logs, whose messages have no ids: start at an offset or a "
            "position",
            Status.WRONG_KIND,
        )

    def proof(self, offset: Offset, end: Offset) -> bytes:
        """See `octopi.roles.broker.local_stream.LocalStream`."""
        raise RefusedError(
            f"topic {self.name} is in logs, which have no digests: read it without `proven`",
            Status.WRONG_KIND,
        )

    def check_anchor(self, offset: Offset, anchor: str) -> None:
        """Check that the records before *offset* in this log are those that a reader read.

        The log must be served, so it is the leader's, or agrees with the leader's.

        Raises:
          InvalidOptionError: if *anchor* can't be an anchor for *offset*.
          HistoryForkedError: if the log has other records there.
          NotReadyError: if the reader's records are of an epoch that this broker doesn't know yet.
        """
        read = epochs_of(checked_anchor(anchor))
        if not read:
            return
        name = f"{self.topic.topic}/{self.partition}"
        epoch, start = read[0]
        if start >= offset:
            raise InvalidOptionError(
                f"{name}: anchor {anchor!r} is not for offset {offset}: its epoch must begin "
                "before that offset"
            )
        if epoch > self.epoch:
            raise NotReadyError(
                f"{name}: the records read before offset {offset} are of epoch {epoch}, and this "
                f"broker knows no epoch after {self.epoch} yet"
            )
        state, replica = self.state, self.replica
        leads = replica is not None and replica.leads
        common = state.epochs.fork(offset, read, state.end, is_leader=leads)
        if common is not None:
            raise HistoryForkedError(
                f"{name}: the records read before offset {offset}, of epoch {epoch}, aren't in the "
                f"log any more; it agrees up to offset {common}",
                offset=common,
            )

    def require_end(self) -> None:
        """Check that the highwater mark covers all that was ever acknowledged.

        Raises:
          NotLeaderError: if this broker doesn't lead the partition.
          NotReadyError: if this broker doesn't lead the log yet, or has not committed yet what the
              log held when the leadership began.
        """
        leader = None if self.replica is None else self.replica.machine.leader
        if leader is None:
            raise NotLeaderError(f"this broker does not lead partition {self.partition}")
        led = leader.logs.get(self.topic_id)  # None: a new log
        # The leader's own mark may be ahead: it is published after the effects before it.
        if led is None or not led.knows_end(self.highwater):
            raise NotReadyError(
                f"the new leader of partition {self.partition} has not yet committed and published "
                "what it had when it was elected"
            )

    def require_reach(self, offset: Offset) -> None:
        """See `octopi.roles.broker.local_stream.LocalStream`."""
        if offset > self.highwater:
            self.require_end()

    async def prove(self, offset: Offset) -> None:
        """Check that a record starts at *offset* or the log ends there; other tasks run meanwhile.
        A `read` from there, called directly afterwards, doesn't take long.

        Raises:
          StorageError, RefusedError: as for `read`.
        """
        async with self._proving:  # one at a time: the first one may repair the index for all
            await in_turns(self._files.prove(offset))

    def read_uncommitted(self, offset: Offset, bytes_max: int) -> bytes:
        """Read records from *offset* on, committed or not, for followers.

        Raises:
          StorageError, RefusedError: as for `read`.
        """
        return self._files.read(offset, bytes_max, self._files.end)

    async def skip(self, offset: Offset, count: int) -> Offset:
        """The offset of the record that comes *count* records after the one at *offset*, in the
        same batch; other tasks run meanwhile.

        Raises:
          OffsetOutOfRangeError: if retention has removed it.
          StorageError: if the records there can't be read.
        """
        return await in_turns(self._files.search.count_on(offset, count))

    def find(self, at: str, value: int) -> Slices[Offset] | Offset:
        """Answer `octopi.wire.client.FindOffset`.  A search that reads records comes in slices.

        Raises:
          RefusedError: with INVALID_OPTION.
          CorruptLogError: (in a slice) if the records are damaged.
        """
        match at:
            case "earliest":
                return self._files.start
            case "latest":
                return self._published
            case "timestamp" if value >= 0:
                return self._files.search.timestamp(value, self._published)
            case "last" if value >= 0:
                return self._files.search.last(value, self._published)
            case "boundary" if value >= 0:
                return self._files.search.boundary(Offset(value), self._published)
        raise RefusedError(
            f"an offset is found at earliest, latest, timestamp, last or boundary, not {at[:20]!r} "
            f"{value}",
            Status.INVALID_OPTION,
        )

    # --- for people ------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """How much of the log stays for subscriptions alone, as retention decided last."""
        return self.kept.held_bytes(self.start)

    def say_removed(self, was_at: Offset) -> None:
        """Log that retention has removed segments; before that the log began at *was_at*."""
        topic, slowest = self.topic.topic, self.kept.slowest
        _log.info("old segments removed", topic=topic, log_start=self.start)
        begin = self.kept.unread_from(was_at, self.start)
        if begin is not None and slowest is not None:
            _log.warning(
                "what a subscription has yet to process was removed",
                topic=topic,
                partition=self.partition,
                subscription=slowest.subscription,
                begin=begin,
                end=self.start,
            )

    @property
    def fault_text(self) -> str:
        """What is wrong with the log; empty if nothing is."""
        return self.state.refusal or str(self._files.fault or "")

    def count(self) -> Slices[LogCount]:
        """The number of committed records.

        Raises:
          StorageError: if the log was closed.
        """
        topic, highwater = self.topic, self.highwater
        start, count = yield from self._files.search.count(highwater)
        return LogCount(topic.topic, topic.topic_id, self.partition, start, highwater, count)

    def describe(self) -> LogInfo:
        """The state of the log, for admin pages and metrics."""
        return LogInfo(
            topic=self.topic.topic,
            topic_id=self.topic.topic_id,
            partition=self.partition,
            epoch=self.epoch,
            log_start=self._files.start,
            highwater=self.highwater,
            log_end=self._files.end,
            size_bytes=self._files.size_bytes,
            fault=without_directory(self.fault_text)[:900],
            held_bytes=self.held_bytes,
            held_for=self.kept.held_for,
        )
