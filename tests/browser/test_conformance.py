"""One script, carried out by the Python client, by Node and by a page: they see the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

import octopi
from harness.processes import node_processes
from tests.browser.conformance import SCRIPT, carry_out
from tests.browser.pages import open_client_page
from tests.browser.tools import STATIC, node_command

if TYPE_CHECKING:
    from playwright.sync_api import Page

STEPS = json.loads(SCRIPT.read_text())


async def _prepare(url: str, prefix: str) -> None:
    async with octopi.connect(url) as client:
        await client.create_topic(prefix + "wide", partition_ids=[0, 1, 2, 3])
        await client.create_topic(prefix + "plain", partition_ids=[0])


async def _in_python(url: str, prefix: str) -> list[Any]:
    await _prepare(url, prefix)
    return await carry_out(url, prefix)


def _in_node(url: str, prefix: str) -> list[Any]:
    script = Path(__file__).with_name("conformance.mjs")
    command = [*node_command(), str(script), STATIC.as_uri(), url, prefix, str(SCRIPT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def _in_a_page(page: Page, url: str, prefix: str) -> list[Any]:
    open_client_page(page, url)
    return page.evaluate(  # type: ignore[no-any-return]
        """async ([prefix, steps]) => {
            const { carryOut } = await import("/test/conformance.mjs");
            return carryOut(Octopi, undefined, prefix, steps);
        }""",
        [prefix, STEPS],
    )


@pytest.mark.process
def test_all_clients_see_the_same_results(tmp_path: Path, page: Page) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)
        in_python = trio.run(_in_python, register.url, "python-")
        for name in ("node", "page", "page-of-a-broker"):
            trio.run(_prepare, register.url, f"{name}-")
        others = {
            "node": _in_node(register.url, "node-"),
            "page": _in_a_page(page, register.url, "page-"),
            "page of a broker": _in_a_page(page, broker.url, "page-of-a-broker-"),
        }
    assert len(in_python) == len(STEPS)
    for name, seen in others.items():
        for step, expected, found in zip(STEPS, in_python, seen, strict=True):
            assert found == expected, (name, step)
