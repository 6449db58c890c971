"""What a queue deals to an attach waits until it can be sent; meanwhile it may be over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import trio

from octopi.identifiers import Offset, SubscriptionId, TopicId
from octopi.roles.broker.services.queues import QueueDeals
from octopi.subscriptions.effects import DealMessages, Dealt

SID, TOPIC_ID = SubscriptionId("5" * 16), TopicId("1" * 16)
SESSION = 3


class SlowLog:
    """A log that proves its places when it is allowed to; each record has ten bytes."""

    def __init__(self) -> None:
        self.may_go = trio.Event()
        self.delivered_bytes = 0

    async def prove(self, offset: Offset) -> None:
        await self.may_go.wait()

    def read(self, offset: Offset, bytes_max: int) -> bytes:
        return bytes([offset // 10]) * bytes_max


class Machine:
    """Knows which deliveries are over."""

    def __init__(self) -> None:
        self.over: set[int] = set()
        self.taken_back: list[int] = []

    def queue(self, sid: SubscriptionId) -> Any:  # noqa: ANN401
        return SimpleNamespace(queue=self)

    def is_open(self, session: int, dealt: Dealt) -> bool:
        return dealt.offset not in self.over

    def take_back(
        self, sid: SubscriptionId, session: int, dealt: Dealt, delay_s: float, now: float
    ) -> list[Any]:
        self.taken_back.append(dealt.offset)
        return []


class Outbox:
    """Has room for everything."""

    @asynccontextmanager
    async def room(self, wanted: int, least: int) -> AsyncIterator[int]:
        yield wanted


def do_now(edges: object, do: Callable[[], None]) -> None:
    do()


async def test_a_delivery_that_is_over_before_it_is_sent_is_taken_back() -> None:
    log, machine, posted = SlowLog(), Machine(), list[Any]()

    async def at_once() -> None:
        pass

    connection = SimpleNamespace(paced=at_once, outbox=Outbox(), post=posted.append)
    clock = SimpleNamespace(now=lambda: 0.0)
    led = SimpleNamespace(
        leadership=SimpleNamespace(log=lambda topic_id: log),
        machine=machine,
        tracer=None,
        traced=do_now,
        perform=lambda effects: None,
    )
    async with trio.open_nursery() as tasks:
        environment = SimpleNamespace(clock=clock)
        context = SimpleNamespace(connection=connection, tasks=tasks, environment=environment)
        deals = QueueDeals(cast(Any, context), 7, cast(Any, led), SESSION)
        some = tuple(Dealt(Offset(at), Offset(at + 10), 1) for at in (0, 10, 20))
        deals.add(DealMessages(SESSION, SID, TOPIC_ID, some))
        machine.over = {0, 20}
        log.may_go.set()
    assert [one.offsets for one in posted] == [[10]]
    assert machine.taken_back == [0, 20]
