"""The client in programs of Node, which has no page around it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.processes import node_processes
from tests.browser.tools import STATIC, node_command

HERE = Path(__file__).parent


def run_in_node(script: str, *arguments: str) -> Any:  # noqa: ANN401  # JSON is any of many types
    done = subprocess.run(
        [*node_command(), str(HERE / script), STATIC.as_uri(), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_hundreds_of_subscriptions_under_one_signal_warn_of_nothing_and_end_with_it() -> None:
    seen = run_in_node("many_subscriptions.mjs")
    assert seen == {"count": 800, "names": ["AbortError"], "warnings": []}


@pytest.mark.process
def test_a_program_without_a_websocket_is_told_what_to_do_and_may_bring_one(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        seen = run_in_node("given_websocket.mjs", register.url)
    assert seen["offset"] == 0
    assert seen["ms"] < 3_000
    assert seen["why"]["code"] == "invalid_option"
    assert seen["why"]["retryable"] is False
    assert "Node 22" in seen["why"]["message"]
    assert "option WebSocket" in seen["why"]["message"]


@pytest.mark.process
def test_a_reading_waits_for_its_topic_and_misses_nothing(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        seen = run_in_node("waiting_reading.mjs", register.url)
    assert seen["why"]["code"] == "unknown_topic"
    assert seen["why"]["message"].startswith("waited 700 ms for topic orders; last: ")
    assert 700 <= seen["ms"] < 3_000
    assert seen["reason"] == "AbortError"
    assert seen["read"] == ["first", "second", "a parasol"]
