"""Every command that talks to a cluster works with the address of a broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from harness.processes import NodeProcesses
from octopi.cli.failures import ExitCode
from tests.cli.conftest import Program, RunningCluster

pytestmark = pytest.mark.process

NOBODY = "ws://127.0.0.1:1"
"""An address at which no process listens."""


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTOPI_TIMEOUT_S", "20")


Run = Callable[..., Result]


@pytest.fixture
def run(program: Program, cluster: RunningCluster) -> Run:
    """The program with these arguments, told the broker's address alone."""

    def at_broker(*arguments: str, **settings: object) -> Result:
        return program(*arguments, "--server", cluster.broker.url, **settings)

    return at_broker


def test_topics_messages_and_subscriptions_at_a_broker(
    run: Run, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"one\ntwo\nthree\n")
    assert run("topics", "create", "orders", "--partitions", "2").exit_code == 0
    assert run("topics", "list").stdout.splitlines()[1].split()[0] == "orders"
    assert run("topics", "describe", "orders").stdout.startswith("orders (id ")
    produced = run("produce", "orders", "-f", str(lines))
    assert produced.exit_code == 0, produced.stderr
    capfdbinary.readouterr()
    consumed = run("consume", "orders", "-e")
    assert consumed.exit_code == 0, consumed.stderr
    assert sorted(capfdbinary.readouterr().out.splitlines()) == [b"one", b"three", b"two"]
    made = run("subscriptions", "create", "billing", "--topic", "orders", "--mode", "shared")
    assert made.exit_code == 0, made.stderr
    assert "billing" in run("subscriptions", "list").stdout
    described = run("subscriptions", "describe", "billing", "--topic", "orders")
    assert described.exit_code == 0, described.stderr
    listed = run("dead-letters", "list", "billing", "--topic", "orders")
    assert listed.exit_code == 0, listed.stderr
    gone = run("subscriptions", "delete", "billing", "--topic", "orders", "--yes")
    assert gone.exit_code == 0, gone.stderr
    deleted = run("topics", "delete", "orders", "--yes")
    assert deleted.stderr == "deleted orders\n"


def test_the_cluster_is_looked_at_and_operated_at_a_broker(
    run: Run, program: Program, cluster: RunningCluster
) -> None:
    assert run("topics", "create", "watched").exit_code == 0
    for command in (["status"], ["brokers", "list"], ["partitions", "list"]):
        here = json.loads(run(*command, "--json").stdout)
        there = json.loads(program(*command, "--json", "--server", cluster.url).stdout)
        assert here.keys() == there.keys() if isinstance(here, dict) else len(here) == len(there)
    assert run("consumers", "list").exit_code == 0
    added = run("partitions", "add", "1")
    assert added.exit_code == 0, added.stderr
    refused = run("brokers", "remove", "1")
    assert (refused.exit_code, "broker 1" in refused.stderr) == (ExitCode.REFUSED, True)
    unknown = run("brokers", "drain", "99")
    assert unknown.exit_code == ExitCode.REFUSED
    assert "99" in unknown.stderr
    assert run("topics", "delete", "watched", "--yes").exit_code == 0


def test_the_first_of_several_addresses_that_answers_is_used(
    program: Program, cluster: RunningCluster
) -> None:
    away = NOBODY
    listed = program("topics", "list", "--server", f"{away}, {cluster.broker.url}")
    assert listed.exit_code == 0, listed.stderr


def test_a_dead_or_wrong_address_is_named(program: Program) -> None:
    away = NOBODY
    failed = program("topics", "list", "--server", away, "--timeout", "0.5")
    assert failed.exit_code == ExitCode.UNREACHABLE
    assert away in failed.stderr
    wrong = program("topics", "list", "--server", "http://127.0.0.1:7000")
    assert wrong.exit_code == ExitCode.USAGE
    assert "write ws://host:port" in wrong.stderr


def test_a_broker_without_its_register_says_so(program: Program, nodes: NodeProcesses) -> None:
    register = nodes.register()
    broker = nodes.broker(register)
    assert program("topics", "create", "orders", "--server", broker.url).exit_code == 0
    register.kill9()
    failed = program("topics", "list", "--server", broker.url, "--timeout", "2")
    assert failed.exit_code == ExitCode.REFUSED
    assert "can't reach its register" in failed.stderr


def test_a_broker_passes_on_what_is_produced_for_other_leaders(
    program: Program, nodes: NodeProcesses, tmp_path: Path
) -> None:
    register = nodes.register()
    brokers = [nodes.broker(register, f"broker-{number}") for number in (1, 2)]
    made = program("topics", "create", "orders", "--partitions", "8", "--server", register.url)
    assert made.exit_code == 0, made.stderr
    lines = [b"%d" % number for number in range(100)]
    (tmp_path / "lines").write_bytes(b"\n".join(lines) + b"\n")
    for broker in brokers:
        options = ("--server", broker.url, "--on-wrong-node", "forward", "--key-separator", "x")
        produced = program("produce", "orders", "-f", str(tmp_path / "lines"), *options)
        assert produced.exit_code == 0, produced.stderr
        assert "100 messages" in produced.stderr
    refused = program(
        "produce", "orders", "one", "--server", register.url, "--on-wrong-node", "forward"
    )
    assert refused.exit_code != 0
    assert "name one" in refused.stderr
