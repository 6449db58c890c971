"""An operator changes a cluster from the console: asked first, told how it went, with a token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

import octopi
from harness.processes import node_processes
from octopi.cli.config import NodeSettings
from tests.admin.nodes import Nodes, serving_nodes
from tests.admin.test_protected_nodes import token, with_tokens
from tests.browser.clusters import in_a_thread
from tests.browser.console_pages import create_topics, open_console, show
from tests.browser.test_console_subscriptions import prepare

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

    from octopi import ClusterInfo, SubscriptionStatus, TopicInfo

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a register with two brokers; each partition has one replica."""
    with node_processes(tmp_path_factory.mktemp("cluster")) as nodes:
        register = nodes.register("register", "--replicas", "1")
        for number in (1, 2):
            nodes.broker(register, f"broker-{number}", "--id", str(number))
        yield register.url


async def topic(url: str, name: str) -> TopicInfo:
    async with octopi.connect(url) as client:
        return await client.describe_topic(name)


async def cluster(url: str) -> ClusterInfo:
    async with octopi.connect(url) as client:
        return await client.admin.describe_cluster()


async def subscription(url: str, topic: str, name: str) -> SubscriptionStatus:
    async with octopi.connect(url) as client:
        return await client.admin.describe_subscription(topic, name)


def carry_out(page: Page) -> None:
    """Confirm what the dialog asks, and wait until it is done."""
    from playwright.sync_api import TimeoutError as TookTooLong

    page.click("dialog form button:not([type=button])")
    try:
        page.wait_for_selector("dialog [role=status].good", timeout=60_000)  # a busy machine
    except TookTooLong as error:
        pytest.fail(f"{error}; the dialog: {page.locator('dialog').all_text_contents()}")
    page.click("dialog button:text-is('Close')")
    page.wait_for_selector("dialog", state="detached")


def test_a_topic_is_created_with_its_options(url: str, page: Page) -> None:
    open_console(page, url, "topics")
    page.click("button:has-text('Create a topic')")
    page.fill("dialog input[name=topic]", "invoices")
    page.fill("dialog input[name=partitions]", "2")
    page.fill("dialog input[name=retention]", "a week")
    page.click("dialog button:text-is('Create')")
    page.wait_for_selector("dialog .problem:has-text('nothing was changed')")
    page.fill("dialog input[name=retention]", "7d")
    page.fill("dialog input[name=size]", "10GB")
    carry_out(page)
    page.wait_for_selector("#topic .facts dd:text-is('7 d, 10.0 GB')")
    made = trio.run(topic, url, "invoices")
    assert len(made.partitions) == 2
    assert (made.options.retention_ms, made.options.retention_bytes) == (604_800_000, 10**10)
    show(page, "topics")
    page.click("button:has-text('Create a topic')")
    page.fill("dialog input[name=topic]", "invoices")
    page.click("dialog button:text-is('Create')")
    page.wait_for_selector("dialog .problem:has-text('topic_exists')")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")


def test_options_of_a_topic_are_changed_and_less_retention_is_confirmed(
    url: str, page: Page
) -> None:
    trio.run(create_topics, url, "kept")
    open_console(page, url, "topics/kept")
    page.click("#topic button:has-text('Change options')")
    page.click("dialog button:text-is('Change them')")
    page.wait_for_selector("dialog .problem:has-text('nothing was changed')")
    page.check("dialog input[name=flush]")
    assert page.locator("dialog input[name=confirmed]").count() == 0  # it removes nothing
    page.fill("dialog input[name=retention]", "36h")
    page.fill("dialog input[name=confirmed]", "orders")
    page.click("dialog button:text-is('Change them')")
    assert page.evaluate("document.querySelector('dialog form').checkValidity()") is False
    assert trio.run(topic, url, "kept").options.retention_ms is None
    page.fill("dialog input[name=confirmed]", "kept")
    carry_out(page)
    page.wait_for_selector("#topic .facts dd:text-is('1.5 d')")
    altered = trio.run(topic, url, "kept").options
    assert (altered.retention_ms, altered.flush_before_ack) == (129_600_000, True)
    page.click("#topic button:has-text('Change options')")
    assert page.input_value("dialog input[name=retention]") == "36h"
    assert page.is_checked("dialog input[name=flush]")
    page.fill("dialog input[name=retention]", "")
    page.fill("dialog input[name=insync]", "2")
    page.click("dialog button:text-is('Change them')")
    page.wait_for_selector("dialog .problem:has-text('invalid_option')")  # it has one replica
    page.fill("dialog input[name=insync]", "1")
    carry_out(page)
    page.wait_for_selector("#topic .facts dd:text-is('for ever')")
    assert trio.run(topic, url, "kept").options.flush_before_ack


def test_a_topic_is_deleted_only_when_its_name_was_typed(url: str, page: Page) -> None:
    trio.run(create_topics, url, "passing.by")
    open_console(page, url, "topics/passing.by")
    page.click("#topic button:has-text('Delete')")
    page.fill("dialog input[name=confirmed]", "passing-by")
    page.click("dialog button:text-is('Delete it')")
    assert page.evaluate("document.querySelector('dialog form').checkValidity()") is False
    assert trio.run(topic, url, "passing.by").topic == "passing.by"
    page.fill("dialog input[name=confirmed]", "passing.by")
    carry_out(page)
    page.wait_for_selector("#topics")
    with pytest.raises(octopi.UnknownTopicError):
        trio.run(topic, url, "passing.by")


