"""Opens views of the console, and reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import octopi
from harness.processes import NodeProcesses, node_processes
from tests.browser.pages import http_url

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROWS = ".messages .value"
LONG_NAME = "a-topic-with-a-rather-long-name.of-the-kind-that-programs-make"


def open_console(page: Page, node: str, view: str = "") -> None:
    """Open the console of *node*, at the address *view* (``topics/orders``)."""
    page.goto("about:blank")  # an address that differs only behind "#" would not be loaded anew
    page.goto(f"{http_url(node)}/console/#/{view}")
    page.wait_for_selector("header nav")


def warm(node: str) -> None:
    """Have the broker *node* look at the cluster: without the register, it shows what it has
    seen."""
    with urlopen(f"{http_url(node)}/api/v1/cluster?limit=1"):
        pass


def show(page: Page, view: str) -> None:
    """Go to another view of the console that is open."""
    page.evaluate("(view) => { location.hash = `#/${view}`; }", view)


def start_tail(page: Page, topic: str, start: str = "latest") -> None:
    show(page, "messages")
    page.fill("#tail-topic", topic)
    page.select_option("#tail-from", start)
    page.click("#tail button.primary")
    page.wait_for_selector("#pause:enabled")
    page.wait_for_function("() => /live/.test(document.querySelector('#tail h2').textContent)")


def text_of(page: Page, selector: str) -> str:
    return " ".join(page.locator(selector).all_inner_texts())


@contextmanager
def small_cluster(directory: Path) -> Iterator[tuple[str, NodeProcesses]]:
    """A register and a broker: the register's address, and the nodes."""
    with node_processes(directory) as nodes:
        register = nodes.register()
        nodes.broker(register)
        yield register.url, nodes


async def fill(url: str, topic: str, *messages: tuple[bytes | None, bytes]) -> None:
    async with octopi.connect(url) as client, client.producer() as producer:
        for key, value in messages:
            await producer.send(topic, value, key=key, headers={"trace": b"t-1"})


async def create_topics(url: str, *names: str) -> None:
    async with octopi.connect(url) as client:
        for name in names:
            await client.create_topic(name)
