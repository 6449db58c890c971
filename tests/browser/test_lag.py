"""A page tells its broker how far it is, and what it is called; the console shows both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from harness.processes import node_processes
from tests.browser.pages import http_url, open_client_page
from tests.browser.test_reading import produce

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.process

COUNT = 1_000


def consumer(page: Page, name: str, condition: str) -> dict[str, Any]:
    """What the node tells of the reading of the client *name*, once *condition* holds for it."""
    for _ in range(1_000):
        found: dict[str, Any] | None = page.evaluate(
            f"""async (name) => {{
                const answer = await (await fetch("/api/v1/consumers")).json();
                const one = answer.consumers.find((one) => one.name === name);
                return one && ({condition}) ? one : null;
            }}""",
            name,
        )
        if found is not None:
            return found
        page.wait_for_timeout(50)
    raise AssertionError(f"{condition} never held")


def test_a_page_that_does_not_process_its_messages_is_shown_with_its_lag(
    tmp_path: Path, page: Page
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        trio.run(produce, register.url, "numbers", 0, COUNT)
        open_client_page(page, register.url)
        page.evaluate(
            """async () => {
                window.octopi = await Octopi.connect(undefined, { name: "slow <b>page</b>" });
                window.reading = octopi.subscribe("numbers", { from: "earliest" });
                for (let taken = 0; taken < 3; taken++) window.last = (await reading.next()).value;
            }"""
        )
        name = "slow <b>page</b>"
        stuck = consumer(page, name, "one.sent_lag_bytes === 0 && one.dealt === last.offset")
        assert stuck["lag_bytes"] == stuck["highwater"] - stuck["dealt"] > 0
        with page.context.new_page() as console:
            console.goto(f"{http_url(register.url)}/console/#/subscriptions")
            row = console.locator(f"#consumers tr:has-text({json.dumps(name)})")
            row.wait_for()
            assert "up to date" not in row.inner_text()
        page.evaluate("() => { (async () => { for await (const _ of reading); })(); }")
        assert consumer(page, name, "one.lag_bytes === 0")["dealt"] == stuck["highwater"]


def test_a_batch_counts_as_processed_when_the_next_one_is_asked_for(
    tmp_path: Path, page: Page
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        trio.run(produce, register.url, "numbers", 0, COUNT)
        open_client_page(page, register.url)
        page.evaluate(
            """async () => {
                window.octopi = await Octopi.connect(undefined, { name: "batches" });
                window.batches = octopi.subscribe("numbers", { from: "earliest" }).batches();
                window.first = (await batches.next()).value[0];
            }"""
        )
        consumer(page, "batches", "one.sent_lag_bytes === 0 && one.dealt === first.offset")
        page.evaluate("() => { (async () => { for await (const _ of batches); })(); }")
        consumer(page, "batches", "one.lag_bytes === 0")


def test_a_member_of_a_subscription_has_processed_what_it_has_marked(
    tmp_path: Path, page: Page
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        trio.run(produce, register.url, "numbers", 0, 10)
        open_client_page(page, register.url)
        page.evaluate(
            """async () => {
                window.octopi = await Octopi.connect(undefined, { name: "member" });
                const options = { name: "billing", mark: "manual" };
                const member = await octopi.subscription("numbers", options);
                window.got = [];
                for (let taken = 0; taken < 10; taken++) got.push((await member.next()).value);
                member.mark(got[4]);
                window.next = got[5].offset;
            }"""
        )
        consumer(page, "member", "one.sent_lag_bytes === 0 && one.dealt === next")


def test_a_name_that_can_not_be_shown_is_refused_by_the_client(tmp_path: Path, page: Page) -> None:
    faults = {
        '"a".repeat(201)': "name has 201 bytes",
        '"\\u00e9".repeat(101)': "name has 202 bytes",
        '"a\\u0000b"': "without control characters",
        '"a\\u202eb"': "without control characters",
        '"\\ud800"': "without control characters",
        "7": "without control characters",
    }
    with node_processes(tmp_path) as nodes:
        open_client_page(page, nodes.register().url)
        for name, why in faults.items():
            said = page.evaluate(
                f"""() => Octopi.connect(undefined, {{ name: {name} }})
                    .then(() => "", (error) => `${{error.code}}: ${{error.message}}`)"""
            )
            assert said.startswith("invalid_option: ")
            assert why in said
