"""The leader's side of a follower's stream.

Each log that the follower follows is sent from the follower's position on.  To a follower in sync
that takes what it is sent, new records are sent in the call that appended them.  In all other cases
one task sends: it looks at the logs that are due, and not at the others, of which there may be
thousands.  The bytes and the messages on their way to the follower are bounded.  So a slow follower
costs the leader nothing except the wait for its acknowledgement, and gets fewer and larger messages
the further it falls behind.  A follower that is far behind and not in sync is sent records only
while producers keep their share of the resources (`octopi.roles.broker.catching_up`).

The highwater mark goes with the next records.  If there are none for `HIGHWATER_PAUSE_S`, the task
sends it by itself.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import (
    ConnectionLostError,
    NeedsTimeError,
    OctopiError,
    OffsetOutOfRangeError,
    ProtocolError,
)
from octopi.identifiers import NO_EPOCH, BrokerId, Incarnation, Offset, PartitionId, TopicId
from octopi.limits import (
    FETCH_BYTES_DEFAULT,
    FOLLOW_WINDOW_BYTES,
    FOLLOW_WINDOW_MESSAGES,
    HIGHWATER_PAUSE_S,
)
from octopi.logger import get_logger
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.log_fields import log_fields
from octopi.roles.broker.replica_driver import ReplicaDriver
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.tracing import steps
from octopi.tracing.step import Step
from octopi.transport.connection import Connection
from octopi.transport.services import Service
from octopi.wire import messages as m
from octopi.wire.codec import encode_parts

_log = get_logger(__name__)

_ROUND_BYTES: Final = FETCH_BYTES_DEFAULT

_MARKS_IN_A_ROW: Final = 64
"""How many messages with only a highwater mark are sent before other tasks have their turn."""


@attrs.define
class _Followed:
    """One log on the stream."""

    log: LocalLog
    answer: m.Followed
    position: Offset
    """The offset of the next record to send."""
    acknowledged: Offset
    told_highwater: Offset
    wake: Callable[[], None]
    """The function that the log calls when it has news."""
    sent_ends: deque[Offset] = attrs.field(factory=deque)
    """The ends of the messages that were sent and are not acknowledged."""

    def acknowledge(self, end: Offset) -> None:
        """Note that the follower has all records below *end*."""
        self.acknowledged = max(self.acknowledged, end)
        while self.sent_ends and self.sent_ends[0] <= end:
            self.sent_ends.popleft()

    def may_send(self) -> bool:
        """Whether another message may be sent.  Records that don't fill a message wait until the
        follower has acknowledged the messages before; meanwhile more records come (Nagle's
        algorithm, RFC 896)."""
        on_their_way = self.position - self.acknowledged
        return on_their_way < FOLLOW_WINDOW_BYTES and (
            len(self.sent_ends) < FOLLOW_WINDOW_MESSAGES
            or self.log.end - self.position >= _ROUND_BYTES
        )


class FollowerConnection(Service):
    """What a leader offers to one follower.  The follower's first message names the partition."""

    def __init__(
        self,
        environment: Environment,
        logs: ReplicaManager,
        connection: Connection,
        tasks: trio.Nursery,
    ) -> None:
        super().__init__({m.Follow: self._follow, m.Acknowledge: self._acknowledge})
        self._environment = environment
        self._logs = logs
        self._connection = connection
        self._tasks = tasks
        self._followed: dict[TopicId, _Followed] = {}
        self._due: dict[TopicId, None] = {}
        """The logs with records that the task is to send."""
        self._marks: dict[TopicId, float] = {}
        """The logs whose highwater mark is to be told, and when, if no records go before."""
        self._looks_at = math.inf
        """When the task looks at the marks next, if it is parked."""
        self._idle = trio.lowlevel.ParkingLot()
        self._session: tuple[PartitionId, BrokerId, int] | None = None
        """Partition, broker and attempt."""
        self._incarnation = Incarnation(0)
        if environment.watch is not None:
            environment.watch(self)

    def sizes(self) -> dict[str, int]:
        """See `octopi.environment.Sized`."""
        logs = self._followed.values()
        return {
            "bytes of a log on their way": max(
                (one.position - one.acknowledged for one in logs), default=0
            ),
            "outbox bytes": self._connection.statistics().outbox_bytes,
        }

    def _follow(self, message: m.Follow) -> None:
        """Have the replica answer whether it leads, and from which offset the follower continues.

        Raises:
          ProtocolError: if *message* is of another session than the first one, or isn't proven to
              come from its broker.
        """
        session = (message.partition, message.broker, message.attempt)
        if self._session is None:
            if not self._logs.stream_keys.is_proven(message):
                raise ProtocolError(f"the peer did not prove that it is broker {message.broker}")
            self._session, self._incarnation = session, message.incarnation
            self._logs.streams[message.partition, message.broker] = self
            self._tasks.start_soon(self._send)
        elif session != self._session or message.incarnation != self._incarnation:
            raise ProtocolError("a stream carries one session of one follower")
        replica = self._logs.replica(message.partition)
        if replica is None:
            self.post(_unknown(message))
        else:
            replica.submit(partial(replica.machine.follow, message))

    def _acknowledge(self, message: m.Acknowledge) -> None:
        """Tell the replica what the follower has.

        Raises:
          ProtocolError: if *message* is of another session than the first one.
        """
        followed = self._followed.get(TopicId(message.topic_id))
        replica = self._logs.replica(message.partition)
        if followed is None or replica is None:
            return
        session = (message.partition, message.broker, message.attempt)
        if session != self._session or message.incarnation != self._incarnation:
            raise ProtocolError("the acknowledgement is of another session than this stream")
        if (trace := self._environment.trace) is not None:
            log = log_fields(followed.log, message.epoch)
            trace(steps.P5Heard(*log, follower=message.broker, end=message.end))
        followed.acknowledge(Offset(message.end))
        replica.submit(partial(replica.machine.acknowledge, message))
        followed.wake()

    def closed(self) -> None:
        """Follow no log any more and tell the replica: the stream ended."""
        self._logs.catching_up.end(self)
        for followed in self._followed.values():
            followed.log.remove_waker(followed.wake)
        if self._session is None:
            return
        partition, broker, attempt = self._session
        if self._logs.streams.get((partition, broker)) is self:
            del self._logs.streams[partition, broker]
        replica = self._logs.replica(partition)
        if replica is not None:
            replica.submit(
                partial(replica.machine.stream_closed, broker, self._incarnation, attempt)
            )

    def post(self, message: m.Followed | m.FollowRefused) -> None:
        """Send what the replica answered."""
        try:
            self._connection.post(message)
        except ConnectionLostError:
            return
        if isinstance(message, m.Followed):
            replica = self._logs.replica(message.partition)
            log = replica.logs.get(TopicId(message.topic_id)) if replica else None
            if log is not None:
                self._begin(log, message)

    def _begin(self, log: LocalLog, answer: m.Followed) -> None:
        known = self._followed.get(log.topic_id)
        if known is not None:
            known.log.remove_waker(known.wake)
        begin, wake = Offset(answer.begin), partial(self._look_at, log.topic_id)
        self._followed[log.topic_id] = _Followed(log, answer, begin, begin, Offset(0), wake)
        log.add_waker(wake)
        wake()

    def _look_at(self, topic_id: TopicId) -> None:
        """Send what is new in the log, now or later: records, a higher highwater mark, or what had
        to wait for an acknowledgement."""
        followed = self._followed.get(topic_id)
        if followed is None:
            return
        replica = self._kept_by(followed)
        if replica is None:
            self._forget(followed)
        elif not followed.may_send():
            return  # an acknowledgement will have it looked at again
        elif followed.position < followed.log.end:
            if not (self._idle and self._sends_at_once(followed, replica)):
                self._due[topic_id] = None
                self._idle.unpark()
        elif followed.log.highwater > followed.told_highwater:
            tell_at = self._environment.clock.now() + HIGHWATER_PAUSE_S
            self._marks.setdefault(topic_id, tell_at)
            if self._looks_at > tell_at:
                self._idle.unpark()

    def _sends_at_once(self, followed: _Followed, replica: ReplicaDriver) -> bool:
        """Send the next records of one log in this call, if commits wait for the follower and it
        takes what it is sent; return whether nothing is left for the task."""
        leader = replica.machine.leader
        assert self._session is not None
        if leader is None or not leader.counts(self._session[1]) or not self._connection.is_prompt:
            return False
        try:
            self._send_next(followed, replica)
        except OctopiError:
            return False  # the task meets it, too
        return followed.log.topic_id not in self._due

    @property
    def lacking_bytes(self) -> int:
        """The bytes that the follower has not been sent yet."""
        return sum(one.log.end - one.position for one in self._followed.values())

    @property
    def on_their_way_bytes(self) -> int:
        """The bytes that the follower was sent and has not acknowledged."""
        return sum(one.position - one.acknowledged for one in self._followed.values())

    def _note_catching_up(self) -> bool:
        """Whether the follower catches up: no commit waits for it, and it lacks more than is
        usually on its way."""
        assert self._session is not None
        partition, broker, _ = self._session
        replica = self._logs.replica(partition)
        leader = replica.machine.leader if replica else None
        catches_up = (
            leader is not None
            and not leader.counts(broker)
            and self._connection.end_reason is None
            and all(one.answer.epoch == leader.epoch for one in self._followed.values())
            and self.lacking_bytes > FOLLOW_WINDOW_BYTES
        )
        if catches_up:
            self._logs.catching_up.begin(self)
        else:
            self._logs.catching_up.end(self)
        return catches_up

    async def _send(self) -> None:
        catching_up = self._logs.catching_up
        try:
            while True:
                catches_up = self._note_catching_up()
                sent = self._tell_marks()
                if not catches_up or catching_up.may_send():
                    due, self._due = self._due, {}
                    round_ends = _ROUND_BYTES
                    for topic_id in due:
                        sent += await self._send_from(self._followed[topic_id])
                        if sent >= round_ends:  # of many logs, each lacks some
                            await trio.lowlevel.checkpoint()
                            await self._connection.drained()
                            round_ends = sent + _ROUND_BYTES
                if sent:
                    if self._due or self._marks:
                        await trio.lowlevel.checkpoint()  # let other tasks run between two reads
                    await self._connection.drained()
                else:
                    await self._rest(catching_up.look_again_s if catches_up else math.inf)
        except ConnectionLostError:
            return
        except OffsetOutOfRangeError:
            # The follower is not in sync, so no commit waits for it.  It follows again, from the
            # log start on.
            _log.info("retention overtook a follower", peer=self._connection.peer)
            await self._connection.close(1013, "retention removed what comes next: follow again")
        except OctopiError as error:
            _log.error("can't send to a follower", peer=self._connection.peer, why=str(error))
            await self._connection.close(1011, "the leader can't read its log")

    def _tell_marks(self) -> int:
        """Send highwater marks that no records took along; return how many were sent."""
        sent, now = 0, self._environment.clock.now()
        for topic_id, tell_at in list(islice(self._marks.items(), _MARKS_IN_A_ROW)):
            if tell_at > now:
                break
            del self._marks[topic_id]
            followed = self._followed[topic_id]
            replica = self._kept_by(followed)
            if replica is None:
                self._forget(followed)
            elif followed.position < followed.log.end:
                self._due[topic_id] = None  # records take it along
            elif followed.log.highwater > followed.told_highwater:
                sent += self._send_next(followed, replica)
        return sent

    async def _rest(self, seconds: float) -> None:
        """Wait until there is something to do, at most *seconds*."""
        clock = self._environment.clock
        if self._marks:
            seconds = min(seconds, max(0.0, next(iter(self._marks.values())) - clock.now()))
        if seconds == math.inf:
            await self._idle.park()
            return
        self._looks_at = clock.now() + seconds
        with clock.timeout(seconds):
            await self._idle.park()
        self._looks_at = math.inf

    async def _send_from(self, followed: _Followed) -> int:
        """Send the next records of one log, if there are any and there is room; return about how
        many bytes were sent.  The result is above 0 as well if only something else was sent."""
        replica = self._kept_by(followed)
        if replica is None:
            self._forget(followed)
            return 0
        try:
            return self._send_next(followed, replica)
        except NeedsTimeError:
            pass
        try:
            await followed.log.prove(followed.position)
        except OctopiError:
            if self._kept_by(followed) is not None:
                raise
        self._look_at(followed.log.topic_id)
        return 1  # look at it once more: records may have come meanwhile

    def _kept_by(self, followed: _Followed) -> ReplicaDriver | None:
        """The replica that has the log.  None: its topic was deleted, so its files are closed, and
        the follower is told to delete its own."""
        replica = self._logs.replica(followed.answer.partition)
        if replica is None or replica.logs.get(followed.log.topic_id) is not followed.log:
            return None
        return replica

    def _forget(self, followed: _Followed) -> None:
        followed.log.remove_waker(followed.wake)
        self._followed.pop(followed.log.topic_id)
        self._due.pop(followed.log.topic_id, None)
        self._marks.pop(followed.log.topic_id, None)

    def _send_next(self, followed: _Followed, replica: ReplicaDriver) -> int:
        """Send the next records of one log, or only its highwater mark if there are none."""
        log, answer, leader = followed.log, followed.answer, replica.machine.leader
        if leader is None or leader.epoch != answer.epoch:
            return 0  # another leader's log isn't what the follower agreed with
        highwater, end = log.highwater, log.end
        records, epoch = b"", NO_EPOCH
        if not followed.may_send():
            return 0  # an acknowledgement will have it looked at again
        if followed.position < end:
            records = log.read_uncommitted(followed.position, _ROUND_BYTES)
            epochs = log.state.epochs
            epoch = epochs.epoch_at(followed.position)
            stop = epochs.end_of_epoch_at(followed.position, end)
            records = records[: stop - followed.position]
        message = m.Replicate(
            partition=answer.partition,
            epoch=answer.epoch,
            incarnation=answer.incarnation,
            attempt=answer.attempt,
            topic_id=answer.topic_id,
            offset=followed.position,
            records_epoch=epoch,
            records=records,
            highwater=highwater,
            generation=log.generation,
        )
        trace = self._environment.trace
        if trace is not None:
            before, after = self._edges(log, message)
            trace(before)
        self._connection.post_parts(encode_parts(message))
        followed.position = Offset(followed.position + len(records))
        if records:
            followed.sent_ends.append(followed.position)
        if followed.position < end:
            self._due[log.topic_id] = None
        self._logs.catching_up.sent(self, len(records))
        followed.told_highwater = highwater
        self._marks.pop(log.topic_id, None)
        if trace is not None:
            trace(after)
        return len(records) or 1

    def _edges(self, log: LocalLog, message: m.Replicate) -> tuple[Step, Step]:
        """The two trace steps of sending *message*: of records, or only of the highwater mark."""
        assert self._session is not None
        told = *log_fields(log, message.epoch), self._session[1], message.highwater
        if not message.records:
            return steps.P6Telling(*told), steps.P6Told(*told)
        end = message.offset + len(message.records)
        records = *told, message.offset, end, message.records_epoch
        return steps.P2Forwarding(*records), steps.P2Forwarded(*records)


def _unknown(message: m.Follow) -> m.FollowRefused:
    return m.FollowRefused(
        message.partition,
        message.epoch,
        message.incarnation,
        message.attempt,
        message.topic_id,
        "this broker has no replica of the partition",
    )
