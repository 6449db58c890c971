"""What a page publishes is stored once, whatever happens to its sockets and to brokers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

import octopi
from harness.processes import node_processes
from tests.browser.pages import open_client_page
from tests.browser.test_reading import CUTTABLE, leader_of, start_cluster

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.process

MESSAGE_COUNT = 400

PUBLISH = """async ([first, count]) => {
    window.octopi ??= await Octopi.connect();
    window.receipts ??= [];
    const sent = [];
    for (let number = first; number < first + count; number++) {
        sent.push(octopi.publish("numbers", String(number)).then(({ offset }) => receipts.push([number, offset])));
        if (number % 20 === 0) await sent.at(-1);
        if (number % 90 === 0) for (const one of sockets) one.close();
    }
    await Promise.all(sent);
}"""  # noqa: E501


async def read_all(url: str) -> list[tuple[int, int]]:
    async with (
        octopi.connect(url) as client,
        client.consumer("numbers", start="earliest", stop_at_end=True) as consumer,
    ):
        return [(int(one.value), one.offset) async for one in consumer]


def test_each_message_is_stored_once_through_cut_sockets_and_a_killed_leader(
    tmp_path: Path, page: Page
) -> None:
    with node_processes(tmp_path) as nodes:
        register, brokers = start_cluster(nodes)
        page.add_init_script(CUTTABLE)
        open_client_page(page, register.url)
        page.evaluate(PUBLISH, [0, MESSAGE_COUNT // 2])
        brokers[trio.run(leader_of, register.url, "numbers")].kill9()
        page.evaluate(PUBLISH, [MESSAGE_COUNT // 2, MESSAGE_COUNT // 2])
        receipts = page.evaluate("receipts")
        stored = trio.run(read_all, register.url)
    assert [number for number, _ in stored] == list(range(MESSAGE_COUNT))
    assert sorted(map(tuple, receipts)) == stored


def test_what_is_aborted_before_it_is_sent_is_never_stored(tmp_path: Path, page: Page) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        open_client_page(page, register.url)
        names = page.evaluate(
            """async () => {
                const octopi = await Octopi.connect();
                await octopi.publish("numbers", "0");
                const abort = new AbortController();
                const late = new AbortController();
                abort.abort();
                const outcomes = [
                    octopi.publish("numbers", "1", { signal: abort.signal }),
                    octopi.publish("numbers", "2"),
                    octopi.publish("numbers", "3", { signal: late.signal }),
                ];
                const reading = new AbortController();
                const read = async () => {
                    const messages = octopi.subscribe("numbers", { signal: reading.signal });
                    for await (const one of messages) return one.text();
                };
                outcomes.push(read());
                late.abort();
                reading.abort();
                const settled = await Promise.allSettled(outcomes);
                await octopi.close();
                outcomes.push(octopi.publish("numbers", "4"));
                settled.push(...(await Promise.allSettled(outcomes.slice(-1))));
                return settled.map(({ reason }) => reason?.code ?? reason?.name ?? "stored");
            }"""
        )
        stored = trio.run(read_all, register.url)
    assert names == [20, "stored", 20, 20, "closed"]  # 20: AbortError
    assert [number for number, _ in stored] == [0, 2]
