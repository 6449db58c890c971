"""A page with a token: good, wrong, expired, or renewed while it reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

import octopi
from tests.browser.clusters import in_a_thread
from tests.browser.pages import open_client_page, serve_console
from tests.browser.test_reading import CUTTABLE
from tests.security.test_authorisation import everything, fresh, guarded

if TYPE_CHECKING:
    from playwright.sync_api import Page

# All that a page with a token does, and how many sockets it has opened for that.
TRY = """async ([token, idle]) => {
    window.opened = 0;
    const Plain = window.WebSocket;
    window.WebSocket = class extends Plain {
        constructor(...options) {
            super(...options);
            opened++;
        }
    };
    const outcome = await (async () => {
        const octopi = await Octopi.connect(undefined, { token });
        const receipt = await octopi.publish("orders", "from the page");
        const orders = octopi.subscribe("orders", { from: receipt.offset });
        for await (const one of orders) return one.text();
    })().catch((error) => [error.code, error.retryable]);
    await new Promise((resolve) => setTimeout(resolve, idle));
    return { outcome, opened };
}"""


@pytest.fixture
def url(tmp_path: Path, page: Page) -> Iterator[str]:
    """A cluster that asks for tokens, with the topic orders, and a page of it."""

    async def create(url: str) -> None:
        async with octopi.connect(url, token=everything()) as client:
            await client.create_topic("orders")

    with in_a_thread(guarded(tmp_path)) as register:
        trio.run(create, register)
        serve_console(page)
        page.add_init_script(CUTTABLE)
        open_client_page(page, register)
        yield register


def attempt(page: Page, token: str | None) -> tuple[Any, int]:
    found = page.evaluate(TRY, [token, 1_000])
    return found["outcome"], found["opened"]


def test_a_good_token_lets_in(page: Page, url: str) -> None:
    assert attempt(page, everything()) == ("from the page", 2)  # sockets: register and broker


@pytest.mark.parametrize(
    ("token", "code"),
    [
        (None, "unauthenticated"),
        ("nonsense", "unauthenticated"),
        (fresh(verbs=["publish"])[:-3] + "AAA", "unauthenticated"),
        (fresh(ttl_s=-60, verbs=["publish"]), "expired"),
    ],
    ids=["none", "nonsense", "forged", "expired"],
)
def test_a_bad_token_has_its_code_and_is_not_tried_again(
    page: Page, url: str, token: str | None, code: str
) -> None:
    assert attempt(page, token) == ([code, False], 1)


def test_what_a_token_does_not_grant_is_forbidden(page: Page, url: str) -> None:
    outcome, opened = attempt(page, fresh(verbs=["subscribe"]))
    assert outcome == ["forbidden", False]
    assert opened <= 2


READ = """async ([token, patience]) => {
    window.asked = 0;
    const give = Array.isArray(token) ? async () => token[Math.min(asked++, token.length - 1)] : token;
    const octopi = await Octopi.connect(undefined, { token: give });
    const orders = octopi.subscribe("orders");
    const states = [];
    octopi.addEventListener("state", ({ detail }) => states.push(detail.state));
    const outcome = await Promise.race([
        orders.next().then(() => "a message", (error) => error.code),
        new Promise((resolve) => setTimeout(resolve, patience, "still reading")),
    ]);
    const before = sockets.size;
    await new Promise((resolve) => setTimeout(resolve, 500));
    return { outcome, asked, states, before, after: sockets.size };
}"""  # noqa: E501


def test_an_expired_session_ends_and_stays_ended(page: Page, url: str) -> None:
    token = fresh(ttl_s=2, verbs=["subscribe"])
    found = page.evaluate(READ, [token, 10_000])
    assert found["outcome"] == "expired"
    assert found["after"] <= found["before"]


def test_a_token_is_renewed_before_it_expires(page: Page, url: str) -> None:
    tokens = [fresh(ttl_s=2, verbs=["subscribe"]) for _ in range(2)]
    tokens.append(fresh(ttl_s=3600, verbs=["subscribe"]))
    found = page.evaluate(READ, [tokens, 4_000])
    assert found["outcome"] == "still reading"
    assert found["states"] == []  # nobody had to connect again
    assert found["asked"] >= 3
