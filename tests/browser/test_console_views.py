"""Each view of the console has an address, and says first what matters most."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import trio

from octopi.version import __version__
from tests.browser.console_pages import (
    LONG_NAME,
    create_topics,
    fill,
    open_console,
    show,
    small_cluster,
    text_of,
)
from tests.browser.test_console_subscriptions import prepare

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = pytest.mark.process

TABS = ["overview", "topics", "subscriptions", "brokers", "events", "messages"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a register with one broker and 47 topics."""
    with small_cluster(tmp_path_factory.mktemp("cluster")) as (register, _):
        trio.run(prepare, register)
        trio.run(create_topics, register, *(f"plain-{number:02}" for number in range(45)))
        trio.run(fill, register, LONG_NAME, (b"key" * 30, b"value " * 200))
        yield register


def test_every_tab_has_an_address_that_can_be_loaded_again(url: str, page: Page) -> None:
    open_console(page, url, "topics/orders")
    for name in TABS:
        page.click(f"nav a:text-is('{name.capitalize()}')")
        page.wait_for_selector(f"nav a[aria-current=page]:text-is('{name.capitalize()}')")
        page.wait_for_function("() => document.activeElement.id === 'main'")  # it is read from here
        assert page.url.endswith(f"#/{name}")
        page.reload()
        page.wait_for_selector(f"nav a[aria-current=page]:text-is('{name.capitalize()}')")
    show(page, "topics/orders")
    page.wait_for_selector("#topic h2:has-text('Topic orders')")
    assert page.title() == "orders · Octopi"
    page.go_back()
    page.wait_for_selector("nav a[aria-current=page]:text-is('Messages')")


def test_topics_are_searched_by_any_part_of_their_names_sorted_and_counted(
    url: str, page: Page
) -> None:
    open_console(page, url, "topics")
    page.wait_for_selector("#topics output:text-is('1-20 of 47')")
    assert page.locator("#topics tbody tr").count() == 20
    page.click("#topics button:text-is('Next')")
    page.wait_for_selector("#topics output:text-is('21-40 of 47')")
    page.reload()
    page.wait_for_selector("#topics output:text-is('21-40 of 47')")
    page.click("#topics button:text-is('Next')")
    page.wait_for_selector("#topics output:text-is('41-47 of 47')")
    assert page.is_disabled("#topics button:text-is('Next')")
    page.fill("#search", "rather-long")
    page.wait_for_selector("#topics output:text-is('1-1 of 1')")
    page.fill("#search", "no such topic")
    page.wait_for_selector('#topics .empty:text-is("No topic\'s name contains that.")')
    page.fill("#search", "")
    page.click("#topics th button:text-is('Size')")
    page.wait_for_selector("#topics th[aria-sort=descending]:has-text('Size')")
    page.wait_for_selector(f"#topics tbody tr:first-child a[aria-label='{LONG_NAME}']")
    page.wait_for_selector("#topics tbody tr:first-child td:nth-child(4):text-is('1')")
    page.click("#topics th button:has-text('Size')")
    page.wait_for_selector("#topics tbody tr:first-child a:text-is('plain-00')")
    rows = page.locator("#topics tbody tr").evaluate_all(
        "rows => rows.map(row => row.offsetHeight)"
    )
    assert len(set(rows)) == 1


def test_a_healthy_cluster_is_told_in_a_few_numbers(url: str, page: Page) -> None:
    open_console(page, url, "overview")
    page.wait_for_selector(".health.well")
    page.wait_for_selector(".tiles li:has-text('Brokers up'):has-text('1 of 1')")
    page.wait_for_selector(".tiles li:has-text('Topics'):has-text('47')")
    assert page.locator("#topology, .alarm").count() == 0
    assert page.evaluate("document.querySelector('.tiles').getBoundingClientRect().bottom") < 270


