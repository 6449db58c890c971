"""A page that missed a change of leaders publishes on while the register is down."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio

import octopi
from harness.processes import node_processes
from tests.browser.test_reading import leader_of, start_cluster
from tests.browser.tools import STATIC, node_command

pytestmark = pytest.mark.process


async def _prepare(url: str) -> None:
    async with octopi.connect(url) as client:
        await client.create_topic("orders", partition_ids=[0])


async def _next_leader(url: str, old: int) -> None:
    """Wait until another broker than *old* leads."""
    async with octopi.connect(url) as client:
        with trio.fail_after(30):
            while True:
                (place,) = (await client.describe_topic("orders")).partitions
                if place.leader not in {None, old}:
                    return
                await trio.sleep(0.1)


@pytest.mark.parametrize("given", ["register", "broker"])
def test_a_page_publishes_on_without_the_register(tmp_path: Path, given: str) -> None:
    with node_processes(tmp_path) as nodes:
        register, brokers = start_cluster(nodes)
        trio.run(_prepare, register.url)
        old = trio.run(leader_of, register.url, "orders")
        other = next(broker for number, broker in brokers.items() if number != old)
        url = register.url if given == "register" else other.url
        script = Path(__file__).with_name("without_register.mjs")
        command = [*node_command(), str(script), STATIC.as_uri(), url]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as page:
            assert page.stdin is not None
            assert page.stdout is not None

            def ask(line: str) -> Any:  # noqa: ANN401
                assert page.stdin is not None
                assert page.stdout is not None
                page.stdin.write(f"{line}\n")
                page.stdin.flush()
                return json.loads(page.stdout.readline())

            try:
                assert not ask("publish before")["duplicate"]
                brokers[old].kill9()
                trio.run(_next_leader, register.url, old)
                register.kill9()
                assert not ask("publish after")["duplicate"]
                register.restart()
                assert ask("read 2") == ["before", "after"]
            finally:
                page.kill()
