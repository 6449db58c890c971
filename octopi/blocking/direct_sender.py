"""Sends messages one by one, in the program's own thread, as long as nothing goes wrong.

A message that is sent through the thread of Trio costs two changes of threads, more than all else.
So a thread that waits for each receipt writes to the broker's socket itself, and reads the answer.
What is sent, and what the answer means, is decided by a `ProducerSession`, as everywhere.  Only one
course is gone here: one batch is sent, and one `Produced` comes.  At anything else the session is
given away, with what it holds, to an ordinary sender in the thread of Trio, which finishes it; the
caller waits for that.  The next message has a new session, and, if need be, a new connection.

One thread uses a connection at a time.  One that finds it in use takes the ordinary way.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial
from typing import Final

import attrs
import trio

from octopi.blocking.direct_link import DirectFault, DirectLink
from octopi.blocking.timeouts import time_left_s
from octopi.blocking.trio_thread import TrioThread
from octopi.clients.leader_route import LeaderRoute
from octopi.clients.producing.batches import Batch, Stored
from octopi.clients.producing.effects import Send
from octopi.clients.producing.lent_sessions import LentSessions
from octopi.clients.producing.log_sender import LogSender
from octopi.clients.producing.producer_session import ProducerSession
from octopi.clients.producing.receipts import PendingReceipt, Receipt
from octopi.errors import ConnectionLostError, OctopiError
from octopi.identifiers import Epoch, Offset, PartitionId, TimestampMs, TopicName
from octopi.limits import CLOSE_TIMEOUT_S, HEARTBEAT_INTERVAL_S
from octopi.operating_system import SystemClock
from octopi.transport.addresses import is_secure
from octopi.transport.failures import refusal
from octopi.wire.codec import encode
from octopi.wire.messages import Failure, Produced

RETRY_S: Final = 1.0
"""After a failure messages of a log take the ordinary way for this long."""


class DirectBroker:
    """The connection to one broker, and who may use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held by the thread that uses `link`."""
        self.link: DirectLink | None = None
        self.renew_at = math.inf
        """When the connection is to be replaced, since its token ends."""
        self.acknowledged_count = 0
        self._last_request = 0

    def next_request(self) -> int:
        """A request number that was not used before."""
        self._last_request += 1
        return self._last_request

    def drop(self, link: DirectLink) -> None:
        """Close *link*; the caller holds the lock."""
        if self.link is link:
            self.link = None
        link.close()

    def keep(self, now: float) -> None:
        """Keep the connection alive if it is idle, or close it if it should not be used any more.
        Doesn't wait."""
        if not self.lock.acquire(blocking=False):
            return  # it is in use, so the broker hears of us
        try:
            if (link := self.link) is None:
                return
            try:
                if now >= self.renew_at:
                    self.drop(link)
                else:
                    link.keep_alive()
            except DirectFault:
                self.drop(link)
        finally:
            self.lock.release()


@attrs.define(eq=False)
class DirectLog:
    """One log that messages were sent to directly."""

    topic: TopicName
    partition: PartitionId
    session: ProducerSession
    """Without any batch, unless a thread holds the lock of `broker`."""
    route: LeaderRoute
    """Finds the leader; used in the thread of Trio only."""
    broker: DirectBroker | None = None
    """The leader's; None: it has to be found."""
    link: DirectLink | None = None
    """The connection that `session` knows of."""
    failed: OctopiError | None = None
    """Why the leader has to be found again."""
    not_before: float = -math.inf
    """When the direct way may be tried again."""


@attrs.define(eq=False)
class GivenAway:
    """A session that an ordinary sender finishes."""

    log: DirectLog
    session: ProducerSession
    batch: Batch
    timestamp_ms: int
    size_bytes: int
    sender: LogSender | None = None


class _Phase(Enum):
    DECIDING = auto()
    """Nothing was sent."""
    SENT = auto()
    """The batch may be sent, and is not answered."""
    ANSWERED = auto()
    """The broker has committed the batch."""


