"""The driver of one `ProducerSession`: performs its effects, and reports events and time to it.

Sending is synchronous (`Connection.ask`).  So the task that submits a message sends the batch that
the message completes, and the connection's reader, when it gets an answer, sends the next batch.
Timers come from `octopi.timers`.  Own tasks are needed only to find the leader, and to ask the
register about a silent one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import attrs
import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.leader_check import LeaderVerdict
from octopi.clients.leader_errors import may_pass_at_a_leader
from octopi.clients.news import News
from octopi.clients.producing.batches import Batch, Stored
from octopi.clients.producing.effects import (
    AskLeader,
    BeginEpoch,
    Fenced,
    FindLeader,
    Send,
    Settled,
)
from octopi.clients.producing.producer_session import ProducerSession
from octopi.clients.producing.sender_tracer import SenderTracer
from octopi.clients.suspicion import RequestSuspicion
from octopi.conditions import Condition
from octopi.errors import (
    ConnectionLostError,
    OctopiError,
    ProducerFencedError,
    ProtocolError,
    RefusedError,
)
from octopi.identifiers import Epoch, Offset, PartitionId, ProducerEpoch, TopicName
from octopi.retry import Backoff, may_pass
from octopi.timers import TimerQueue
from octopi.tracing import client as steps
from octopi.transport.connection import Connection
from octopi.transport.failures import refusal
from octopi.wire.messages import (
    DescribeProducer,
    Failure,
    PartitionInfo,
    Produced,
    ProducerDescription,
    TopicInfo,
)


@attrs.frozen(eq=False)
class SharedBySenders:
    """The objects that all senders of one producer share."""

    nursery: trio.Nursery
    timers: TimerQueue
    create_topics: bool
    """Whether to create topics that are missing."""
    on_settled: Callable[[Settled], None]
    on_topic_described: Callable[[TopicInfo], None]
    """Called with the register's answer about a topic, when a sender looks for a leader."""
    on_drained: Callable[[LogSender], None]
    """Called when all that was sent by a former generation of the topic is settled there."""
    on_fenced: Callable[[RefusedError], None]
    """Called when another process writes with a newer epoch of the producer's id."""
    saw_failure: Callable[[Batch], None]
    """Called once for each message of a failed batch whose receipt was awaited."""


