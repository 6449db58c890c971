"""octopi.min.js: the client in one file, and what subscriptions need in a second one."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

import octopi
from harness.processes import node_processes
from octopi.console.static_files import console_file
from octopi.transport.http_requests import Asker, HttpRequest
from tests.browser.pages import http_url
from tests.browser.tools import STATIC

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]
BUNDLER = ROOT / ".tools/bundler/node_modules/.bin/rollup"
CONFIGURATION = ROOT / "requirements/bundler/rollup.config.mjs"
BUNDLE = "octopi.min.js"
BYTES_MAX = 17_500
"""It has 16,800; docs/browser.md and decision 66 say so."""
SUBSCRIPTIONS_BYTES_MAX = 13_000
"""It has 11,300."""

PUBLISH_AND_READ = """async (file) => {
    const { Octopi } = await import(file);
    window.octopi = await Octopi.connect();
    await octopi.publish("orders", "a parasol", { key: "customer-8" });
    for await (const order of octopi.subscribe("orders", { from: "earliest" })) return order.text();
}"""
JOIN = """async () => {
    const orders = await octopi.subscription("orders", { name: "billing" });
    const { value: order } = await orders.next();
    await orders.commit();
    await octopi.close();
    return order.text();
}"""


def subscriptions() -> Path:
    """The second file; its name has a hash of what is in it."""
    [path] = STATIC.glob("octopi-subscriptions-*.min.js")
    return path


def test_the_bundle_is_what_the_bundler_makes_of_the_modules(tmp_path: Path) -> None:
    if not BUNDLER.exists():
        if os.environ.get("CI"):
            pytest.fail("CI has to install the bundler: `make .tools/bundler`")
        pytest.skip("there is no bundler: `make .tools/bundler` installs it")
    command: list[str | Path] = [BUNDLER, "--silent", "--config", CONFIGURATION, "--dir", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    there = {path.name: path.read_text() for path in STATIC.glob("*.min.js")}
    assert made == there, "`make bundle` makes them again"


@pytest.mark.parametrize(
    ("name", "bytes_max"),
    [(BUNDLE, BYTES_MAX), (subscriptions().name, SUBSCRIPTIONS_BYTES_MAX)],
)
def test_a_node_sends_the_bundle_compressed_and_once(name: str, bytes_max: int) -> None:
    def ask(**headers: str) -> HttpRequest:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return HttpRequest("GET", f"/console/{name}", {}, named, Asker("test"))

    answer = console_file(ask(accept_encoding="gzip, br"))
    headers = dict(answer.headers)
    assert headers["content-encoding"] == "gzip"
    assert gzip.decompress(answer.body) == (STATIC / name).read_bytes()
    assert len(answer.body) <= bytes_max
    again = console_file(ask(accept_encoding="gzip, br", if_none_match=headers["etag"]))
    assert (again.status, again.body) == (304, b"")


def test_the_first_file_loads_the_second_one_only_for_subscriptions() -> None:
    text = (STATIC / BUNDLE).read_text()
    assert re.findall(r'import\(?"\./([^"]*)"', text) == [subscriptions().name]
    assert "/client/" not in text
    assert set(re.findall(r'from"([^"]*)"', subscriptions().read_text())) == {f"./{BUNDLE}"}


@pytest.mark.process
def test_a_page_loads_one_file_and_another_one_with_its_first_subscription(
    tmp_path: Path, page: Page
) -> None:
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url.rpartition("/")[2]))
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        page.goto(f"{http_url(register.url)}/console/octopi.d.ts")
        loaded.clear()
        assert page.evaluate(PUBLISH_AND_READ, f"/console/{BUNDLE}") == "a parasol"
        assert [name for name in loaded if name.endswith(".js")] == [BUNDLE]
        assert page.evaluate(JOIN) == "a parasol"
        assert [name for name in loaded if name.endswith(".js")] == [BUNDLE, subscriptions().name]


@pytest.mark.process
def test_a_page_that_can_not_load_the_second_file_is_told_so(tmp_path: Path, page: Page) -> None:
    page.route("**/octopi-subscriptions-*", lambda route: route.fulfill(status=404))
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        page.goto(f"{http_url(register.url)}/console/octopi.d.ts")
        assert page.evaluate(PUBLISH_AND_READ, f"/console/{BUNDLE}") == "a parasol"
        why = page.evaluate(
            f"() => ({JOIN})().catch(({{ code, message }}) => ({{ code, message }}))"
        )
    assert why["code"] == "unreachable"
    assert why["message"].startswith("a part of the code was not loaded: ")
    assert "load the page again" in why["message"]


@pytest.mark.process
def test_a_client_that_is_closed_while_it_loads_the_second_file_joins_nothing(
    tmp_path: Path, page: Page
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        page.goto(f"{http_url(register.url)}/console/octopi.d.ts")
        assert page.evaluate(PUBLISH_AND_READ, f"/console/{BUNDLE}") == "a parasol"
        code = page.evaluate(
            """async () => {
                const joining = octopi.subscription("orders", { name: "billing" });
                await octopi.close();
                return joining.catch(({ code }) => code);
            }"""
        )
        assert code == "closed"
        assert trio.run(_subscriptions, register.url) == []


async def _subscriptions(url: str) -> list[str]:
    async with octopi.connect(url) as client:
        return [one.name for one in await client.admin.subscriptions("orders")]
