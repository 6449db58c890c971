"""A load on relays of a static list, and what has to hold of it: the rules of topics in memory are
checked at every step, and what clients got is checked in the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from octopi import Client, connect
from octopi.environment import Environment
from octopi.errors import HistoryForkedError, OctopiError, UnknownTopicError
from octopi.identifiers import TopicName
from octopi.simulation.invariants.relay_view import MemoryLoss, RelayObserver
from octopi.simulation.kernel.world import Event, Violation
from tests.kit.relays import RelaysOfHosts

TOPIC: Final = TopicName("prices")


class RelayLoad:
    """A producer and a consumer of one topic, and an observer that sees each step of the relays."""

    def __init__(self, relays: RelaysOfHosts) -> None:
        self.relays = relays
        self.cluster = relays.cluster
        self.acknowledged: dict[int, int] = {}
        """The offset of each message that was acknowledged."""
        self.sent_count = 0
        self.losses: list[MemoryLoss] = []
        """What timelines began without."""
        self._lost: set[int] = set()
        """Messages that may be gone, since more relays were lost than a set can bear."""
        self._world = self.cluster._simulated.world
        self.observer = RelayObserver(lambda topic_id: True)
        self.observer.rules.append(self._broken)
        self.observer.losses.append(self._lose)
        self._world.observe(self.observer, self.observer.kinds)
        # It sees a step before the fault at that step.
        self._world.observers.insert(0, self._world.observers.pop())

    def _broken(self, rule: str, text: str, event: Event) -> None:
        self._world.fail(Violation(rule, text, (event,)))

    def _lose(self, loss: MemoryLoss) -> None:
        self.losses.append(loss)
        self._lost |= {one for one, at in self.acknowledged.items() if at >= loss.kept_end}

    def host(self, *, is_sequencer: bool) -> str:
        """The relay that is the sequencer of the topic's partition, or another one of them."""
        node = next(iter(self.relays.running().values()))
        number = node.mesh.partition_of(TOPIC)
        broker = self.observer.sequencers[number]
        found = self.relays.name_of(broker)
        return (
            found if is_sequencer else next(one for one in self.relays.names[::-1] if one != found)
        )

    @asynccontextmanager
    async def running(self, pause_s: float = 0.02) -> AsyncIterator[None]:
        """Produce and consume for a block."""
        environment = await self.cluster.environment("client")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._produce, environment, pause_s)
            nursery.start_soon(self._consume, await self.cluster.environment("reader"))
            yield
            nursery.cancel_scope.cancel()

    async def until_acknowledged(self, count: int) -> None:
        """Wait until *count* more messages are acknowledged."""
        wanted = len(self.acknowledged) + count
        await self.cluster.eventually(
            lambda: len(self.acknowledged) >= wanted, f"{count} more messages", within_s=40
        )

    async def _produce(self, environment: Environment, pause_s: float) -> None:
        async with connect(self.relays.addresses, environment=environment) as client:
            while True:
                async with client.producer() as producer:
                    try:
                        while True:
                            number, self.sent_count = self.sent_count, self.sent_count + 1
                            receipt = await producer.send(TOPIC, b"%d" % number)
                            self.acknowledged[number] = receipt.offset
                            await self.cluster.sleep(pause_s)
                    except OctopiError:
                        await self.cluster.sleep(pause_s)  # a new producer goes on

    async def _consume(self, environment: Environment) -> None:
        """Read all the time; each place once, unless a reader is told that it is gone."""
        seen: dict[int, int] = {}
        start: str | int = "earliest"
        async with connect(self.relays.addresses, environment=environment) as client:
            while True:
                try:
                    async with client.consumer(TOPIC, start=start) as consumer:
                        async for one in consumer:
                            assert one.offset not in seen, "read twice"
                            seen[one.offset] = int(one.value)
                except UnknownTopicError:
                    await self.cluster.sleep(0.1)  # that relay has not heard of it yet
                except HistoryForkedError as error:
                    self.check_loss()
                    start = error.offset or 0
                    seen = {at: value for at, value in seen.items() if at < start}

    def check_loss(self) -> None:
        """A reader was told of a fork: then something was lost."""
        assert self.losses, "a reader is told of a fork, and nothing was lost"

    async def check(self, *, may_lose: bool = False, is_bounded: bool = False) -> None:
        """Heal everything; then all relays have to be alike, and every one of them serves all that
        was acknowledged, once.  *may_lose*: more relays than a set can bear may have been lost at
        once.  *is_bounded*: buffers are so small that only the newest messages are there."""
        self.cluster.heal()
        for name in self.relays.names:
            self.cluster.restart(name)
        await self.relays.alike(within_s=60)
        assert may_lose or not self.losses
        environment = await self.cluster.environment("verifier")
        found: list[list[int]] = []
        for address in self.relays.addresses:
            async with connect(address, environment=environment) as client:
                found.append(await _read(client))
        assert all(one == found[0] for one in found), "relays serve different histories"
        assert len(set(found[0])) == len(found[0]), "a message is there twice"
        missing = set(self.acknowledged) - set(found[0]) - self._lost
        if is_bounded:
            missing = {one for one in missing if one >= min(found[0])}
        assert not missing, f"acknowledged, and gone: {sorted(missing)[:9]}"


async def _read(client: Client) -> list[int]:
    async with client.consumer(TOPIC, start="earliest", stop_at_end=True) as consumer:
        return [int(one.value) async for one in consumer]
