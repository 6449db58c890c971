"""The console shows messages as they come, also large ones, and also to a keyboard."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

import octopi
from harness.processes import node_processes
from octopi.cli.node_processes import node_command
from tests.browser.console_pages import (
    ROWS,
    fill,
    open_console,
    show,
    small_cluster,
    start_tail,
    text_of,
    warm,
)
from tests.browser.pages import http_url
from tests.browser.test_reading import leader_of, produce, start_cluster

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from octopi import Receipt

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a register with one broker."""
    with small_cluster(tmp_path_factory.mktemp("cluster")) as (register, _):
        yield register


def test_a_message_is_shown_as_it_is_produced(url: str, page: Page) -> None:
    trio.run(fill, url, "news", (None, b"before"))
    open_console(page, url)
    start_tail(page, "news")
    for number in range(3):
        trio.run(fill, url, "news", (None, b"news %d" % number))
        page.wait_for_selector(f"{ROWS}:has-text('news {number}')")
    assert "before" not in text_of(page, ROWS)
    assert "trace=t-1" in text_of(page, ".messages .headers")
    with page.context.new_page() as other:
        open_console(other, url, "topics/news")
        other.wait_for_selector("#consumers td:has-text('octopi-js'):has-text('console')")


def test_large_messages_are_cut_and_can_be_shown_whole(url: str, page: Page) -> None:
    order = json.dumps({"order": 7, "big": "x" * 300_000}).encode()
    messages: list[tuple[bytes | None, bytes]] = [(b"customer-%d" % n, order) for n in range(40)]
    messages += [(b"binary", b"\x00\xff\xfe"), (b"k", b'{"a":1}')]
    trio.run(fill, url, "large", *messages)
    open_console(page, url)
    start_tail(page, "large", "earliest")
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


def test_values_and_headers_are_searched_as_well_as_keys(url: str, page: Page) -> None:
    messages = [(b"key-%d" % n, json.dumps({"city": f"city-{n}"}).encode()) for n in range(30)]
    trio.run(fill, url, "searched", *messages)
    open_console(page, url, "messages/searched?from=earliest&search=city-17")
    page.wait_for_selector(f"{ROWS}:has-text('city-17')")
    page.wait_for_selector("#tail h2:has-text('30 seen, 1 with that')")
    assert page.locator(ROWS).count() == 1
    show(page, "messages/searched?from=earliest&search=t-1")
    page.wait_for_selector("#tail h2:has-text('30 seen, 30 with that')")
    show(page, "messages/searched?from=earliest&search=nowhere")
    page.wait_for_selector("#tail .empty:text-is('None of 30 messages contains that.')")


def test_a_message_has_an_address_and_can_be_copied_and_downloaded(url: str, page: Page) -> None:
    trio.run(fill, url, "linked", (b"k", b'{"a":1}'), (b"k", b"second"))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_console(page, url, "messages/linked?from=earliest")
    page.locator(ROWS).nth(1).click()
    page.click(".detail button:text-is('Copy a link')")
    page.wait_for_selector(".detail [role=status]:text-is('The link was copied.')")
    link = page.evaluate("navigator.clipboard.readText()")
    with page.expect_download() as rows:
        page.click("#download-rows")
    lines = [json.loads(line) for line in rows.value.path().read_text().splitlines()]
    assert [line["value"] for line in lines] == ['{"a":1}', "second"]
    assert lines[0]["headers"] == {"trace": "t-1"}

    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("#message pre:has-text('\"a\": 1')")
    page.click("#message button:text-is('Copy the value')")
    page.wait_for_selector("#message [role=status]:text-is('The value was copied.')")
    assert page.evaluate("navigator.clipboard.readText()") == '{\n  "a": 1\n}'
    with page.expect_download() as value:
        page.click("#message button:text-is('Download the value')")
    assert value.value.path().read_bytes() == b'{"a":1}'
    page.click("#message a:text-is('The next one')")
    page.wait_for_selector("#message pre:text-is('second')")
    page.click("#message a:text-is('Messages from here on')")
    page.wait_for_selector(f"{ROWS}:text-is('second')")
    assert page.locator(ROWS).count() == 1


def test_the_address_of_no_message_says_what_is_there(url: str, page: Page) -> None:
    trio.run(fill, url, "short", (b"k", b"only one"))
    with page.context.new_page() as other:
        open_console(other, url, "topics/short")
        [partition] = other.locator("#topic tbody td:first-child").all_inner_texts()
    open_console(page, url, f"messages/short/{partition[1:]}/3")
    page.wait_for_selector("#message .problem:has-text('offset')")
    show(page, "messages/nothing/0/0")
    page.wait_for_selector("#message .problem:has-text('unknown_topic')")


