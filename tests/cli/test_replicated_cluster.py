"""Looking at, draining and changing a cluster of three brokers, by the program."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from click.testing import Result

from harness.processes import NodeProcess, NodeProcesses, node_processes
from tests.cli.conftest import Program

pytestmark = pytest.mark.process

WAIT_S = 30.0


@attrs.frozen
class ThreeBrokers:
    """A register and three brokers as processes."""

    register: NodeProcess
    brokers: list[NodeProcess]
    """In the order of their ids, 1 to 3."""


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTOPI_TIMEOUT_S", "20")


def three_brokers(processes: NodeProcesses, *options: str) -> ThreeBrokers:
    register = processes.register("register", "--gather", "0", *options)
    brokers = [
        processes.node(
            f"broker-{number}", "broker", "--id", str(number), "--register", register.url
        )
        for number in (1, 2, 3)
    ]
    for broker in brokers:
        broker.launch()
    for broker in brokers:
        broker.wait_ready()
    return ThreeBrokers(register, brokers)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    """For tests that leave the brokers running; each has a topic of its own."""
    with node_processes(tmp_path_factory.mktemp("cluster")) as processes:
        yield three_brokers(processes)


@pytest.fixture
def ask(program: Program, cluster: ThreeBrokers, monkeypatch: pytest.MonkeyPatch) -> Program:
    """The program, which asks that cluster."""
    monkeypatch.setenv("OCTOPI_SERVER", cluster.register.url)
    return program


def outside(*arguments: str, stdin: str = "") -> str:
    """The program in a process of its own, where messages go through real files."""
    command = [sys.executable, "-m", "octopi_node", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=True)
    return done.stdout


def produce(topic: str, lines: str) -> None:
    outside("produce", topic, stdin=lines)


def fields(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def eventually_healthy(program: Program) -> Result:
    deadline = time.monotonic() + WAIT_S
    while (result := program("status")).exit_code:
        assert time.monotonic() < deadline, result.output
    return result


def test_status_shows_every_replica_and_that_none_is_behind(ask: Program) -> None:
    assert ask("topics", "create", "seen", "--on", "1").exit_code == 0
    produce("seen", "one\ntwo\n")
    result = eventually_healthy(ask)
    assert all(len(line) <= 100 for line in result.stdout.splitlines())
    everything = fields(ask("status", "--json"))
    found = [one for one in everything["replicas"] if one["partition"] == 1]
    assert sorted(one["broker"] for one in found) == [1, 2, 3]
    assert [one["role"] for one in found] == ["leader", "follower", "follower"]
    assert {(one["state"], one["lag_bytes"]) for one in found} == {("in sync", 0)}
    assert len({one["log_end"] for one in found}) == 1
    assert found[0]["log_end"] > 0
    held = [one["broker"] for one in everything["logs"] if one["log"]["topic"] == "seen"]
    assert held == [1, 2, 3]


def test_a_topic_is_described_with_every_replica(ask: Program) -> None:
    created = ask("topics", "create", "safe", "--on", "2", "--min-insync", "2")
    assert created.exit_code == 0
    eventually_healthy(ask)
    described = ask("topics", "describe", "safe")
    assert described.stdout.splitlines()[0].endswith("): min_insync 2")
    assert described.stdout.count("  in sync  ") == 3
    assert all(len(line) <= 100 for line in described.stdout.splitlines())
    shown = fields(ask("topics", "describe", "safe", "--json"))
    assert len(shown["replicas"]) == len(shown["logs"]) == 3
    assert {one["log"]["topic"] for one in shown["logs"]} == {"safe"}


def test_a_drained_broker_leads_nothing(ask: Program) -> None:
    assert ask("topics", "create", "drained", "--on", "3,4,5").exit_code == 0
    eventually_healthy(ask)
    result = ask("brokers", "drain", "2")
    assert (result.exit_code, result.stderr) == (
        0,
        "broker 2 leads no partition; it can be restarted now\n",
    )
    listed = ask("brokers", "list").stdout.splitlines()
    headings = "BROKER ADDRESS STATE LEADS LOAD REPLICAS STARTS VERSION UPTIME DISK FREE"
    assert listed[0].split() == headings.split()
    second = listed[2].split()
    assert (second[0], second[2:4]) == ("2", ["drained", "0"])
    brokers = json.loads(ask("brokers", "list", "--json").stdout)
    assert brokers[1]["partitions_led"] == 0
    eventually_healthy(ask)


def test_draining_an_unknown_broker_is_refused(ask: Program) -> None:
    result = ask("brokers", "drain", "77")
    assert result.exit_code == 4
    assert "no broker 77" in result.stderr


def test_partitions_are_added_and_listed(ask: Program) -> None:
    before = fields(ask("partitions", "list", "--json"))["partition_count"]
    result = ask("partitions", "add", "2")
    assert (result.exit_code, result.stderr) == (0, f"the cluster has {before + 2} partitions\n")
    assert ask("topics", "create", "wide", "--on", str(before + 1)).exit_code == 0
    listed = ask("partitions", "list").stdout.splitlines()
    assert listed[-1].endswith(f" of {before + 2} partitions in use")
    assert str(before + 1) in [line.split()[0] for line in listed[1:-2]]
    assert ask("partitions", "add", "0").exit_code == 2


def test_a_killed_broker_is_away_its_partitions_are_marked_and_its_replica_moves(
    program: Program, nodes: NodeProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = three_brokers(nodes, "--replicas", "2")
    monkeypatch.setenv("OCTOPI_SERVER", cluster.register.url)
    assert program("topics", "create", "orders", "--on", "6", "--min-insync", "2").exit_code == 0
    produce("orders", "one\n")
    eventually_healthy(program)
    place = fields(program("topics", "describe", "orders", "--json"))
    leader, follower = place["partitions"][0]["replicas"]
    (spare,) = {1, 2, 3} - {leader, follower}
    cluster.brokers[leader - 1].kill9()
    deadline = time.monotonic() + WAIT_S
    while fields(result := program("status", "--json"))["partitions"][0]["leader"] != follower:
        assert time.monotonic() < deadline, "nobody takes the lead"
    assert result.exit_code == 1
    shown = program("status")
    assert shown.exit_code == 1
    assert shown.stdout.endswith(
        f"not healthy:\n  broker {leader} is away\n  under-replicated: partition 6\n"
    )
    assert "  under-replicated\n" in program("partitions", "list").stdout
    assert "produce waits: in sync 1 < 2" in program("topics", "describe", "orders").stdout

    refused = program("brokers", "remove", str(leader))
    assert refused.exit_code == 4
    assert "move its replicas: `octopi-node partitions move" in refused.stderr

    moved = program("partitions", "move", "6", "--from", str(leader), "--to", str(spare))
    assert moved.exit_code == 0, moved.stderr
    assert moved.stderr == f"partition 6: moved from broker {leader} to broker {spare}\n"
    assert "retired" in eventually_healthy(program).stdout
    produce("orders", "two\n")
    assert outside("consume", "orders", "-e") == "one\ntwo\n"

    again = program("partitions", "move", "6", "--from", str(leader), "--to", str(spare))
    assert again.exit_code == 4
    assert "partition 6 lies on brokers" in again.stderr

    removed = program("brokers", "remove", str(leader))
    assert (removed.exit_code, removed.stderr) == (
        0,
        f"broker {leader} is removed from the cluster\n",
    )
    assert "retired" not in program("status").stdout
