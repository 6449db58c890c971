"""The records of a log that a member has: read from one place on, and again from another one where
the log has lost what was read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import attrs
import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.consuming.consumer_session import Chunk, ConsumerSession
from octopi.clients.consuming.log_subscriber import LogSubscriber, SubscriberOptions, is_stale
from octopi.clients.consuming.trail import Trail
from octopi.clients.subscribing.log_gates import LogGates, OpenedRange
from octopi.errors import HistoryForkedError, HistoryLostError, OctopiError, RecordError
from octopi.identifiers import Offset, PartitionId, SubscriptionId, TopicId, TopicName
from octopi.position import Anchor, Place
from octopi.record import Message, decode, scan


@attrs.frozen
class LogReading:
    """How the logs of a subscription are read, and marked."""

    topic: TopicName
    topic_id: TopicId
    sid: SubscriptionId
    window_bytes: int
    is_auto: bool
    """Whether asking for the next message marks the one before."""
    skip_gaps: bool
    reconnect_timeout_s: float | None
    session_timeout_s: float
    release_timeout_s: float
    gates: LogGates | None = None
    """When its logs may be begun; None: the topic's list of partitions never changes."""


class ReadingListener(Protocol):
    """The log, as its reading sees it."""

    def take_records(self) -> None:
        """Records arrived: see `RestartableReading.open_chunk`."""

    def take_gap(self, gap: HistoryLostError) -> None:
        """Records were skipped that retention had removed."""

    def take_lost(self, fork: HistoryForkedError) -> None:
        """All replicas lost records that were read: `RestartableReading.read_from` or `stop`."""

    def take_end(self, why: OctopiError) -> None:
        """Called once, last: no more can be read."""


class RestartableReading:
    """Reads one log.  What arrived and was not opened is dropped when it is begun again."""

    def __init__(
        self,
        cluster: ClusterHandle,
        options: LogReading,
        partition: PartitionId,
        listener: ReadingListener,
        *,
        dealt: Callable[[], Offset],
    ) -> None:
        """*dealt* returns the offset below which the program has dealt with all messages."""
        self._cluster = cluster
        self._options = options
        self._partition = partition
        self._listener = listener
        self._dealt = dealt
        self._session: ConsumerSession | None = None
        """Of the newest reading; None: there was none yet."""
        self._subscriber: LogSubscriber | None = None
        """None: it is not known from where to read, or other logs come before."""
        self._place = Place(Offset(0))
        """Where the next subscriber begins."""
        self._is_stale = False
        """Whether the topic got other partitions than the last subscriber knew."""
        self._begun = trio.Event()
        """Whether there is a subscriber."""
        self._scope = trio.CancelScope()
        """In which it runs."""
        self.is_over = False
        """Whether what arrives is not wanted any more."""
        self._chunks: deque[tuple[LogSubscriber, Chunk]] = deque()
        self._trail = Trail(Place(Offset(0)))
        """What was opened."""

    def read_from(self, place: Place) -> None:
        """Read what the log has from *place* on."""
        self.stop()
        self._trail, self._place = Trail(place), place
        if self._options.gates is None:
            self._subscriber = self._subscribe(OpenedRange(None, 0))
        self._begun.set()

    def _subscribe(self, opened: OpenedRange) -> LogSubscriber:
        options = self._options
        self._session = ConsumerSession(
            options.topic,
            self._partition,
            options.topic_id,
            self._place,
            options.window_bytes,
            end=opened.end,
        )
        how = SubscriberOptions(options.reconnect_timeout_s, options.skip_gaps, False)
        return LogSubscriber(self._cluster, self._session, how, self, opened.generation)

    def stop(self) -> None:
        """Drop what arrived, and read nothing until `read_from`."""
        self._scope.cancel()
        self._chunks.clear()
        self._trail = Trail(Place(Offset(0)))
        self._subscriber, self._is_stale = None, False
        if self._begun.is_set():
            self._begun = trio.Event()

    async def run(self) -> None:
        """Read, until `ReadingListener.take_end`."""
        while not self.is_over:
            await self._begun.wait()
            if not self._begun.is_set():
                continue  # it was stopped meanwhile
            with trio.CancelScope() as self._scope:
                if self._options.gates is None:
                    assert self._subscriber is not None
                    await self._subscriber.run()
                else:
                    await self._read_in_stretches(self._options.gates)

    async def _read_in_stretches(self, gates: LogGates) -> None:
        """Read on whenever what comes before was processed."""
        try:
            while not self.is_over:
                opened = await gates.opened(self._partition, self._place.offset)
                self._subscriber = self._subscribe(opened)
                await self._subscriber.run()
                if self._scope.cancel_called:
                    return  # it begins again elsewhere
                if self._is_stale:
                    self._is_stale = False
                    await gates.look_up(opened.generation)
        except OctopiError as error:
            self.is_over = True
            self._listener.take_end(error)

    def anchor_at(self, offset: Offset) -> Anchor:
        """The anchor of a place in what was opened; empty: not known."""
        return self._trail.anchor_at(offset)

    @property
    def highwater(self) -> Offset:
        """The newest highwater mark heard of."""
        return Offset(0) if self._session is None else self._session.highwater

    @property
    def wanted(self) -> Offset:
        """The next record to come."""
        return Offset(0) if self._session is None else self._session.wanted

    @property
    def has_chunks(self) -> bool:
        """Whether there is something to open."""
        return bool(self._chunks)

    def open_chunk(self) -> tuple[Iterator[Message], RecordError | None]:
        """The messages that arrived next, and the damage behind them, if there is any."""
        subscriber, chunk = self._chunks.popleft()
        topic, records, damage = self._options.topic, chunk.records, None
        try:
            messages = decode(records, chunk.offset, topic, self._partition)
        except RecordError as error:
            valid = records[: scan(records).valid_bytes]
            messages = decode(valid, chunk.offset, topic, self._partition)
            self._chunks.clear()
            self.is_over = True
            damage = type(error)(f"{topic}/{self._partition}: {error}")
        else:
            subscriber.took(chunk)
        self._trail.read(Offset(chunk.offset + len(records)), chunk.anchor)
        return iter(messages), damage

    # --- what the subscriber reports ---------------------------------------------------

    def take_chunk(self, subscriber: LogSubscriber, chunk: Chunk) -> None:
        """See `octopi.clients.consuming.log_subscriber.SubscriberListener`."""
        if subscriber is self._subscriber and not self.is_over:
            self._chunks.append((subscriber, chunk))
            self._listener.take_records()

    def dealt(self, subscriber: LogSubscriber) -> Offset:
        """See `octopi.clients.consuming.log_subscriber.SubscriberListener`."""
        return self._dealt()

    def take_gap(self, gap: HistoryLostError) -> None:
        """See `octopi.clients.consuming.log_subscriber.SubscriberListener`."""
        self._listener.take_gap(gap)

    def take_fork(self, session: ConsumerSession, fork: HistoryForkedError) -> None:
        """See `octopi.clients.consuming.log_subscriber.SubscriberListener`."""
        raise AssertionError("forks are errors here")

    def take_end(self, subscriber: LogSubscriber, why: OctopiError | None) -> None:
        """See `octopi.clients.consuming.log_subscriber.SubscriberListener`."""
        if self._scope.cancel_called:
            return
        if why is None or (self._options.gates is not None and is_stale(why)):
            self._place, self._is_stale = subscriber.session.place, why is not None
        elif isinstance(why, HistoryForkedError):
            self._listener.take_lost(why)
        else:
            self.is_over = True
            self._listener.take_end(why)
