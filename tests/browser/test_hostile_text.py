"""Whatever strangers write, pages show it as text: no script of theirs runs in a real browser.

Each text would set ``window.owned``, or ask a host of its author for something, if any page took it
for markup, for an attribute or for an address.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import attrs
import pytest
import trio

import octopi
from harness.processes import node_processes
from octopi.admin.cluster_pages import cluster_page, consumers_page, events_page, topics_page
from octopi.admin.cluster_snapshot import ClusterSnapshot, Holdings, problems
from octopi.admin.cluster_watch import CachedSnapshot
from octopi.admin.subscription_pages import subscription_page, subscriptions_page
from octopi.admin.subscription_watch import (
    SeenLog,
    SeenSubscription,
    SeenSubscriptions,
    SubscriptionWatch,
)
from octopi.admin.topic_search import topic_search_page
from octopi.clients.answers import BrokerLog, ClusterInfo
from octopi.identifiers import (
    BrokerId,
    Claim,
    Epoch,
    Incarnation,
    Offset,
    PartitionId,
    TimestampMs,
)
from octopi.model import SubscriptionDefinition, SubscriptionOptions
from octopi.printable import printable
from octopi.security.grants import EVERYTHING
from octopi.simulation.report.html import write_page
from octopi.testing import Cluster, run
from octopi.transport.handshake import open_connection
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT
from tests.browser.console_pages import open_console, show, start_tail, text_of
from tests.kit.cluster import system_environment
from tests.simulation.test_html import full_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playwright.sync_api import Page, Request, Route

HOSTILE = {
    "script": "</script><script>window.owned=1</script>",
    "image": '<img src="https://evil.test/x" onerror="window.owned=1">',
    "svg": '"><svg onload=window.owned=1><script href="https://evil.test/s"/></svg>',
    "attribute": "' autofocus onfocus='window.owned=1' x='",
    "quoted": '" onmouseover="window.owned=1" x="',
    "link": "javascript:window.owned=1",
    "anchor": '<a href="javascript:window.owned=1">click</a>',
    "frame": '<iframe srcdoc="<script>parent.owned=1</script>"></iframe>',
    "style": "</style></title></textarea><style>@import 'https://evil.test/c'</style>",
    "comment": "--><base href=https://evil.test/><!--",
    "template": "${window.owned=1}{{constructor.constructor('owned=1')()}}",
    "data": '<object data="data:text/html,<script>top.owned=1</script>">',
}

TOGETHER = [
    HOSTILE["link"],  # an address has to begin with it
    " ".join(HOSTILE[one] for one in ("attribute", "quoted", "template")),
    " ".join(text for one, text in HOSTILE.items() if text.startswith(("<", "-", '"><'))),
]
"""The same in three texts, for pages that take long."""

PROVOKE = """() => {
  const names = ["mouseover", "mouseenter", "focus", "error", "load", "toggle", "animationstart"];
  for (const one of document.querySelectorAll("*"))
    for (const name of names) one.dispatchEvent(new Event(name));
}"""
"""Calls every handler of an event that some text could have become."""

SUSPECTS = """() => {
  const followed = ["href", "src", "srcdoc", "action", "formaction", "data", "xlink:href"];
  return [...document.querySelectorAll("*")].flatMap((one) => [
    ...[...one.attributes]
      .filter(({ name, value }) =>
        /^on/i.test(name)
        || (followed.includes(name) && /^\\s*(javascript|data:text)/i.test(value)))
      .map(({ name, value }) => `${one.localName} ${name}=${value}`),
    ...(/^(iframe|object|embed|base)$/.test(one.localName) ? [one.localName] : []),
  ]);
}"""
"""What no page of ours has: handlers in attributes, and addresses that are code."""

each_text = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())


class Canary:
    """Notices whatever an attacker would have a page do."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._asked: list[str] = []
        page.on("request", self._note)
        page.on("dialog", lambda dialog: self._asked.append(dialog.message))

    def _note(self, request: Request) -> None:
        if urlsplit(request.url).hostname == "evil.test":
            self._asked.append(request.url)

    def is_silent(self) -> None:
        """Fail if a script of the attacker ran, or may run."""
        self._page.evaluate(PROVOKE)
        self._page.wait_for_function("() => true")  # what was provoked has had its turn
        assert self._page.evaluate("() => typeof window.owned") == "undefined"
        assert self._page.evaluate(SUSPECTS) == []
        assert self._asked == []


def test_a_page_that_runs_hostile_text_is_noticed(page: Page) -> None:
    page.set_content(f'<p>{HOSTILE["quoted"]}</p><a title="{HOSTILE["quoted"]}">x</a>')
    with pytest.raises(AssertionError):
        Canary(page).is_silent()


# --- the console ----------------------------------------------------------------------