class DirectSender:
    """The direct way of one producer."""

    def __init__(self, thread: TrioThread, lent: LentSessions) -> None:
        """Made in the thread of Trio."""
        self._thread = thread
        self._lent = lent
        self._cluster = lent.cluster
        self._environment = lent.cluster.environment
        self._now: Callable[[], float] = trio.lowlevel.current_clock().current_time
        self._opening = trio.Lock()
        self._brokers: dict[str, DirectBroker] = {}
        self._logs: dict[tuple[str, int], DirectLog] = {}
        self._given_away: set[GivenAway] = set()
        """Those that Trio has not taken over yet."""
        self._interval_s = HEARTBEAT_INTERVAL_S
        here = self._environment
        # What observes a session does so in the thread of Trio.
        is_observed = here.trace is not None or here.audit is not None
        is_direct = not self._cluster.forwards
        self._is_possible = is_direct and isinstance(here.clock, SystemClock) and not is_observed

    @property
    def acknowledged_count(self) -> int:
        """The number of messages that are known to be committed."""
        return sum(one.acknowledged_count for one in self._brokers.copy().values())

    @property
    def is_ready(self) -> bool:
        """Whether the direct way may be taken: all that was given away is with Trio."""
        return self._is_possible and not self._given_away

    # --- in the program's threads ------------------------------------------------------

    def send(
        self,
        topic: TopicName,
        partition: PartitionId,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes],
        timestamp_ms: int,
        *,
        generation: int,
        pinned: bool,
    ) -> Receipt | None:
        """Send a message and wait until it is committed.  None: it wasn't taken, since the direct
        way isn't possible now.  *generation*: that of the topic by which the partition was chosen;
        *pinned*: whether the program named it.

        Raises:
          What `octopi.Producer.send` raises.
        """
        log = self._logs.get((topic, partition))
        if log is None or (broker := log.broker) is None or broker.link is None:
            log = self._find(topic, partition)
            if log is None or (broker := log.broker) is None:
                return None
        if time_left_s() == 0.0 or not broker.lock.acquire(blocking=False):
            return None
        try:
            if log.session.is_empty:
                log.session.go_on(generation)
            done = self._exchange(log, broker, value, key, headers, timestamp_ms, pinned)
        finally:
            if not self._is_possible and broker.link is not None:
                broker.drop(broker.link)  # the producer was closed meanwhile
            broker.lock.release()
        if isinstance(done, GivenAway):
            return self._thread.call(partial(self._receipt, done))
        return done

    def wait_for_senders(self) -> None:
        """Wait until the messages that other threads send now are committed or given away.

        Raises:
          TimeoutError: if the time of this thread's `timeout` is up.
        """
        for broker in self._brokers.copy().values():
            left_s = time_left_s()
            is_short = left_s is not None and left_s < CLOSE_TIMEOUT_S
            wait_s = left_s if is_short and left_s is not None else CLOSE_TIMEOUT_S
            if broker.lock.acquire(timeout=wait_s):
                broker.lock.release()
            elif is_short:
                raise TimeoutError("the time is up (octopi.blocking.timeout)")

    def _find(self, topic: TopicName, partition: PartitionId) -> DirectLog | None:
        """The log with a connection to its leader; None: there is none now."""
        log = self._logs.get((topic, partition))
        if log is None:
            route = LeaderRoute(self._cluster.lookup, topic, partition, follows_generations=True)
            session = self._lent.lend(topic, partition)
            log = DirectLog(topic, partition, session, route)
            log = self._logs.setdefault((topic, partition), log)
        if self._now() < log.not_before:
            return None
        self._thread.call(partial(self._open, log))
        return log

    def _exchange(
        self,
        log: DirectLog,
        broker: DirectBroker,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes],
        timestamp_ms: int,
        pinned: bool,
    ) -> Receipt | GivenAway | None:
        """Send the message on the connection, and receive the answer."""
        batch: Batch | None
        link = broker.link
        now = self._now()
        if link is None or log.broker is not broker or now >= broker.renew_at:
            if link is not None and now >= broker.renew_at:
                broker.drop(link)  # the next message gets a connection with a fresh token
            return None
        session = log.session
        if not session.is_empty:  # a thread was interrupted just as it gave it away
            [batch, *_] = [*session.unsettled, Batch(now, now)]
            self._give_away(log, broker, batch, 0, 0)
            return None
        phase = _Phase.DECIDING
        batch = None
        send: Send | None = None
        try:
            if log.link is not link:
                self._connect(session, now)
                log.link = link
            batch = session.add(value, key, headers, timestamp_ms, now, pinned=pinned)
            size_bytes = batch.builder.size_bytes
            session.hurry(batch)
            [effect] = session.advance(now)
            assert isinstance(effect, Send), "an idle session sends what is urgent"
            send = effect
            request = broker.next_request()
            produce = encode(send.request(request, log.topic, log.partition))
            wait_s = session.wake_at() - now
            if (left_s := time_left_s()) is not None:
                wait_s = min(wait_s, left_s)
            phase = _Phase.SENT
            link.send(produce)
            answer = link.receive(round(max(wait_s, 0.001), 3))
            if type(answer) is not Produced or answer.request != request:
                log.failed = self._take_trouble(session, batch, send, request, answer)
                return self._give_away(log, broker, batch, size_bytes, timestamp_ms)
            phase = _Phase.ANSWERED
            stored = Stored(
                Offset(answer.offset),
                Epoch(answer.epoch),
                answer.duplicate,
                answer.id,
                answer.digest,
            )
            session.answered(batch, send.attempt, stored)
            session.advance(self._now())  # its one effect says that the batch is settled
        except DirectFault as fault:
            assert batch is not None, "the link is used when there is a batch"
            session.disconnected(ConnectionLostError(f"the connection to the broker: {fault}"))
            return self._give_away(log, broker, batch, size_bytes, timestamp_ms)
        except BaseException as error:
            self._interrupted(log, broker, phase, batch, error, timestamp_ms)
            raise
        broker.acknowledged_count += 1
        return Receipt(
            log.topic,
            log.partition,
            Offset(answer.offset),
            Offset(answer.offset + size_bytes),
            Epoch(answer.epoch),
            TimestampMs(timestamp_ms),
            answer.duplicate,
            answer.id or None,
            answer.digest or None,
        )

    def _connect(self, session: ProducerSession, now: float) -> None:
        """Tell an idle session that there is another connection."""
        session.disconnected(ConnectionLostError("the connection was replaced"))
        session.advance(now)  # it may ask to find the leader, which is found already
        session.connected()

    def _take_trouble(
        self, session: ProducerSession, batch: Batch, send: Send, request: int, answer: object
    ) -> OctopiError:
        """Tell the session of an answer that isn't the usual one; return what it means."""
        if isinstance(answer, Failure) and answer.request == request:
            refused = refusal(answer)
            session.refused(batch, send.attempt, refused)
            return refused
        what = type(answer).__name__
        text = f"the broker said: {refusal(answer)}" if isinstance(answer, Failure) else what
        lost = ConnectionLostError(f"no answer to a produce: {text}")
        session.disconnected(lost)
        return lost

    def _interrupted(
        self,
        log: DirectLog,
        broker: DirectBroker,
        phase: _Phase,
        batch: Batch | None,
        error: BaseException,
        timestamp_ms: int,
    ) -> None:
        """The thread was interrupted, or the message doesn't fit the format."""
        if isinstance(error, OctopiError) and phase is _Phase.DECIDING:
            return  # the session has not taken the message
        if phase is _Phase.SENT and batch is not None:
            log.session.disconnected(ConnectionLostError("the thread was interrupted"))
            self._give_away(log, broker, batch, batch.builder.size_bytes, timestamp_ms)
            return
        # The session was interrupted in the middle of a decision, about a message that was not
        # sent, or is stored: nothing is left to decide.
        log.session, log.link = self._lent.lend(log.topic, log.partition), None

    def _give_away(
        self,
        log: DirectLog,
        broker: DirectBroker,
        batch: Batch,
        size_bytes: int,
        timestamp_ms: int,
    ) -> GivenAway:
        """Give the session away, for good, and close the connection."""
        session = log.session
        session.disconnected(ConnectionLostError("the direct connection was closed"))
        given = GivenAway(log, session, batch, timestamp_ms, size_bytes)
        self._given_away.add(given)
        self._thread.post(partial(self._adopt, given))
        link = broker.link
        log.session = self._lent.lend(log.topic, log.partition)
        log.link, log.broker = None, None
        log.not_before = self._now() + RETRY_S
        if link is not None:
            broker.drop(link)
        return given

    # --- in the thread of Trio ---------------------------------------------------------

    def _adopt(self, given: GivenAway) -> None:
        log = given.log
        given.sender = self._lent.adopt(log.topic, log.partition, given.session)
        self._given_away.discard(given)

    async def _receipt(self, given: GivenAway) -> Receipt:
        """Wait for the outcome of what was given away."""
        assert given.sender is not None, "it was adopted before this was called"
        pending = PendingReceipt(
            given.sender, given.batch, 0, 0, given.size_bytes, given.timestamp_ms
        )
        return await pending.receipt()

    async def _open(self, log: DirectLog) -> None:
        """Find the leader and connect to it, unless that has failed, or isn't possible."""
        async with self._opening:
            if not self._is_possible or (log.broker is not None and log.broker.link is not None):
                return
            failed, log.failed = log.failed, None
            log.route.redirected(failed)
            try:
                place = await log.route.find()
                broker = self._brokers.setdefault(place.address, DirectBroker())
                if broker.link is None:
                    await self._connect_to(place.address, broker)
            except OctopiError:
                log.not_before = self._now() + RETRY_S
            else:
                log.broker = broker

    async def _connect_to(self, address: str, broker: DirectBroker) -> None:
        if is_secure(address):
            self._is_possible = False
            return
        connections = self._cluster.connections
        connection = await connections.open_own(address)
        descriptor = connection.detach()
        if descriptor is None:
            self._is_possible = False
            await connection.close()
            return
        if not self._is_possible:  # the producer was closed meanwhile
            DirectLink(descriptor, self._environment.randomness).close()
            return
        broker.renew_at = self._now() + connections.renewal_due_s(connection)
        broker.link = DirectLink(descriptor, self._environment.randomness)

    async def keep_alive(self) -> None:
        """Keep idle connections alive, until cancelled."""
        clock = self._environment.clock
        while True:
            await clock.sleep_until(clock.now() + self._interval_s)
            for broker in self._brokers.values():
                broker.keep(clock.now())

    def close(self) -> None:
        """Close the connections.  One that is in use is closed by the thread that uses it."""
        self._is_possible = False
        for broker in self._brokers.values():
            broker.renew_at = -math.inf
            broker.keep(self._now())
