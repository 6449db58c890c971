"""The console of a cluster without a register: the ring, who is away, drained or leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import attrs
import pytest
import trio

import octopi
from harness.processes import NodeProcess, node_processes
from octopi.clients.ring import order_leave
from tests.browser.console_pages import ROWS, fill, open_console, show, text_of
from tests.browser.pages import http_url
from tests.browser.test_console_looks import LOOKS, serious_faults
from tests.browser.test_console_subscriptions import prepare
from tests.kit.ring_processes import start_ring

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.process

VIEWS = ["overview", "topics", "topics/orders", "brokers", "brokers/2", "events", "messages"]


@attrs.frozen
class Ring:
    """Four founders of which one is drained, and another one, which is to leave, is dead."""

    nodes: list[NodeProcess]
    """The asked one first; those that run."""
    asked: int
    drained: int
    dead: int


def number_of(node: NodeProcess) -> int:
    with urlopen(f"{http_url(node.url)}/api/v1/status") as answer:
        return int(json.loads(answer.read())["broker"])


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ring]:
    with node_processes(tmp_path_factory.mktemp("ring")) as nodes:
        founders = start_ring(nodes, 4)
        numbers = [number_of(one) for one in founders]
        url = founders[0].url
        trio.run(prepare, url)
        trio.run(fill, url, "plain", (b"key", b"value"))

        async def order() -> None:
            async with octopi.connect(url) as client:
                await client.admin.drain_broker(numbers[2])
                await order_leave(client, numbers[3])

        founders[3].kill9()
        trio.run(order)
        yield Ring(founders[:3], numbers[0], numbers[2], numbers[3])


def test_the_ring_is_shown_with_neighbours_leads_and_orders(ring: Ring, page: Page) -> None:
    open_console(page, ring.nodes[0].url, "brokers")
    page.wait_for_selector("#ring tbody tr >> nth=2")
    page.wait_for_selector("#ring td:has-text('drained')")
    assert "agree about it" in text_of(page, "#ring .hint")
    rows = page.locator("#ring tbody tr")
    texts = {int(one.split()[1]): one for one in rows.all_inner_texts()}
    assert "shows this page" in texts[ring.asked]
    assert "0 of" in texts[ring.drained]
    shares = [float(one.split("%")[1]) for one in texts.values()]
    assert abs(sum(shares) - 100) < 0.5
    assert page.locator("#ring svg .at").count() == len(texts)
    assert "No register" in text_of(page, "#topology .register")
    page.click(f"#ring a:text-is('Broker {ring.drained}')")
    page.wait_for_selector("#broker dd:has-text('drained until it is started again')")
    page.wait_for_selector("#broker button:has-text('Drain')")
    assert page.locator("#broker button:has-text('Move a replica')").count() == 0


def test_events_of_all_brokers_are_shown_and_nobody_speaks_of_a_register(
    ring: Ring, page: Page
) -> None:
    open_console(page, ring.nodes[1].url, "events")
    page.wait_for_selector("#events :text('joined')")
    page.wait_for_selector("#events :text('left')")
    show(page, "overview")
    page.wait_for_selector("main .tiles")
    assert "register" not in text_of(page, "main .alarm").lower()
    show(page, "messages/orders?from=earliest")
    page.wait_for_selector(ROWS)


def test_a_broker_of_a_register_shows_no_ring(tmp_path: Path, page: Page) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        open_console(page, register.url, "brokers")
        page.wait_for_selector("#topology h3:has-text('Register')")
        assert page.locator("#ring").count() == 0


@pytest.mark.parametrize("look", [LOOKS[0], LOOKS[-1]], ids=["wide, light", "narrow, dark"])
def test_axe_finds_nothing_serious_and_no_view_is_too_wide(
    ring: Ring, page: Page, axe: str, look: tuple[int, str]
) -> None:
    width, scheme = look
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    problems: list[str] = []
    page.on("console", lambda one: problems.append(one.text) if one.type == "error" else None)
    open_console(page, ring.nodes[0].url)
    page.evaluate(axe)
    for view in VIEWS:
        show(page, view)
        page.wait_for_selector("main .card")
        assert serious_faults(page) == [], view
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
    assert problems == []


def test_the_page_of_the_cluster_has_the_ring_as_json(ring: Ring) -> None:
    with urlopen(f"{http_url(ring.nodes[0].url)}/api/v1/cluster") as answer:
        found = json.loads(answer.read())
    told = found["ring"]
    assert told["asked"] == ring.asked
    assert [one["at"] for one in told["brokers"]] == sorted(one["at"] for one in told["brokers"])
    by_number = {one["broker"]: one for one in told["brokers"]}
    assert by_number[ring.drained]["drained"]
    assert by_number[ring.asked]["behind"]
    # Once nothing counts on it any more, it is gone.
    assert ring.dead not in by_number or by_number[ring.dead]["leaving"]
    assert found["register"] == {"agent": None, "uptime_s": None}
