"""The queues of one partition, at its leader: their messages are read, and their dead letters
written.

The machine knows messages by their offsets and keys alone.  It says when it wants some, and a task
for each queue reads them from the log as they are committed.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

import trio

from octopi.environment import Environment
from octopi.errors import (
    NotLeaderError,
    NotReadyError,
    OffsetOutOfRangeError,
    RefusedError,
    Status,
    StorageError,
)
from octopi.identifiers import Offset, SubscriptionId, TopicName
from octopi.limits import FETCH_BYTES_DEFAULT, RECORD_BYTES_MAX
from octopi.logger import get_logger
from octopi.record import decode, record_end, record_key
from octopi.replication.effects import CommitReceipt, Refusal
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.subscriptions.letters import is_same_letter, letter_records
from octopi.roles.broker.subscriptions.ports import Leadership
from octopi.roles.broker.subscriptions.subscription_tracer import SubscriptionTracer
from octopi.subscriptions.effects import AppendLetter, Effect, WantMessages
from octopi.subscriptions.log_queue import LogQueue
from octopi.subscriptions.partition_subscriptions import PartitionSubscriptions
from octopi.subscriptions.queue import AT_ONCE
from octopi.subscriptions.queued_messages import ReadMessage
from octopi.tracing.step import Step

_log = get_logger(__name__)

_AGAIN_S: Final = 1.0
"""What can't be read is tried again after this."""

_OTHER_SEQUENCES: Final = frozenset(
    {
        Status.UNKNOWN_PRODUCER,
        Status.SEQUENCE_GAP,
        Status.PRODUCER_FENCED,
        Status.RECEIPT_FORGOTTEN,  # fewer letters are pending than a log remembers receipts
    }
)
"""The log of the dead-letter topic counts otherwise than the queue."""


class QueuesOwner(Protocol):
    """What keeps the machine of the partition."""

    @property
    def leadership(self) -> Leadership:
        """The leadership that it belongs to."""

    @property
    def machine(self) -> PartitionSubscriptions:
        """The machine.

        Raises:
          RefusedError: if it is there no more.
        """

    @property
    def tracer(self) -> SubscriptionTracer | None:
        """For an observer of this broker, if there is one."""

    def perform(self, effects: Sequence[Effect]) -> None:
        """Do what the machine wants."""

    def traced(self, edges: tuple[Step, Step] | None, do: Callable[[], None]) -> None:
        """Do it, and tell the observer of both edges."""


class _FeedWait:
    """How the reading of a queue waits for more messages."""

    def __init__(self, end: Offset) -> None:
        self.end = end
        """What is committed is read up to here."""
        self.changed = trio.Event()

    async def until_more(self, log: LocalLog) -> None:
        """Until more is committed, or the log is gone."""
        wake = self.changed.set
        log.add_waker(wake)
        try:
            if log.highwater <= self.end:
                await self.changed.wait()
        finally:
            log.remove_waker(wake)