def test_a_message_is_produced_with_its_key_and_headers(url: str, page: Page) -> None:
    trio.run(fill, url, "made", (b"k", b"before"))
    open_console(page, url, "messages/made")
    page.fill("#produce input[name=key]", "customer-7")
    page.fill("#produce textarea[name=value]", '{"umbrellas": 3}')
    page.fill("#produce textarea[name=headers]", "no equals sign")
    page.click("#produce button")
    page.wait_for_selector("#produce .problem:has-text('nothing was sent')")
    page.fill("#produce textarea[name=headers]", "colour=red\nsize = large")
    page.click("#produce button")
    page.wait_for_selector(f"{ROWS}:has-text('umbrellas')")
    assert "colour=red size= large" in text_of(page, ".messages .headers")
    page.click("#produce a:has-text('at offset')")
    page.wait_for_selector("#message dd:text-is('customer-7')")


def test_the_console_keeps_the_newest_messages_and_a_pause_loses_none(url: str, page: Page) -> None:
    trio.run(produce, url, "numbers", 0, 2_000)
    open_console(page, url)
    start_tail(page, "numbers", "earliest")
    page.wait_for_selector(f"{ROWS}:text-is('1999')")
    assert [int(text) for text in page.locator(ROWS).all_inner_texts()] == list(
        range(1_999, 1_499, -1)
    )
    page.click("#pause")
    page.wait_for_selector("#pause[aria-pressed=true]")
    trio.run(produce, url, "numbers", 2_000, 10)
    page.wait_for_selector("#tail h2:has-text('behind')")  # it has come, and isn't shown
    assert page.locator(f"{ROWS}:text-is('2009')").count() == 0
    page.click("#pause")
    page.wait_for_selector(f"{ROWS}:text-is('2009')")


def test_the_console_can_be_used_with_a_keyboard_alone(url: str, page: Page) -> None:
    trio.run(fill, url, "keys", (b"k", b"first"), (b"k", b"second"))
    open_console(page, url)
    page.keyboard.press("t")
    page.wait_for_function("() => document.activeElement.id === 'tail-topic'")
    page.keyboard.type("keys")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("the b")  # the beginning
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{ROWS}:text-is('second')")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("p")
    page.wait_for_selector("#pause[aria-pressed=true]")
    page.focus(f"{ROWS}:text-is('first')")
    page.keyboard.press("Enter")
    page.wait_for_selector(".detail pre:text-is('first')")
    page.keyboard.press("/")
    page.wait_for_function("() => document.activeElement.id === 'search'")
    page.keyboard.type("ke")
    page.wait_for_selector("#topics a:text-is('keys')")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("4")
    page.wait_for_selector("#topology .node.up")


def test_a_dead_leader_and_its_successor_are_seen(tmp_path: Path, page: Page) -> None:
    with node_processes(tmp_path) as nodes:
        register, brokers = start_cluster(nodes)
        trio.run(produce, register.url, "numbers", 0, 100)
        leader = trio.run(leader_of, register.url, "numbers")
        alive = next(number for number in brokers if number != leader)
        open_console(page, brokers[alive].url, "brokers")  # every node serves it
        page.wait_for_selector(".health.well")
        page.wait_for_selector(f".node:has-text('Broker {leader}') .chip.leader")
        page.wait_for_function("() => document.querySelectorAll('.node.up').length === 4")
        tail = page.context.new_page()
        open_console(tail, brokers[alive].url)
        start_tail(tail, "numbers", "earliest")
        brokers[leader].kill9()
        page.wait_for_selector(f".node.away:has-text('Broker {leader}')")
        page.wait_for_selector(".node.away dd:text-is('\N{EN DASH}')")  # how far behind: unknown
        page.wait_for_selector(".health.ill")
        page.wait_for_selector(".node.up .chip.leader")
        page.wait_for_selector(f"#away-{leader} small:has-text('since 20')")
        for said in (
            "1 partition has a replica less: numbers.",
            "If one more broker is lost, other replicas in sync lead",
        ):  # when the in-sync set has changed, too
            page.wait_for_selector(f"#broker-away:has-text('{said}')")
        page.click("#broker-away a:text-is('What to do')")
        page.wait_for_selector("#runbook pre:has-text('octopi-node partitions move')")
        show(page, "events")
        # With what else left at that time, if another broker was too slow to be heard.
        page.wait_for_selector(f"#events li.grave:has-text('broker {leader} left')")
        # One line, with that of the first epoch if the broker died within two seconds.
        page.wait_for_selector(
            "#events p:has-text('leads in epoch 2'):has-text('numbers'), "
            "#events p:has-text('got a leader'):has-text('numbers')"
        )
        show(page, "overview")
        page.wait_for_selector("#broker-away")
        trio.run(produce, register.url, "numbers", 100, 1)
        tail.wait_for_selector(f"{ROWS}:text-is('100')")
        assert tail.locator(ROWS).count() == 101
        next(broker for number, broker in brokers.items() if number not in {leader, alive}).kill9()
        page.wait_for_selector(f"#broker-away li:has-text('If broker {alive} is lost as well')")
        page.wait_for_selector("#broker-away li:has-text('no replica in sync'):has-text('numbers')")
        brokers[leader].restart()
        show(page, "brokers")
        page.wait_for_selector(f".node.up:has-text('Broker {leader}')", timeout=30_000)
        tail.close()


