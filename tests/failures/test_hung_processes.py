"""A leader's process that is stopped, not killed: its connections stay open."""

from __future__ import annotations

import signal
from itertools import pairwise
from pathlib import Path

import pytest
import trio

import octopi
from harness.processes import NodeProcess, node_processes
from octopi.limits import REQUEST_TIMEOUT_S

pytestmark = pytest.mark.process

BOUND_S = REQUEST_TIMEOUT_S / 2
"""Whoever waits for an answer until it gives up needs twice as long.  That it takes a tenth
is shown on virtual time, which no busy machine makes longer."""

LAST = b"the last one"


class Clients:
    """One producer, and consumers that are spread over the replicas."""

    def __init__(self, url: str, consumers: int) -> None:
        self._url = url
        self._is_over = False
        self._changed = trio.Event()
        self.sent: list[bytes] = []
        self.offsets: dict[bytes, int] = {}
        self.seen: list[list[octopi.Message]] = [[] for _ in range(consumers)]

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._produce)
            for seen in self.seen:
                nursery.start_soon(self._consume, seen)

    async def _produce(self) -> None:
        async with (
            octopi.connect(self._url) as client,
            client.producer(linger_s=0) as producer,
            trio.open_nursery() as nursery,
        ):
            while self.sent[-1:] != [LAST]:
                value = LAST if self._is_over else b"%d" % len(self.sent)
                self.sent.append(value)
                nursery.start_soon(self._await, value, await producer.submit("orders", value))
                await trio.sleep(0.01)

    async def _await(self, value: bytes, pending: octopi.PendingReceipt) -> None:
        self.offsets[value] = (await pending).offset
        self._wake()

    async def _consume(self, seen: list[octopi.Message]) -> None:
        async with (
            octopi.connect(self._url) as client,
            client.consumer("orders", start="earliest") as consumer,
        ):
            async for message in consumer:
                seen.append(message)
                self._wake()
                if message.value == LAST:
                    return

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def stop(self) -> None:
        """Have the producer send its last message, and the consumers end with that."""
        self._is_over = True

    async def progress(self) -> None:
        """Wait until a message that is sent from now on was acknowledged and read by all."""
        mark = len(self.sent)
        while b"%d" % mark not in self.offsets or any(len(seen) <= mark for seen in self.seen):
            await self._changed.wait()

    def check(self) -> None:
        """Every message once, in order, where its receipt says; the same for all."""
        for seen in self.seen:
            assert [one.value for one in seen] == self.sent
            assert all(one.offset == self.offsets[one.value] for one in seen)
            assert all(after.offset == before.next_offset for before, after in pairwise(seen))


async def leader_of(url: str, brokers: list[NodeProcess]) -> NodeProcess:
    async with octopi.connect(url) as client:
        (place,) = (await client.describe_topic("orders")).partitions
    return next(one for one in brokers if one.url == place.leader_address)


async def test_a_paused_leader_process_is_replaced_soon_and_its_return_does_no_harm(
    tmp_path: Path,
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        brokers = [nodes.broker(register, f"broker-{number}") for number in (1, 2, 3)]
        async with octopi.connect(register.url) as client:
            await client.create_topic("orders")
        clients = Clients(register.url, consumers=3)
        with trio.fail_after(100):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(clients.run)
                await clients.progress()
                leader = await leader_of(register.url, brokers)
                leader.signal(signal.SIGSTOP)
                with trio.fail_after(BOUND_S):
                    await clients.progress()
                assert await leader_of(register.url, brokers) is not leader
                leader.signal(signal.SIGCONT)
                await clients.progress()
                clients.stop()
        clients.check()
