"""A pipe and the broker that it sends to, as processes that are killed without warning."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

import octopi
from harness.processes import node_processes

pytestmark = pytest.mark.process

COUNT = 3_000
PROGRAM = """
import sys
import octopi.blocking

with octopi.blocking.connect(sys.argv[1]) as client:
    with client.pipe(
        "orders", "billing", into="invoices", take_over=True, session_timeout_s=1, batch_bytes=2000
    ) as pipe:
        for order in pipe:
            for index in range(int(order.value) % 3):
                pipe.send(b"%s.%d" % (order.value, index), key=order.key)
"""


@contextmanager
def running_pipe(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program, until the end of the block, at which it is killed."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM, url]) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


async def stored(url: str) -> list[bytes]:
    async with (
        octopi.connect(url) as client,
        client.consumer("invoices", start="earliest", stop_at_end=True) as invoices,
    ):
        return [one.value async for one in invoices]


async def until(url: str, count: int) -> None:
    """Wait until *count* results are stored."""
    with trio.fail_after(60):
        while len(await stored(url)) < count:  # noqa: ASYNC110  # another process stores
            await trio.sleep(0.05)


@pytest.mark.timeout(240)
async def test_each_result_is_stored_once_although_pipe_and_broker_are_killed(
    tmp_path: Path,
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)
        url = register.url
        async with octopi.connect(url) as client, client.producer() as producer:
            for topic in ("orders", "invoices"):
                await client.create_topic(topic)
            for number in range(COUNT):
                await producer.submit("orders", b"%d" % number, key=b"%d" % number)
        wanted = [b"%d.%d" % (one, index) for one in range(COUNT) for index in range(one % 3)]
        for number in range(1, 5):
            with running_pipe(url):
                await until(url, number * len(wanted) // 6)
                if number % 2:
                    broker.kill9()
                    await trio.to_thread.run_sync(broker.restart)
        with running_pipe(url):
            await until(url, len(wanted))
        assert await stored(url) == wanted