def test_no_other_replica_is_promised_when_no_broker_is_left(tmp_path: Path, page: Page) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)
        trio.run(fill, register.url, "orders", (None, b"before"))
        open_console(page, register.url)
        page.wait_for_selector(".health.well")
        broker.kill9()
        page.wait_for_selector("#broker-away b:has-text('without a leader')")
        assert "If one more broker is lost" not in text_of(page, "#broker-away")


def test_a_page_goes_on_at_a_broker_when_the_register_is_gone(tmp_path: Path, page: Page) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)
        trio.run(fill, register.url, "orders", (None, b"before"))
        with page.expect_response(f"{http_url(broker.url)}/api/v1/cluster?limit=1") as warmed:
            open_console(page, register.url)
        assert warmed.value.ok
        tail = page.context.new_page()
        open_console(tail, register.url)
        start_tail(tail, "orders")
        tail.fill("#produce textarea[name=value]", "in between")
        tail.click("#produce button")
        tail.wait_for_selector(f"{ROWS}:text-is('in between')")
        register.kill9()
        page.wait_for_selector("#register-away-card", timeout=30_000)
        page.wait_for_selector(f"header code:text-is('{broker.url.removeprefix('ws://')}')")
        page.wait_for_selector(".health.ill")
        show(page, "brokers")
        page.wait_for_selector("#register-away-card small:has-text('since 20')")
        page.wait_for_selector("#topology.stale .node.register.away")
        page.wait_for_selector("#topology .node.up .chip.leader")  # what the register said last
        tail.fill("#produce textarea[name=value]", "after")
        tail.click("#produce button")
        tail.wait_for_selector(f"{ROWS}:text-is('after')")
        register.restart()
        page.wait_for_selector(".health.well", timeout=30_000)
        tail.close()


def test_nothing_is_offered_that_needs_the_register_while_it_is_gone(
    tmp_path: Path, page: Page
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)
        trio.run(fill, register.url, "orders", (None, b"before"))
        with page.expect_response(f"{http_url(broker.url)}/api/v1/cluster?limit=1") as warmed:
            open_console(page, register.url, "topics/orders")
        assert warmed.value.ok
        page.click("#topic button:has-text('Change options')")
        page.wait_for_selector("dialog button:text-is('Change them'):enabled")
        register.kill9()
        page.wait_for_selector("dialog .problem:has-text('The register does not answer')")
        assert page.is_disabled("dialog button:text-is('Change them')")
        page.click("dialog button:text-is('Cancel')")
        for view, buttons in {
            "topics/orders": ["Change options", "Delete"],
            "topics": ["Create a topic"],
            "brokers/1": ["Drain"],
        }.items():
            show(page, view)
            page.wait_for_selector("main .why:has-text('The register does not answer')")
            for words in buttons:
                assert page.is_disabled(f"main button:has-text('{words}')"), view
        show(page, "topics/orders")
        page.wait_for_selector("#subscriptions .empty:text-is('They are not known now.')")
        with page.context.new_page() as other:
            open_console(other, broker.url, "messages/orders?from=earliest")
            other.wait_for_selector("#tail .empty:has-text('reading begins when it answers')")
            register.restart()
            other.wait_for_selector(f"{ROWS}:text-is('before')", timeout=60_000)
        page.wait_for_selector("#topic button:has-text('Delete'):enabled", timeout=30_000)
        assert page.locator("main .why").count() == 0


async def send_one(url: str) -> Receipt:
    async with octopi.connect(url) as client, client.producer() as producer:
        return await producer.send("orders", b"before")


def test_one_message_is_waited_for_when_the_reading_before_it_had_not_begun(
    tmp_path: Path, page: Page
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)
        receipt = trio.run(send_one, register.url)
        warm(broker.url)
        register.kill9()
        open_console(page, broker.url, "messages/orders?from=earliest")
        page.wait_for_selector("#tail .empty:has-text('reading begins when it answers')")
        show(page, f"messages/orders/{receipt.partition}/{receipt.offset}")
        page.wait_for_selector("#message .empty:has-text('waited for')")
        register.restart()
        page.wait_for_selector("#message .detail:has-text('before')", timeout=60_000)


def test_a_simulated_run_is_replayed_in_the_same_view(url: str, tmp_path: Path, page: Page) -> None:
    run = tmp_path / "run.html"
    command = node_command("sim", "show", "7", "-o", str(run))
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    open_console(page, url)
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
    page.wait_for_selector(".tiles")
    no_run = Path(__file__).parents[1] / "conformance/scenarios/sending.json"
    page.set_input_files("input[type=file]", no_run)
    page.wait_for_selector(".problem:has-text('is no page of a run')")
