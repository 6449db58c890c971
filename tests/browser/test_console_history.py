"""The console begins with what the cluster wrote about itself before the page was opened."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

import octopi
from octopi.identifiers import EVENTS_TOPIC, RATES_TOPIC
from tests.browser.console_pages import open_console, show, small_cluster

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.process

BEGAN_S = int(time.time()) // 10 * 10 - 1_200
"""20 minutes ago."""


def note(broker: int, at_s: float) -> dict[str, Any]:
    """100 kB/s from each broker."""
    amounts = {"messages_in": 1_000, "bytes_in": 1_000_000, "bytes_out": 0}
    topics = [{"topic": "orders", **amounts}]
    at_ms = round(1000 * at_s)
    return {
        "format": 1,
        "broker": broker,
        "at_ms": at_ms,
        "seconds": 10.0,
        **amounts,
        "topics": topics,
    }


def event(number: int) -> dict[str, Any]:
    return {
        "format": 1,
        "life": "a-former-life",
        "number": number,
        "at_ms": 1000 * (BEGAN_S + 100 * number),
        "kind": "broker_left",
        "partition": None,
        "broker": 7,
        "topic": "",
        "epoch": None,
        "in_sync": [],
        "text": f"broker 7 left, event {number}",
    }


async def write_history(url: str) -> None:
    async with octopi.connect(url) as client, client.producer() as producer:
        await client.create_topic("orders")
        for step in range(1, 111):
            for broker in (1, 2):
                value = json.dumps(note(broker, BEGAN_S + 10 * step + broker))
                await producer.submit(RATES_TOPIC, value.encode())
        await producer.submit(RATES_TOPIC, b"no JSON")
        await producer.submit(EVENTS_TOPIC, b'{"format": 2}')
        for number in (1, 2, 2, 3):
            await producer.submit(EVENTS_TOPIC, json.dumps(event(number)).encode())


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with small_cluster(tmp_path_factory.mktemp("cluster")) as (register, _):
        trio.run(write_history, register)
        yield register


def clock(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))


def test_charts_begin_with_the_time_before_the_page_was_opened(url: str, page: Page) -> None:
    open_console(page, url, "overview")
    page.wait_for_selector(f"#chart[aria-label*='since {clock(BEGAN_S + 10)}']")
    page.wait_for_selector("#chart canvas")
    show(page, "topics/orders")
    page.wait_for_selector(f"#chart[aria-label*='Written, since {clock(BEGAN_S + 10)}']")


def test_events_of_registers_before_this_one_come_behind_its_own_once(url: str, page: Page) -> None:
    open_console(page, url, "events")
    page.wait_for_selector("#events li:has-text('event 1')")
    texts = page.locator("#events li").all_inner_texts()
    former = [text for text in texts if "broker 7 left" in text]
    assert [text.rpartition("event ")[2] for text in former] == ["3", "2", "1"]
    assert texts[-3:] == former


def test_rates_of_brokers_that_write_at_different_moments_are_added(url: str, page: Page) -> None:
    open_console(page, url, "overview")
    notes = [note(1, 1_003 + 10 * n) for n in range(5)] + [
        note(2, 1_008 + 10 * n) for n in range(5)
    ]
    points = page.evaluate(
        """async (notes) => {
            const { pointsOf, amountsOfAll } = await import("/console/console/rates.js");
            return pointsOf(notes.sort((one, other) => one.at_ms - other.at_ms), amountsOfAll);
        }""",
        notes,
    )
    assert points == [[at, [200_000, 0]] for at in (1_000, 1_010, 1_020, 1_030, 1_040)]


def test_without_a_history_the_console_is_as_before(page: Page, tmp_path: Path) -> None:
    with small_cluster(tmp_path) as (register, _):
        open_console(page, register, "events")
        page.wait_for_selector("#events li:has-text('broker 1 joined')")
        show(page, "overview")
        page.wait_for_selector("#chart[aria-label*='since']")
        page.wait_for_selector("#chart canvas")
        assert page.locator(".problem").count() == 0
