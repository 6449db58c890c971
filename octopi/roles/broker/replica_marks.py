"""How far the slowest subscriptions are, as each replica of this broker knows it, for retention.

Every replica removes segments of its logs by itself.  So it reads its own log ``~subscriptions``,
whether it leads or follows.  A replica that may lack committed entries of that log doesn't know
who has yet to read what.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from octopi.environment import Clock
from octopi.errors import OctopiError
from octopi.identifiers import SUBSCRIPTIONS_LOG, Epoch, Offset, PartitionId, TopicId
from octopi.limits import FETCH_BYTES_DEFAULT
from octopi.logger import get_logger
from octopi.replication.internal_log import decode_records
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.replica_driver import ReplicaDriver
from octopi.subscriptions.known_marks import UNKNOWN, KnownMarks, SlowestMark

_log = get_logger(__name__)


@attrs.frozen
class _ReadMarks:
    """How far a log ``~subscriptions`` was read."""

    log: LocalLog
    epoch: Epoch
    """In another one, what was read may have been cut."""
    marks: KnownMarks

    def read_on(self) -> None:
        """Read some more of the log, which has more.

        Raises:
          OctopiError: if it can't be read; this object is of no use then.
        """
        log, marks = self.log, self.marks
        begin = marks.end
        records = log.read_uncommitted(begin, FETCH_BYTES_DEFAULT)
        for entry in decode_records(SUBSCRIPTIONS_LOG, log.partition, records, begin):
            marks.read(entry.key, entry.value, entry.end)
        # Fences of producers may lie behind the last entry.
        marks.end = Offset(begin + len(records))


class ReplicaMarks:
    """The marks that the replicas of this broker know."""

    def __init__(
        self, clock: Clock, replica_of: Callable[[PartitionId], ReplicaDriver | None]
    ) -> None:
        """*replica_of*: finds this broker's replica of a partition, if it has one."""
        self._clock = clock
        self._replica_of = replica_of
        self._readings: dict[PartitionId, _ReadMarks] = {}

    async def refresh(self, partition: PartitionId) -> None:
        """Read what has come to the log of *partition* since the last call; other tasks run
        meanwhile."""
        reading = self._reading(partition) or self._begun(partition)
        self._readings.pop(partition, None)
        if reading is None:
            return
        try:
            while reading.marks.end < reading.log.end:
                await reading.log.prove(reading.marks.end)
                reading.read_on()
                await trio.lowlevel.checkpoint()
        except OctopiError as error:
            _log.sparing(self._clock).error(
                "retention doesn't know the marks of subscriptions",
                partition=partition,
                why=str(error),
            )
            return
        self._readings[partition] = reading

    def slowest(self, log: LocalLog) -> SlowestMark | None:
        """The least mark in *log* at this moment; None: no subscription needs anything of it.
        Call `refresh` shortly before, since this call reads all that has come since."""
        reading = self._reading(log.partition)
        if reading is None:
            return UNKNOWN
        try:
            while reading.marks.end < reading.log.end:
                reading.read_on()
        except OctopiError:
            del self._readings[log.partition]
            return UNKNOWN
        reading.marks.commit(reading.log.highwater)
        return reading.marks.slowest(log.topic_id, self._clock.wall_ms())

    def _reading(self, partition: PartitionId) -> _ReadMarks | None:
        """What was read, if it is still of use."""
        reading, log = self._readings.get(partition), self._source(partition)
        if reading is None or log is None:
            return None
        is_same = reading.log is log and reading.epoch == log.epoch
        return reading if is_same and log.start <= reading.marks.end <= log.end else None

    def _begun(self, partition: PartitionId) -> _ReadMarks | None:
        log = self._source(partition)
        return None if log is None else _ReadMarks(log, log.epoch, KnownMarks(log.start))

    def _source(self, partition: PartitionId) -> LocalLog | None:
        """The log ``~subscriptions`` of *partition*, if it has all that is committed."""
        replica = self._replica_of(partition)
        if replica is None or not _has_all(replica):
            return None
        return replica.logs.get(TopicId(SUBSCRIPTIONS_LOG))


def _has_all(replica: ReplicaDriver) -> bool:
    """Whether *replica* has all that is committed: it leads, or follows in agreement and is in the
    newest in-sync set that it was told."""
    machine = replica.machine
    if machine.leader is not None:
        return True
    record, follower = machine.state.record, machine.follower
    agrees = follower is not None and follower.agrees
    return agrees and record is not None and machine.broker in record.in_sync
