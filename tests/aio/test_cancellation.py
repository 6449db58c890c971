"""Programs of asyncio that are cancelled at any moment leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import octopi
import octopi.aio
from tests.aio.test_client import run

pytestmark = pytest.mark.process

TOPIC = "cancelled-anywhere"
TURNS = range(20)
"""After how many turns of the loop a program is cancelled."""
MILLISECONDS = range(1, 60, 2)
"""Or after which time: about as long as it takes to connect and to exchange some messages."""


async def produce(client: octopi.aio.Client) -> None:
    async with client.producer() as producer:
        for _ in range(3):
            await producer.send(TOPIC, b"value")
            await producer.submit_many(TOPIC, [b"value"] * 10)


async def consume(client: octopi.aio.Client) -> None:
    async with client.consumer(TOPIC, start="earliest") as consumer:
        async for _ in consumer:
            pass


async def deal(client: octopi.aio.Client) -> None:
    async with client.subscription(TOPIC, "queue", mode="shared") as queue:
        async for message in queue:
            async with message:
                await asyncio.sleep(0)


async def work_off(client: octopi.aio.Client) -> None:
    async with client.subscription(TOPIC, "group", mode="failover") as subscription:
        async for log in subscription.logs():
            async with log:
                async for message in log:
                    log.mark(message)


@pytest.mark.parametrize("program", [produce, consume, deal, work_off])
@pytest.mark.parametrize("times", [1, 2])
def test_what_is_cancelled_at_any_moment_ends_and_leaves_nothing_behind(
    url: str, program: Callable[[octopi.aio.Client], Awaitable[None]], times: int
) -> None:
    """Cancelled *times* times: the second cancellation meets the end of its blocks."""

    async def main() -> None:
        faults = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: faults.append(context))
        moments = [(turns, 0.0) for turns in TURNS] + [(0, ms / 1000) for ms in MILLISECONDS]
        for turns, seconds in moments:
            task = asyncio.ensure_future(live())
            for _ in range(turns):
                await asyncio.sleep(0)
            await asyncio.sleep(seconds)
            for _ in range(times):
                task.cancel()
                await asyncio.sleep(0)
            try:
                await task
            except asyncio.CancelledError:
                continue
            except octopi.DeliveryError:
                assert program is produce  # a failure counts more than the cancellation
        assert faults == []

    async def live() -> None:
        async with octopi.aio.connect(url) as client:
            await program(client)

    run(main)
