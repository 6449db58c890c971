"""An account: the wrong one notes that it has read a deposit before it stores the balance."""

from __future__ import annotations

import octopi
from octopi import Client
from octopi.testing import Cluster, Host
from tests.testing.programs.planted import Planted


async def wrong(client: Client, notes: dict[str, str]) -> None:
    balance, _ = await last_state(client)
    async with (
        client.producer() as producer,
        client.consumer("deposits", start=notes.get("position", "earliest")) as deposits,
    ):
        async for deposit in deposits:
            notes["position"] = str(deposits.position)
            balance += int(deposit.value)
            await producer.send("balances", b"%d" % balance, headers={"position": b""})


async def right(client: Client) -> None:
    balance, start = await last_state(client)
    async with (
        client.producer(name="account", topics=["balances"]) as producer,
        client.consumer("deposits", start=start) as deposits,
    ):
        async for deposit in deposits:
            balance += int(deposit.value)
            position = str(deposits.position).encode()
            await producer.send("balances", b"%d" % balance, headers={"position": position})


async def last_state(client: Client) -> tuple[int, str]:
    balance, position = 0, "earliest"
    async with client.consumer("balances", start=octopi.last(1), stop_at_end=True) as balances:
        async for message in balances:
            balance, position = int(message.value), message.headers["position"].decode()
    return balance, position


async def scene(cluster: Cluster, is_right: bool) -> None:
    notes: dict[str, str] = {}

    async def account(host: Host) -> None:
        async with host.connect() as client:
            await (right(client) if is_right else wrong(client, notes))

    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("deposits", 1)
        await client.create_topic("balances", 1)
        cluster.program("account", account)
        with cluster.random_faults(["kill"], hosts=["account"]):
            for _ in range(4):
                await producer.send("deposits", b"10")
                await cluster.sleep(0.5)
        await cluster.sleep(5)
        balance, _ = await last_state(client)
        assert balance == 40


BUG = Planted("lost update", scene, ("account",), seed=18)
