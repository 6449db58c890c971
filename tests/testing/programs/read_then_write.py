"""Two tellers and one account: the wrong ones don't say to which end of the log their decision
belongs, so both may take the last money."""

from __future__ import annotations

from functools import partial

import octopi
from octopi import Client
from octopi.testing import Cluster, Host
from tests.testing.programs.planted import Planted, values


async def wrong(client: Client, producer: octopi.Producer) -> None:
    balance, _ = await read(client)
    if balance >= 30:
        await producer.send("account", b"-30")


async def right(client: Client, producer: octopi.Producer) -> None:
    while True:
        balance, end = await read(client)
        if balance < 30:
            return
        try:
            await producer.send("account", b"-30", expected_end=end)
        except octopi.ConditionFailedError:
            continue
        return


async def read(client: Client) -> tuple[int, int]:
    balance, end = 0, 0
    async with client.consumer("account", start="earliest", stop_at_end=True) as movements:
        async for movement in movements:
            balance, end = balance + int(movement.value), movement.next_offset
    return balance, end


async def scene(cluster: Cluster, is_right: bool) -> None:
    async def teller(host: Host, first_s: float) -> None:
        async with host.connect() as client, client.producer() as producer:
            await cluster.sleep(first_s)
            for _ in range(3):
                await (right if is_right else wrong)(client, producer)
                await cluster.sleep(1.0)

    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("account", 1)
        await producer.send("account", b"100")
        for number in (1, 2):
            cluster.program(f"teller-{number}", partial(teller, first_s=number / 2))
        with cluster.random_faults(["pause"], hosts=["teller-1", "teller-2"]):
            await cluster.sleep(5)
        await cluster.sleep(10)
        assert sum(map(int, await values(client, "account"))) >= 0, "overdrawn"


BUG = Planted("read then write", scene, ("teller-1", "teller-2"), seed=3, faults=("pause",))
