"""A page publishes to, and reads from, topics in memory, and computes their digests."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio

import octopi
from harness.processes import node_processes
from tests.browser.tools import STATIC, node_command
from tests.cli.test_relay_commands import start_relays

pytestmark = pytest.mark.process


async def _sequencer(url: str) -> int:
    async with octopi.connect(url) as client:
        [place] = (await client.describe_topic("orders", create=True)).partitions
        assert place.leader is not None
        return place.leader


def test_a_page_goes_on_when_the_sequencer_of_its_relays_is_killed(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        relays = start_relays(nodes)
        sequencer = relays[trio.run(_sequencer, relays[0].url) - 1]
        urls = [sequencer.url, *(one.url for one in relays if one is not sequencer)]
        script = Path(__file__).with_name("without_register.mjs")
        command = [*node_command(), str(script), STATIC.as_uri(), ",".join(urls)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as page:

            def ask(line: str) -> Any:  # noqa: ANN401
                assert page.stdin is not None
                assert page.stdout is not None
                page.stdin.write(f"{line}\n")
                page.stdin.flush()
                return json.loads(page.stdout.readline())

            try:
                first = ask("publish before")
                assert ask("read 1") == ["before"]
                assert ask("prove 1") == ["before"]
                sequencer.kill9()
                second = ask("publish after")
                assert ask("read 1") == ["after"]
                assert ask("prove 1") == ["after"], "at another relay, with the same digests"
                assert ask(f"behind {first['id']}") == "after"
                assert ask(f"behind {'00' * 16}") == "offset_out_of_range"
                assert ask("behind 00") == "invalid_option"
            finally:
                page.kill()
    assert (len(first["id"]), len(first["digest"])) == (32, 64)
    assert first["id"] < second["id"], "ids sort by time"
    assert first["digest"] != second["digest"]
