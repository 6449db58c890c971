"""The clients of one run with real processes: they note all that happens to them in a `Ledger`."""

from __future__ import annotations

import random
from typing import Final

import attrs
import trio

import octopi
from octopi.errors import OctopiError
from octopi.retry import may_pass
from sim.real.ledger import Content, Ledger, LogId, StoredValue
from sim.run.plan import Plan

_SENT_MAX: Final = 20_000
"""A producer sends so many messages at most, however long the faults take."""
_REOPEN_S: Final = 0.2
_LOOK_S: Final = 0.1
_ANSWER_S: Final = 10.0
_DELIVERY_S: Final = 120.0
"""A message may wait so long: longer than any planned fault."""


@attrs.define
class RealClients:
    """The producers and consumers of *plan*, which know the cluster by *servers*."""

    plan: Plan
    servers: list[str]
    ledger: Ledger = attrs.field(factory=Ledger)
    faults: list[str] = attrs.field(factory=list)
    """Errors that no client may get, whatever fails around it."""
    stopping: trio.Event = attrs.field(factory=trio.Event)
    """Set it, and the producers send nothing more once they have sent what the plan says."""
    logs: list[LogId] = attrs.field(factory=list)
    info: octopi.ClusterInfo | None = None
    """The cluster, as it described itself last."""
    _looks: int = 0
    _looked: trio.Event = attrs.field(factory=trio.Event)

    async def create_topics(self) -> None:
        """Make the topics of the plan."""
        plan, load = self.plan, self.plan.workload
        async with octopi.connect(self.servers) as client:
            for number in range(1, load.topics + 1):
                topic = await client.create_topic(
                    f"topic-{number}",
                    min(load.topic_partitions, plan.partitions),
                    exist_ok=True,
                    flush_before_ack=plan.flush_before_ack,
                    min_insync=plan.min_insync,
                )
                self.logs += [LogId(topic.topic, one.partition) for one in topic.partitions]

    # --- the cluster, as it describes itself ---------------------------------------------

    async def look(self) -> None:
        """Keep `info` up to date until cancelled."""
        while True:
            try:
                async with octopi.connect(self.servers) as client:
                    while True:
                        with trio.fail_after(_ANSWER_S):
                            self.info = await client.admin.describe_cluster()
                        self._looks += 1
                        self._looked.set()
                        self._looked = trio.Event()
                        await trio.sleep(_LOOK_S)
            except trio.TooSlowError:
                pass
            except OctopiError as error:
                if not may_pass(error):
                    self.faults.append(f"the cluster refuses to describe itself: {error!r}")
                    return
                await trio.sleep(_LOOK_S)

    async def fresh(self) -> octopi.ClusterInfo:
        """A description that was asked for after this call."""
        wanted = self._looks + 2  # the first that comes may have been asked for before
        while self._looks < wanted:
            await self._looked.wait()
        assert self.info is not None
        return self.info

    # --- producing -----------------------------------------------------------------------

    async def produce(self) -> None:
        """Run the producers until all have their outcomes."""
        async with trio.open_nursery() as nursery:
            for number in range(1, self.plan.workload.producers + 1):
                nursery.start_soon(self._produce, f"producer-{number}")

    async def _produce(self, name: str) -> None:
        load, sent = self.plan.workload, 0
        randomness = random.Random(f"{self.plan.seed}/{name}")
        async with (
            octopi.connect(self.servers) as client,
            client.producer(delivery_timeout_s=_DELIVERY_S) as producer,
        ):
            while sent < load.records or (not self.stopping.is_set() and sent < _SENT_MAX):
                waiting = []
                for _ in range(randomness.randint(1, load.burst_count)):
                    sent += 1
                    log = randomness.choice(self.logs)
                    size = randomness.randint(1, load.value_bytes_max)
                    value = f"{name}/{sent}/".encode().ljust(size, b".")
                    self.ledger.sent(name, sent, log, value)
                    try:
                        pending = await producer.submit(log.topic, value, partition=log.partition)
                    except OctopiError as error:
                        self._refused(name, log, value, error)
                    else:
                        waiting.append((pending, log, value))
                for one in waiting:
                    await self._outcome(name, *one)
                await trio.sleep(randomness.expovariate(1 / max(load.pause_s, 0.001)))

    async def _outcome(
        self, name: str, pending: octopi.PendingReceipt, log: LogId, value: bytes
    ) -> None:
        try:
            receipt = await pending
        except octopi.OutcomeUnknownError:
            self.ledger.unknown()
        except OctopiError as error:
            self._refused(name, log, value, error)
        else:
            told = LogId(receipt.topic, receipt.partition)
            offsets = receipt.offset, receipt.next_offset
            self.ledger.acknowledged(value, told, *offsets, trio.current_time())

    def _refused(self, name: str, log: LogId, value: bytes, error: OctopiError) -> None:
        if not isinstance(error, octopi.NotDeliveredError) and not may_pass(error):
            self.faults.append(f"{name} can't send to {log}: {error!r}")
        self.ledger.failed(value)

    # --- consuming -----------------------------------------------------------------------

    async def consume(self) -> None:
        """Run the consumers until cancelled."""
        async with trio.open_nursery() as nursery:
            for number in range(1, self.plan.workload.consumers + 1):
                nursery.start_soon(self._consume, f"consumer-{number}", self._topic_of(number))

    def _topic_of(self, number: int) -> str:
        return f"topic-{(number - 1) % self.plan.workload.topics + 1}"

    async def _consume(self, name: str, topic: str) -> None:
        start = "earliest"
        for log in self.logs:
            if log.topic == topic:
                self.ledger.begins(name, log, 0)
        while True:
            try:
                async with (
                    octopi.connect(self.servers) as client,
                    client.consumer(topic, start=start, reconnect_timeout_s=None) as consumer,
                ):
                    try:
                        async for one in consumer:
                            log = LogId(one.topic, one.partition)
                            self.ledger.delivered(name, log, one.offset, one.next_offset, one.value)
                    finally:
                        start = str(consumer.position)
            except OctopiError as error:
                if not may_pass(error):
                    self.faults.append(f"{name} can't read {topic} from {start}: {error!r}")
                    return
                await trio.sleep(_REOPEN_S)

    def behind(self, ends: dict[LogId, int]) -> str:
        """The consumers that are not at the *ends* of their logs; empty: none."""
        return ", ".join(
            f"consumer-{number} is at {at} of {end} in {log}"
            for number in range(1, self.plan.workload.consumers + 1)
            for log, end in ends.items()
            if log.topic == self._topic_of(number)
            and (at := self.ledger.position(f"consumer-{number}", log)) < end
        )

    async def read_all(self) -> dict[LogId, Content]:
        """What the logs hold, read from their beginnings to their ends."""
        final: dict[LogId, Content] = {log: [] for log in self.logs}
        async with octopi.connect(self.servers) as client:
            for topic in dict.fromkeys(log.topic for log in self.logs):
                async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
                    async for one in consumer:
                        final[LogId(one.topic, one.partition)].append(
                            StoredValue(one.offset, one.next_offset, one.value)
                        )
        return final

    # --- what an operator does -----------------------------------------------------------

    async def replace_broker(self, old: int, address: str) -> None:
        """Give the replicas of the broker *old*, whose disk is lost, to the one that joined at
        *address*, and forget *old*."""
        while True:
            try:
                async with octopi.connect(self.servers) as client:
                    info = await client.admin.describe_cluster()
                    [new] = [
                        one.broker for one in info.brokers if one.address == address and one.live
                    ]
                    for place in info.partitions:
                        if old in place.replicas:
                            await client.admin.move_replica(place.partition, old, new)
                    if old in {one.broker for one in info.brokers}:
                        await client.admin.remove_broker(old)
                    return
            except OctopiError as error:
                if not may_pass(error):
                    raise
            await trio.sleep(_REOPEN_S)