def test_version_and_uptime_of_each_node_are_shown(url: str, page: Page) -> None:
    open_console(page, url, "overview")
    page.wait_for_selector(f".tiles li:has-text('Version'):has-text('{__version__}')")
    show(page, "brokers")
    for node in ("Register", "Broker 1"):
        page.wait_for_selector(f".node:has(h3:has-text('{node}')) dd:text-is('{__version__}')")
        card = page.locator(f".node:has(h3:has-text('{node}'))")
        assert re.search(r"up for\s+[\d.]+ (s|min)", card.inner_text())
    assert page.locator("#versions").count() == 0
    show(page, "brokers/1")
    page.wait_for_selector(f"#broker .facts dd:text-is('{__version__}')")


def test_different_versions_are_told_with_the_nodes_that_run_them(url: str, page: Page) -> None:
    """A second node claims another version: what the page of the cluster says is changed here."""

    def changed(route: Route) -> None:
        answer = route.fetch()
        told = answer.json()
        [broker] = told["brokers"]
        broker["agent"] = "octopi-node/9.9.9"
        silent = broker | {"broker": 2, "agent": None, "uptime_s": None}
        told["brokers"].append(silent)
        route.fulfill(response=answer, json=told)

    page.route("**/api/v1/cluster*", changed)
    open_console(page, url, "overview")
    page.wait_for_selector("#versions li:has-text('9.9.9: broker 1')")
    page.wait_for_selector(f"#versions li:has-text('{__version__}: the register')")
    page.wait_for_selector(".tiles li:has-text('Versions') .warning:text-is('2')")
    show(page, "brokers")
    page.wait_for_selector("#versions")
    page.wait_for_selector(".node:has(h3:has-text('Broker 2')) dd:has-text('\u2013')")
    page.unroute_all(behavior="wait")


def test_a_topic_has_its_options_partitions_subscriptions_and_consumers(
    url: str, page: Page
) -> None:
    open_console(page, url, "topics/orders")
    page.wait_for_selector("#subscriptions a:text-is('orders/billing')")
    assert "replicas that must be in sync" in text_of(page, "#topic .facts")
    assert page.locator("#topic tbody tr").count() == 2
    page.wait_for_selector("#topic-title small:has-text('2 partitions, 20 messages,')")
    assert page.locator("#consumers .empty").count() == 1


def test_the_end_of_a_long_name_is_seen(url: str, page: Page) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    open_console(page, url, "topics?search=rather-long")
    link = page.get_by_role("link", name=LONG_NAME, exact=True)
    link.wait_for()
    end = link.locator("span").last
    assert LONG_NAME.endswith(end.inner_text())
    box, cell = end.bounding_box(), page.locator("#topics td.name").bounding_box()
    assert box is not None
    assert cell is not None
    assert box["x"] + box["width"] <= cell["x"] + cell["width"]
    assert box["height"] < 30, "it is one line"


# --- what the views conclude ------------------------------------------------------------


def concluded(page: Page, module: str, expression: str, argument: object) -> Any:  # noqa: ANN401
    """What *expression* is, in which the exports of a *module* of the console are `it`."""
    return page.evaluate(
        f"""async (argument) => {{
            const it = await import("/console/console/{module}");
            return {expression};
        }}""",
        argument,
    )


LAGS = {
    "none": [[0, 0, 0], [900, 0]],
    "unknown": [[2_000_000, 4_000_000]],  # a second tells nothing
    "more": [[50_000] * 20 + [70_000]],  # not much
    "growing": [[2_000_000] * 20 + [4_000_000]],
    "less": [[4_000_000] * 20 + [2_000_000]],
    "steady": [
        [4_000_000] * 20 + [4_100_000],
        [1] * 20 + [9_000],  # comes and goes
        [9_000_000] + [1_000_000] * 40,  # half a minute ago counts no more
    ],
}
"""Lags, one each second, and what is said of them."""

TREND = """argument.map((lags) => {
    const history = new it.LagHistory();
    lags.forEach((lag, at) => history.note(1000 * at, lag));
    return history.trend;
})"""


def test_a_lag_is_a_warning_only_when_it_is_large_and_grows(url: str, page: Page) -> None:
    open_console(page, url)
    expected = [trend for trend, examples in LAGS.items() for _ in examples]
    lags = [lag for examples in LAGS.values() for lag in examples]
    assert concluded(page, "trend.js", TREND, lags) == expected


