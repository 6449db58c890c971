"""A till: the wrong one charges an order again if it died before it noted that it had done so."""

from __future__ import annotations

import trio

from octopi.testing import Cluster, Host
from tests.testing.programs.planted import Planted


class Bank:
    """A service somewhere else, which takes a moment."""

    def __init__(self) -> None:
        self.charges: list[bytes] = []
        self._keys: set[int] = set()

    async def charge(self, order: bytes, key: int | None = None) -> None:
        """Charge an order; with a *key* that it has had before it does nothing."""
        await trio.sleep(0.02)
        if key is None or key not in self._keys:
            self.charges.append(order)
        if key is not None:
            self._keys.add(key)
        await trio.sleep(0.02)


async def wrong(host: Host, bank: Bank, notes: dict[str, str]) -> None:
    async with (
        host.connect() as client,
        client.consumer("orders", start=notes.get("position", "earliest")) as orders,
    ):
        async for order in orders:
            await bank.charge(order.value)
            notes["position"] = str(orders.position)


async def right(host: Host, bank: Bank, notes: dict[str, str]) -> None:
    async with (
        host.connect() as client,
        client.consumer("orders", start=notes.get("position", "earliest")) as orders,
    ):
        async for order in orders:
            await bank.charge(order.value, key=order.offset)
            notes["position"] = str(orders.position)


async def scene(cluster: Cluster, is_right: bool) -> None:
    bank, notes = Bank(), dict[str, str]()
    program = right if is_right else wrong
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("orders", 1)
        cluster.program("till", lambda host: program(host, bank, notes))
        with cluster.random_faults(["kill"], hosts=["till"]):
            for number in range(4):
                await producer.send("orders", b"order %d" % number)
                await cluster.sleep(0.5)
        await cluster.sleep(5)
        assert bank.charges == [b"order 0", b"order 1", b"order 2", b"order 3"]


BUG = Planted("double charge", scene, ("till",), seed=18)
