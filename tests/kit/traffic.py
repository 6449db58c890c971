"""Producers and consumers that go on while something happens, and what they saw.

What must hold in the end, whatever happened: every message has its receipt; every consumer
saw each message once, at the offset that the receipt says, and those of one producer in
the order in which it sent them; the files hold exactly that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

import octopi
from octopi.environment import Environment
from octopi.limits import REQUEST_TIMEOUT_S
from octopi.record import Message
from tests.kit.replicas import DataDirectory, identical

PROGRESS_S = 30.0
"""Clients come to go on sooner than this after any failure that the cluster survives."""

_BURST = 8
"""Messages that a producer has on their way at a time."""

_REST_S = 0.02
"""Between two of them: producers that never rest take the processors from what a test waits for."""


class Producing:
    """One producer: messages named after it, numbered, to the partition that its name picks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.receipts: list[octopi.Receipt] = []

    def value(self, number: int) -> bytes:
        """The value of message *number*."""
        return f"{self.name} {number}".encode()

    async def burst(self, producer: octopi.Producer, topic: str, count: int = _BURST) -> None:
        """Send the next *count* messages; wait for their receipts."""
        first = len(self.receipts)
        pending = [
            await producer.submit(topic, self.value(number), key=self.name.encode())
            for number in range(first, first + count)
        ]
        for one in pending:
            self.receipts.append(await one)


class Traffic:
    """The clients of one topic; made by `traffic`."""

    def __init__(
        self,
        url: str | Sequence[str],
        topic: str,
        producers: int,
        consumers: int,
        request_timeout_s: float,
        environment: Environment | None,
    ) -> None:
        self.url = url
        self.topic = topic
        self.producing = [Producing(f"producer-{number}") for number in range(producers)]
        self.seen: list[list[Message]] = [[] for _ in range(consumers)]
        """The messages that each consumer was given, in order."""
        self._request_timeout_s = request_timeout_s
        self._environment = environment
        self._is_stopping = False
        self._changed = trio.Event()

    # --- while it flows ----------------------------------------------------------------

    @property
    def acknowledged_count(self) -> int:
        """Messages with a receipt."""
        return sum(len(one.receipts) for one in self.producing)

    async def progress(self, count: int = 100, *, reading: bool = True) -> None:
        """Wait until *count* more messages are acknowledged, some of every producer, and (if
        *reading*) every consumer has been given some that it had not."""
        total = self.acknowledged_count + count
        before = [len(one.receipts) for one in self.producing]
        read = [len(one) for one in self.seen]
        with trio.move_on_after(PROGRESS_S):
            while not (
                self.acknowledged_count >= total
                and all(
                    len(one.receipts) > was for one, was in zip(self.producing, before, strict=True)
                )
                and (
                    not reading
                    or all(len(one) > was for one, was in zip(self.seen, read, strict=True))
                )
            ):
                await self._changed.wait()
            return
        raise AssertionError(
            f"within {PROGRESS_S:g} s: {[len(one.receipts) for one in self.producing]} "
            f"acknowledged after {before}, {[len(one) for one in self.seen]} read after {read}"
        )

    def _connect(self) -> AbstractAsyncContextManager[octopi.Client]:
        return octopi.connect(
            self.url, request_timeout_s=self._request_timeout_s, environment=self._environment
        )

    async def produce(self, one: Producing) -> None:
        """Send until told to stop."""
        async with (
            self._connect() as client,
            # Small batches: several of them are on their way at a time.
            client.producer(linger_s=0, batch_bytes=150) as producer,
        ):
            while not self._is_stopping:
                await one.burst(producer, self.topic)
                self._wake()
                await trio.sleep(_REST_S)

    async def consume(self, seen: list[Message]) -> None:
        """Read until cancelled."""
        async with (
            self._connect() as client,
            client.consumer(self.topic, start="earliest") as consumer,
        ):
            async for batch in consumer.batches():
                seen.extend(batch)
                self._wake()

    def stop(self) -> None:
        """Have the producers end with what they have begun."""
        self._is_stopping = True

    async def all_read(self) -> None:
        """Wait until every consumer was given as many messages as there are."""
        with trio.move_on_after(PROGRESS_S):
            while any(len(seen) < self.acknowledged_count for seen in self.seen):
                await self._changed.wait()
            return
        raise AssertionError(
            f"{self.acknowledged_count} acknowledged, {[len(one) for one in self.seen]} read"
        )

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # --- in the end --------------------------------------------------------------------

    def check(self) -> None:
        """Check that consumers saw the messages for which producers got receipts."""
        for seen in self.seen:
            self._compare(seen)

    async def check_replicas(self, data_dirs: Iterable[DataDirectory], replica_count: int) -> None:
        """Check that the files of all replicas hold those messages."""
        held = await identical(self.url, self.topic, data_dirs, replica_count)
        self._compare([message for partition in sorted(held) for message in held[partition]])

    def _compare(self, messages: list[Message]) -> None:
        assert len(messages) == self.acknowledged_count
        for one in self.producing:
            key = one.name.encode()
            own = [message for message in messages if message.key == key]
            assert [message.value for message in own] == [
                one.value(number) for number in range(len(one.receipts))
            ]
            assert [(message.partition, message.offset) for message in own] == [
                (receipt.partition, receipt.offset) for receipt in one.receipts
            ]
        for partition in {message.partition for message in messages}:
            starts = [one.offset for one in messages if one.partition == partition]
            ends = [one.next_offset for one in messages if one.partition == partition]
            assert starts == [0, *ends[:-1]], "no gap, no repeat"


@asynccontextmanager
async def traffic(
    url: str | Sequence[str],
    topic: str,
    *,
    producers: int = 1,
    consumers: int = 1,
    partitions: int = 1,
    request_timeout_s: float = REQUEST_TIMEOUT_S,
    environment: Environment | None = None,
) -> AsyncIterator[Traffic]:
    """Clients of *topic* (made if it is missing) that go on through the block.  Behind it they
    have come to their end, and what the consumers saw is checked."""
    flow = Traffic(url, topic, producers, consumers, request_timeout_s, environment)
    async with octopi.connect(url) as client:
        await client.create_topic(topic, partitions, exist_ok=True)
    async with trio.open_nursery() as reading:
        for seen in flow.seen:
            reading.start_soon(flow.consume, seen)
        async with trio.open_nursery() as writing:
            for one in flow.producing:
                writing.start_soon(flow.produce, one)
            yield flow
            flow.stop()
        await flow.all_read()
        reading.cancel_scope.cancel()
    flow.check()
