"""The driver of one `ConsumerSession`: keeps a reading open at a broker that has the log.

There is one task for each log.  Records go from the connection's reader straight to the consumer;
the task only keeps a connection, and ends when the session is finished or when a retry can't help.
"""

from __future__ import annotations

import contextlib
from collections import deque
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Protocol

import attrs
import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.consuming.consumer_session import Chunk, ConsumerSession, Remedy, remedy
from octopi.clients.consuming.digest_chain import DigestChain
from octopi.clients.consuming.position_reports import PositionReports
from octopi.clients.leader_check import LeaderVerdict, judge_reader
from octopi.clients.leader_lookup import place_of, reader_addresses
from octopi.clients.leader_route import LeaderRoute
from octopi.clients.suspicion import ReadingSuspicion, RequestSuspicion, Suspicion
from octopi.errors import (
    ConnectionLostError,
    HistoryForkedError,
    HistoryLostError,
    NotReadyError,
    OctopiError,
    OffsetOutOfRangeError,
    ProtocolError,
    RefusedError,
    Status,
    UnknownTopicError,
    UnreachableError,
)
from octopi.identifiers import Offset
from octopi.retry import Backoff, reworded
from octopi.tracing import client as steps
from octopi.tracing.client import DeliveryStep
from octopi.transport.connection import Connection
from octopi.transport.failures import refusal
from octopi.wire.messages import (
    Credit,
    Delivery,
    Failure,
    FindOffset,
    PartitionInfo,
    ReportPosition,
    Subscribe,
    Subscribed,
    TopicInfo,
    Unsubscribe,
)


def is_stale(error: OctopiError | None) -> bool:
    """Whether a reading ended because its topic got other partitions."""
    return isinstance(error, RefusedError) and error.status is Status.STALE_ROUTE


@attrs.frozen
class SubscriberOptions:
    """How a `LogSubscriber` handles failures."""

    reconnect_timeout_s: float | None
    """Report an error when no broker was available for this long; None: never."""
    skip_gaps: bool
    """Whether to continue behind records that retention has removed, instead of reporting that."""
    resume_forks: bool
    """Whether to continue with the records that the log has now, after records that were read are
    gone from it, instead of reporting that."""
    proven: bool = False
    """Whether to compute the digests of a relay topic, and compare them."""


class SubscriberListener(Protocol):
    """Receives what a `LogSubscriber` reads."""

    def take_chunk(self, subscriber: LogSubscriber, chunk: Chunk) -> None:
        """Records arrived; call `LogSubscriber.took` when the program took them."""

    def take_gap(self, gap: HistoryLostError) -> None:
        """Records were skipped that retention had removed."""

    def take_fork(self, session: ConsumerSession, fork: HistoryForkedError) -> None:
        """Records that were read are gone from the log, and reading resumes before them."""

    def take_end(self, subscriber: LogSubscriber, why: OctopiError | None) -> None:
        """Called once, last: everything arrived, or reading failed because of *why*."""

    def dealt(self, subscriber: LogSubscriber) -> Offset:
        """The program has dealt with the messages below this offset."""