def partition(number: int, in_sync: list[int], min_insync: int = 1) -> dict[str, object]:
    return {"partition": number, "in_sync": in_sync, "min_insync": min_insync}


def test_what_one_more_loss_would_mean_is_told_partition_by_partition(url: str, page: Page) -> None:
    open_console(page, url)
    brokers = [{"broker": one, "live": one != 3} for one in (1, 2, 3)]
    places = [partition(0, [1, 2]), partition(1, [2, 3]), partition(2, [1, 2], 2)]
    cluster = {"brokers": brokers, "partitions": places}
    told = """it.oneMoreLoss(argument).map(({ broker, leaderless, waiting }) =>
        [broker, leaderless.map((one) => one.partition), waiting.map((one) => one.partition)])"""
    assert concluded(page, "losses.js", told, cluster) == [[1, [], [2]], [2, [1], [2]]]
    assert concluded(page, "losses.js", "it.lossesLeft(argument)", cluster) == 0
    # A partition that would take no messages counts, although it would give them.
    up = [{"broker": one, "live": True} for one in (1, 2, 3)]
    for min_insync, left in ((1, 2), (2, 1), (3, 0)):
        one = {"brokers": up, "partitions": [partition(0, [1, 2, 3], min_insync)]}
        assert concluded(page, "losses.js", "it.lossesLeft(argument)", one) == left


def event(at: int, kind: str, number: int | None, text: str = "") -> dict[str, object]:
    names = {} if number is None else {"topics": ["orders"], "topics_count": 4}
    return {"number": at, "at_ms": at, "kind": kind, "partition": number, "text": text, **names}


def test_what_the_death_of_a_broker_causes_is_one_group_of_events(url: str, page: Page) -> None:
    open_console(page, url)
    events = [
        event(9_000, "topic_created", None, "topic late was created"),
        event(1_100, "leader", 2),
        event(1_080, "leader", 1),
        event(1_010, "epoch_announced", 2),
        event(1_005, "epoch_announced", 1),
        event(1_000, "broker_left", None, "broker 2 left"),
        event(990, "in_sync", 1, "in sync: 1 and 3"),  # the leader noticed it first
    ]
    told = """it.eventGroups(argument).map(({ lines }) =>
        lines.map(({ text, topics, more }) => [text, topics, more]))"""
    assert concluded(page, "event_groups.js", told, events) == [
        [["topic late was created", [], 0]],
        [
            ["broker 2 left", [], 0],
            ["in sync: 1 and 3", ["orders"], 3],
            ["2 partitions began to elect a leader", ["orders"], 7],
            ["2 partitions got a leader", ["orders"], 7],
        ],
    ]


VIEWS_OF = {
    "": ["overview", []],
    "#/topics/orders?first=20": ["topics", ["orders"]],
    "#/topics/a%2Fb": ["topics", ["a/b"]],
    "#/topics/%": ["topics", []],
    "#/nonsense/orders": ["overview", []],
    "#nonsense": ["overview", []],
}


def test_an_address_that_was_mistyped_is_one_that_exists(url: str, page: Page) -> None:
    open_console(page, url)
    told = "argument.map(it.viewOf).map(({ tab, names }) => [tab, names])"
    assert concluded(page, "address.js", told, list(VIEWS_OF)) == list(VIEWS_OF.values())


GRANTS = {"publish": ["ord*"], "admin": ["orders"], "create": ["*"], "consume": ["*s/bil*ing"]}
ALLOWED: list[tuple[bool, list[str | None]]] = [
    (True, ["publish", "orders"]),
    (True, ["publish", "orders.eu"]),
    (False, ["publish", "payments"]),
    (False, ["admin", None]),
    (True, ["create", None]),
    (True, ["consume", "orders", "billing"]),
    (False, ["consume", "orders", "mails"]),
    (False, ["replicate", None]),
]


def test_what_a_token_grants_decides_what_is_offered(url: str, page: Page) -> None:
    open_console(page, url)
    told = "argument[1].map((asked) => it.allows(argument[0], ...asked))"
    argument = [GRANTS, [asked for _, asked in ALLOWED]]
    assert concluded(page, "grants.js", told, argument) == [allowed for allowed, _ in ALLOWED]
