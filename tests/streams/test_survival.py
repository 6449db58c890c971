"""Streams whose leader is killed, and streams with many and slow readers: real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

import octopi
from harness.processes import NodeProcess, node_processes
from octopi.limits import MIB
from tests.streams.http_client import ask, connect, events, receive_until

JSON = "application/json"
TEXT = "text/plain"
WRITES = 120
KILLS = 3
WRITES_BETWEEN_KILLS = 20
RECORD_BYTES = 4 * 1024
READERS = 1_000
READER_BYTES_MAX = 120_000
"""What a reader may add to the memory of a node."""


async def leader_when_all_are_in_sync(url: str, brokers: list[NodeProcess]) -> NodeProcess:
    """The leader of the only topic, once it can be killed without the loss of the last replica."""
    async with octopi.connect(url) as client:
        with trio.fail_after(30):
            while True:
                (place,) = (await client.describe_topic("orders")).partitions
                partitions = (await client.admin.describe_cluster()).partitions
                # The topic was described before, and may have had no leader then.
                leading = [one for one in brokers if one.url == place.leader_address]
                if leading and all(len(one.in_sync) == len(brokers) for one in partitions):
                    return leading[0]
                await trio.sleep(0.05)  # nothing announces it to clients


@pytest.mark.process
@pytest.mark.slow
async def test_nothing_is_lost_or_doubled_when_leaders_are_killed_under_a_retrying_writer(
    tmp_path: Path,
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        brokers = [nodes.broker(register, f"broker-{one}") for one in (1, 2, 3)]
        while (await ask(register.url, "PUT", "orders", content_type=JSON)).status not in {
            200,
            201,
        }:
            pass
        written = killed = due = 0
        reached = trio.Event()

        async def kill_leaders() -> None:
            """Each time while requests are on their way."""
            nonlocal killed, due, reached
            for _ in range(KILLS):
                leader = await leader_when_all_are_in_sync(register.url, brokers)
                due, reached = written + WRITES_BETWEEN_KILLS, trio.Event()
                await reached.wait()
                leader.kill9()
                killed += 1
                await trio.to_thread.run_sync(leader.start)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill_leaders)
            with trio.fail_after(150):
                while killed < KILLS or written < WRITES:
                    await write_until_answered(register.url, written)
                    written += 1
                    if written >= due:
                        reached.set()
        found: list[int] = []
        offset = "-1"
        while True:
            page = await ask(register.url, "GET", f"orders?offset={offset}")
            if page.status == 503:
                continue
            assert page.status == 200, page
            found += json.loads(page.body)
            if "stream-up-to-date" in page.headers:
                break
            offset = page.next_offset
        assert found == [one for number in range(written) for one in (number, -number - 1)]


async def write_until_answered(url: str, sequence: int) -> None:
    """Repeat a write until it is acknowledged."""
    while True:
        try:
            sent = await ask(
                url,
                "POST",
                "orders",
                json.dumps([sequence, -sequence - 1]).encode(),
                content_type=JSON,
                producer_id="writer",
                producer_epoch="0",
                producer_seq=str(sequence),
            )
        except OSError:
            continue
        if sent.status in {200, 204}:
            return
        assert sent.status == 503, sent


@pytest.mark.process
@pytest.mark.slow
async def test_a_thousand_readers_of_one_stream_take_bounded_memory(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)
        await ask(broker.url, "PUT", "news", content_type=TEXT)
        before = broker.rss_bytes()
        reached = 0

        async def read(*, task_status: trio.TaskStatus[None]) -> None:
            nonlocal reached
            async with events(broker.url, "news?offset=now&live=sse") as stream:
                await receive_until(stream, b'"upToDate":true')
                task_status.started()
                await receive_until(stream, b"data:hello")
                reached += 1

        async with trio.open_nursery() as nursery:
            for _ in range(READERS):
                await nursery.start(read)
            page = (await ask(broker.url, "HEAD", "news")).status
            await ask(broker.url, "POST", "news", b"hello", content_type=TEXT)
        assert (page, reached) == (200, READERS)
        assert broker.rss_bytes_max() - before < READERS * READER_BYTES_MAX


@pytest.mark.process
@pytest.mark.slow
async def test_readers_that_take_nothing_hold_little_and_others_go_on(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)
        await ask(broker.url, "PUT", "news", content_type=JSON)
        values = json.dumps(["x" * RECORD_BYTES] * 240).encode()
        for _ in range(12):
            sent = await ask(broker.url, "POST", "news", values, content_type=JSON)
            assert sent.status == 204
        before = broker.rss_bytes()
        head = b"GET /v1/streams/news?offset=-1&live=sse HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        slow = []
        for _ in range(200):
            stream = await connect(broker.url)
            await stream.send_all(head)
            slow.append(stream)
        page = await ask(broker.url, "GET", "news?offset=-1")
        assert page.status == 200
        assert set(json.loads(page.body)) == {"x" * RECORD_BYTES}
        assert broker.rss_bytes_max() - before < 64 * MIB
        for stream in slow:
            await trio.aclose_forcefully(stream)
