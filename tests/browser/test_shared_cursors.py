"""The page of `demo --relay`: tabs share cursors, also when the sequencer is killed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import trio

import octopi
from harness.processes import NodeProcess, node_processes
from octopi.cli.cursor_counts import CursorPosition
from octopi.cli.demo_relay import CURSORS, KILLS, NEWS
from tests.browser.pages import http_url
from tests.browser.test_console_looks import LOOKS, serious_faults
from tests.cli.test_relay_commands import start_relays

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.process


@pytest.fixture
def relays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[NodeProcess]]:
    """Three relays that know the topics of the page, the sequencer first."""
    with node_processes(tmp_path_factory.mktemp("relays")) as nodes:
        started = start_relays(nodes)
        sequencer = started[trio.run(_make_topics, started[0].url) - 1]
        yield [sequencer, *(one for one in started if one is not sequencer)]


async def _make_topics(url: str) -> int:
    async with octopi.connect(url) as client:
        for topic in (NEWS, KILLS, CURSORS):
            [place] = (await client.describe_topic(topic, create=True)).partitions
    assert place.leader is not None
    return place.leader


def open_tab(page: Page, relay: NodeProcess) -> str:
    """Open the page of *relay*; returns whose cursor it has."""
    page.goto(f"{http_url(relay.url)}/console/cursors.html")
    page.wait_for_selector("#cursors tr:has-text('(you)')")
    who = page.get_attribute("#cursors tr:has-text('(you)')", "data-who")
    assert who is not None
    return who


def number(relay: NodeProcess) -> str:
    """What the page calls *relay*."""
    return relay.name.replace("-", " ")


def cell(who: str, column: int, text: str) -> str:
    return f"#cursors tr[data-who='{who}'] td:nth-child({column}):has-text('{text}')"


def go_to(page: Page, key: str) -> None:
    """Move the page's cursor to an edge, with the keyboard."""
    page.focus("#board")
    for _ in range(20):
        page.keyboard.press(f"Shift+{key}")


def test_two_tabs_see_each_other_and_go_on_when_the_sequencer_is_killed(
    relays: list[NodeProcess], page: Page
) -> None:
    sequencer, other, third = relays
    beside = page.context.new_page()
    one, two = open_tab(page, sequencer), open_tab(beside, other)
    page.wait_for_selector(cell(two, 2, number(other)))
    beside.wait_for_selector(cell(one, 2, number(sequencer)))
    go_to(page, "ArrowLeft")
    beside.wait_for_selector(cell(one, 3, "left 0 %"))
    go_to(beside, "ArrowDown")
    page.wait_for_selector(cell(two, 3, "top 100 %"))
    page.wait_for_selector(f"#relays li:has-text('{number(sequencer)}'):has-text('sequencer')")

    sequencer.kill9()
    go_to(page, "ArrowRight")
    go_to(beside, "ArrowUp")
    beside.wait_for_selector(cell(one, 3, "left 100 %"))
    page.wait_for_selector(cell(two, 3, "top 0 %"))
    for tab in (page, beside):
        tab.wait_for_selector(f"#relays li:has-text('{number(sequencer)}'):has-text('away')")
        tab.wait_for_selector("#relays li:has-text('sequencer')")
        tab.wait_for_selector("#state:has-text('open')")
        tab.wait_for_selector(cell(two, 2, number(other)))
        assert (tab.text_content("#missing"), tab.text_content("#twice")) == ("0", "0")
        tab.wait_for_function(
            """() => {
                const value = (id) => Number(document.getElementById(id).textContent);
                return value("published") === value("confirmed");
            }"""
        )
    assert beside.query_selector(cell(one, 2, number(sequencer))) is None, "it is elsewhere now"
    assert any(beside.query_selector(cell(one, 2, number(to))) for to in (other, third))


def test_a_tab_moves_its_cursor_with_the_pointer_and_takes_it_away_when_it_is_closed(
    relays: list[NodeProcess], page: Page
) -> None:
    beside = page.context.new_page()
    open_tab(page, relays[0])
    two = open_tab(beside, relays[1])
    box = beside.locator("#board").bounding_box()
    assert box is not None
    beside.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + box["height"] * 0.75)
    page.wait_for_selector(cell(two, 3, "left 25 %, top 75 %"))
    beside.goto("about:blank")
    page.wait_for_selector(f"#cursors tr[data-who='{two}']", state="detached")


def test_a_page_counts_positions_that_are_missing_and_that_come_twice(
    relays: list[NodeProcess], page: Page
) -> None:
    async def publish() -> None:
        async with octopi.connect(relays[1].url) as client, client.producer() as producer:
            await producer.send(CURSORS, b"no position")
            for count in (5, 6, 9, 6):
                await producer.send(CURSORS, CursorPosition("robot", count, 0.5, 0.5).encode())

    open_tab(page, relays[0])
    trio.run(publish)
    for column, text in ((4, "4"), (5, "2"), (6, "1")):
        page.wait_for_selector(cell("robot", column, text))
    page.wait_for_selector("#missing:text-is('2')")
    page.wait_for_selector("#twice:text-is('1')")


def test_a_button_asks_for_a_kill(relays: list[NodeProcess], page: Page) -> None:
    who = open_tab(page, relays[0])

    async def wish() -> bytes:
        async with (
            octopi.connect(relays[1].url) as client,
            client.consumer(KILLS, start="earliest") as consumer,
        ):
            with trio.fail_after(20):
                return (await consumer.__anext__()).value

    page.click("#kill:enabled")
    assert trio.run(wish).decode() == who


def test_the_page_of_another_cluster_makes_no_topics(
    page: Page, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with node_processes(tmp_path_factory.mktemp("relays")) as nodes:
        relays = start_relays(nodes)
        page.goto(f"{http_url(relays[0].url)}/console/cursors.html")
        page.wait_for_selector("#state:has-text('ended')")
        page.wait_for_selector("#events li:has-text('octopi-node demo --relay')")

        async def topics() -> list[str]:
            async with octopi.connect(relays[0].url) as client:
                return [one.topic for one in await client.topics()]

        assert trio.run(topics) == []


def test_axe_finds_nothing_serious_and_the_page_is_not_wider_than_the_screen(
    relays: list[NodeProcess], page: Page, axe: str
) -> None:
    open_tab(page, relays[0])
    page.wait_for_selector("#relays li:nth-child(3)")
    page.evaluate(axe)
    for width, scheme in LOOKS:
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        assert serious_faults(page) == [], (width, scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (width, scheme)