class LogSender:
    """Sends one producer's messages to one log."""

    def __init__(
        self,
        cluster: ClusterHandle,
        shared: SharedBySenders,
        topic: TopicName,
        partition: PartitionId,
        session: ProducerSession,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.session = session
        self.saw_failure = shared.saw_failure
        self._cluster = cluster
        self._shared = shared
        self._environment = cluster.environment
        self._clock = cluster.environment.clock
        trace = cluster.environment.trace
        self._tracer = trace and SenderTracer(trace, topic, partition, session.producer_id)
        self._on_settled = shared.on_settled
        self._backoff = Backoff(cluster.environment.randomness)
        self._connection: Connection | None = None
        self._route = cluster.route(topic, partition, shared.on_topic_described)
        self._address = ""
        """The address of the connection's broker; `_epoch` is the epoch in which it leads."""
        self._epoch = 0
        self._is_finding = False
        self._is_asking = False
        self._is_closed = False
        self._waiting: dict[Batch, News] = {}
        self._wakes_at = math.inf
        """When the newest timer is due; infinity: there is none."""

    def take(
        self,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes],
        timestamp_ms: int,
        *,
        urgent: bool,
        condition: Condition | None = None,
        pinned: bool = False,
    ) -> Batch:
        """Queue a message; return its batch, of which it is the last message; with a *condition* it
        is the only one.  *pinned*: as in `Batch`.

        Raises:
          MalformedRecordError: if it doesn't fit the record format; it isn't queued.
        """
        session = self.session
        now = self._clock.now()
        batch = session.add(value, key, headers, timestamp_ms, now, condition, pinned=pinned)
        if urgent:
            session.hurry(batch)
        if urgent or batch.sealed or batch.last_position == 0:
            self.pump()
        return batch

    def take_many(
        self,
        values: list[bytes],
        begin: int,
        headers: Mapping[str, bytes],
        timestamp_ms: int,
        *,
        pinned: bool = False,
    ) -> tuple[Batch, int, int]:
        """Queue messages without keys, from ``values[begin]`` on, as many as one batch holds;
        return the batch, the number of these messages, and their size in bytes.

        Raises:
          MalformedRecordError: if headers or time stamp don't fit; none is queued.
        """
        session = self.session
        open_batch = session.open_batch
        before_bytes = open_batch.builder.size_bytes if open_batch is not None else 0
        now = self._clock.now()
        batch, count = session.add_many(values, begin, headers, timestamp_ms, now, pinned=pinned)
        is_new = batch is not open_batch
        size_bytes = batch.builder.size_bytes - (0 if is_new else before_bytes)
        if batch.sealed or is_new:
            self.pump()
        return batch, count, size_bytes

    async def wait_settled(self, batch: Batch) -> None:
        """Return when *batch* has its outcome, or was moved; it doesn't linger meanwhile."""
        while batch.outcome is None and (settled := self.settling(batch)) is not None:
            await settled.wait()

    def settling(self, batch: Batch) -> News | None:
        """What is told when *batch* has its outcome, or was moved; None: it has.  It doesn't linger
        meanwhile."""
        if batch.outcome is None and batch.moved is None and not batch.urgent:
            self.session.hurry(batch)
            self.pump()
        if batch.outcome is not None or batch.moved is not None:
            return None
        return self._waiting.setdefault(batch, News())

    @property
    def topic_info(self) -> TopicInfo | None:
        """The last description by which it looked for the leader."""
        return self._route.info

    def supersede(self) -> None:
        """A later generation of the topic is in force: see `ProducerSession.supersede`."""
        self.session.supersede()
        self.pump()

    def moved(self, batch: Batch) -> None:
        """The messages of *batch* are in other batches now, whose senders have them."""
        if (waiting := self._waiting.pop(batch, None)) is not None:
            waiting.tell()

    def close(self, why: OctopiError) -> None:
        """Settle everything now; later answers are ignored."""
        self.session.fail(why)
        self.pump()
        self._is_closed = True

    # --- time and events ---------------------------------------------------------------

    def _wake(self, at: float) -> None:
        if at == self._wakes_at:  # otherwise an earlier timer was set after this one
            self._wakes_at = math.inf
            self.pump()

    def pump(self) -> None:
        """Perform all effects that the session has now, and set the next timer."""
        session = self.session
        connection = self._connection
        if connection is not None and connection.end_reason is not None:
            session.disconnected(ConnectionLostError(connection.end_reason))
        tracer = self._tracer
        for effect in session.advance(self._clock.now()):
            traced = None if tracer is None else tracer.before(effect)
            match effect:
                case Send():
                    self._send(effect)
                    if traced is not None:
                        traced()
                case Settled():
                    self._on_settled(effect)
                    settled = self._waiting.pop(effect.batch, None)
                    if settled is not None:
                        settled.tell()
                case FindLeader():
                    self._leave_leader(effect)
                case AskLeader():
                    self._ask_about_leader()
                case BeginEpoch(after):
                    self._shared.nursery.start_soon(self._begin_epoch, after)
                case Fenced(why):
                    self._shared.on_fenced(why)
        if (audit := self._environment.audit) is not None:
            audit(session)
        if self._connection is None and not self._is_finding and not session.is_empty:
            self._start_finding(None)
        wake_at = session.wake_at()
        if wake_at < self._wakes_at:
            self._wakes_at = wake_at
            self._shared.timers.set(wake_at, self._wake)
        if session.is_drained and not self._is_closed:
            self._shared.on_drained(self)

    def _send(self, send: Send) -> None:
        connection = self._connection
        assert connection is not None, "the session sends only while it is connected"
        request = connection.next_request()
        connection.ask(
            self._cluster.addressed(send.request(request, self.topic, self.partition)),
            partial(self._take_answer, connection, request, send.batch, send.attempt),
        )

    def _take_answer(
        self,
        connection: Connection,
        request: int,
        batch: Batch,
        attempt: int,
        answer: object,
    ) -> None:
        connection.forget(request)
        if self._is_closed:
            return
        if self._tracer is not None:
            self._tracer.answered(batch, attempt, answer)
        if isinstance(answer, Produced):
            self._backoff.reset()
            self._route.arrived()
            stored = Stored(
                Offset(answer.offset),
                Epoch(answer.epoch),
                answer.duplicate,
                answer.id,
                answer.digest,
            )
            self.session.answered(batch, attempt, stored)
        elif isinstance(answer, Failure):
            self.session.refused(batch, attempt, refusal(answer))
        elif isinstance(answer, ConnectionLostError):
            if connection is self._connection:
                self.session.disconnected(answer)
        else:
            self._cluster.connections.discard(connection, "wrong type of answer to a produce")
        self.pump()

    # --- epochs of a named producer ------------------------------------------------------

    async def begin_first_epoch(self) -> None:
        """Have the leader begin this life of a named producer, unless it has begun already.

        Raises:
          OctopiError: if no leader answers in time, or the log can't be written.
        """
        if self.session.needs_first_epoch:
            epoch = await self._epoch_after(None)
            if self.session.needs_first_epoch:
                self.session.began(epoch)

    async def _begin_epoch(self, after: ProducerEpoch | None) -> None:
        """Have the leader begin an epoch, and tell the session."""
        try:
            epoch = await self._epoch_after(after)
        except ProducerFencedError as error:
            self.session.fail(error)
            self._shared.on_fenced(error)
        except OctopiError as error:
            if may_pass_at_a_leader(error):
                self.session.not_begun(error)
            else:
                self.session.fail(error)
        else:
            self.session.began(epoch)
        self.pump()

    async def _epoch_after(self, after: ProducerEpoch | None) -> ProducerEpoch:
        producer_id = self.session.producer_id
        found = await self._cluster.router.ask_leader(
            f"begin an epoch of the producer in {self.topic}/{self.partition}",
            self.topic,
            self.partition,
            lambda request: DescribeProducer(
                request, self.topic, self.partition, producer_id, True, after
            ),
            ProducerDescription,
            passes=may_pass_at_a_leader,
            follows_generations=True,
        )
        if found.epoch is None:
            raise ProtocolError("the leader did not say which epoch it has begun")
        epoch = ProducerEpoch(found.epoch)
        if (trace := self._environment.trace) is not None:
            trace(steps.C15Began(self.topic, self.partition, producer_id, epoch, found.end))
        return epoch

    # --- the leader --------------------------------------------------------------------

    def _leave_leader(self, effect: FindLeader) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and effect.silent:
            self._cluster.connections.discard(connection, str(effect.why))
        if not self._is_finding:
            self._start_finding(effect.why)

    def _start_finding(self, why: OctopiError | None) -> None:
        self._is_finding = True
        self._shared.nursery.start_soon(self._find_leader, why)

    async def _find_leader(self, why: OctopiError | None) -> None:
        """Connect to the leader and tell the session so; return early if nothing is left to
        send."""
        if not self._route.redirected(why) and why is not None:
            self.session.trouble(self._route.reported(why))
            await self._back_off()
        while not self.session.is_empty:
            try:
                place = await self._route.find(
                    create=self._shared.create_topics, generation=self.session.generation
                )
                self._address, self._epoch = place.address, place.epoch
                suspicion = RequestSuspicion(self._clock)
                async with self._cluster.leader_check.unless_replaced(
                    self.topic, self.partition, self._judge, suspicion
                ):
                    self._connection = await self._cluster.connections.get(place.address)
            except OctopiError as error:
                if not may_pass(error):
                    self.session.fail(error)
                    break
                self.session.trouble(error)
                await self._back_off()
            else:
                if self._tracer is not None:
                    self._tracer.found(place.address)
                if place.generation > self.session.generation:
                    self.session.supersede()
                self.session.connected(place.generation)
                break
        self._is_finding = False
        self.pump()

    def _ask_about_leader(self) -> None:
        if self._connection is not None and not self._is_asking:
            self._is_asking = True
            self._shared.nursery.start_soon(self._leave_if_replaced, self._connection)

    async def _leave_if_replaced(self, connection: Connection) -> None:
        """Ask the register about a silent leader; leave it if another one leads."""
        verdict = await self._cluster.leader_check.judge(self.topic, self.partition, self._judge)
        self._is_asking = False
        if connection is not self._connection:
            return
        if verdict is LeaderVerdict.LEAVE:
            text = f"{self._address} is silent, and does not lead {self.topic}/{self.partition} now"
            self.session.disconnected(ConnectionLostError(text))
        elif verdict is LeaderVerdict.NO_LEADER:
            self.session.no_leader_found(self._clock.now())
        self.pump()

    def _judge(self, place: PartitionInfo) -> LeaderVerdict:
        return self._route.judge(self._address, self._epoch, place)

    async def _back_off(self) -> None:
        await self._clock.sleep_until(self._clock.now() + self._backoff.next_s())
