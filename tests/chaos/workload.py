"""Producers and consumers that note all that happens to them.

Four producers, unlike each other: one waits for each receipt, one has many messages on
their way, one gives up early, one is closed in the middle again and again.  Four consumers:
two read on for ever, two are closed and go on from their position.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

import attrs
import trio

import octopi
from octopi.clients.retrying import may_pass
from octopi.simulation.history import (
    Acknowledged,
    Assigned,
    Delivered,
    Event,
    Failed,
    History,
    Invoked,
    LogName,
    OutcomeUnknown,
    PositionStored,
    unique_value,
)

TOPICS: Final = {"narrow": 1, "orders": 3, "wide": 8, "durable": 2}
"""Topics and the number of their partitions; the last one is flushed before it answers."""

_IN_FLIGHT_MAX: Final = 200
_VALUE_BYTES: Final = (30, 300, 3_000, 30_000)
_REOPEN_S: Final = 0.2


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

    def __init__(self, register: str, seed: int, history: History) -> None:
        self.counts: Counter[str] = Counter()
        """Of the kinds of events."""
        self.positions: dict[str, dict[LogName, int]] = {name: {} for name, _, _ in CONSUMERS}
        self.faults: list[str] = []
        """Errors that no client may get, whatever fails around it."""
        self.partitions: dict[str, list[int]] = {}
        """Of each topic."""
        self.stopping = trio.Event()
        """Set it, and the producers send nothing more and wait for their receipts."""
        self._history = history
        self._register = register
        self._seed = seed

    async def create_topics(self) -> None:
        """Make the topics."""
        async with octopi.connect(self._register) as client:
            for topic, partitions in TOPICS.items():
                info = await client.create_topic(
                    topic, partitions, exist_ok=True, flush_before_ack=topic == "durable"
                )
                self.partitions[topic] = [one.partition for one in info.partitions]

    def _note(self, event: Event) -> None:
        self._history.note(event)
        self.counts[type(event).__name__] += 1

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
            chance = random.Random(f"{self._seed}/{kind.name}/{life}")
            # An outcome that nobody awaits is noted by whoever waits for it; the scope is
            # around those too, so that closing finds messages without an outcome.
            async with octopi.connect(self._register) as client, trio.open_nursery() as waiting:
                try:
                    async with client.producer(
                        delivery_timeout_s=kind.delivery_timeout_s, linger_s=kind.linger_s
                    ) as producer:
                        await self._send_all(producer, kind, f"{kind.name}.{life}", chance, waiting)
                except octopi.DeliveryError:
                    pass  # each is noted where it is awaited
                except _EndOfLifeError:
                    pass

    async def _send_all(
        self,
        producer: octopi.Producer,
        kind: ProducerKind,
        name: str,
        chance: random.Random,
        waiting: trio.Nursery,
    ) -> None:
        limit = trio.Semaphore(_IN_FLIGHT_MAX)
        topics = list(TOPICS)
        number = 0
        dies_at = trio.current_time() + (kind.life_s or 1e9) * chance.uniform(0.5, 1.5)
        while not self.stopping.is_set():
            if trio.current_time() > dies_at:
                raise _EndOfLifeError
            number += 1
            log = self._choose(topics, chance)
            value = unique_value(name, number, chance.choice(_VALUE_BYTES))
            await limit.acquire()
            self._note(Invoked(trio.current_time(), name, log.topic, log.partition, value))
            try:
                pending = await producer.submit(log.topic, value, partition=log.partition)
            except octopi.OctopiError as error:
                limit.release()
                if not isinstance(error, octopi.NotDeliveredError) and not may_pass(error):
                    self.faults.append(f"{name} can't send to {log}: {error!r}")
                self._note(Failed(trio.current_time(), value, str(error)))
                continue
            if kind.waits:
                await self._outcome(pending, value, limit)
            else:
                waiting.start_soon(self._outcome, pending, value, limit)
            await trio.sleep(chance.expovariate(1 / kind.mean_pause_s))

    def _choose(self, topics: list[str], chance: random.Random) -> LogName:
        topic = chance.choice(topics)
        return LogName(topic, chance.choice(self.partitions[topic]))

    async def _outcome(
        self, pending: octopi.PendingReceipt, value: bytes, limit: trio.Semaphore
    ) -> None:
        try:
            receipt = await pending
        except octopi.NotDeliveredError as error:
            self._note(Failed(trio.current_time(), value, str(error)))
        except octopi.OutcomeUnknownError as error:
            self._note(OutcomeUnknown(trio.current_time(), value, str(error)))
        else:
            log = LogName(receipt.topic, receipt.partition)
            self._note(
                Acknowledged(
                    trio.current_time(),
                    log,
                    value,
                    receipt.offset,
                    receipt.next_offset,
                    receipt.epoch,
                    receipt.duplicate,
                )
            )
        finally:
            limit.release()

    # --- consuming ---------------------------------------------------------------------

    async def consume(self) -> None:
        """Run the consumers until cancelled."""
        async with trio.open_nursery() as nursery:
            for name, topic, life_s in CONSUMERS:
                nursery.start_soon(self._consume_on, name, topic, life_s)

    async def _consume_on(self, name: str, topic: str, life_s: float | None) -> None:
        start = "earliest"
        for partition in self.partitions[topic]:
            self._note(Assigned(trio.current_time(), name, LogName(topic, partition), 0))
        chance = random.Random(f"{self._seed}/{name}")
        while True:
            life = trio.CancelScope()
            if life_s is not None:
                life.deadline = trio.current_time() + life_s * chance.uniform(0.2, 1.8)
            with life:
                try:
                    async with (
                        octopi.connect(self._register) as client,
                        client.consumer(topic, start=start, reconnect_timeout_s=None) as consumer,
                    ):
                        try:
                            await self._read(name, consumer)
                        finally:
                            start = self._store(name, consumer.position)
                except octopi.OctopiError as error:
                    if not may_pass(error):
                        self.faults.append(f"{name} can't read {topic} from {start}: {error!r}")
                        return
                    self.counts["consumers lost"] += 1
                    await trio.sleep(_REOPEN_S)

    def _store(self, name: str, position: octopi.Position) -> str:
        for partition, offset in position.offsets.items():
            log = LogName(position.topic, partition)
            self._note(PositionStored(trio.current_time(), name, log, offset))
        return str(position)

    async def _read(self, name: str, consumer: octopi.Consumer) -> None:
        async for message in consumer:
            log = LogName(message.topic, message.partition)
            self.positions[name][log] = message.next_offset
            self._note(
                Delivered(
                    trio.current_time(),
                    name,
                    log,
                    message.offset,
                    message.next_offset,
                    message.value,
                    message.key,
                    message.headers,
                )
            )

    def finished(self, ends: dict[LogName, int]) -> bool:
        """Whether every consumer is at the *ends* of its logs."""
        return all(
            self.positions[name].get(log, 0) >= end
            for name, topic, _ in CONSUMERS
            for log, end in ends.items()
            if log.topic == topic
        )


class _EndOfLifeError(Exception):
    """The producer is to be closed without waiting."""
