"""A page reads on through whatever happens to sockets, brokers and itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

import octopi
from harness.processes import NodeProcess, NodeProcesses, node_processes
from tests.browser.clusters import in_a_thread
from tests.browser.pages import open_client_page, serve_console
from tests.kit.cluster import Cluster, running_cluster

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.process

RECORD_COUNT = 5_000
CUT_COUNT = 10

# Reads a topic and keeps what came as numbers; a page that is loaded again goes on from what
# it stored.
READ = """([topic, options]) => {
    window.got = [];
    window.buffered = 0;
    const from = localStorage.getItem("position") ?? "earliest";
    window.states = [];
    window.done = (async () => {
        window.octopi = await Octopi.connect();
        octopi.addEventListener("state", ({ detail }) => states.push(detail.state));
        window.reading = octopi.subscribe(topic, { from, ...options });
        for await (const message of reading) {
            got.push(Number(message.text()));
            buffered = Math.max(buffered, reading.bufferedBytes);
            localStorage.setItem("position", reading.position);
            if (window.pause) await new Promise((resolve) => setTimeout(resolve, window.pause));
        }
    })();
    done.catch((error) => (window.failure = String(error)));
}"""

# Every WebSocket of the page can be cut from outside.
CUTTABLE = """
    const Real = WebSocket;
    window.sockets = new Set();
    window.WebSocket = class extends Real {
        constructor(...options) {
            super(...options);
            sockets.add(this);
            this.addEventListener("close", () => sockets.delete(this));
        }
    };
"""


def wait_for(page: Page, count: int) -> None:
    page.wait_for_function(
        "count => window.failure || got.length >= count", arg=count, timeout=60_000
    )
    assert page.evaluate("window.failure") is None


def cut_sockets(page: Page, seen: int) -> None:
    """Close the page's sockets when it reads again: when there are more than *seen* messages."""
    page.wait_for_function("seen => got.length > seen", arg=seen)
    page.evaluate("for (const one of sockets) one.close()")


def start_cluster(nodes: NodeProcesses) -> tuple[NodeProcess, dict[int, NodeProcess]]:
    register = nodes.register()
    brokers = {
        number: nodes.broker(register, f"broker-{number}", "--id", str(number))
        for number in (1, 2, 3)
    }
    return register, brokers


async def produce(url: str, topic: str, first: int, count: int, value: str = "%d") -> None:
    async with octopi.connect(url) as client, client.producer() as producer:
        for number in range(first, first + count):
            await producer.submit(topic, (value % number).encode())


async def leader_of(url: str, topic: str) -> int:
    async with octopi.connect(url) as client:
        (place,) = (await client.describe_topic(topic)).partitions
        assert place.leader is not None
        return place.leader


def test_a_page_reads_each_message_once_through_ten_cut_sockets_and_a_killed_leader(
    tmp_path: Path, page: Page
) -> None:
    with node_processes(tmp_path) as nodes:
        register, brokers = start_cluster(nodes)
        page.add_init_script(CUTTABLE)
        trio.run(produce, register.url, "numbers", 0, 100)
        open_client_page(page, register.url)
        page.evaluate(READ, ["numbers", {"window": 4_000}])
        wait_for(page, 100)
        sent, part = 100, (RECORD_COUNT - 100) // CUT_COUNT
        for cut in range(CUT_COUNT):
            seen = page.evaluate("got.length")
            page.evaluate("window.pause = 0.1")  # it is in the middle when it happens
            trio.run(produce, register.url, "numbers", sent, part)
            sent += part
            cut_sockets(page, seen)
            if cut == CUT_COUNT // 2:
                brokers[trio.run(leader_of, register.url, "numbers")].kill9()
            page.evaluate("window.pause = 0")
        assert sent == RECORD_COUNT
        wait_for(page, RECORD_COUNT)
        assert page.evaluate("got") == list(range(RECORD_COUNT))
        assert "reconnecting" in page.evaluate("states")
        page.wait_for_function("() => octopi.state === 'open'")


def test_a_page_that_is_loaded_again_goes_on_at_its_stored_position(
    tmp_path: Path, page: Page
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        trio.run(produce, register.url, "numbers", 0, 300)
        open_client_page(page, register.url)
        page.evaluate("window.pause = 1")
        page.evaluate(READ, ["numbers", {}])
        wait_for(page, 100)
        before = page.evaluate("got")
        open_client_page(page, register.url)
        stored = page.evaluate("localStorage.getItem('position')")
        page.evaluate(READ, ["numbers", {}])
        wait_for(page, 1)
        (first, *_) = page.evaluate("got")
        assert before == list(range(len(before)))
        assert len(before) <= first < 300
        wait_for(page, 300 - first)
        assert page.evaluate("got") == list(range(first, 300))
        assert stored.startswith("v1:numbers@")


def test_a_slow_page_gets_back_pressure_and_is_never_dropped(tmp_path: Path, page: Page) -> None:
    record_bytes, window = 1_000, 20_000
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)
        trio.run(produce, register.url, "numbers", 0, 200, "%0943d")
        open_client_page(page, register.url)
        page.evaluate("window.pause = 20")
        page.evaluate(READ, ["numbers", {"window": window}])
        wait_for(page, 50)
        trio.run(produce, register.url, "numbers", 200, 20_000, "%0943d")
        wait_for(page, 100)
        # 20 MB wait for it; neither it nor the broker holds them in memory.
        assert page.evaluate("buffered") <= window + record_bytes
        assert page.evaluate("states") == []
        assert broker.rss_bytes() < 200_000_000
        page.evaluate("window.pause = 0")
        wait_for(page, 20_200)
        assert page.evaluate("got") == list(range(20_200))
        assert page.evaluate("buffered") <= window + record_bytes


@asynccontextmanager
async def forgetful(directory: Path) -> AsyncIterator[Cluster]:
    """A cluster that removes at once what retention lets go."""
    async with running_cluster(directory, brokers=0) as cluster:
        await cluster.start_broker(retention_check_interval_s=0.05)
        yield cluster


def test_records_that_retention_removed_are_reported_as_an_event(
    tmp_path: Path, page: Page
) -> None:
    async def fill(url: str) -> None:
        async with octopi.connect(url) as client:
            await client.create_topic(
                "numbers", partition_ids=[1], retention_bytes=8_192, segment_bytes=4_096
            )
            async with client.producer() as producer:
                for number in range(200):  # a batch each, or they would share a segment
                    await producer.send("numbers", b"%0100d" % number)
            while True:  # nobody announces it
                if (await client.find_offset("numbers", "earliest", partition=1)).log_start > 0:
                    return
                await trio.sleep(0.05)

    with in_a_thread(forgetful(tmp_path)) as cluster:
        url = cluster.register.url
        trio.run(fill, url)
        serve_console(page)
        open_client_page(page, url)
        found = page.evaluate(
            """async () => {
                const octopi = await Octopi.connect();
                const gaps = [];
                octopi.addEventListener("gap", ({ detail }) => gaps.push(detail));
                const read = async (onGap) => {
                    const all = octopi.subscribe("numbers", { from: 0, onGap });
                    for await (const one of all) return one.offset;
                };
                const code = await read("throw").catch((error) => error.code);
                const first = await read("skip");
                await octopi.close();
                return { code, first, gaps };
            }"""
        )
    assert found["code"] == "history_lost"
    assert found["first"] > 0
    (gap, again) = found["gaps"]
    assert gap == again
    assert (gap["topic"], gap["partition"], gap["wanted"]) == ("numbers", 1, 0)
    assert gap["availableFrom"] == found["first"]