def test_a_subscription_is_reset_to_the_end_and_back(url: str, page: Page) -> None:
    trio.run(prepare, url)
    open_console(page, url, "subscriptions/orders/billing")
    for place, is_behind in (("latest", False), ("earliest", True)):
        page.click("#subscription button:has-text('Reset')")
        page.select_option("dialog select[name=at]", place)
        page.fill("dialog input[name=confirmed]", "billing")
        carry_out(page)
        marks = trio.run(subscription, url, "orders", "billing").logs
        assert len(marks) == 2
        assert any(one.lag_bytes > 0 for one in marks) is is_behind


def test_a_broker_is_drained_and_a_partition_moved(url: str, page: Page) -> None:
    trio.run(create_topics, url, "moved")
    [place] = trio.run(topic, url, "moved").partitions
    [holder] = place.replicas
    other = 3 - holder
    open_console(page, url, f"brokers/{holder}")
    page.click("#broker button:has-text('Move a replica')")
    page.select_option("dialog select[name=partition]", str(place.partition))
    page.select_option("dialog select[name=to]", str(other))
    carry_out(page)
    [place] = trio.run(topic, url, "moved").partitions
    assert place.replicas == [other]
    show(page, f"brokers/{other}")
    # Nothing else has its partitions, so it can't be drained, and that is said.
    page.wait_for_selector("#broker .why:has-text('no other broker can lead')")
    assert page.is_disabled("#broker button:has-text('Drain')")


def test_what_no_other_broker_can_take_is_not_offered(url: str, page: Page) -> None:
    trio.run(create_topics, url, "everywhere")

    def with_all(route: Route) -> None:
        told = route.fetch().json()
        numbers = [one["broker"] for one in told["brokers"]]
        for place in told["partitions"]:
            place.update(replicas=numbers, in_sync=numbers)
        route.fulfill(json=told)

    page.route("**/api/v1/cluster*", with_all)
    open_console(page, url, "brokers/1")
    page.wait_for_selector("#broker .why:has-text('none can be moved')")
    assert page.is_disabled("#broker button:has-text('Move a replica')")
    assert page.is_enabled("#broker button:has-text('Drain')")
    page.click("#broker button:has-text('Drain')")
    page.wait_for_selector("dialog button:text-is('Drain it')")
    page.click("dialog button:text-is('Cancel')")
    page.wait_for_selector("dialog", state="detached")


# --- with tokens ------------------------------------------------------------------------


@asynccontextmanager
async def protected(directory: Path) -> AsyncIterator[Nodes]:
    """A register and a broker that ask for tokens, with a topic and a subscription."""
    settings = with_tokens(directory, NodeSettings(), consume="*")
    async with serving_nodes(directory, 1, common=settings) as nodes:
        mine = token("ops", create="*", publish="*", subscribe="*", consume="*", admin="*")
        async with octopi.connect(nodes.register, token=mine) as client:
            await client.create_topic("orders")
            await client.admin.create_subscription("orders", "billing")
        yield nodes


ACTIONS = {
    "topics": ["button:has-text('Create a topic')"],
    "topics/orders": ["button:has-text('Change options')", "button:has-text('Delete')"],
    "subscriptions/orders/billing": ["button:has-text('Reset')"],
    "brokers/1": ["button:has-text('Drain')"],
    "messages/orders": ["#produce button"],
}
SHOWN = {
    "topics": "#topics td",
    "topics/orders": "#topic tbody td",
    "subscriptions/orders/billing": "#subscription-logs td",
    "brokers/1": "#broker tbody td",
    "messages/orders": "#tail h2:has-text('live')",
}

TRY_ALL = """async (mine) => {
    const { Admin } = await import("/console/console/admin.js");
    const admin = new Admin(() => location.origin.replace("http", "ws"), () => mine);
    const said = [];
    for (const attempt of [
        () => admin.createTopic("more", 1, {}),
        () => admin.alterTopic("orders", ["retention_ms"], { retention_ms: 1 }),
        () => admin.deleteTopic("orders"),
        () => admin.drainBroker(1),
        () => admin.moveReplica(0, 1, 2),
        () => admin.resetSubscription("orders", "billing", "latest", 0, false),
    ]) said.push(await attempt().then(() => "done", (error) => error.code));
    return said;
}"""


def test_a_token_is_offered_only_what_it_grants_and_refused_the_rest(
    tmp_path: Path, page: Page
) -> None:
    reader = token("reader", subscribe="*", consume="*")
    operator = token("ops", create="*", publish="*", subscribe="*", consume="*", admin="*")
    with in_a_thread(protected(tmp_path)) as nodes:
        page.goto(f"{nodes.register.replace('ws', 'http')}/console/#/topics")
        page.wait_for_selector("input[name=token]")
        assert page.locator("nav, .tiles, #topics").count() == 0  # without a token there is nothing
        assert page.evaluate(TRY_ALL, "") == ["unauthenticated"] * 6
        assert page.evaluate(TRY_ALL, reader) == ["forbidden"] * 6
        for mine, count in ((reader, 0), (operator, 1)):
            page.evaluate("(mine) => sessionStorage.setItem('octopi-token', mine)", mine)
            for view, buttons in ACTIONS.items():
                open_console(page, nodes.register, view)
                page.wait_for_selector(SHOWN[view])
                page.wait_for_selector("main .card")
                for button in buttons:
                    assert page.locator(f"main {button}").count() == count, (button, mine)
