"""Queues in a simulated cluster whose leaders fail: message by message, in virtual time."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import attrs
import pytest
import trio

import octopi
import octopi.testing
from octopi.errors import OctopiError
from octopi.identifiers import Claim, MemberId, Offset, SubscriptionId
from octopi.model import SubscriptionOptions
from octopi.transport.connection import Connection
from octopi.wire import messages as m

_T = TypeVar("_T")

COUNT = 300
OPTIONS = SubscriptionOptions(attempts=2, ack_timeout_ms=5_000)


@attrs.define
class Leader:
    """The leader of the one partition, and a connection to it."""

    connection: Connection
    place: tuple[str, Any]
    topic_id: str

    async def ask(self, message: Any, kind: type[_T]) -> _T:  # noqa: ANN401
        number = self.connection.next_request()
        return await self.connection.request(attrs.evolve(message, request=number), kind, 10)

    async def ready_queue(self) -> SubscriptionId:
        creation = m.CreateSubscription(
            0,
            *self.place,
            self.topic_id,
            [self.place[1]],
            "billing",
            "shared",
            OPTIONS,
            "earliest",
            "create_or_attach",
        )
        found = (await self.ask(creation, m.SubscriptionDescription)).definition
        opened = m.OpenMarks(
            0, *self.place, self.topic_id, found.sid, "billing", "shared", OPTIONS, "earliest"
        )
        await self.ask(opened, m.Done)
        await self.ask(m.FinishSubscription(0, *self.place, found.sid), m.Done)
        return found.sid


async def leader_of(client: octopi.Client, cluster: octopi.testing.Cluster) -> Leader:
    """Who leads, as soon as it answers about the subscriptions."""
    while True:
        try:
            info = await client.describe_topic("orders")
            place = info.partitions[0]
            connection = await client._cluster.connections.get(place.leader_address)
            leader = Leader(connection, ("orders", place.partition), info.topic_id)
            await leader.ask(m.ListSubscriptions(0, *leader.place, "", 10), m.SubscriptionList)
        except OctopiError:
            await cluster.sleep(0.1)
        else:
            return leader


@asynccontextmanager
async def member(leader: Leader, sid: SubscriptionId) -> AsyncIterator[Any]:
    """What comes for a member; the first thing is that it is attached."""
    send, receive = trio.open_memory_channel[Any](math.inf)
    request = leader.connection.next_request()
    attach = m.Attach(request, *leader.place, sid, MemberId("m"), Claim(0), 10_000, 10**9)
    leader.connection.ask(attach, send.send_nowait)
    assert isinstance(await receive.receive(), m.Attached)
    yield request, receive


def settle(leader: Leader, request: int, acknowledged: list[tuple[int, int]]) -> None:
    offsets, attempts = [one for one, _ in acknowledged], [one for _, one in acknowledged]
    message = m.Settle(request, [Offset(one) for one in offsets], attempts, [], [], [], True, 1)
    leader.connection.post(message)


@pytest.mark.parametrize("wait_s", [4.9, 5.02])
def test_a_queue_survives_its_leader_and_no_dead_letter_is_doubled(wait_s: float) -> None:
    async def scene(cluster: octopi.testing.Cluster) -> None:
        async with cluster.client() as client:
            await client.create_topic("orders", 1)
            async with client.producer() as producer:
                await producer.submit_many("orders", [b"%d" % one for one in range(COUNT)])
            leader = await leader_of(client, cluster)
            sid = await leader.ready_queue()
            register = await client._cluster.connections.get(cluster.address)
            beside = m.CreateTopic(
                register.next_request(),
                "orders.billing.dead",
                0,
                None,
                m.TopicOptions(),
                "orders",
            )
            await register.request(beside, m.TopicDescription, 10)
            await cluster.settle()
            dealt: dict[int, int] = {}
            poison: set[int] = set()
            settled: set[int] = set()
            async with member(leader, sid) as (request, told):
                while len(dealt) < COUNT:
                    deal = await told.receive()
                    dealt.update(dict.fromkeys(deal.offsets, 1))
                poison = set(sorted(dealt)[::10])
                settled = {one for one in sorted(dealt)[:150] if one not in poison}
                settle(leader, request, [(one, 1) for one in settled])
                assert (await told.receive()).stale == []
                release = m.Settle(
                    request, [], [], [m.Release(Offset(one), 1) for one in poison], [], [], False, 2
                )
                leader.connection.post(release)
                again = set[int]()
                while len(again) < len(poison):
                    deal = await told.receive()
                    assert set(deal.attempts) == {2}
                    again.update(deal.offsets)
                assert again == poison
                # The second time-out of these makes them dead letters, while the leader changes.
                await cluster.sleep(wait_s)
            cluster.kill(cluster.leader("orders"))
            await cluster.sleep(5)
            leader = await leader_of(client, cluster)
            async with member(leader, sid) as (request, told):
                while len(settled) < COUNT - len(poison):
                    deal = await told.receive()
                    assert not settled & set(deal.offsets)
                    good = [
                        (offset, attempt)
                        for offset, attempt in zip(deal.offsets, deal.attempts, strict=True)
                        if offset not in poison
                    ]
                    settle(leader, request, good)
                    settled |= {offset for offset, _ in good}
                for _ in range(100):
                    question = m.DescribeMarks(0, *leader.place, sid)
                    marks = await leader.ask(question, m.MarksDescription)
                    if marks.mark == marks.highwater:
                        break
                    await cluster.sleep(1)
                assert marks.mark == marks.highwater
                assert (marks.open_count, marks.waiting_count) == (0, 0)
                assert marks.dead_count == len(poison)
            async with client.consumer(
                "orders.billing.dead", start="earliest", stop_at_end=True
            ) as consumer:
                letters = [one.headers["octopi-origin"] async for one in consumer]
            assert len(set(letters)) == len(letters) == len(poison)

    octopi.testing.run(scene, brokers=3, partitions=1)
