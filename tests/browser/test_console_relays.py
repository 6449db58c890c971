"""The console of a cluster with topics in memory: who holds them, who orders, who differs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import attrs
import pytest
import trio

import octopi
from harness.processes import NodeProcess, node_processes
from tests.browser.console_pages import fill, open_console, show, text_of
from tests.browser.pages import http_url
from tests.browser.test_console_looks import LOOKS, serious_faults
from tests.cli.test_relay_commands import start_relays

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = pytest.mark.process


@attrs.frozen
class Cluster:
    """A register and three brokers, with topics in memory and one in logs."""

    register: NodeProcess
    brokers: list[NodeProcess]
    """Of the ids 1 to 3."""
    sequencer: int


async def make_topics(url: str) -> int:
    async with octopi.connect(url) as client:
        for name in ("prices", "cursors"):
            await client.create_topic(name, kind="relay")
        await client.create_topic("orders")
        [place] = (await client.describe_topic("prices")).partitions
        assert place.leader is not None
        return place.leader


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with node_processes(tmp_path_factory.mktemp("cluster")) as nodes:
        register = nodes.register()
        brokers = [
            nodes.broker(register, f"broker-{number}", "--id", str(number)) for number in (1, 2, 3)
        ]
        sequencer = trio.run(make_topics, register.url)
        for topic in ("prices", "cursors", "orders"):
            trio.run(fill, register.url, topic, (b"key", b"value"))
        yield Cluster(register, brokers, sequencer)


def row_of(page: Page, topic: str) -> str:
    return page.locator(f"#relays tbody tr:has(a:text-is('{topic}'))").inner_text()


def test_the_members_and_digests_of_topics_in_memory_are_shown(
    cluster: Cluster, page: Page
) -> None:
    open_console(page, cluster.register.url, "topics")
    page.wait_for_selector("#relays :text('alike') >> nth=1")
    assert "alike" in row_of(page, "prices")
    assert page.locator("#relays tbody tr:has(a:text-is('orders'))").count() == 0
    digests = page.locator("#relays tr:has(a:text-is('prices')) code").all_inner_texts()
    assert len(digests) == 3
    assert len(set(digests)) == 1
    assert len(digests[0]) == 8
    titles = page.locator("#relays .replica[title*='sequencer']")
    assert f"broker {cluster.sequencer}: sequencer" in titles.evaluate_all(
        "all => all.map((one) => one.title)"
    )

    page.click("#relays a:text-is('prices')")
    page.wait_for_selector("#topic-title:has-text('prices')")
    page.wait_for_selector("#relays :text('alike')")
    assert page.locator("#relays tbody >> nth=0").locator("tr").count() == 1
    show(page, "topics/orders")
    page.wait_for_selector("#topic-title:has-text('orders')")
    assert page.locator("#relays").count() == 0


def disturbed(route: Route) -> None:
    """The page of the cluster, where relay 2 has another digest, and relay 3 is under repair."""
    answer = route.fetch()
    found: dict[str, Any] = answer.json()
    relays = found["relays"]
    for stream in relays["streams"]:
        if stream["topic"] == "prices":
            stream["members"][1]["digest"] = "00000000"
            stream["differs"] = [2]
    for partition in relays["partitions"]:
        partition["sequencer"] = None
        partition["members"][0] = {"broker": 1, "state": "away"}
        partition["members"][2] |= {"state": "joining", "repairs": 2}
    relays["topic_count"] += 5
    route.fulfill(response=answer, json=found)


@pytest.fixture
def disturbed_page(page: Page) -> Iterator[Page]:
    """A page that is told so."""
    page.route("**/api/v1/cluster*", disturbed)
    yield page
    page.unroute_all(behavior="ignoreErrors")  # one may be on its way


def test_a_relay_that_differs_is_named_with_the_command_that_says_from_where_on(
    cluster: Cluster, disturbed_page: Page
) -> None:
    page = disturbed_page
    open_console(page, cluster.register.url, "topics")
    page.wait_for_selector("#relays .problem")
    said = text_of(page, "#relays .problem")
    assert "Broker 2 differs in prices" in said
    assert "octopi-node relay verify prices" in said
    assert "2 differs" in row_of(page, "prices")
    assert "alike" in row_of(page, "cursors")
    members = text_of(page, "#relays .replica[title]")
    assert "3 joining 2 repairs" in members
    assert "1 away" in members
    assert "5 topics more are not compared" in text_of(page, "#relays")


@pytest.mark.parametrize("kind", ["page", "disturbed_page"])
@pytest.mark.parametrize("look", LOOKS, ids=lambda look: f"{look[0]} px, {look[1]}")
def test_axe_finds_nothing_serious_and_the_panel_is_not_too_wide(
    cluster: Cluster, axe: str, look: tuple[int, str], kind: str, request: pytest.FixtureRequest
) -> None:
    page: Page = request.getfixturevalue(kind)
    width, scheme = look
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    open_console(page, cluster.register.url, "topics")
    page.evaluate(axe)
    for view in ("topics", "topics/prices"):
        show(page, view)
        page.wait_for_selector("#relays tbody tr")
        assert serious_faults(page) == [], view
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view


def test_relays_of_a_static_list_show_the_panel(
    tmp_path_factory: pytest.TempPathFactory, page: Page
) -> None:
    with node_processes(tmp_path_factory.mktemp("relays")) as nodes:
        relays = start_relays(nodes)
        trio.run(fill, relays[0].url, "prices", (b"key", b"value"))
        open_console(page, relays[1].url, "topics")
        page.wait_for_selector("#relays :text('alike')")
        assert "prices" in text_of(page, "#relays")


def test_the_page_of_the_cluster_has_the_relays_as_json(cluster: Cluster) -> None:
    with urlopen(f"{http_url(cluster.brokers[0].url)}/api/v1/cluster") as answer:
        relays = json.loads(answer.read())["relays"]
    assert relays["topic_count"] == 2
    [prices] = [one for one in relays["streams"] if one["topic"] == "prices"]
    assert prices["differs"] == []
    assert prices["compared"] > 0
    numbers = {one["partition"]: one for one in relays["partitions"]}
    mine = numbers[prices["partition"]]
    assert mine["sequencer"] == cluster.sequencer
    assert {one["broker"]: one["state"] for one in mine["members"]} == dict.fromkeys(
        (1, 2, 3), "normal"
    )
