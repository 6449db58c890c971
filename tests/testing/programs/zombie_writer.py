"""An account that gives messages up soon, and is started again soon: the wrong one has no name, so
a message of its former life may be stored behind what the new life has read."""

from __future__ import annotations

from octopi import Client, Producer
from octopi.testing import Cluster, Host
from tests.testing.programs.lost_update import last_state
from tests.testing.programs.planted import Planted, values


async def wrong(client: Client) -> None:
    async with client.producer(delivery_timeout_s=0.3) as producer:
        await keep(client, producer)


async def right(client: Client) -> None:
    async with client.producer(
        name="account", topics=["balances"], delivery_timeout_s=0.3
    ) as producer:
        await keep(client, producer)


async def keep(client: Client, producer: Producer) -> None:
    balance, start = await last_state(client)
    async with client.consumer("deposits", start=start) as deposits:
        async for deposit in deposits:
            balance += int(deposit.value)
            position = str(deposits.position).encode()
            await producer.send("balances", b"%d" % balance, headers={"position": position})


async def scene(cluster: Cluster, is_right: bool) -> None:
    async def account(host: Host) -> None:
        async with host.connect() as client:
            await (right(client) if is_right else wrong(client))

    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("deposits", 1)
        await client.create_topic("balances", 1)
        cluster.program("account", account, restart_s=0.05)
        with cluster.random_faults(["slow"], hosts=["account"]):
            for _ in range(10):
                await producer.send("deposits", b"10")
                await cluster.sleep(0.5)
        await cluster.sleep(10)
        stored = await values(client, "balances")
        assert stored == [b"%d" % (10 * number) for number in range(1, 11)]


BUG = Planted("zombie writer", scene, ("account",), seed=12, faults=("slow",))
