"""`octopi-node dev`: its greeting, its names, its TLS and its tokens."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest
import trio

from octopi.cli import broker_nodes, register_nodes
from octopi.cli.config import BrokerSettings
from octopi.cli.free_ports import free_ports_in_a_row
from octopi.cli.node_processes import node_environment
from tests.cli.conftest import Program

pytestmark = pytest.mark.process


@attrs.define
class Dev:
    """A cluster for development, and what it said; all of that is there after the block."""

    url: str
    process: subprocess.Popen[str]
    said: str = ""


@contextmanager
def dev(*options: str, **variables: str) -> Iterator[Dev]:
    """Run `octopi-node dev` until the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "octopi_node", "dev", "--listen", "127.0.0.1:0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=node_environment() | variables,
        text=True,
    ) as process:
        assert process.stdout is not None
        running = Dev(process.stdout.readline().split()[-1], process)
        try:
            yield running
        finally:
            process.send_signal(signal.SIGINT)
            _, running.said = process.communicate(timeout=30)
    assert process.returncode == 0, running.said


def test_dev_greets_people_with_what_they_do_next(program: Program, tmp_path: Path) -> None:
    with dev("--data-dir", "here", OCTOPI_LOG_FORMAT="console") as running:
        pass
    greeting = running.said[running.said.index("  console  ") :]
    assert f"console  http://{running.url.removeprefix('ws://')}/console/" in greeting
    assert f"data     {tmp_path}/here\n" in greeting
    assert f"export OCTOPI_SERVER={running.url}\n" in greeting
    assert len(re.findall(r"octopi-node (?:produce|consume|status)", greeting)) == 3


def test_what_dev_greets_with_works_when_it_is_typed(tmp_path: Path) -> None:
    octopi_node = tmp_path / "octopi-node"
    octopi_node.write_text(f'#!/bin/sh\nexec {sys.executable} -m octopi_node "$@"\n')
    octopi_node.chmod(0o755)
    with dev("--tls", "--auth", "--data-dir", "a folder", "--brokers", "2") as running:
        assert running.process.stderr is not None
        lines = iter(running.process.stderr.readline, "")
        ready = next(one for one in map(json.loads, lines) if one["event"] == "cluster ready")
        variables = {**node_environment(), **ready["environment"]}
        assert variables["OCTOPI_SERVER"] == running.url
        variables["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
        typed = "seq 1000 | octopi-node produce numbers; octopi-node consume numbers -o earliest -e"
        done = subprocess.run(
            ["sh", "-ec", f"{typed}; octopi-node status >&2"],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert sorted(map(int, done.stdout.split())) == list(range(1, 1001))
        assert "2 of 2 brokers up" in done.stderr


def test_a_cluster_of_dev_with_tls_and_tokens_refuses_strangers_and_comes_back(
    program: Program, tmp_path: Path
) -> None:
    options = ("--tls", "--auth", "--data-dir", "here")
    security = tmp_path / "here" / "security"
    (tmp_path / "line").write_text("kept\n")
    mine = ("--tls-ca", str(security / "tls" / "ca.pem"))
    token = ("--token-file", str(security / "user.token"))
    with dev(*options) as running:
        assert running.url.startswith("wss://")
        stranger = program("status", "--server", running.url, *mine)
        assert (stranger.exit_code, "token" in stranger.stderr) == (4, True)
        kept = program("produce", "notes", "-f", "line", "--server", running.url, *mine, *token)
        assert kept.exit_code == 0, kept.stderr
    secrets = [security / one for one in ("keys.json", "node.token", "user.token", "tls/node.key")]
    assert {stat.S_IMODE(one.stat().st_mode) for one in secrets} == {0o600}
    before = [one.read_bytes() for one in secrets]
    with dev(*options) as running:
        topics = program("topics", "list", "--server", running.url, *mine, *token)
        assert "notes" in topics.stdout
    assert [one.read_bytes() for one in secrets] == before


def test_a_cluster_of_dev_may_have_three_registers_and_is_kept(
    program: Program, tmp_path: Path
) -> None:
    (tmp_path / "line").write_text("kept\n")
    first, second, third = free_ports_in_a_row(3)
    options = ("--registers", "3", "--data-dir", "here", "--listen", f"127.0.0.1:{first}")
    urls = ",".join(f"ws://127.0.0.1:{port}" for port in (first, second, third))
    for expected in ("", "notes"):
        with dev(*options) as running:
            assert running.url == urls
            for url in running.url.split(","):
                topics = program("topics", "list", "--server", url)
                assert expected in topics.stdout, topics.stderr
            made = program("produce", "notes", "-f", "line", "--server", running.url)
            assert made.exit_code == 0, made.stderr
        assert "Traceback" not in running.said
    read = {one.name for one in (tmp_path / "here").iterdir()}
    assert {"register-1", "register-2", "register-3", "join-secret", "broker-1"} <= read


@pytest.mark.parametrize(
    ("made", "registers", "port", "why"),
    [
        ("register", "3", 7000, "--registers 1"),
        ("register-1 register-2 register-3", "1", 7000, "--registers 3"),
        ("register-1 register-2 register-3", "5", 7000, "--registers 3"),
        ("", "3", 0, "name a port"),
    ],
)
def test_dev_refuses_registers_that_would_not_know_each_other(
    program: Program, tmp_path: Path, made: str, registers: str, port: int, why: str
) -> None:
    for name in made.split():
        (tmp_path / "here" / name).mkdir(parents=True)
    where = ("--listen", f"127.0.0.1:{port}", "--data-dir", "here")
    done = program("dev", "--registers", registers, *where)
    assert done.exit_code == 2
    assert why in done.stderr


@pytest.mark.usefixtures("logging_as_it_was")
def test_ids_directories_and_log_lines_of_dev_agree(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int | None, str]] = []

    async def register(
        settings: object, common: object, stop: trio.Event, ready: Callable[[str], None]
    ) -> None:
        ready("ws://127.0.0.1:7000")
        await stop.wait()

    async def broker(
        settings: BrokerSettings, common: object, stop: trio.Event, ready: Callable[[str], None]
    ) -> None:
        seen.append((settings.id, Path(settings.data_dir).name))
        ready("")
        if len(seen) == 3:
            signal.raise_signal(signal.SIGINT)
        await stop.wait()

    monkeypatch.setattr(register_nodes, "run_register_node", register)
    monkeypatch.setattr(broker_nodes, "run_broker_node", broker)
    done = program("dev", "--brokers", "3", "--data-dir", "here")
    assert done.exit_code == 0, done.stderr
    assert sorted(seen) == [(1, "broker-1"), (2, "broker-2"), (3, "broker-3")]
    assert done.stdout == "ready register ws://127.0.0.1:7000\n"
