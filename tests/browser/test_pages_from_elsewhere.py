"""Pages that no node serves: they import the client from a node and connect, or hear why not."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from harness.processes import node_processes
from octopi.cli.node_processes import node_environment
from tests.browser.pages import http_url
from tests.browser.tools import STATIC

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]

CONNECT = """async (url) => {
    const { Octopi } = await import("/octopi.js");
    const octopi = await Octopi.connect(url);
    const receipt = await octopi.publish("greetings", "hello");
    await octopi.close();
    return receipt.offset;
}"""
WHY_NOT = """async (url) => {
    const { Octopi } = await import("/octopi.js");
    const began = performance.now();
    try {
        await Octopi.connect(url);
    } catch ({ code, message, retryable }) {
        return { code, message, retryable, ms: performance.now() - began };
    }
}"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name there
        pass


@contextmanager
def web_server(folder: Path) -> Iterator[str]:
    """Serve *folder* as any web server would; gives the origin of its pages."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@contextmanager
def dev_cluster(directory: Path) -> Iterator[str]:
    """The url of the register of `octopi-node dev`."""
    with subprocess.Popen(
        [sys.executable, "-m", "octopi_node", "dev", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**node_environment(), "TMPDIR": str(directory)},
        text=True,
    ) as dev:
        try:
            assert dev.stdout is not None
            yield dev.stdout.readline().split()[-1]
        finally:
            dev.send_signal(signal.SIGINT)


def documented_page(register: str) -> str:
    """The page in the documents, for the cluster at *register*."""
    text = (ROOT / "docs/browser.md").read_text()
    [html] = re.findall(r"^```html\n(.*?)^```$", text, re.M | re.S)
    assert html.count("127.0.0.1:7000") == 2
    return str(html).replace("127.0.0.1:7000", register.removeprefix("ws://"))


def test_the_documented_page_of_another_web_server_runs(tmp_path: Path, page: Page) -> None:
    site = tmp_path / "site"
    site.mkdir()
    encodings: list[str | None] = []
    page.on(
        "response",
        lambda answer: (
            encodings.append(answer.headers.get("content-encoding"))
            if "/console/" in answer.url
            else None
        ),
    )
    with dev_cluster(tmp_path) as register, web_server(site) as origin:
        (site / "index.html").write_text(documented_page(register))
        for address in (origin, origin.replace("127.0.0.1", "localhost")):
            page.goto(f"{address}/index.html")
            page.wait_for_selector("li:has-text('hello from elsewhere')")
    assert encodings == ["gzip", "gzip"]  # one file for each page


def test_a_page_that_is_refused_hears_why_and_does_not_try_again(
    tmp_path: Path, page: Page
) -> None:
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    with node_processes(tmp_path) as nodes, web_server(STATIC) as origin:
        register = nodes.register()
        page.goto(f"{origin}/octopi.d.ts")
        seen: dict[str, Any] = page.evaluate(WHY_NOT, register.url)
    assert seen.pop("ms") < 3_000
    assert seen == {
        "code": "page_refused",
        "message": f"{register.url}: this node refuses pages from {origin}: "
        f"start it with --allow-origin {origin}",
        "retryable": False,
    }
    assert len(sockets) == 1


def test_a_page_connects_once_the_node_was_started_as_the_refusal_says(
    tmp_path: Path, page: Page
) -> None:
    with node_processes(tmp_path) as nodes, web_server(STATIC) as origin:
        register = nodes.register()
        page.goto(f"{origin}/octopi.d.ts")
        why = page.evaluate(WHY_NOT, register.url)["message"]
        flags = why.partition("start it with ")[2].split()
        allowing = nodes.node("allowing", "register", *flags).start()
        nodes.node("broker", "broker", "--register", allowing.url, *flags).start()
        assert page.evaluate(CONNECT, allowing.url) == 0


def test_a_page_whose_node_is_down_hears_that_and_goes_on_trying(
    tmp_path: Path, page: Page
) -> None:
    with node_processes(tmp_path) as nodes, web_server(STATIC) as origin:
        register = nodes.register("register", "--allow-origin", origin)
        nodes.broker(register, "broker", "--allow-origin", origin)
        page.goto(f"{origin}/octopi.d.ts")
        register.kill9()
        page.evaluate(f"(url) => {{ window.trying = ({CONNECT})(url); }}", register.url)
        with page.expect_event("requestfailed", timeout=20_000):
            pass  # its first attempt has failed, and the question why
        register.restart()
        assert page.evaluate("() => window.trying") == 0


def test_a_page_from_elsewhere_can_not_import_the_client_of_a_node_that_refuses_it(
    tmp_path: Path, page: Page
) -> None:
    with node_processes(tmp_path) as nodes, web_server(STATIC) as origin:
        url = f"{http_url(nodes.register().url)}/console/octopi.js"
        page.goto(f"{origin}/octopi.d.ts")
        outcome = page.evaluate(
            "(url) => import(url).then(() => 'imported', (error) => error.name)", url
        )
    assert outcome == "TypeError"
