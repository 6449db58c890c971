"""Real processes, killed without warning while real clients produce and consume."""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

import octopi
from harness.processes import node_processes

pytestmark = pytest.mark.process

COUNT = 4_000


class Workload:
    """One producer and one consumer of one topic, and what they saw."""

    def __init__(self, url: str | list[str], topic: str) -> None:
        self.url = url
        self.topic = topic
        self.receipts: list[octopi.Receipt] = []
        self.seen: list[octopi.Message] = []
        self._changed = trio.Event()

    async def produce(self) -> None:
        """Send numbered messages, one after another, until all have their receipt."""
        async with octopi.connect(self.url) as client, client.producer() as producer:
            for number in range(COUNT):
                receipt = await producer.send(self.topic, b"%d" % number)
                self.receipts.append(receipt)
                self._wake()

    async def consume(self) -> None:
        """Read until every message was seen."""
        async with (
            octopi.connect(self.url) as client,
            client.consumer(self.topic, start="earliest") as consumer,
        ):
            async for message in consumer:
                self.seen.append(message)
                self._wake()
                if message.value == b"%d" % (COUNT - 1):
                    return

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def reached(self, count: int) -> None:
        """Wait until so many are acknowledged, and some were read."""
        with trio.fail_after(60):
            while len(self.receipts) < count or not self.seen:
                await self._changed.wait()

    def check(self) -> None:
        """Every acknowledged message once, in order, seen without gap or repeat."""
        values = [b"%d" % number for number in range(COUNT)]
        assert [message.value for message in self.seen] == values
        assert [message.offset for message in self.seen] == [one.offset for one in self.receipts]
        ends = [message.next_offset for message in self.seen]
        assert [message.offset for message in self.seen] == [0, *ends[:-1]]


async def in_thread(act: Callable[[], object]) -> None:
    """Wait for a process without keeping the clients from going on."""
    await trio.to_thread.run_sync(act)


async def run_while(workload: Workload, disturb: Callable[[Workload], Awaitable[None]]) -> None:
    with trio.fail_after(100):
        async with octopi.connect(workload.url) as client:
            await client.create_topic(workload.topic)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(workload.produce)
            nursery.start_soon(workload.consume)
            await disturb(workload)
    workload.check()


async def test_a_killed_broker_costs_neither_a_message_nor_a_repeat(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)

        async def kill_three_times(workload: Workload) -> None:
            for count in (500, 1500, 2500):
                await workload.reached(count)
                broker.kill9()
                await in_thread(broker.restart)

        workload = Workload(register.url, "orders")
        await run_while(workload, kill_three_times)
        broker.terminate()
        records = (path for path in (broker.data_dir / "logs").rglob("*.log"))
        assert sum(path.stat().st_size for path in records) == workload.seen[-1].next_offset


async def test_producers_and_consumers_go_on_while_the_register_is_killed_and_restarted(
    tmp_path: Path,
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)

        async def kill_the_register(workload: Workload) -> None:
            await workload.reached(500)
            register.kill9()
            await workload.reached(1500)
            await in_thread(register.restart)
            await a_new_client_finds_topics(workload)

        await run_while(Workload(register.url, "orders"), kill_the_register)


async def test_a_register_with_an_erased_disk_learns_again_while_messages_flow(
    tmp_path: Path,
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register("register", "--gather", "2")
        nodes.broker(register)
        nodes.broker(register, "broker-2")

        async def erase_the_register(workload: Workload) -> None:
            async with octopi.connect(workload.url) as client:
                await client.create_topic("wide", partitions=4)
            await workload.reached(500)
            register.kill9()
            shutil.rmtree(register.data_dir)
            await in_thread(register.restart)
            await a_new_client_finds_topics(workload)
            async with octopi.connect(workload.url) as client:
                assert len((await client.describe_topic("wide")).partitions) == 4

        await run_while(Workload(register.url, "orders"), erase_the_register)


async def a_new_client_finds_topics(workload: Workload) -> None:
    async with octopi.connect(workload.url) as client:
        described = await client.describe_topic(workload.topic)  # waits while brokers report
        assert len(described.partitions) == 1
        assert workload.topic in {info.topic for info in await client.topics()}


async def test_batches_on_their_way_to_a_killed_broker_are_stored_once(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)
        with trio.fail_after(100):
            async with octopi.connect(register.url) as client:
                async with client.producer(batch_bytes=2_000) as producer:
                    pending = []
                    for number in range(60_000):
                        pending.append(await producer.submit("orders", b"%d" % number))
                        if number in (20_000, 40_000):
                            broker.kill9()
                            await in_thread(broker.restart)
                    receipts = [await one for one in pending]
                async with client.consumer(
                    "orders", start="earliest", stop_at_end=True
                ) as consumer:
                    seen = [message async for message in consumer]
        assert [message.value for message in seen] == [b"%d" % number for number in range(60_000)]
        assert [message.offset for message in seen] == [receipt.offset for receipt in receipts]
