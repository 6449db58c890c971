"""Producers and consumers that note all that happens to them.

Four producers, unlike each other: one waits for each receipt, one has many messages on
their way, one gives up early, one is closed in the middle again and again.  Four consumers:
two read on for ever, two are closed and go on from their position.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import trio

import octopi
from octopi.retry import may_pass
from sim.real.ledger import Ledger, LogId

TOPICS: Final = {"narrow": 1, "orders": 3, "wide": 8, "durable": 2}
"""Topics and the number of their partitions."""
DURABLE: Final = "durable"
"""The topic that is flushed before it answers."""
REMADE: Final = "remade"
"""A topic that is deleted and made again."""

_SEGMENT_BYTES: Final = 256 * 1024
"""Small, so that logs have segments in the middle."""
_IN_FLIGHT_MAX: Final = 200
_VALUE_BYTES: Final = (30, 30, 300, 300, 300, 3_000, 3_000, 30_000)
_REOPEN_S: Final = 0.2
_REMADE_COUNT: Final = 20
_REMADE_S: Final = 120.0
"""Long enough for a broker that is away meanwhile to be back, and in sync."""
_ANSWER_S: Final = 20.0


@attrs.frozen
class ProducerKind:
    """How one producer behaves."""

    name: str
    mean_pause_s: float
    waits: bool = False
    life_s: float | None = None
    delivery_timeout_s: float = 60.0
    linger_s: float = 0.005


PRODUCERS: Final = (
    ProducerKind("p1", 0.004, waits=True),
    ProducerKind("p2", 0.012),
    ProducerKind("p3", 0.012, delivery_timeout_s=2.0, linger_s=0.05),
    ProducerKind("p4", 0.012, life_s=6.0),
)
CONSUMERS: Final = (
    ("c1", "wide", None),
    ("c2", "durable", None),
    ("c3", "orders", 5.0),
    ("c4", "wide", 8.0),
)
"""Name, topic, and after how long it is closed and opened again."""


class Workload:
    """The clients of one run."""

    def __init__(self, register: str | list[str], seed: int, ledger: Ledger) -> None:
        self.faults: list[str] = []
        """Errors that no client may get, whatever fails around it."""
        self.partitions: dict[str, list[int]] = {}
        """Of each topic."""
        self.generation = 0
        """How often `REMADE` was made again."""
        self.stopping = trio.Event()
        """Set it, and the producers send nothing more and wait for their receipts."""
        self._ledger = ledger
        self._register = register
        self._seed = seed

    async def create_topics(self) -> None:
        """Make the topics."""
        async with octopi.connect(self._register) as client:
            for topic, partitions in [*TOPICS.items(), (REMADE, 1)]:
                info = await client.create_topic(
                    topic,
                    partitions,
                    exist_ok=True,
                    flush_before_ack=topic == DURABLE,
                    segment_bytes=_SEGMENT_BYTES,
                )
                self.partitions[topic] = [one.partition for one in info.partitions]

    @property
    def logs(self) -> list[LogId]:
        """All logs that there are."""
        return [
            LogId(topic, partition, self.generation if topic == REMADE else 0)
            for topic, partitions in self.partitions.items()
            for partition in partitions
        ]

    def unflushed_logs(self) -> set[LogId]:
        """Those that acknowledge what is not yet on a device."""
        return {one for one in self.logs if one.topic != DURABLE}

    async def cluster_info(self) -> octopi.ClusterInfo | None:
        """What the register knows; None: it does not answer now."""
        with trio.move_on_after(_ANSWER_S):
            try:
                async with octopi.connect(self._register) as client:
                    return await client.admin.describe_cluster()
            except octopi.OctopiError as error:
                if not may_pass(error):
                    self.faults.append(f"the register refuses to describe its cluster: {error!r}")
        return None

    async def replace_broker(self, old: int, address: str) -> int:
        """Give the replicas of the broker *old*, which is gone for good, to the one that joined
        at *address*, and forget *old*; return the new id."""
        new = 0

        async def replace(client: octopi.Client) -> None:
            nonlocal new
            info = await client.admin.describe_cluster()
            [new] = [one.broker for one in info.brokers if one.address == address and one.live]
            for one in info.partitions:
                if old in one.replicas:
                    await client.admin.move_replica(one.partition, old, new)
            if old in {one.broker for one in info.brokers}:
                await client.admin.remove_broker(old)

        await self._until_done(replace)
        return new

    async def remake_topic(self) -> None:
        """Delete `REMADE`, make it again, and see messages acknowledged in it."""
        with trio.move_on_after(_REMADE_S) as slow:
            await self._until_done(self._delete)
            self.generation += 1
            await self._until_done(self._create)
            log = LogId(REMADE, self.partitions[REMADE][0], self.generation)
            async with octopi.connect(self._register) as client, client.producer() as producer:
                for number in range(1, _REMADE_COUNT + 1):
                    name = f"r{self.generation}"
                    value = unique_value(name, number, 300)
                    self._ledger.sent(name, number, log, value)
                    await self._outcome(await producer.submit(REMADE, value), log, value)
        if slow.cancelled_caught:
            self.faults.append(f"{REMADE} could not be made again within {_REMADE_S:g} s")

    async def _delete(self, client: octopi.Client) -> None:
        with contextlib.suppress(octopi.UnknownTopicError):  # the first answer was lost
            await client.delete_topic(REMADE)

    async def _create(self, client: octopi.Client) -> None:
        info = await client.create_topic(REMADE, exist_ok=True, segment_bytes=_SEGMENT_BYTES)
        self.partitions[REMADE] = [one.partition for one in info.partitions]

    async def _until_done(self, act: Callable[[octopi.Client], Awaitable[None]]) -> None:
        while True:
            try:
                async with octopi.connect(self._register) as client:
                    return await act(client)
            except octopi.OctopiError as error:
                if not may_pass(error):
                    raise
            await trio.sleep(_REOPEN_S)

    # --- producing ---------------------------------------------------------------------

    async def produce(self) -> None:
        """Run the producers until `stopping` is set and all have their outcomes."""
        async with trio.open_nursery() as nursery:
            for kind in PRODUCERS:
                nursery.start_soon(self._live_and_die, kind)

    async def _live_and_die(self, kind: ProducerKind) -> None:
        life = 0
        while not self.stopping.is_set():
            life += 1
            randomness = random.Random(f"{self._seed}/{kind.name}/{life}")
            # An outcome that nobody awaits is noted by whoever waits for it; the scope is
            # around those too, so that closing finds messages without an outcome.
            async with octopi.connect(self._register) as client, trio.open_nursery() as waiting:
                try:
                    async with client.producer(
                        delivery_timeout_s=kind.delivery_timeout_s, linger_s=kind.linger_s
                    ) as producer:
                        await self._send_all(
                            producer, kind, f"{kind.name}.{life}", randomness, waiting
                        )
                except octopi.DeliveryError:
                    pass  # each is noted where it is awaited
                except _EndOfLifeError:
                    pass

    async def _send_all(
        self,
        producer: octopi.Producer,
        kind: ProducerKind,
        name: str,
        randomness: random.Random,
        waiting: trio.Nursery,
    ) -> None:
        limit = trio.Semaphore(_IN_FLIGHT_MAX)
        logs = [one for one in self.logs if one.topic != REMADE]
        number = 0
        dies_at = trio.current_time() + (kind.life_s or 1e9) * randomness.uniform(0.5, 1.5)

        async def outcome(pending: octopi.PendingReceipt, log: LogId, value: bytes) -> None:
            try:
                await self._outcome(pending, log, value)
            finally:
                limit.release()

        while not self.stopping.is_set():
            if trio.current_time() > dies_at:
                raise _EndOfLifeError
            number += 1
            log = randomness.choice(logs)
            value = unique_value(name, number, randomness.choice(_VALUE_BYTES))
            await limit.acquire()
            self._ledger.sent(name, number, log, value)
            try:
                pending = await producer.submit(log.topic, value, partition=log.partition)
            except octopi.OctopiError as error:
                limit.release()
                if not isinstance(error, octopi.NotDeliveredError) and not may_pass(error):
                    self.faults.append(f"{name} can't send to {log}: {error!r}")
                self._ledger.failed(value)
                continue
            if kind.waits:
                await outcome(pending, log, value)
            else:
                waiting.start_soon(outcome, pending, log, value)
            await trio.sleep(randomness.expovariate(1 / kind.mean_pause_s))

    async def _outcome(self, pending: octopi.PendingReceipt, log: LogId, value: bytes) -> None:
        try:
            receipt = await pending
        except octopi.NotDeliveredError:
            self._ledger.failed(value)
        except octopi.OutcomeUnknownError:
            self._ledger.unknown()
        else:
            told = LogId(receipt.topic, receipt.partition, log.generation)
            offsets = receipt.offset, receipt.next_offset
            self._ledger.acknowledged(value, told, *offsets, trio.current_time())

    # --- consuming ---------------------------------------------------------------------

    async def consume(self) -> None:
        """Run the consumers until cancelled."""
        async with trio.open_nursery() as nursery:
            for name, topic, life_s in CONSUMERS:
                nursery.start_soon(self._consume_on, name, topic, life_s)

    async def _consume_on(self, name: str, topic: str, life_s: float | None) -> None:
        start: str = "earliest"
        forked = False
        for partition in self.partitions[topic]:
            self._ledger.begins(name, LogId(topic, partition), 0)
        randomness = random.Random(f"{self._seed}/{name}")
        while True:
            life = trio.CancelScope()
            if life_s is not None:
                life.deadline = trio.current_time() + life_s * randomness.uniform(0.2, 1.8)
            with life:
                try:
                    async with (
                        octopi.connect(self._register) as client,
                        client.consumer(
                            topic,
                            start=start,
                            reconnect_timeout_s=None,
                            # Those that live for ever are told of a loss on the way.
                            on_fork="resume" if life_s is None or forked else "raise",
                        ) as consumer,
                    ):
                        try:
                            await self._read(name, consumer)
                        except octopi.HistoryForkedError:
                            forked = True  # opened again, it is told once more, and goes on
                            self._ledger.counts["forks raised"] += 1
                        finally:
                            start = str(consumer.position)
                            for partition, offset in consumer.position.offsets.items():
                                self._ledger.begins(name, LogId(topic, partition), offset)
                except octopi.OctopiError as error:
                    if not may_pass(error):
                        self.faults.append(f"{name} can't read {topic} from {start}: {error!r}")
                        return
                    self._ledger.counts["consumers lost"] += 1
                    await trio.sleep(_REOPEN_S)

    async def _read(self, name: str, consumer: octopi.Consumer) -> None:
        told = 0

        def note_forks() -> None:
            nonlocal told
            for fork in consumer.forks[told:]:
                told += 1
                assert fork.partition is not None
                assert fork.offset is not None
                self._ledger.told(name, LogId(fork.topic, fork.partition), fork.offset)

        try:
            async for one in consumer:
                note_forks()
                log = LogId(one.topic, one.partition)
                self._ledger.delivered(name, log, one.offset, one.next_offset, one.value)
        finally:
            note_forks()  # also of a log that has handed out nothing since

    def behind(self, ends: dict[LogId, int]) -> str:
        """The consumers that are not at the *ends* of their logs, if any."""
        return ", ".join(
            f"{name} at {self._ledger.position(name, log)} of {end} in {log}"
            for name, topic, _ in CONSUMERS
            for log, end in ends.items()
            if log.topic == topic and self._ledger.position(name, log) < end
        )


def unique_value(producer: str, number: int, size: int) -> bytes:
    """A value that says who sent it, as which of its messages, of about *size* bytes."""
    return f"{producer}/{number}/".encode().ljust(size, b".")


class _EndOfLifeError(Exception):
    """The producer is to be closed without waiting."""
