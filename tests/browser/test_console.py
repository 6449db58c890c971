"""The console shows a cluster as it is, also a large one, and also to a keyboard."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

import octopi
from harness.processes import node_processes
from octopi.cli.node_processes import node_command
from tests.browser.pages import http_url
from tests.browser.test_reading import leader_of, produce, start_cluster

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = pytest.mark.process

ROWS = ".messages .value"


def open_console(page: Page, node: str) -> None:
    page.goto(f"{http_url(node)}/console/")
    page.wait_for_selector("#topology .node")


def start_tail(page: Page, topic: str, start: str = "latest") -> None:
    page.fill("#tail-topic", topic)
    page.select_option("#tail-from", start)
    page.click("#tail button.primary")
    page.wait_for_selector("#pause:enabled")
    page.wait_for_function("() => /live/.test(document.querySelector('#tail h2').textContent)")


def text_of(page: Page, selector: str) -> str:
    return " ".join(page.locator(selector).all_inner_texts())


async def fill(url: str, topic: str, *messages: tuple[bytes | None, bytes]) -> None:
    async with octopi.connect(url) as client, client.producer() as producer:
        for key, value in messages:
            await producer.send(topic, value, key=key, headers={"trace": b"t-1"})


def test_a_message_is_shown_as_it_is_produced(tmp_path: Path, page: Page) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        trio.run(fill, register.url, "orders", (None, b"before"))
        open_console(page, register.url)
        start_tail(page, "orders")
        for number in range(3):
            trio.run(fill, register.url, "orders", (None, b"news %d" % number))
            page.wait_for_selector(f"{ROWS}:has-text('news {number}')")
        assert "before" not in text_of(page, ROWS)
        page.wait_for_selector("#consumers td:has-text('octopi-js'):has-text('console')")


def test_a_dead_leader_and_its_successor_are_seen(tmp_path: Path, page: Page) -> None:
    with node_processes(tmp_path) as nodes:
        register, brokers = start_cluster(nodes)
        trio.run(produce, register.url, "numbers", 0, 100)
        leader = trio.run(leader_of, register.url, "numbers")
        alive = next(number for number in brokers if number != leader)
        open_console(page, brokers[alive].url)  # every node serves it
        page.wait_for_selector(".health.well")
        page.wait_for_selector(f".node:has-text('Broker {leader}') .chip.leader")
        assert page.locator(".node.up").count() == 4
        start_tail(page, "numbers", "earliest")
        brokers[leader].kill9()
        page.wait_for_selector(f".node.away:has-text('Broker {leader}')")
        page.wait_for_selector(".node.away dd:text-is('\N{EN DASH}')")  # how far behind: unknown
        page.wait_for_selector(".health.ill")
        page.wait_for_selector(".node.up .chip.leader")
        page.wait_for_selector("#events li:has-text('leads in epoch 2')")
        trio.run(produce, register.url, "numbers", 100, 1)
        page.wait_for_selector(f"{ROWS}:text-is('100')")
        assert page.locator(ROWS).count() == 101
        brokers[leader].restart()
        page.wait_for_selector(".health.well", timeout=30_000)


def test_large_messages_are_cut_and_can_be_shown_whole(tmp_path: Path, page: Page) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        order = json.dumps({"order": 7, "big": "x" * 300_000}).encode()
        messages: list[tuple[bytes | None, bytes]] = [
            (b"customer-%d" % n, order) for n in range(40)
        ]
        messages += [(b"binary", b"\x00\xff\xfe"), (b"k", b'{"a":1}')]
        trio.run(fill, register.url, "orders", *messages)
        open_console(page, register.url)
        start_tail(page, "orders", "earliest")
        page.wait_for_function(f"() => document.querySelectorAll('{ROWS}').length === 42")
        assert max(len(text) for text in page.locator(ROWS).all_inner_texts()) < 400
        page.locator(ROWS).nth(0).click()
        page.wait_for_selector(".detail pre")
        assert page.locator(".detail pre").inner_text() == '{\n  "a": 1\n}'
        assert page.locator(".detail .header").inner_text() == "trace t-1"
        page.locator(ROWS).nth(0).click()
        page.locator(ROWS).nth(2).click()
        page.wait_for_function(
            "() => document.querySelector('.detail pre')?.textContent.length === 4_096"
        )
        page.click(".detail button:has-text('Show all')")
        page.wait_for_function(
            "() => document.querySelector('.detail pre')?.textContent.length > 300_000"
        )
        assert '"order": 7' in page.locator(".detail pre").inner_text()
        page.check("input[value=hex]")
        page.wait_for_selector(f"{ROWS}:text-is('00 ff fe')")
        page.fill("#tail-filter", "customer-3")
        page.wait_for_function(f"() => document.querySelectorAll('{ROWS}').length === 11")


def test_the_console_keeps_the_newest_messages_and_a_pause_loses_none(
    tmp_path: Path, page: Page
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        trio.run(produce, register.url, "numbers", 0, 2_000)
        open_console(page, register.url)
        start_tail(page, "numbers", "earliest")
        page.wait_for_selector(f"{ROWS}:text-is('1999')")
        assert [int(text) for text in page.locator(ROWS).all_inner_texts()] == list(
            range(1_999, 1_499, -1)
        )
        page.click("#pause")
        page.wait_for_selector("#pause[aria-pressed=true]")
        trio.run(produce, register.url, "numbers", 2_000, 10)
        page.wait_for_selector("#tail h2:has-text('behind')")  # it has come, and isn't shown
        assert page.locator(f"{ROWS}:text-is('2009')").count() == 0
        page.click("#pause")
        page.wait_for_selector(f"{ROWS}:text-is('2009')")


def test_the_console_can_be_used_with_a_keyboard_alone(tmp_path: Path, page: Page) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        trio.run(fill, register.url, "orders", (b"k", b"first"), (b"k", b"second"))
        open_console(page, register.url)
        page.keyboard.press("t")
        page.keyboard.type("orders")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.type("the b")  # the beginning
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector(f"{ROWS}:text-is('second')")
        page.keyboard.press("Escape")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("p")
        page.wait_for_selector("#pause[aria-pressed=true]")
        page.focus(f"{ROWS}:text-is('first')")
        page.keyboard.press("Enter")
        page.wait_for_selector(".detail pre:text-is('first')")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "topic-search"


def topic(number: int) -> dict[str, object]:
    copies = [
        {"broker": one, "log_end": 9, "highwater": 9, "lag_bytes": 0, "size_bytes": 9, "fault": ""}
        for one in (1, 2, 3)
    ]
    partition = {
        "partition": number % 8,
        "epoch": 1,
        "leader": 1,
        "replicas": [1, 2, 3],
        "in_sync": [1, 2, 3],
        "log_start": 0,
        "highwater": 9,
        "log_end": 9,
        "size_bytes": 9,
        "copies": copies,
    }
    return {
        "topic": f"topic-{number:04d}",
        "topic_id": f"{number:016x}",
        "options": {},
        "partitions": [partition],
    }


def test_a_thousand_topics_come_in_pages(tmp_path: Path, page: Page) -> None:
    topics = [topic(number) for number in range(1_000)]

    def answer(route: Route) -> None:
        from urllib.parse import parse_qs, urlsplit

        query = {
            name: value for name, (value,) in parse_qs(urlsplit(route.request.url).query).items()
        }
        found = [
            one
            for one in topics
            if str(one["topic"]).startswith(query.get("prefix", ""))
            and str(one["topic"]) > query.get("after", "")
        ]
        limit = int(query["limit"])
        route.fulfill(json={"seen_at_ms": 1, "topics": found[:limit], "more": len(found) > limit})

    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        page.route("**/api/v1/topics?*", answer)
        open_console(page, register.url)
        page.wait_for_selector("#topics td:has-text('topic-0049')")
        assert page.locator("#topics tbody tr").count() == 50
        page.click("#topics button:text-is('Next')")
        page.wait_for_selector("#topics td:has-text('topic-0050')")
        page.fill("#topic-search", "topic-09")
        page.wait_for_selector("#topics td:has-text('topic-0900')")
        page.click("#topics button:text-is('Previous'):disabled", force=True)
        page.click("#topics button.plain >> nth=0")
        page.wait_for_selector("#topics .detail:has-text('p4 epoch 1')")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_no_view_of_the_console_is_wider_than_the_screen(
    tmp_path: Path, page: Page, width: int, scheme: str
) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    name = "a-topic-with-a-rather-long-name.of-the-kind-that-programs-make"
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        trio.run(fill, register.url, name, (b"key" * 30, b"value " * 200))
        open_console(page, register.url)
        start_tail(page, name, "earliest")
        page.wait_for_selector(ROWS)
        page.click("#topics button.plain")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(22, 24, 27)") == (scheme == "dark")
        page.click("text=Theme")
        page.wait_for_function(
            "before => getComputedStyle(document.body).backgroundColor !== before", arg=background
        )


def test_a_simulated_run_is_replayed_in_the_same_view(tmp_path: Path, page: Page) -> None:
    run = tmp_path / "run.html"
    command = node_command("sim", "show", "7", "-o", str(run))
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        open_console(page, register.url)
        page.set_input_files("input[type=file]", run)
        page.wait_for_selector("#replay")
        page.focus("#moment")
        page.keyboard.press("End")
        page.wait_for_selector(".chip.leader")
        page.wait_for_selector("#topology .node:has-text('Broker 3')")
        assert page.locator("#events li").count() > 10
        page.keyboard.press("Home")
        page.wait_for_function("() => !document.querySelector('.chip.leader')")
        page.click("button:has-text('Back to the cluster')")
        page.wait_for_selector("#tail")
        no_run = Path(__file__).parents[1] / "conformance/scenarios/sending.json"
        page.set_input_files("input[type=file]", no_run)
        page.wait_for_selector(".problem:has-text('is no page of a run')")
