"""The producer: takes messages, chooses their log, and reports their outcome.

It keeps the producer's bounds, and routes messages to logs.  The batches of each log are managed by
`octopi.clients.producing.producer_session`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs
import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.leader_lookup import partition_of
from octopi.clients.options import within
from octopi.clients.producing.batches import Batch
from octopi.clients.producing.effects import Settled
from octopi.clients.producing.log_sender import LogSender, SharedBySenders
from octopi.clients.producing.partitioner import StickyPartitioner, place_for_key
from octopi.clients.producing.producer_session import ProducerSession, SessionOptions
from octopi.clients.producing.receipts import PendingReceipt, Receipt
from octopi.clients.producing.unreported_failures import UnreportedFailures
from octopi.errors import (
    ClosedError,
    DeliveryError,
    InvalidOptionError,
    NotDeliveredError,
    OctopiError,
    RefusedError,
)
from octopi.identifiers import PartitionId, ProducerId, topic_name
from octopi.limits import BATCH_BYTES_MAX, RECENT_BATCHES_COUNT, RECORD_BYTES_MAX
from octopi.record import NO_HEADERS, check_values
from octopi.retry import may_pass, retry
from octopi.timers import TimerQueue
from octopi.wire.messages import TopicInfo

_PRODUCER_ID_BYTES: Final = 16
_UNIX_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)


@attrs.frozen
class ProducerOptions:
    """How a producer batches, how much it holds and how long it tries (`Client.producer`)."""

    linger_s: float
    batch_bytes: int
    batches_in_flight: int
    buffer_bytes: int
    delivery_timeout_s: float
    create_topics: bool

    def __attrs_post_init__(self) -> None:
        within("linger_s", self.linger_s, 0, 3600)
        within("batch_bytes", self.batch_bytes, 1, BATCH_BYTES_MAX - RECORD_BYTES_MAX)
        within("batches_in_flight", self.batches_in_flight, 1, RECENT_BATCHES_COUNT)
        within("buffer_bytes", self.buffer_bytes, self.batch_bytes, 2**40)
        within("delivery_timeout_s", self.delivery_timeout_s, 0.001, 86_400)


class _TopicRoute:
    """The senders for one topic, and the choice between them."""

    __slots__ = ("info", "partitioner", "places", "senders", "sticky_batch")

    def __init__(self, info: TopicInfo, senders: list[LogSender], first: int) -> None:
        self.info = info
        self.senders = senders
        self.places: dict[int, int] = {
            one.partition: place for place, one in enumerate(info.partitions)
        }
        self.partitioner = StickyPartitioner(len(senders), first)
        self.sticky_batch: Batch | None = None
        """The batch that got the last message without a key."""

    def sender_for(self, key: bytes | None, partition: int | None) -> LogSender:
        """The sender for the next message.

        Raises:
          RefusedError: UNKNOWN_PARTITION, if the topic is not on *partition*.
        """
        if partition is not None:
            if partition not in self.places:
                partition_of(self.info, partition)  # raises, and names the topic's partitions
            return self.senders[self.places[partition]]
        if key is not None:
            return self.senders[place_for_key(key, len(self.senders))]
        if self.sticky_batch is not None and self.sticky_batch.sealed:
            self.partitioner.move_on()
        return self.senders[self.partitioner.place]


class Producer:
    """Sends messages.  Made by `Client.producer`; use it from any number of tasks.

    Messages that one task submits to one log (topic and partition) are stored in the order of
    submission, each once.
    """

    def __init__(
        self, cluster: ClusterHandle, nursery: trio.Nursery, options: ProducerOptions
    ) -> None:
        environment = cluster.environment
        self._cluster = cluster
        self._environment = environment
        self._wall_ms = environment.clock.wall_ms
        self._options = options
        self._session_options = SessionOptions(
            linger_s=options.linger_s,
            batch_bytes=options.batch_bytes,
            batches_in_flight=options.batches_in_flight,
            delivery_timeout_s=options.delivery_timeout_s,
            request_timeout_s=cluster.request_timeout_s,
        )
        self._producer_id = ProducerId(environment.randomness.token_bytes(_PRODUCER_ID_BYTES))
        self._senders: dict[tuple[str, int], LogSender] = {}
        self._routes: dict[str, _TopicRoute] = {}
        self._buffered_bytes = 0
        self.acknowledged_count = 0
        """The number of messages that are known to be committed."""
        self._room = trio.lowlevel.ParkingLot()
        self._yield_is_due = False
        self._closed_by: OctopiError | None = None
        self._unreported = UnreportedFailures()
        self._shared = SharedBySenders(
            nursery=nursery,
            timers=TimerQueue(environment.clock, nursery),
            create_topics=options.create_topics,
            on_settled=self._settled,
            on_topic_described=self._topic_described,
            on_fenced=self._fail,
            saw_failure=self._unreported.saw,
        )

    # --- sending -----------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
    ) -> Receipt:
        """Send a message and wait until it is committed.

        Calls from many tasks share batches.  To send many messages from one task use
        `submit`, which doesn't wait for each.

        If it is cancelled while it waits for room or for the register, the message is not taken and
        will never be stored.  If it is cancelled later, the message stays queued and will be
        delivered; if that fails, `flush` (or the end of the producer's block) reports it.

        Raises:
          NotDeliveredError: the message is certainly not stored.
          OutcomeUnknownError: the delivery time-out ended and it may or may not be stored.
          Also the errors of `submit`.
        """
        if topic not in self._routes or self._is_full:
            await self.prepare(topic)
        return await self._take(topic, value, key, headers, timestamp, partition, urgent=True)

    async def submit(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
    ) -> PendingReceipt:
        """Queue a message.  Await the returned object for the receipt, if you need it.

        This waits while the topic is not known yet or the buffer is full; it is a checkpoint
        only then and once a batch.  If it is cancelled, the message was not taken.

        *key* chooses the partition (``crc32(key) % count``), unless *partition* is given.
        *timestamp* is an aware datetime; None: now.  *headers*: the names are text.

        Raises:
          InvalidTopicError: if *topic* is no legal name.
          UnknownTopicError: if there is no such topic and the producer doesn't create topics.
          RefusedError: UNKNOWN_PARTITION, if the topic is not on *partition*.
          MalformedRecordError: if the message is too large or its headers too many.
          InvalidOptionError: if *timestamp* has no time zone.
          NotDeliveredError: if there was no room, or no answer of the register, within the delivery
              time-out.
          ClosedError: if the producer was closed.
        """
        if topic not in self._routes or self._is_full or self._yield_is_due:
            await self.prepare(topic)
        return self._take(topic, value, key, headers, timestamp, partition)

    async def submit_many(
        self,
        topic: str,
        values: list[bytes],
        *,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
    ) -> None:
        """Queue many messages without keys, all with the same headers and time stamp.  The work
        beside encoding is done once a batch, so this costs at most half as much as `submit`.

        `flush` (or the end of the producer's block) reports the messages that fail.  If this is
        cancelled, or raises an error while it waits, it has taken the first few of them, or none.

        Raises:
          The errors of `submit`.
        """
        for _ in self.taking_many(topic, values, headers, timestamp, partition):
            await self.prepare(topic)

    def taking_many(
        self,
        topic: str,
        values: list[bytes],
        headers: Mapping[str, bytes] | None,
        timestamp: datetime | None,
        partition: int | None,
    ) -> Iterator[None]:
        """`submit_many`, in steps: before the next one, `prepare`."""
        if set(map(type, values)) - {bytes}:
            values = [_as_bytes("value", value) for value in values]
        check_values(values, headers or NO_HEADERS)
        taken = 0
        while taken < len(values):
            while not self.is_prepared(topic):
                yield
            taken += self._take_many(topic, values, taken, headers, timestamp, partition)

    def submit_nowait(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
    ) -> PendingReceipt:
        """`submit` from synchronous code.

        Raises:
          trio.WouldBlock: if `submit` would wait; the message was not taken.
          Also the errors of `submit`.
        """
        if topic not in self._routes or self._is_full:
            self._check_open()
            raise trio.WouldBlock
        return self._take(topic, value, key, headers, timestamp, partition)

    async def flush(self) -> None:
        """Send all queued messages without lingering, and wait until every message that was
        submitted before has its outcome, at the latest until the delivery time-out ends.

        Raises:
          NotDeliveredError, OutcomeUnknownError: if messages failed whose receipts the program
              didn't await; the text says how many.  Each failure is reported once.
        """
        await trio.lowlevel.checkpoint()
        for sender in self._senders.values():
            sender.session.seal()
            sender.pump()
        for sender in list(self._senders.values()):
            for batch in sender.session.unsettled:
                await sender.wait_settled(batch)
        self._unreported.report()

    # --- taking a message --------------------------------------------------------------

    def _take(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        timestamp: datetime | None,
        partition: int | None,
        urgent: bool = False,
    ) -> PendingReceipt:
        """Take a message, without waiting, so it is taken as a whole or not at all."""
        if self._closed_by is not None:
            self._check_open()
        route = self._routes[topic]
        if type(value) is not bytes:
            value = _as_bytes("value", value)
        if key is not None and type(key) is not bytes:
            key = _as_bytes("key", key)
        timestamp_ms = self._wall_ms() if timestamp is None else _milliseconds(timestamp)
        sender = route.sender_for(key, partition)
        batch = sender.take(value, key, headers or NO_HEADERS, timestamp_ms, urgent=urgent)
        if partition is None and key is None:
            route.sticky_batch = batch
        start, end = batch.last_position, batch.builder.size_bytes
        self._buffered_bytes += end - start
        self._yield_is_due = batch.sealed
        return PendingReceipt(sender, batch, start, end, timestamp_ms)

    def _take_many(
        self,
        topic: str,
        values: list[bytes],
        begin: int,
        headers: Mapping[str, bytes] | None,
        timestamp: datetime | None,
        partition: int | None,
    ) -> int:
        """Take the messages from ``values[begin]`` on, as many as one batch holds, without waiting;
        return how many."""
        self._check_open()
        route = self._routes[topic]
        timestamp_ms = self._wall_ms() if timestamp is None else _milliseconds(timestamp)
        sender = route.sender_for(None, partition)
        batch, count, size_bytes = sender.take_many(
            values, begin, headers or NO_HEADERS, timestamp_ms
        )
        if partition is None:
            route.sticky_batch = batch
        self._buffered_bytes += size_bytes
        self._yield_is_due = batch.sealed
        return count

    def is_prepared(self, topic: str) -> bool:
        """Whether `submit` of a message for *topic* wouldn't wait, nor let other tasks run."""
        return topic in self._routes and not self._is_full and not self._yield_is_due

    def has_let_others_run(self) -> None:
        """Other tasks had their turn, so `submit` needs not wait for that."""
        self._yield_is_due = False

    async def prepare(self, topic: str) -> None:
        """Wait until a message for *topic* can be taken, and let other tasks run.

        Raises:
          The errors of `submit`.
        """
        self._yield_is_due = False
        await trio.lowlevel.checkpoint()
        self._check_open()
        while topic not in self._routes or self._is_full:
            if topic not in self._routes:
                await self._find_route(topic)
            else:
                await self._wait_for_room(topic)
            self._check_open()

    async def _wait_for_room(self, topic: str) -> None:
        timeout_s = self._options.delivery_timeout_s
        with self._environment.clock.timeout(timeout_s) as slow:
            while self._is_full:
                await self._room.park()
                self._check_open()
        if slow.cancelled_caught:
            raise NotDeliveredError(
                f"{topic}: the producer's buffer of {self._options.buffer_bytes} bytes was full "
                f"for {timeout_s:g} s"
            )

    async def _find_route(self, topic: str) -> None:
        name = topic_name(topic)
        create = self._options.create_topics
        try:
            info = await retry(
                self._environment,
                self._options.delivery_timeout_s,
                f"find topic {name}",
                lambda: self._cluster.lookup.topic(name, create=create),
            )
        except OctopiError as error:
            if may_pass(error):
                raise NotDeliveredError(str(error)) from error
            raise
        self._check_open()
        if topic not in self._routes:
            senders = [self._sender(info, one.partition) for one in info.partitions]
            first = int(self._environment.randomness.random() * len(senders))
            self._routes[topic] = _TopicRoute(info, senders, first)

    def _sender(self, info: TopicInfo, partition: int) -> LogSender:
        name = topic_name(info.topic)
        known = self._senders.get((name, partition))
        if known is not None:
            return known
        sender = LogSender(
            self._cluster,
            self._shared,
            name,
            PartitionId(partition),
            ProducerSession(f"{name}/{partition}", self._producer_id, self._session_options),
        )
        self._senders[name, partition] = sender
        return sender

    @property
    def _is_full(self) -> bool:
        return self._buffered_bytes >= self._options.buffer_bytes

    # --- what senders report -----------------------------------------------------------

    def _settled(self, effect: Settled) -> None:
        self._buffered_bytes -= effect.size_bytes
        if isinstance(effect.batch.outcome, DeliveryError):
            self._unreported.add(effect.batch, effect.count, effect.batch.outcome)
        else:
            self.acknowledged_count += effect.count
        if not self._is_full:
            self._room.unpark_all()

    def _topic_described(self, info: TopicInfo) -> None:
        """The register described the topic again: if its partitions have changed, drop its
        route, so that the next message makes a new one."""
        route = self._routes.get(info.topic)
        if route is not None:
            before = [one.partition for one in route.info.partitions]
            if before != [one.partition for one in info.partitions]:
                del self._routes[info.topic]

    # --- the end -----------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed_by is None:
            return
        if isinstance(self._closed_by, RefusedError):
            raise RefusedError(str(self._closed_by.args[0]), self._closed_by.status)
        raise ClosedError(str(self._closed_by))

    def _fail(self, why: RefusedError) -> None:
        self._closed_by = self._closed_by or why
        self._room.unpark_all()

    def close(self) -> None:
        """Take no more messages, and settle those without an outcome now, without waiting.

        The end of the producer's block calls this, after `flush` unless the block raised.
        """
        if not isinstance(self._closed_by, ClosedError):
            self._closed_by = ClosedError("the producer was closed")
        for sender in self._senders.values():
            sender.close(self._closed_by)
        self._room.unpark_all()


def _as_bytes(name: str, value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{name} must be bytes, not {type(value).__name__}")


def _milliseconds(timestamp: datetime) -> int:
    if timestamp.tzinfo is None:
        raise InvalidOptionError(f"the timestamp {timestamp} has no time zone")
    return (timestamp - _UNIX_ZERO) // timedelta(milliseconds=1)
