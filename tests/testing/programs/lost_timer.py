"""Reminders of orders: the wrong program has them only in its memory once it has read an order."""

from __future__ import annotations

from collections.abc import Callable

import trio

from octopi.testing import Cluster, Host
from tests.testing.programs.planted import Planted

REMINDER_S = 1.0


class Notes:
    """Outlive the program, as a database does."""

    def __init__(self) -> None:
        self.position = "earliest"
        self.due: set[bytes] = set()


async def remind(order: bytes, reminded: Callable[[bytes], None]) -> None:
    await trio.sleep(REMINDER_S)
    reminded(order)


async def wrong(host: Host, notes: Notes, reminded: set[bytes]) -> None:
    async with (
        host.connect() as client,
        trio.open_nursery() as timers,
        client.consumer("orders", start=notes.position) as orders,
    ):
        async for order in orders:
            timers.start_soon(remind, order.value, reminded.add)
            notes.position = str(orders.position)


async def right(host: Host, notes: Notes, reminded: set[bytes]) -> None:
    def note(order: bytes) -> None:
        reminded.add(order)
        notes.due.discard(order)

    async with (
        host.connect() as client,
        trio.open_nursery() as timers,
        client.consumer("orders", start=notes.position) as orders,
    ):
        for due in sorted(notes.due):
            timers.start_soon(remind, due, note)
        async for order in orders:
            notes.due.add(order.value)
            notes.position = str(orders.position)
            timers.start_soon(remind, order.value, note)


async def scene(cluster: Cluster, is_right: bool) -> None:
    notes, reminded = Notes(), set[bytes]()
    program = right if is_right else wrong
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("orders", 1)
        cluster.program("reminders", lambda host: program(host, notes, reminded))
        with cluster.random_faults(["kill"], hosts=["reminders"]):
            for number in range(4):
                await producer.send("orders", b"order %d" % number)
                await cluster.sleep(0.5)
        await cluster.sleep(10)
        assert len(reminded) == 4


BUG = Planted("lost timer", scene, ("reminders",), seed=1)
