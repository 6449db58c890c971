"""The producer: takes messages, chooses their log, and reports their outcome.

It keeps the producer's bounds, and routes messages to logs.  The batches of each log are managed by
`octopi.clients.producing.producer_session`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.producing.arguments import (
    as_bytes,
    check_one_log,
    condition_of,
    milliseconds,
)
from octopi.clients.producing.effects import Settled
from octopi.clients.producing.lent_sessions import LentSessions
from octopi.clients.producing.load import ProducerLoad
from octopi.clients.producing.log_sender import SharedBySenders
from octopi.clients.producing.producer_options import ProducerOptions
from octopi.clients.producing.producer_session import ProducerSession
from octopi.clients.producing.receipts import PendingReceipt, Receipt, wait_settled
from octopi.clients.producing.session_options import SessionOptions
from octopi.clients.producing.topic_routes import TopicRoutes
from octopi.clients.producing.unreported_failures import UnreportedFailures
from octopi.conditions import Condition
from octopi.errors import (
    ClosedError,
    DeliveryError,
    NotDeliveredError,
    OctopiError,
    ProducerFencedError,
    RefusedError,
)
from octopi.identifiers import ProducerId
from octopi.record import NO_HEADERS, PRODUCER_ID_BYTES, check_values, producer_id_of
from octopi.timers import TimerQueue
from octopi.wire.messages import TopicInfo


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
        self.wall_ms = environment.clock.wall_ms
        """The time for messages without a time stamp."""
        self._options = options
        self._session_options = SessionOptions(
            linger_s=options.linger_s,
            batch_bytes=options.batch_bytes,
            grown_batch_bytes=options.grown_batch_bytes,
            batches_in_flight=options.batches_in_flight,
            delivery_timeout_s=options.delivery_timeout_s,
            request_timeout_s=cluster.request_timeout_s,
        )
        self._producer_id = (
            ProducerId(environment.randomness.token_bytes(PRODUCER_ID_BYTES))
            if options.name is None
            else producer_id_of("producer", options.name)
        )
        self._buffered_bytes = 0
        self.acknowledged_count: int = 0
        """The number of messages that are known to be committed."""
        self._room = trio.lowlevel.ParkingLot()
        self._load = ProducerLoad()
        self._yield_is_due = False
        self._closed_by: OctopiError | None = None
        self._unreported = UnreportedFailures()
        self._shared = SharedBySenders(
            nursery=nursery,
            timers=TimerQueue(environment.clock, nursery),
            create_topics=options.create_topics,
            on_settled=self._settled,
            on_topic_described=lambda info: self._topics.described(info),
            on_drained=lambda sender: self._topics.drained(sender),
            on_fenced=self._fenced,
            saw_failure=self._unreported.saw,
        )
        self._topics = TopicRoutes(cluster, self._shared, options, self._new_session)
        self._routes = self._topics.known
        self._senders = self._topics.senders
        self.first_place = self._topics.first_place
        """Of a topic: with which of its partitions to begin."""
        self.lent = LentSessions(cluster, self._shared, self._session_options, self._took)
        """Sessions that others drive, until they give them away."""

    async def begin(self) -> None:
        """End the earlier life of a named producer in the topics that its options name.

        Raises:
          OctopiError: as for `Client.producer`.
        """
        for topic in self._options.topics:
            await self.prepare(topic)
            for sender in self._routes[topic].senders:
                await sender.begin_first_epoch()

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
        expected_end: int | None = None,
    ) -> Receipt:
        """Send a message and wait until it is committed.

        Calls from many tasks share batches.  To send many messages from one task use
        `submit`, which doesn't wait for each.

        *expected_end*: store the message only if its log ends at this offset, so that it gets this
        offset: `next_offset` of the last message that you know.  See "Appending on a condition" in
        docs/clients.md.  The log is that of *key* or *partition*, or the only one of the topic.

        If it is cancelled while it waits for room or for the register, the message is not taken and
        will never be stored.  If it is cancelled later, the message stays queued and will be
        delivered; if that fails, `flush` (or the end of the producer's block) reports it.

        Raises:
          NotDeliveredError: the message is certainly not stored.
          ConditionFailedError: nor is it because the log has another end than *expected_end*.
          OutcomeUnknownError: the delivery time-out ended and it may or may not be stored.
          Also the errors of `submit`.
        """
        if topic not in self._routes or self._is_full:
            await self.prepare(topic)
        condition = None if expected_end is None else condition_of(expected_end)
        return await self._take(
            topic, value, key, headers, timestamp, partition, condition, urgent=True
        )

    async def submit(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
        expected_end: int | None = None,
    ) -> PendingReceipt:
        """Queue a message.  Await the returned object for the receipt, if you need it.

        This waits while the topic is not known yet or the buffer is full; it is a checkpoint
        only then and once a batch.  If it is cancelled, the message was not taken.

        *key* chooses the partition (``crc32(key) % count``), unless *partition* is given.
        *timestamp* is an aware datetime; None: now.  *headers*: the names are text.
        *expected_end*: as for `send`.

        Raises:
          InvalidTopicError: if *topic* is no legal name.
          UnknownTopicError: if there is no such topic and the producer doesn't create topics.
          RefusedError: UNKNOWN_PARTITION, if the topic is not on *partition*.
          MalformedRecordError: if the message is too large or its headers too many.
          InvalidOptionError: if *timestamp* has no time zone, or it isn't clear of which log
              *expected_end* is.
          NotDeliveredError: if there was no room, or no answer of the register, within the delivery
              time-out.
          ClosedError: if the producer was closed.
          ProducerFencedError: if a later life of the producer has begun.
        """
        if topic not in self._routes or self._is_full or self._yield_is_due:
            await self.prepare(topic)
        condition = None if expected_end is None else condition_of(expected_end)
        return self._take(topic, value, key, headers, timestamp, partition, condition)

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
            values = [as_bytes("value", value) for value in values]
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
        expected_end: int | None = None,
    ) -> PendingReceipt:
        """`submit` from synchronous code.

        Raises:
          trio.WouldBlock: if `submit` would wait; the message was not taken.
          Also the errors of `submit`.
        """
        if topic not in self._routes or self._is_full:
            self.check_open()
            raise trio.WouldBlock
        condition = None if expected_end is None else condition_of(expected_end)
        return self._take(topic, value, key, headers, timestamp, partition, condition)

    async def flush(self) -> None:
        """Send all queued messages without lingering, and wait until every message that was
        submitted before has its outcome, at the latest until the delivery time-out ends.

        Raises:
          NotDeliveredError, OutcomeUnknownError: if messages failed whose receipts the program
              didn't await; the text says how many.  Each failure is reported once.
          ProducerFencedError: if a later life of the producer has begun.
        """
        await trio.lowlevel.checkpoint()
        for sender in self._senders.values():
            sender.session.seal()
            sender.pump()
        for sender in list(self._senders.values()):
            for batch in sender.session.unsettled:
                await wait_settled(sender, batch)
        await self.lent.settled()
        self._unreported.report()
        if isinstance(self._closed_by, ProducerFencedError):
            self.check_open()

    # --- taking a message --------------------------------------------------------------

    def _take(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        timestamp: datetime | None,
        partition: int | None,
        condition: Condition | None = None,
        urgent: bool = False,
    ) -> PendingReceipt:
        """Take a message, without waiting, so it is taken as a whole or not at all."""
        if self._closed_by is not None:
            self.check_open()
        route = self._routes[topic]
        if type(value) is not bytes:
            value = as_bytes("value", value)
        if key is not None and type(key) is not bytes:
            key = as_bytes("key", key)
        timestamp_ms = self.wall_ms() if timestamp is None else milliseconds(timestamp)
        if condition is not None:
            check_one_log(route.info, key, partition)
        sender = route.sender_for(key, partition)
        batch = sender.take(
            value,
            key,
            headers or NO_HEADERS,
            timestamp_ms,
            urgent=urgent,
            condition=condition,
            pinned=partition is not None,
        )
        if partition is None and key is None:
            route.sticky_batch = batch
        builder = batch.builder
        start, end = batch.last_position, builder.size_bytes
        self._buffered_bytes += end - start
        self._yield_is_due = batch.sealed
        return PendingReceipt(sender, batch, len(builder) - 1, start, end, timestamp_ms)

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
        self.check_open()
        route = self._routes[topic]
        timestamp_ms = self.wall_ms() if timestamp is None else milliseconds(timestamp)
        sender = route.sender_for(None, partition)
        batch, count, size_bytes = sender.take_many(
            values,
            begin,
            headers or NO_HEADERS,
            timestamp_ms,
            pinned=partition is not None,
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
        self.check_open()
        while topic not in self._routes or self._is_full:
            if topic not in self._routes:
                await self._topics.find(topic)
            else:
                await self._wait_for_room(topic)
            self.check_open()

    async def _wait_for_room(self, topic: str) -> None:
        timeout_s = self._options.delivery_timeout_s
        with self._environment.clock.timeout(timeout_s) as slow:
            if self._is_full and not self._load.is_saturated:
                self._load.is_saturated = True
                for sender in self._senders.values():
                    sender.pump()  # batches that lingered longer because there are many
            while self._is_full:
                await self._room.park()
                self.check_open()
        if slow.cancelled_caught:
            raise NotDeliveredError(
                f"{topic}: the producer's buffer of {self._options.buffer_bytes} bytes was full "
                f"for {timeout_s:g} s"
            )

    def _new_session(self, log: str) -> ProducerSession:
        return ProducerSession(
            log,
            self._producer_id,
            self._session_options,
            is_named=self._options.name is not None,
            load=self._load,
        )

    def description(self, topic: str) -> TopicInfo | None:
        """The topic as messages are routed now; None: it is not known (any more)."""
        route = self._routes.get(topic)
        return None if route is None else route.info

    @property
    def is_named(self) -> bool:
        """Whether it has a name, so that all of its messages are of one producer id."""
        return self._options.name is not None

    @property
    def is_idle(self) -> bool:
        """Whether every message has its outcome, and more are taken."""
        return not self._buffered_bytes and self._closed_by is None

    @property
    def _is_full(self) -> bool:
        return self._buffered_bytes >= self._options.buffer_bytes

    # --- what senders report -----------------------------------------------------------

    def _took(self, size_bytes: int) -> None:
        self._buffered_bytes += size_bytes

    def _settled(self, effect: Settled) -> None:
        self._buffered_bytes -= effect.size_bytes
        if isinstance(effect.batch.outcome, DeliveryError):
            self._unreported.add(effect.batch, effect.count, effect.batch.outcome)
        else:
            self.acknowledged_count += effect.count
        if not self._is_full:
            self._room.unpark_all()
        if self._load.is_saturated and self._buffered_bytes < self._options.buffer_bytes // 2:
            self._load.is_saturated = False

    # --- the end -----------------------------------------------------------------------

    def check_open(self) -> None:
        """Check that messages are taken.

        Raises:
          ClosedError, RefusedError: why they are not.
        """
        if self._closed_by is None:
            return
        if isinstance(self._closed_by, ProducerFencedError):
            raise ProducerFencedError(str(self._closed_by.args[0]))
        raise ClosedError(str(self._closed_by))

    def _fenced(self, why: RefusedError) -> None:
        if self._closed_by is None:
            name = self._options.name
            who = "a producer with this one's id" if name is None else f"the producer {name!r}"
            self._closed_by = ProducerFencedError(
                f"{who} was opened again, by another program or by another start of this one, and "
                f"that ended this one ({why.args[0]}); have only one program use the name, or open "
                "it again here, which ends the other one"
            )
            self._closed_by.__cause__ = why
        self._room.unpark_all()

    def close(self) -> None:
        """Take no more messages, and settle those without an outcome now, without waiting.

        The end of the producer's block calls this, after `flush` unless the block raised.
        """
        if not isinstance(self._closed_by, ClosedError):
            self._closed_by = ClosedError("the producer was closed")
        for sender in self._senders.values():
            sender.close(self._closed_by)
        self.lent.close(self._closed_by)
        self._room.unpark_all()
