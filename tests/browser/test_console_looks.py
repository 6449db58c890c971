"""Every view of the console can be read: on wide and narrow screens, in light and dark colours, and
when something is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio

from harness.processes import node_processes
from tests.browser.console_pages import (
    LONG_NAME,
    ROWS,
    fill,
    open_console,
    show,
    small_cluster,
    warm,
)
from tests.browser.test_console_subscriptions import prepare

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.process

VIEWS: Final = [
    "overview",
    "topics",
    "topics/orders",
    f"topics/{LONG_NAME}",
    "topics/nothing",
    "subscriptions",
    "subscriptions/orders/billing",
    "brokers",
    "brokers/1",
    "events",
    "messages",
    f"messages/{LONG_NAME}?from=earliest",
    "runbook/broker-away",
]

LOOKS: Final = [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")]
"""Widths of the screen (pixels), each with a colour scheme."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a register with one broker."""
    with small_cluster(tmp_path_factory.mktemp("cluster")) as (register, _):
        trio.run(prepare, register)
        trio.run(fill, register, LONG_NAME, (b"key" * 30, b"value " * 200))
        yield register


@pytest.fixture(scope="module", params=["a broker is away", "the register is gone"])
def url_in_trouble(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a node that is left of a register and two brokers."""
    with node_processes(tmp_path_factory.mktemp("cluster")) as nodes:
        register = nodes.register()
        dead, broker = (nodes.broker(register, name) for name in ("broker-1", "broker-2"))
        trio.run(prepare, register.url)
        trio.run(fill, register.url, LONG_NAME, (b"key" * 30, b"value " * 200))
        if request.param == "the register is gone":
            dead = register
            warm(broker.url)
        dead.kill9()
        yield broker.url


@pytest.fixture(params=LOOKS, ids=lambda look: f"{look[0]} px, {look[1]}")
def look(request: pytest.FixtureRequest, page: Page) -> tuple[int, str]:
    """The look that *page* has."""
    width, scheme = request.param
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    return width, scheme


def test_no_view_is_wider_than_the_screen(url: str, page: Page, look: tuple[int, str]) -> None:
    width, scheme = look
    open_console(page, url)
    for view in VIEWS:
        show(page, view)
        page.wait_for_selector("main .card")
        if view.startswith("messages/"):
            page.wait_for_selector(ROWS)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(22, 24, 27)") == (scheme == "dark")
    page.click("text=Theme")
    page.wait_for_function(
        "before => getComputedStyle(document.body).backgroundColor !== before", arg=background
    )


@pytest.mark.usefixtures("look")
def test_axe_finds_nothing_serious_in_any_view(url: str, page: Page, axe: str) -> None:
    open_console(page, url)
    page.evaluate(axe)
    for view in VIEWS:
        show(page, view)
        page.wait_for_selector("main .card")
        assert serious_faults(page) == [], view
    show(page, "topics")
    page.click("button:has-text('Create a topic')")
    page.wait_for_selector("dialog[open]")
    assert serious_faults(page) == [], "dialog"
    page.keyboard.press("Escape")
    show(page, "topics/orders")
    page.click("button:has-text('Change options')")
    page.fill("dialog input[name=retention]", "7d")
    page.wait_for_selector("dialog input[name=confirmed]")
    assert serious_faults(page) == [], "dialog with a warning"


@pytest.mark.parametrize("look", [LOOKS[0], LOOKS[-1]], indirect=True)
def test_axe_finds_nothing_serious_when_a_node_is_away(
    url_in_trouble: str, page: Page, axe: str, look: tuple[int, str]
) -> None:
    """What is wrong is shown in elements of its own."""
    width, _ = look
    open_console(page, url_in_trouble)
    page.evaluate(axe)
    page.wait_for_selector(".alarm")
    for view in VIEWS:
        show(page, view)
        page.wait_for_selector(".health.ill")
        page.wait_for_selector("main .card")
        assert serious_faults(page) == [], view
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view


def serious_faults(page: Page) -> list[Any]:
    """What axe finds in the page that is there now: rules, with the elements that break them."""
    found: list[Any] = page.evaluate(
        """async () => (await axe.run(document)).violations
            .filter(({ impact }) => ["serious", "critical"].includes(impact))
            .map(({ id, nodes }) => [id, nodes.map(({ html }) => html)])"""
    )
    return found
