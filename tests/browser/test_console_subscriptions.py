"""The console shows durable subscriptions: all in a table, and each on a page of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

import octopi
from harness.processes import node_processes
from tests.browser.console_pages import open_console, show, text_of

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = pytest.mark.process

MEMBER = "#subscription-members td.name:has-text('printer')"


async def prepare(url: str) -> None:
    async with octopi.connect(url) as client:
        await client.create_topic("orders", 2)
        await client.admin.create_subscription("orders", "billing", mode="failover")
        async with client.producer() as producer:
            for number in range(20):
                await producer.send("orders", b"order %d" % number)


async def process_until_seen(url: str, page: Page) -> None:
    """Be a member until the console shows it, and process all."""
    async with (
        octopi.connect(url) as client,
        client.subscription("orders", "billing", mode="failover", member="printer") as orders,
    ):
        for _ in range(20):
            await anext(orders)
        await orders.commit()
        page.wait_for_selector(MEMBER)


async def reject_one(url: str) -> None:
    async with octopi.connect(url) as client:
        async with client.producer() as producer:
            await producer.send("orders", b"poison")
        async with client.subscription("orders", "mails", mode="shared") as queue:
            (await anext(queue)).reject("not readable")
            await queue.commit()


def test_a_queue_is_shown_with_its_dead_letters(tmp_path: Path, page: Page) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        trio.run(reject_one, register.url)
        open_console(page, register.url, "subscriptions")
        page.wait_for_selector("#subscriptions .warning:has-text('1 dead letter')")
        page.click("#subscriptions a:text-is('orders/mails')")
        page.wait_for_selector("#subscription p:has-text('0 open, 0 waiting, 1 dead letter')")
        assert "Dead" in text_of(page, "#subscription-logs th")
        assert page.locator("#subscription-logs td .warning:text-is('1')").count() == 1


def test_what_retention_keeps_for_a_subscription_is_shown_while_it_keeps_something(
    tmp_path: Path, page: Page
) -> None:
    told: dict[str, object] = {"held_bytes": 0, "held_for": ""}

    def with_held(route: Route) -> None:
        found = route.fetch().json()
        for one in found["topics"]:
            one["held_bytes"] = 2 * int(str(told["held_bytes"]))
            for log in one.get("partitions", []):
                log |= told
        route.fulfill(json=found)

    def with_held_for_it(route: Route) -> None:
        found = route.fetch().json()
        if "logs" in found:
            found["held_bytes"] = found["logs"][0]["held_bytes"] = told["held_bytes"]
        route.fulfill(json=found)

    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        trio.run(prepare, register.url)
        page.route("**/api/v1/topics?*", with_held)
        page.route("**/api/v1/topic-search?*", with_held)
        page.route("**/api/v1/subscription?*", with_held_for_it)
        open_console(page, register.url, "topics/orders")
        page.wait_for_selector("#topic tbody td")
        assert "kept for" not in text_of(page, "#topic")
        told |= {"held_bytes": 3_200_000, "held_for": "billing"}
        page.wait_for_selector("#topic td:has-text('3.2 MB kept for billing')")
        told |= {"held_for": ""}  # the token doesn't grant to know it
        page.wait_for_selector("#topic td:has-text('3.2 MB kept for subscriptions')")
        show(page, "topics")
        page.wait_for_selector("#topics td:has-text('6.4 MB kept for subscriptions')")
        show(page, "subscriptions")
        page.click("#subscriptions a:text-is('orders/billing')")
        page.wait_for_selector("#subscription p:text-is('3.2 MB kept for it by retention')")
        logs = page.locator("#subscription-logs tbody tr:has-text('3.2 MB kept')")
        assert logs.count() == 1
        told |= {"held_bytes": 0}
        page.wait_for_function("() => !document.body.textContent.includes('MB kept')")


def test_a_subscription_is_shown_with_its_logs_members_and_lag(tmp_path: Path, page: Page) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        open_console(page, register.url, "subscriptions")
        page.wait_for_selector("#subscriptions .empty:has-text('There is none')")
        trio.run(prepare, register.url)
        link = "#subscriptions a:text-is('orders/billing')"
        page.wait_for_selector(link)
        page.wait_for_selector("#subscriptions .warning:text-is('2 of 2 logs without a member')")
        page.focus(link)
        page.keyboard.press("Enter")
        page.wait_for_selector("#subscription-logs tbody tr")
        assert page.locator("#subscription-logs tbody tr").count() == 2
        assert "No program is a member now." in text_of(page, "#subscription-members")
        trio.run(process_until_seen, register.url, page)
        page.wait_for_selector("#subscription p:has-text('0 B and 0 s behind')")
        assert "octopi-python/" in text_of(page, "#subscription-members")
        assert page.locator("#subscription-lost").count() == 0
        page.set_viewport_size({"width": 400, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        page.reload()  # the page has an address
        page.wait_for_selector("#subscription-logs tbody tr")
        page.go_back()
        page.wait_for_selector(link)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        show(page, "subscriptions/orders/shipping")
        page.wait_for_selector("#subscription .problem:has-text('shipping')")
        page.click("#subscription a:has-text('All subscriptions')")
        page.wait_for_selector(link)


def test_a_page_that_is_cut_off_is_no_answer(tmp_path: Path, page: Page) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        trio.run(prepare, register.url)
        cut = "**/api/v1/subscription?*"
        page.route(cut, lambda route: route.fulfill(body='{"topic": "orders", '))
        open_console(page, register.url, "subscriptions/orders/billing")
        page.wait_for_selector("#subscription .problem:has-text('no node answers')")
        page.unroute(cut)
        page.wait_for_selector("#subscription-logs tbody tr")
