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
from tests.security.test_authorisation import everything, fresh, guarded

if TYPE_CHECKING:
    from playwright.sync_api import Page

LONG_MS = 300_000

# Counts the sockets that the page opens.
COUNTED = """
    const Plain = WebSocket;
    window.opened = 0;
    window.WebSocket = class extends Plain {
        constructor(...options) {
            super(...options);
            opened++;
        }
    };
"""

# All that a page with a token does.
TRY = """(token) => (async () => {
    const octopi = await Octopi.connect(undefined, { token });
    const receipt = await octopi.publish("orders", "from the page");
    const orders = octopi.subscribe("orders", { from: receipt.offset });
    for await (const one of orders) return one.text();
})().catch((error) => [error.code, error.retryable])"""


@pytest.fixture
def url(tmp_path: Path, page: Page) -> Iterator[str]:
    """A cluster that asks for tokens, with the topic orders, and a page of it."""

    async def create(url: str) -> None:
        async with octopi.connect(url, token=everything()) as client:
            await client.create_topic("orders")

    with in_a_thread(guarded(tmp_path)) as cluster:
        register = cluster.register.url
        trio.run(create, register)
        serve_console(page)
        page.add_init_script(COUNTED)
        page.clock.install()
        open_client_page(page, register)
        yield register


def attempt(page: Page, token: str | None) -> tuple[Any, int]:
    """How it went, and how many sockets were opened for that, also long after."""
    outcome = page.evaluate(TRY, token)
    opened = page.evaluate("opened")
    page.clock.run_for(LONG_MS)
    assert page.evaluate("opened") == opened
    return outcome, opened


def test_a_page_with_a_valid_token_can_publish_and_read(page: Page, url: str) -> None:
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


# Reads with a token, or with each of several in turn.
READ = """(tokens) => {
    window.asked = 0;
    window.states = [];
    const give = async () => tokens[Math.min(asked++, tokens.length - 1)];
    window.outcome = (async () => {
        const octopi = await Octopi.connect(undefined, { token: tokens.length > 1 ? give : tokens[0] });
        octopi.addEventListener("state", ({ detail }) => states.push(detail.state));
        const orders = octopi.subscribe("orders");
        await orders.ready;
        window.reading = true;
        return (await orders.next()).value.text();
    })().catch((error) => error.code);
}"""  # noqa: E501


def test_an_expired_session_ends_and_stays_ended(page: Page, url: str) -> None:
    page.evaluate(READ, [fresh(ttl_s=2, verbs=["subscribe"])])
    assert page.evaluate("outcome") == "expired"
    opened = page.evaluate("opened")
    page.clock.run_for(LONG_MS)
    assert page.evaluate("opened") == opened


def test_a_token_is_renewed_before_it_expires(page: Page, url: str) -> None:
    async def publish() -> None:
        async with octopi.connect(url, token=everything()) as client, client.producer() as producer:
            await producer.send("orders", b"after three tokens")

    tokens = [fresh(ttl_s=2, verbs=["subscribe"]) for _ in range(4)]
    tokens.append(fresh(ttl_s=3600, verbs=["subscribe"]))
    page.evaluate(READ, tokens)
    page.wait_for_function("() => window.reading")
    # Register and broker: a first token, one before that expires, and the last one.
    page.wait_for_function("() => asked >= 6")
    trio.run(publish)
    assert page.evaluate("outcome") == "after three tokens"
    assert page.evaluate("states") == []  # nobody had to connect again
