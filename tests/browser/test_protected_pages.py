"""The console and the client as operators have them: over TLS, and with tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.admin.nodes import Nodes, serving_nodes
from tests.admin.test_protected_nodes import certificates, token, with_tokens
from tests.browser.clusters import in_a_thread
from tests.browser.console_pages import ROWS, show, start_tail
from tests.browser.pages import http_url

if TYPE_CHECKING:
    from playwright.sync_api import Page

PUBLISH = """async ([token, text]) => {
    const { Octopi } = await import("/console/octopi.js");
    const octopi = await Octopi.connect(undefined, { token });
    await octopi.publish("orders", text);
    await octopi.close();
}"""


@asynccontextmanager
async def protected(directory: Path) -> AsyncIterator[Nodes]:
    """A register and a broker with certificates, that ask for tokens."""
    settings = with_tokens(directory, certificates(directory).settings)
    async with serving_nodes(directory, 1, common=settings) as nodes:
        yield nodes


def test_a_page_over_tls_asks_for_a_token_then_shows_reads_and_writes(
    tmp_path: Path, page: Page
) -> None:
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    with in_a_thread(protected(tmp_path)) as nodes:
        assert nodes.register.startswith("wss://")
        page.goto(f"{http_url(nodes.register)}/console/")
        page.fill("input[name=token]", "nonsense")
        page.click("text=Look")
        page.wait_for_selector("form .hint:has-text('token')")
        mine = token("app", create="orders", publish="orders", subscribe="*")
        page.fill("input[name=token]", mine)
        page.click("text=Look")
        page.wait_for_selector(".tiles")
        page.evaluate(PUBLISH, [mine, "before"])
        start_tail(page, "orders", "earliest")
        page.wait_for_selector(f"{ROWS}:text-is('before')")
        page.evaluate(PUBLISH, [mine, "after"])
        page.wait_for_selector(f"{ROWS}:text-is('after')")
        show(page, "subscriptions")
        # The node's own token doesn't grant what it takes to ask for subscriptions.
        page.wait_for_selector("#subscriptions .problem:has-text('orders: the token of the node')")
        page.reload()
        page.wait_for_selector("#subscriptions")  # the tab keeps the token
    assert {url.partition("//")[0] for url in sockets} == {"wss:"}
    assert not any(mine in url for url in sockets)