class LogSubscriber:
    """Reads one log for a consumer."""

    def __init__(
        self,
        cluster: ClusterHandle,
        session: ConsumerSession,
        options: SubscriberOptions,
        listener: SubscriberListener,
        generation: int = 0,
    ) -> None:
        """*generation*: the newest one of the topic that the caller knows and follows: when a later
        one is in force, reading ends with STALE_ROUTE.  0: the caller follows none."""
        self.session = session
        self.generation = generation
        self._options = options
        self._cluster = cluster
        self._environment = cluster.environment
        self._clock = cluster.environment.clock
        self._lookup = cluster.lookup
        self._route = LeaderRoute(cluster.lookup, session.topic, session.partition)
        self._listener = listener
        self._backoff = Backoff(cluster.environment.randomness)
        self._link: tuple[Connection, int] | None = None
        """Connection and request number of the reading."""
        self._chain: DigestChain | None = None
        if options.proven:
            name = f"{session.topic}/{session.partition}"
            self._chain = DigestChain(name, session.place.anchor)
        self._lost_at: float | None = None
        """Since when there is no reading."""
        self._reports = PositionReports()
        self._woken = trio.Event()
        """Set when the reading has ended, or a report has become due."""
        self._has_lost_history = False
        """A broker said that it doesn't have the next record, and that wasn't checked yet."""
        self._is_deleted = False
        """Whether the register said that the topic is deleted.  A broker that doesn't know the
        topic may only be late."""
        self._wrong: TopicInfo | None = None
        self._addresses: deque[str] = deque()
        """Addresses to read at that were not tried since the topic was looked up."""
        self._address = ""
        """The address that was tried last."""
        self._readers: set[str] = set()
        """All addresses to read at, as they were looked up last."""
        self._unable: set[str] = set()
        """The addresses of brokers that failed to read the next record."""

    def took(self, chunk: Chunk) -> None:
        """The program took *chunk*: let the broker send more."""
        if (trace := self._environment.trace) is not None:
            end = chunk.offset + len(chunk.records)
            trace(steps.C11Taken(**self._of_log, offset=chunk.offset, end=end))
        credit = self.session.took(chunk)
        if (audit := self._environment.audit) is not None:
            audit(self.session)
        if credit is not None and self._link is not None:
            connection, request = self._link
            with contextlib.suppress(ConnectionLostError):
                connection.post(Credit(request, credit))
        if self._reports.is_idle:
            self._reports.taken()
            self._woken.set()

    async def run(self) -> None:
        """Read the log until everything arrived or a retry can't help."""
        self._lost_at = self._clock.now()
        while not self.session.is_finished:
            try:
                if self._has_lost_history:
                    await self._check_history()
                connection = await self._connect()
                await self._subscribe(connection)
            except OctopiError as error:
                try:
                    await self._mend(error)
                except OctopiError as fatal:
                    if (trace := self._environment.trace) is not None:
                        trace(steps.C13Ended(**self._of_log, why=str(fatal)))
                    self._listener.take_end(self, fatal)
                    return
        self._listener.take_end(self, None)

    async def _connect(self) -> Connection:
        if not self._addresses:
            readers = await self._find_readers()
            self._readers = set(readers)
            # Brokers that failed to read come last; they may have recovered by then.
            self._addresses.extend(sorted(readers, key=self._unable.__contains__))
        self._address = self._addresses.popleft()
        async with self._unless_replaced(RequestSuspicion(self._clock)):
            return await self._cluster.connections.get(self._address)

    async def _find_readers(self) -> list[str]:
        """The addresses at which the log can be read; while the register is away, those of brokers
        that may know them."""
        session = self.session
        try:
            info = await self._look_up()
        except (UnreachableError, ConnectionLostError, NotReadyError):
            self._route.looked_up()
            known = self._lookup.brokers(session.topic, session.partition)
            if not known:
                raise
            return known
        self._route.looked_up(place_of(info, session.partition).epoch)
        return reader_addresses(info, session.partition)

    async def _look_up(self) -> TopicInfo:
        """Where the topic is now.

        Raises:
          TopicReplacedError: if it is another creation of the topic.
          OctopiError: any error of the request to the register.
        """
        try:
            info = await self._lookup.topic(
                self.session.topic,
                other_than=self._wrong,
                follows_generations=bool(self.generation),
            )
        except UnknownTopicError:
            self._is_deleted = True
            raise
        self._wrong = info
        self.session.check_topic(info.topic_id)
        return info

    async def _subscribe(self, connection: Connection) -> None:
        """Receive records until the session is finished.

        Raises:
          OctopiError: the reason why the reading ended before.
        """
        session = self.session
        request = connection.next_request()
        accepted, ended = trio.Event(), trio.Event()
        errors: list[OctopiError] = []
        self._reports.begin()

        def take(message: object) -> None:
            try:
                self._take(message)
            except OctopiError as error:
                errors.append(error)
            if isinstance(message, Subscribed):
                accepted.set()
            if errors or session.is_finished:
                connection.forget(request)
                accepted.set()
                ended.set()
                self._woken.set()

        place = session.resume()
        message = Subscribe(
            request,
            session.topic,
            session.partition,
            place.offset,
            session.credit,
            place.anchor,
            self._options.proven,
            self.generation,
        )
        if (trace := self._environment.trace) is not None:
            trace(steps.C8Subscribing(**self._of_log, offset=place.offset, peer=connection.peer))
        connection.ask(message, take)
        self._link = (connection, request)
        try:
            with self._clock.timeout(self._cluster.request_timeout_s) as silent:
                async with self._unless_replaced(RequestSuspicion(self._clock)):
                    await accepted.wait()
            if silent.cancelled_caught:
                text = f"{connection.peer} didn't answer a request to subscribe"
                self._cluster.connections.discard(connection, text)
                raise ConnectionLostError(text)
            suspicion = ReadingSuspicion(self._clock, connection, partial(self._probe, connection))
            async with self._unless_replaced(suspicion):
                await self._report_until(ended, connection, request)
        finally:
            self._link = None
            connection.forget(request)
            with contextlib.suppress(ConnectionLostError):
                connection.post(Unsubscribe(request))
        if errors:
            raise errors[0]

    async def _report_until(self, ended: trio.Event, connection: Connection, request: int) -> None:
        """Tell the broker how far the program is, when a report is due, until *ended* is set."""
        while not ended.is_set():
            now = self._clock.now()
            if not self._reports.is_idle and self._reports.due_at <= now:
                dealt = self._listener.dealt(self)
                offset = self._reports.next(dealt, self.session.taken, now)
                if offset is not None:
                    connection.post(ReportPosition(request, offset))
            self._woken = trio.Event()
            if self._reports.is_idle:
                await self._woken.wait()
            else:
                with self._clock.timeout(self._reports.due_at - now):
                    await self._woken.wait()

    def _unless_replaced(self, suspicion: Suspicion) -> AbstractAsyncContextManager[None]:
        session = self.session
        return self._cluster.leader_check.unless_replaced(
            session.topic, session.partition, self._judge, suspicion
        )

    def _probe(self, connection: Connection) -> None:
        session, request = self.session, connection.next_request()
        connection.probe(FindOffset(request, session.topic, session.partition, "latest", 0))

    def _judge(self, place: PartitionInfo) -> LeaderVerdict:
        return judge_reader(self._address, place)

    def _take(self, message: object) -> None:
        """A message of the reading.

        Raises:
          OctopiError: if it is the last one.
        """
        match message:
            case Delivery(_, offset, records, highwater, anchor, proof):
                self._backoff.reset()
                chunk = self.session.delivered(offset, records, highwater, anchor)
                if chunk is None:
                    return
                if self._chain is not None:
                    self._chain.take(offset, records, proof)
                self._unable.clear()
                if (trace := self._environment.trace) is not None:
                    got = DeliveryStep(
                        **self._of_log,
                        offset=chunk.offset,
                        end=chunk.offset + len(chunk.records),
                        highwater=highwater,
                        credit=self.session.credit,
                    )
                    trace(steps.C10Delivering(*got.values()))
                self._listener.take_chunk(self, chunk)
                if trace is not None:
                    trace(steps.C10Delivered(*got.values()))
            case Subscribed(_, topic_id, epoch, _, highwater, anchor):
                if (trace := self._environment.trace) is not None:
                    trace(
                        steps.C8Subscribed(
                            **self._of_log, topic_id=topic_id, epoch=epoch, highwater=highwater
                        )
                    )
                self._lost_at = None
                self._route.arrived()
                self._addresses.clear()
                fork = self.session.subscribed(topic_id, highwater, anchor)
                if fork is not None:
                    self._take_fork(fork)
            case Failure():
                raise refusal(message)
            case ConnectionLostError():
                raise message
            case _:
                raise ProtocolError(f"a broker sent {type(message).__name__} for a reading")

    def _take_fork(self, fork: HistoryForkedError) -> None:
        """Records that were read are gone from the log.

        Raises:
          HistoryForkedError: if that is to be reported.
        """
        if (trace := self._environment.trace) is not None:
            trace(steps.C14Forked(**self._of_log, offset=fork.offset, end=fork.read_until))
        if not self._options.resume_forks:
            raise fork
        self._listener.take_fork(self.session, fork)

    async def _mend(self, error: OctopiError) -> None:
        """Return when subscribing can be tried again.

        Raises:
          OctopiError: if it can't.
        """
        what = remedy(error)
        if what is Remedy.STOP or self._is_deleted or (self.generation and is_stale(error)):
            raise error
        if what is Remedy.FALL_BACK:
            assert isinstance(error, HistoryForkedError)
            self.session.forked(error)
            if self._chain is not None:
                self._chain.begin(self.session.place.anchor)
            self._addresses.appendleft(self._address)  # this broker answered: ask it again
            return
        if what is Remedy.TRY_ANOTHER:
            self._unable.add(self._address)
            if self._unable >= self._readers and self._options.reconnect_timeout_s is not None:
                raise error
        if (trace := self._environment.trace) is not None:
            trace(steps.C9Resuming(**self._of_log, offset=self.session.wanted, why=str(error)))
        if self._route.redirected(error):
            self._addresses.appendleft(self._route.take_told())
        else:
            error = self._route.reported(error)
        now = self._clock.now()
        if self._lost_at is None:
            self._lost_at = now
        timeout_s = self._options.reconnect_timeout_s
        if timeout_s is not None and now - self._lost_at >= timeout_s:
            name = f"{self.session.topic}/{self.session.partition}"
            raise reworded(error, f"{name}: no broker for {timeout_s:g} s; last: {error.args[0]}")
        is_unexplained = self._has_lost_history  # the error came from the check itself
        if what is Remedy.CHECK_HISTORY:
            self._has_lost_history = True
        if is_unexplained or not self._addresses:
            await self._clock.sleep_until(now + self._backoff.next_s())

    async def _check_history(self) -> None:
        session = self.session
        info = await self._look_up()
        bounds = await self._cluster.router.find_offset(session.topic, session.partition, "latest")
        try:
            gap = session.check_history(bounds.log_start, bounds.highwater)
        except OffsetOutOfRangeError:
            leader = place_of(info, session.partition).leader_address
            if not (session.place.anchor and leader):
                raise
            # An anchor proves that the records before it were in the log.  A follower without them
            # may only lag; the leader knows.
            self._addresses = deque([leader])
            gap = None
        if gap is not None:
            if not self._options.skip_gaps:
                raise gap
            if (trace := self._environment.trace) is not None:
                wanted, found = session.wanted, gap.available_from
                trace(steps.C12Skipped(**self._of_log, offset=wanted, end=found))
            session.skip_to(Offset(gap.available_from))
            if self._chain is not None:
                self._chain.begin()
            self._listener.take_gap(gap)
        self._has_lost_history = False

    @property
    def _of_log(self) -> dict[str, Any]:
        """The log's names, for steps."""
        return {"topic": self.session.topic, "partition": self.session.partition}
