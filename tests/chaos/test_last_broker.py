"""All brokers but one are killed, one after another: the last one has everything and goes on."""

from pathlib import Path

import pytest
import trio

import octopi
from harness.processes import node_processes
from tests.chaos.cluster import in_thread

pytestmark = pytest.mark.process

PARTITIONS = 8
BATCH = 200


class Sent:
    """What was acknowledged, by partition, in order."""

    def __init__(self) -> None:
        self.values: dict[int, list[bytes]] = {}
        self.number = 0

    async def more(self, producer: octopi.Producer) -> None:
        """Send another batch and see it acknowledged."""
        pending = []
        for _ in range(BATCH):
            self.number += 1
            value = b"%d" % self.number
            pending.append((value, await producer.submit("orders", value, key=value)))
        for value, one in pending:
            self.values.setdefault((await one).partition, []).append(value)


async def read_all(client: octopi.Client) -> dict[int, list[bytes]]:
    seen: dict[int, list[bytes]] = {}
    async with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
        async for message in consumer:
            seen.setdefault(message.partition, []).append(message.value)
    return seen


async def all_in_sync(client: octopi.Client) -> None:
    while True:
        partitions = (await client.admin.describe_cluster()).partitions
        if all(len(one.in_sync) == len(one.replicas) for one in partitions):
            return
        await trio.sleep(0.05)


@pytest.mark.parametrize("count", [3, 5])
async def test_the_last_of_all_brokers_serves_everything(tmp_path: Path, count: int) -> None:
    with node_processes(tmp_path) as nodes, trio.fail_after(100):
        register = nodes.register("register", "--replicas", str(count))
        options = ("--register", register.url)
        brokers = {n: nodes.node(f"broker-{n}", "broker", *options) for n in range(1, count + 1)}
        for broker in brokers.values():
            await in_thread(broker.start)
        sent = Sent()
        async with octopi.connect(register.url) as client, client.producer() as producer:
            await client.create_topic("orders", PARTITIONS)
            await all_in_sync(client)
            for number in list(brokers)[:-1]:
                await sent.more(producer)
                await in_thread(brokers.pop(number).kill9)
            [last] = brokers
            await sent.more(producer)
            assert await read_all(client) == sent.values
            partitions = (await client.describe_topic("orders")).partitions
            assert {one.leader for one in partitions} == {last}
