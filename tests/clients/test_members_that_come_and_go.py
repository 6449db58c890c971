"""Members of a subscription that join, stall, leave and die, while brokers do the same."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from random import Random

import pytest
import trio
from trio.testing import MockClock

import octopi
from tests.kit.world import BROKER, REGISTER, World, running_world

BROKERS = [BROKER, "ws://broker-2:7100", "ws://broker-3:7100"]


class Group:
    """Programs that are members of one subscription, again and again."""

    def __init__(self, world: World, seed: int, count: int) -> None:
        """*count*: messages that they will be sent, each once."""
        self.world = world
        self.random = Random(seed)
        self.seen: Counter[bytes] = Counter()
        self.claims: defaultdict[int, list[int]] = defaultdict(list)
        """Partition -> the claims with which its messages were handed out, in order."""
        self.saw_all = trio.Event()
        self._count = count
        self._lives = 0

    async def live(self, name: str) -> None:
        """Lives of one program, one after the other."""
        while True:
            with trio.CancelScope() as life:
                life.deadline = trio.current_time() + self.random.uniform(3, 15)
                try:
                    await self._be_member(name)
                except octopi.OctopiError:
                    await trio.sleep(1)

    async def _be_member(self, name: str) -> None:
        self._lives += 1
        url = f"ws://{name}-{self._lives}"
        async with (
            octopi.connect(REGISTER, environment=self.world.environment(url=url)) as client,
            client.subscription(
                "orders",
                "billing",
                mode="failover",
                member=name if self.random.random() < 0.5 else None,
                session_timeout_s=5,
                release_timeout_s=3,
            ) as orders,
        ):
            async for order in orders:
                self.seen[order.value] += 1
                if len(self.seen) == self._count:
                    self.saw_all.set()
                self.claims[order.partition].append(orders.claim)
                chance = self.random.random()
                if chance < 0.1:
                    await trio.sleep(self.random.uniform(0, 2))
                elif chance < 0.105:
                    break
                elif chance < 0.11:
                    with self.world.net.hang(url):
                        await trio.sleep(self.random.uniform(1, 12))

    async def strike_brokers(self) -> None:
        """Kill one, or have it hang, now and then."""
        while True:
            await trio.sleep(self.random.uniform(5, 15))
            url = self.random.choice(BROKERS)
            if self.random.random() < 0.5:
                await self.world.kill(url)
                await trio.sleep(self.random.uniform(0.5, 4))
                await self.world.start_broker(url)
            else:
                with self.world.net.hang(url):
                    await trio.sleep(self.random.uniform(0.5, 4))


@pytest.mark.parametrize("seed", range(2))
async def test_each_message_is_processed_and_no_log_has_two_members_at_once(
    seed: int, autojump_clock: MockClock
) -> None:
    rounds = 100
    async with running_world() as world, world.client() as client:
        for url in BROKERS[1:]:
            await world.start_broker(url)
        info = await client.create_topic("orders", 4)
        sent = {b"%d" % number for number in range(rounds * 4)}
        group = Group(world, seed, len(sent))
        async with trio.open_nursery() as nursery:
            for name in ("ann", "bob", "eve"):
                nursery.start_soon(group.live, name)
            nursery.start_soon(group.strike_brokers)
            async with client.producer(delivery_timeout_s=120) as producer:
                for number in range(rounds):
                    for at, place in enumerate(info.partitions):
                        value = b"%d" % (number * 4 + at)
                        await producer.submit("orders", value, partition=place.partition)
                    await trio.sleep(0.3)
            with trio.move_on_after(200):
                await group.saw_all.wait()
            nursery.cancel_scope.cancel()
        assert set(group.seen) == sent, "messages were passed over"
        for claims in group.claims.values():
            assert all(later >= earlier for earlier, later in pairwise(claims))
        assert max(len(set(claims)) for claims in group.claims.values()) > 1, "no log moved"