@pytest.mark.process
def test_messages_and_agents_of_strangers_are_text_in_the_console(
    tmp_path: Path, page: Page
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        canary = Canary(page)
        trio.run(partial(publish, register.url))
        open_console(page, register.url)
        start_tail(page, "orders", "earliest")
        buttons = page.locator("#tail button.value")
        page.wait_for_function(
            "count => document.querySelectorAll('#tail button.value').length === count",
            arg=len(HOSTILE),
        )
        for number in range(len(HOSTILE)):
            buttons.nth(number).click()
        page.wait_for_function(
            "count => document.querySelectorAll('#tail tr.opened').length === count",
            arg=len(HOSTILE),
        )
        for form in ("json", "text", "hex"):
            page.check(f"input[name=form][value={form}]")
            canary.is_silent()
        page.check("input[name=form][value=text]")
        shown = text_of(page, "#tail .messages")
        for text in HOSTILE.values():
            assert shown.count(text) >= 4  # key, value, header in its column and below
        canary.is_silent()
        show(page, "subscriptions")
        for name, text in HOSTILE.items():
            trio.run(partial(read_as, register.url, text, page, name))
        canary.is_silent()


async def publish(url: str) -> None:
    async with octopi.connect(url) as client, client.producer() as producer:
        for text in HOSTILE.values():
            headers = {text: text.encode(), "trace": text.encode()}
            await producer.send("orders", text.encode(), key=text.encode(), headers=headers)


async def read_as(url: str, agent: str, page: Page, name: str) -> None:
    """Read with a program of that name until the console shows it."""
    async with octopi.connect(url) as client:
        [place] = (await client.describe_topic("orders")).partitions
    async with trio.open_nursery() as nursery:
        here = system_environment(nursery)
        connection = await open_connection(here, place.leader_address, CLIENT, agent)
        await nursery.start(connection.run, lambda message: None)
        question = m.Subscribe(1, "orders", place.partition, Offset(0), 1 << 20)
        await connection.request(question, m.Subscribed, 10)
        found = f"#consumers td.who:has-text({json.dumps(agent)})"
        for _ in range(100):
            if page.locator(found).count():
                break
            page.wait_for_timeout(50)
        assert page.locator(found).count() == 1, name
        await connection.close()
        nursery.cancel_scope.cancel()


@pytest.mark.process
def test_what_a_cluster_says_of_itself_is_text_in_the_console(tmp_path: Path, page: Page) -> None:
    pages: dict[str, bytes] = {}

    def answer(route: Route) -> None:
        name = route.request.url.rpartition("/")[2].partition("?")[0]
        route.fulfill(body=pages[name], content_type="application/json")

    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        canary = Canary(page)
        page.route("**/api/v1/*", answer)
        assert all(any(one in text for text in TOGETHER) for one in HOSTILE.values())
        for text in TOGETHER:
            trio.run(pages_full_of, text, pages)
            for view, parts in {
                "overview": ["#largest", "#events"],
                "brokers": ["#topology", "header"],
                "brokers/1": ["#broker"],
                "events": ["#events"],
                "subscriptions": ["#subscriptions", "#consumers"],
                "topics": ["#topics"],
            }.items():
                open_console(page, register.url, view)
                for part in parts:
                    page.wait_for_selector(part)
                    page.wait_for_function(
                        "([part, text]) => document.querySelector(part).innerText.includes(text)",
                        arg=[part, text],
                    )
                canary.is_silent()
            page.click("#topics td.name a")
            page.wait_for_selector("#topic tbody td")
            assert text in text_of(page, "#topic")
            canary.is_silent()
            page.click("#topic tbody a:text-is('Read')")  # tails a topic of that name
            page.wait_for_selector("#tail .problem")
            canary.is_silent()
            show(page, "subscriptions")
            page.click("#subscriptions td.name a")
            page.wait_for_selector("#subscription-lost li")
            for part in ("h2", "p", "#subscription-logs", "#subscription-members"):
                assert text in text_of(page, f"#subscription {part}"), part
            canary.is_silent()


async def pages_full_of(text: str, pages: dict[str, bytes]) -> None:
    """Each page of ``/api/v1/`` with *text* wherever a name or a reason is."""
    place = m.PartitionInfo(
        PartitionId(0),
        Epoch(1),
        BrokerId(1),
        text,
        [BrokerId(1), BrokerId(2)],
        [BrokerId(1)],
        [text],
        [],
        False,
        Epoch(3),
        [m.ReplicaTroubleAt(BrokerId(1), text)],
    )
    brokers = [
        m.BrokerInfo(BrokerId(1), text, Incarnation(1), True, 1, 5, 9, text),
        m.BrokerInfo(BrokerId(2), text, Incarnation(1), True, 0, 5, 9, text),
    ]
    logs = [
        BrokerLog(
            broker,
            text,
            m.LogInfo(
                text,
                text,
                PartitionId(0),
                Epoch(1),
                Offset(0),
                Offset(5),
                Offset(9),
                9,
                text,
                held_bytes=4,
                held_for=text,
            ),
        )
        for broker in (1, 2)
    ]
    look = ClusterSnapshot(ClusterInfo(text, 1, 1, brokers, [place]), logs, {2: text})
    holdings = Holdings(look)
    for log in logs:
        holdings.add(log)
    kinds = ("leader", text)
    seen = CachedSnapshot(
        1,
        look,
        [m.TopicInfo(text, text, [place], m.TopicOptions())],
        [(1, m.ReadingInfo(text, text, 1, text, PartitionId(0), 0, 9, Offset(9), name=text))],
        True,
        m.EventList(
            0,
            text,
            [
                m.ClusterEvent(
                    number,
                    0,
                    kind,
                    PartitionId(0),
                    BrokerId(1),
                    text,
                    Epoch(1),
                    [BrokerId(1)],
                    text,
                )
                for number, kind in enumerate(kinds, 1)
            ],
        ),
        {PartitionId(0): holdings.replicas_of(place)},
        {(text, 0): logs},
        problems(look),
        {PartitionId(0): [text]},
        {PartitionId(0): 1},
        1,
        text,
    )
    query: dict[str, str] = {}
    pages["cluster"] = await cluster_page(seen, query, lambda topic: True)
    pages["grants"] = b'{"admin": ["*"], "create": ["*"], "publish": ["*"], "consume": ["*"]}'
    pages["topic-search"] = await topic_search_page(seen, query, lambda topic: True)
    pages["topics"] = await topics_page(
        seen, query, lambda topic: True, lambda topic, subscription: True
    )
    pages["consumers"] = await consumers_page(seen, query, lambda topic: True)
    pages["events"] = await events_page(seen, query, lambda topic: True)
    watch = HostileWatch(text)
    pages["subscriptions"] = await subscriptions_page(seen, watch, query, EVERYTHING)
    names = {"topic": text, "name": text}
    pages["subscription"] = await subscription_page(seen, watch, names, EVERYTHING)
    status = {
        "role": text,
        "agent": text,
        "cluster": text,
        "url": text,
        "ready": False,
        "why": text,
    }
    status |= {"broker": None, "registers": [text], "authentication": False}
    pages["status"] = json.dumps(status).encode()


class HostileWatch(SubscriptionWatch):
    """Sees one subscription, with *text* wherever a name or a reason is."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def of_topics(self, topics: Sequence[m.TopicInfo], after: str = "") -> SeenSubscriptions:
        text = self.text
        seen = await self.of_name(topics[0], text)
        return SeenSubscriptions(1, [seen], {text: text}, {text: text})

    async def of_name(self, topic: m.TopicInfo, name: str) -> SeenSubscription:
        text: Any = self.text
        place = PartitionId(0)
        lost = m.OffsetRange(Offset(1), Offset(3))
        at = TimestampMs(1)
        marks = m.MarksDescription(1, Offset(3), Claim(1), Offset(9), 6, 5, at, text, lost, [lost])
        marks = attrs.evolve(marks, letter_fault=text)
        logs = [
            SeenLog(place, text, text, 1, marks, ""),
            SeenLog(place, text, text, 1, None, text),
        ]
        definition = SubscriptionDefinition(
            sid=text,
            name=text,
            topic=text,
            topic_id=text,
            partitions=[place, place],
            mode=text,
            options=SubscriptionOptions(),
            start=text,
            state=text,
            created_ms=at,
            used_ms=at,
        )
        members = [m.SubscriptionMember(text, True, text, text, 1, text)]
        return SeenSubscription(definition, members, logs)


# --- runs of the simulator ------------------------------------------------------------


@each_text
def test_the_page_of_a_run_shows_hostile_text_as_text(
    text: str, tmp_path: Path, page: Page
) -> None:
    file = tmp_path / "run.html"
    write_page(full_of(text), file)
    canary = Canary(page)
    page.goto(file.as_uri())
    page.wait_for_selector("#timeline")
    policy = page.get_attribute("meta[http-equiv=Content-Security-Policy]", "content")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert text in text_of(page, "body")
    canary.is_silent()
    for link in page.locator("a").all():
        assert (link.get_attribute("href") or "").startswith("#")


@pytest.mark.process
def test_a_replayed_run_shows_hostile_text_as_text(tmp_path: Path, page: Page) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        open_console(page, register.url)
        canary = Canary(page)
        for name, text in HOSTILE.items():
            file = tmp_path / f"{name}.html"
            write_page(full_of(text), file)
            page.set_input_files("input[type=file]", file)
            page.wait_for_selector("#replay")
            page.focus("#moment")
            page.keyboard.press("End")
            assert text.split("<")[0] in text_of(page, "#replay, #events, #topology")
            canary.is_silent()
            page.click("button:has-text('Back to the cluster')")


@each_text
def test_the_page_of_a_failing_test_shows_hostile_text_as_text(
    text: str, tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCTOPI_TEST_PAGES", str(tmp_path))

    async def fail(cluster: Cluster) -> None:
        async with cluster.client() as client, client.producer() as producer:
            value = text.encode()
            await producer.send("orders", value, key=value, headers={text: value})
        raise AssertionError(text)

    with pytest.raises(AssertionError):
        run(fail, seed=1)
    [file] = tmp_path.glob("*.html")
    canary = Canary(page)
    page.goto(file.as_uri())
    page.wait_for_selector("#timeline")
    assert printable(text) in text_of(page, "body")
    canary.is_silent()
