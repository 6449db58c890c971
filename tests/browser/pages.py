"""A browser for tests: one Chromium for all, a fresh profile for each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.tools import STATIC, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

HERE = Path(__file__).parent


_launched: list[Browser] = []


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium, without a window; the one that runs already, as a thread has only one."""
    if _launched:
        yield _launched[-1]
        return
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--disable-gpu"])
        _launched.append(launched)
        try:
            yield launched
        finally:
            _launched.remove(launched)
            launched.close()


def http_url(url: str) -> str:
    """Where the node at *url* serves pages."""
    return url.replace("ws", "http", 1)


def serve_console(page: Page) -> None:
    """Give *page* the console's files where the node has no pages itself."""

    def serve(route: Route) -> None:
        file = STATIC / route.request.url.partition("/console/")[2]
        script = file.suffix == ".js"
        route.fulfill(path=file, content_type="text/javascript" if script else "text/plain")

    # What a route serves comes from nowhere for Chromium, which then asks before it connects here.
    page.context.grant_permissions(["local-network-access"])
    page.route("**/console/**", serve)


def open_client_page(
    page: Page, node: str, scripts: Path = HERE, client: str = "octopi.js"
) -> None:
    """A page of the node at *node* in which ``Octopi`` of the file *client* is there; the *scripts*
    of a folder are served to it below ``/test/``."""

    def serve(route: Route) -> None:
        script = scripts / route.request.url.rpartition("/")[2]
        route.fulfill(path=script, content_type="text/javascript")

    page.route("**/test/*.mjs", serve)
    page.goto(f"{http_url(node)}/console/octopi.d.ts")
    page.evaluate(
        "async (client) => { Object.assign(window, await import(`/console/${client}`)); }", client
    )
