"""What consumers and followers see of a log of a broker: its records, up to which offset they may
be read, and what came before a place.

Nothing here changes the log; that is the business of `octopi.roles.broker.local_log`.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from octopi.errors import (
    HistoryForkedError,
    InvalidOptionError,
    NotReadyError,
    RefusedError,
    Status,
    StorageError,
)
from octopi.identifiers import NO_EPOCH, Offset, PartitionId, TopicId
from octopi.position import Anchor, epochs_of
from octopi.replication.log_state import LogState
from octopi.roles.broker.log_files import shared_options
from octopi.storage.brief_lock import BriefLock
from octopi.storage.segmented_log import SegmentedLog
from octopi.storage.time_slices import Slices, in_turns
from octopi.wire.messages import TopicRecord


class ReadableLog:
    """The log of one (topic, partition), as readers see it."""

    # There may be many thousands of them, and a dictionary of attributes for each.
    __slots__ = (
        "_files",
        "_proving",
        "_published",
        "_wakers",
        "epoch",
        "partition",
        "state",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: TopicRecord, partition: PartitionId) -> None:
        """The files, the state and what is published of it are set by what opens the log."""
        self.topic = attrs.evolve(topic, options=shared_options(topic.options))
        self.topic_id = TopicId(topic.topic_id)
        self.partition = partition
        self.epoch = NO_EPOCH
        """Of the leader that this broker is, or follows in agreement; 0: consumers are not
        served from here."""
        self._files: SegmentedLog
        self.state: LogState
        self._published: Offset
        """The highwater mark that readers were told."""
        self._wakers: dict[Callable[[], None], None] = {}
        self._proving = BriefLock()

    # --- waiting for more ----------------------------------------------------------------

    def publish(self, highwater: Offset) -> None:
        """Let consumers and followers know of *highwater*.  The state has it already, but what
        had to be done first may just have been done."""
        self._published = highwater
        self.wake()

    def add_waker(self, wake: Callable[[], None]) -> None:
        """Have *wake* called, without arguments, when the highwater mark has moved or the
        log is gone."""
        self._wakers[wake] = None

    def wake(self) -> None:
        """Call all of them."""
        for wake in list(self._wakers):
            wake()

    def remove_waker(self, wake: Callable[[], None]) -> None:
        """The opposite; harmless if it is not there."""
        self._wakers.pop(wake, None)

    # --- reading ---------------------------------------------------------------------

    @property
    def highwater(self) -> Offset:
        """Consumers read below this offset."""
        return self._published

    @property
    def end(self) -> Offset:
        """Where the log ends, committed or not."""
        return self._files.end

    @property
    def fault(self) -> StorageError | None:
        """Why the log takes nothing, or not all of it can be read."""
        return self._files.fault

    @property
    def start(self) -> Offset:
        """Offset of the oldest record that is kept."""
        return self._files.start

    def read(self, offset: Offset, bytes_max: int) -> bytes:
        """Committed records of one epoch from *offset* on; empty at the highwater mark.  With
        *bytes_max* 0 only the offset is checked.

        Raises:
          OffsetOutOfRangeError, OffsetInsideRecordError: if it is no record's start.
          CorruptLogError: if the records there are damaged.
          NeedsTimeError: if that takes long to find out: `prove` it first.
        """
        until = self._published
        if offset < until:
            until = min(until, self.state.epochs.end_of_epoch_at(offset, until))
        return self._files.read(offset, bytes_max, until)

    def read_bytes_min(self, offset: Offset) -> int:
        """What a `read` from *offset* gives at least: a record, if there is one."""
        record_bytes = self._files.search.record_bytes_at(offset) or 1
        return min(max(0, self._published - offset), record_bytes)

    def anchor_before(self, offset: Offset) -> Anchor:
        """What stands before *offset*; empty if that isn't known."""
        return self.state.epochs.anchor_before(offset)

    def anchor_behind(self, offset: Offset) -> Anchor:
        """The anchor of the places behind the record at *offset*, as far as `read` goes."""
        return self.state.epochs.anchor_behind(offset)

    def check_anchor(self, offset: Offset, anchor: Anchor, *, is_leader: bool) -> None:
        """See that what stands before *offset* is what a reader had there.

        This log has to be served: then it is the leader's, or agrees with it.

        Raises:
          InvalidOptionError: if *anchor* is none of a place at *offset* in a log.
          HistoryForkedError: if it is something else.
          NotReadyError: if it was written in an epoch that this broker has yet to hear of.
        """
        read = epochs_of(anchor)
        if not read:
            return
        name = f"{self.topic.topic}/{self.partition}"
        epoch, start = read[0]
        if start >= offset:
            raise InvalidOptionError(
                f"{name}: anchor {anchor!r} is none of offset {offset}: what ends there began "
                "before it"
            )
        if epoch > self.epoch:
            raise NotReadyError(
                f"{name}: what was read before offset {offset} is of epoch {epoch}, and this "
                f"broker knows of none after {self.epoch} yet"
            )
        state = self.state
        common = state.epochs.fork(offset, read, state.end, is_leader=is_leader)
        if common is not None:
            raise HistoryForkedError(
                f"{name}: what was read before offset {offset}, of epoch {epoch}, is not in the "
                f"log any more; it agrees up to offset {common}",
                offset=common,
            )

    async def prove(self, offset: Offset) -> None:
        """See whether a record starts at *offset*, or the log ends there; others have their turn
        meanwhile.  A `read` from there, right behind, takes no time.

        Raises:
          StorageError, RefusedError: as `read`.
        """
        async with self._proving:  # one after the other: the first one may mend the index for all
            await in_turns(self._files.prove(offset))

    def read_uncommitted(self, offset: Offset, bytes_max: int) -> bytes:
        """Records from *offset* on, committed or not: what followers are sent.

        Raises:
          StorageError, RefusedError: as `read`.
        """
        return self._files.read(offset, bytes_max, self._files.end)

    async def skip(self, offset: Offset, count: int) -> Offset:
        """Where the record lies that comes *count* records behind the one at *offset*, in the
        same batch; others have their turn meanwhile.

        Raises:
          OffsetOutOfRangeError: if retention has removed it.
          StorageError: if the records there can't be read.
        """
        return await in_turns(self._files.search.count_on(offset, count))

    def find(self, at: str, value: int) -> Slices[Offset] | Offset:
        """See `octopi.wire.client.FindOffset`.  What takes a look at records comes in slices.

        Raises:
          RefusedError: INVALID_OPTION.
          CorruptLogError: (in a slice) if the records there are damaged.
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
            f"find an offset at earliest, latest, timestamp, last or boundary, not {at[:20]!r} "
            f"{value}",
            Status.INVALID_OPTION,
        )