class PartitionQueues:
    """Does for the machine what its queues want."""

    def __init__(self, environment: Environment, owner: QueuesOwner, tasks: trio.Nursery) -> None:
        """*tasks*: the broker's nursery."""
        self._environment = environment
        self._owner = owner
        self._tasks = tasks
        self._scope = trio.CancelScope()
        self._jobs: deque[Callable[[], Awaitable[None]]] = deque()
        """What is to be started."""
        self._changed: trio.Event | None = None
        """Set when there is something to start; None: there never was."""
        self._fed: dict[SubscriptionId, _FeedWait | None] = {}
        """Queues whose messages are being read, and how those wait that are at the log's end."""
        self._is_ticking = False

    def end(self) -> None:
        """The leadership has ended."""
        self._scope.cancel()

    def want(self, effect: WantMessages) -> None:
        """A queue wants messages."""
        if effect.sid not in self._fed:
            self._fed[effect.sid] = None
            self._start(partial(self._feed, effect.sid))
        elif (wait := self._fed[effect.sid]) is not None:
            queue = self._owner.machine.queue(effect.sid)
            if queue is not None and queue.queue.read_end != wait.end:
                wait.changed.set()  # the mark was reset

    def append_letter(self, effect: AppendLetter) -> None:
        """A dead letter is to be appended."""
        self._start(partial(self._append_letter, effect))

    def go_on(self) -> None:
        """Have the machine do the rest of what it did a bounded part of."""
        if self._changed is None or self._is_ticking:
            return  # no queue has wanted anything yet, or it goes on already
        if self._has_more():
            self._is_ticking = True
            self._start(self._tick)

    def _has_more(self) -> bool:
        due_at = self._owner.machine.due_at
        return due_at is not None and due_at <= AT_ONCE

    # --- tasks ---------------------------------------------------------------------------

    def _start(self, job: Callable[[], Awaitable[None]]) -> None:
        self._jobs.append(job)
        if self._changed is None:
            self._changed = trio.Event()
            self._tasks.start_soon(self._run)
        self._changed.set()

    async def _run(self) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                while True:
                    while self._jobs:
                        nursery.start_soon(self._guarded, self._jobs.popleft())
                    self._changed = trio.Event()
                    await self._changed.wait()

    async def _guarded(self, job: Callable[[], Awaitable[None]]) -> None:
        with contextlib.suppress(NotLeaderError, NotReadyError):
            await job()

    async def _tick(self) -> None:
        try:
            while self._has_more():
                await trio.lowlevel.checkpoint()  # others have their turn between the parts
                now = self._environment.clock.now()
                self._owner.perform(self._owner.machine.tick(now))
        finally:
            self._is_ticking = False

    # --- reading -------------------------------------------------------------------------

    async def _feed(self, sid: SubscriptionId) -> None:
        """Read what the queue wants, until it wants nothing."""
        clock = self._environment.clock
        try:
            while (queue := self._wanting(sid)) is not None:
                log = self._owner.leadership.log(queue.topic_id)
                if log is None:
                    return  # the topic is just being removed
                try:
                    await self._feed_some(queue, log)
                except OffsetOutOfRangeError:
                    if queue.queue.read_end < log.start:
                        now = clock.now()
                        self._owner.perform(self._owner.machine.lose(sid, log.start, now))
                    else:
                        await clock.sleep_until(clock.now() + _AGAIN_S)
                except (NotLeaderError, NotReadyError):
                    # Another broker is to lead; this task ends, unless it leads on after all.
                    await clock.sleep_until(clock.now() + _AGAIN_S)
                except (StorageError, RefusedError) as error:
                    where = f"{log.topic.topic}/{log.partition}"
                    _log.error("queue can't be read", sid=sid, log=where, why=str(error))
                    await clock.sleep_until(clock.now() + _AGAIN_S)
                await trio.lowlevel.checkpoint()
        finally:
            del self._fed[sid]

    def _wanting(self, sid: SubscriptionId) -> LogQueue | None:
        queue = self._owner.machine.queue(sid)
        return queue if queue is not None and queue.queue.wanted_count else None

    async def _feed_some(self, queue: LogQueue, log: LocalLog) -> None:
        begin = queue.queue.read_end
        bound = log.bound(1)
        if bound is not None and bound.is_sealed and begin >= bound.end:
            reason = (
                f"topic {log.name} got other partitions, and a queue can't deal the messages "
                "behind the end of its first ones: read them with `client.consumer`, or with a "
                "subscription of mode exclusive or failover"
            )
            status, now = Status.UNSUPPORTED_VERSION, self._environment.clock.now()
            self._owner.perform(self._owner.machine.end_queue(queue.sid, status, reason, now))
        if begin >= (log.highwater if bound is None else min(log.highwater, bound.end)):
            wait = self._fed[queue.sid] = _FeedWait(begin)
            try:
                await wait.until_more(log)
            finally:
                self._fed[queue.sid] = None
            return
        await log.prove(begin)
        if queue.queue.read_end != begin:
            return  # it was reset meanwhile
        size_bytes = FETCH_BYTES_DEFAULT
        if (bound := log.bound(1)) is not None:
            size_bytes = min(size_bytes, max(0, bound.end - begin))
        records = log.read(begin, size_bytes) if size_bytes else b""
        messages = _messages(records, begin, queue)
        now = self._environment.clock.now()
        self._owner.perform(self._owner.machine.feed(queue.sid, messages, now))

    # --- dead letters --------------------------------------------------------------------

    async def _append_letter(self, effect: AppendLetter) -> None:
        leadership, sid, number = self._owner.leadership, effect.sid, effect.number
        log = leadership.log(effect.topic_id)
        if log is None:
            return  # the topic is just being removed
        now = self._environment.clock.now
        try:
            await log.prove(effect.offset)
            records = log.read(effect.offset, effect.end - effect.offset)
            [message] = decode(records, effect.offset, TopicName(log.topic.topic), log.partition)
        except (StorageError, RefusedError, ValueError) as error:
            machine = self._owner.machine
            if effect.offset < log.start:
                self._owner.perform(machine.lose_message(sid, effect.offset, now()))
            else:  # it is damaged here, and another replica has it
                fault = f"the message at {effect.offset} of {log} can't be read: {error}"
                self._owner.perform(machine.letter_failed(sid, number, fault, now()))
            return

        def done(answer: CommitReceipt | Refusal) -> None:
            with contextlib.suppress(RefusedError):  # the leadership has ended
                if isinstance(answer, CommitReceipt):
                    if answer.duplicate:
                        assert letters is not None
                        at = answer.offset
                        self._start(partial(self._look_at_letter, effect, made, letters, at))
                    else:
                        self._letter_committed(effect, now())
                elif answer.status in _OTHER_SEQUENCES:
                    assert letters is not None
                    self._begin_letters(effect, letters)
                else:
                    machine = self._owner.machine
                    found = machine.letter_failed(sid, number, answer.reason, now())
                    self._owner.perform(found)

        letters = leadership.log_named(effect.letter_topic)
        if letters is None:
            why = f"partition {log.partition} has no log of topic {effect.letter_topic}"
            done(Refusal(Status.UNKNOWN_TOPIC, why))
        elif letters.topic_id != effect.letter_topic_id:
            done(Refusal(Status.UNKNOWN_PRODUCER, "it is another topic"))
        else:
            wall_ms = self._environment.clock.wall_ms()
            origin = log.anchor_before(effect.offset)
            made = letter_records(effect, message, effect.topic_id, origin, wall_ms)
            tracer = self._owner.tracer
            edges = None if tracer is None else tracer.letter(effect)
            try:
                self._owner.traced(edges, lambda: leadership.produce(letters, made, done))
            except RefusedError as error:
                done(Refusal(error.status, str(error)))

    async def _look_at_letter(
        self, effect: AppendLetter, made: bytes, letters: LocalLog, offset: Offset
    ) -> None:
        """The sequence of a dead letter is that of the record at *offset*.  Mostly that is the dead
        letter; but where all replicas lost their power, the queue may have lost more than the topic
        with its dead letters."""
        now = self._environment.clock.now
        try:
            await letters.prove(offset)
            is_there = is_same_letter(made, letters.read(offset, RECORD_BYTES_MAX))
        except (StorageError, RefusedError) as error:
            found = self._owner.machine.letter_failed(effect.sid, effect.number, str(error), now())
            self._owner.perform(found)
            return
        if is_there:
            self._letter_committed(effect, now())
        else:
            self._begin_letters(effect, letters)

    def _begin_letters(self, effect: AppendLetter, letters: LocalLog) -> None:
        """The log doesn't know the sequence, or knows it otherwise."""
        now = self._environment.clock.now()
        machine = self._owner.machine
        found = machine.begin_letters(effect.sid, effect.number, letters.topic_id, now)
        self._owner.perform(found)

    def _letter_committed(self, effect: AppendLetter, now: float) -> None:
        owner, tracer = self._owner, self._owner.tracer
        machine = owner.machine
        edges = None if tracer is None else tracer.letter_committed(effect)
        owner.traced(
            edges,
            lambda: owner.perform(machine.letter_committed(effect.sid, effect.number, now)),
        )


def _messages(records: bytes, begin: Offset, queue: LogQueue) -> list[ReadMessage]:
    """The messages that *records* have from *begin* on, as many as the queue wants."""
    count = queue.queue.wanted_count
    found: list[ReadMessage] = []
    position = 0
    while position < len(records) and len(found) < count:
        end = record_end(records, position)
        key = record_key(records, position) if queue.queue.is_ordered else None
        found.append(ReadMessage(Offset(begin + position), Offset(begin + end), key))
        position = end
    return found
