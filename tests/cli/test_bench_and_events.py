"""Measuring a cluster, and following what happens to it, by the program."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from harness.processes import NodeProcesses
from octopi.cli.benchmark import Result as BenchResult, Times
from tests.cli.conftest import Program, RunningCluster

pytestmark = pytest.mark.process

Run = Callable[..., Result]


@pytest.fixture
def run(program: Program, cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The program, with the address of the cluster."""
    monkeypatch.setenv("OCTOPI_SERVER", cluster.url)
    monkeypatch.setenv("OCTOPI_TIMEOUT_S", "20")
    return program


def started(*arguments: str) -> subprocess.Popen[str]:
    """The program as a process."""
    return subprocess.Popen(
        [sys.executable, "-m", "octopi_node", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def topics(run: Run) -> set[str]:
    """The names of all topics."""
    return {one["topic"] for one in json.loads(run("topics", "list", "--json").stdout)}


def test_each_workload_is_measured_and_the_topic_is_gone_in_the_end(run: Run) -> None:
    before = topics(run)
    bounds = ("--messages", "2000", "--seconds", "60", "--rate", "1000")
    found = json.loads(run("bench", *bounds, "--json").stdout)
    assert found["topic"].startswith("octopi-bench-")
    assert topics(run) == before
    for workload in ("produce", "consume", "latency"):
        one = found[workload]
        assert one["messages"] == 2000
        assert one["bytes"] == 2000 * found["value_bytes"] == 200_000
        assert one["messages_per_s"] == pytest.approx(2000 / one["seconds"], rel=0.01)
    for times in (found["produce"]["acknowledged_ms"], found["latency"]["delivered_ms"]):
        assert 0 < times["p50"] <= times["p99"] <= times["max"]
    assert found["consume"]["first_message_ms"]["max"] <= 1e3 * found["consume"]["seconds"]


def test_a_table_has_a_line_for_each_thing_that_was_timed(run: Run) -> None:
    shown = run("bench", "latency", "consume", "--messages", "50", "--rate", "1000").stdout
    lines = [line.split() for line in shown.splitlines()]
    assert lines[0][:2] == ["WORKLOAD", "MESSAGES"]
    assert [line[0] for line in lines[1:]] == ["consume", "latency", "latency"]


def test_a_workload_ends_when_its_time_is_up(run: Run) -> None:
    found = json.loads(run("bench", "produce", "--seconds", "0.2", "--json").stdout)
    assert 0 < found["produce"]["messages"] < 1_000_000
    assert found["produce"]["seconds"] >= 0.2


def test_a_topic_that_is_named_stays_and_has_the_messages(run: Run) -> None:
    run("topics", "create", "kept")
    empty = run("bench", "consume", "--topic", "kept")
    assert empty.exit_code == 1
    assert "`octopi-node bench produce --topic kept`" in empty.stderr
    run("bench", "produce", "--topic", "kept", "--messages", "30", "--size", "16")
    found = json.loads(run("bench", "consume", "--topic", "kept", "--json").stdout)
    assert found["consume"]["messages"] == 31  # one is sent before the clock is started
    assert "kept" in topics(run)
    run("topics", "delete", "kept", "--yes")


def test_what_a_benchmark_can_not_do_is_refused(run: Run) -> None:
    before = topics(run)
    for arguments, complaint in (
        (("--topic", "nowhere"), "nowhere"),
        (("--topic", "x", "--partitions", "2"), "leave out --topic"),
        (("--messages", "100000000", "--size", "1000"), "smaller --messages or --size"),
        (("throughput",), "throughput"),
    ):
        refused = run("bench", *arguments)
        assert refused.exit_code in (2, 4)
        assert complaint in refused.stderr
    assert topics(run) == before


def test_a_benchmark_that_is_interrupted_deletes_its_topic(run: Run) -> None:
    with started("bench", "latency", "--seconds", "600") as process:
        while not any(one.startswith("octopi-bench-") for one in topics(run)):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "no workload had been measured" in stderr
    assert not any(one.startswith("octopi-bench-") for one in topics(run))


def test_a_client_that_uses_a_whole_core_is_told_to_be_the_bottleneck() -> None:
    def result(client_share: float, *, can_limit: bool = True) -> BenchResult:
        return BenchResult(1, 100, 1.0, client_share, {}, can_limit)

    assert result(0.97).is_client_busy
    assert not result(0.5).is_client_busy
    assert not result(0.97, can_limit=False).is_client_busy
    assert result(0.97).as_json()["client_is_bottleneck"] is True


def test_of_a_hundred_times_one_lies_above_the_99th_percentile() -> None:
    assert Times.of([one / 1000 for one in range(100, -1, -1)]) == Times(50.0, 99.0, 100.0)
    assert Times.of([0.25]) == Times(250.0, 250.0, 250.0)


def test_events_are_printed_as_they_come(run: Run) -> None:
    run("topics", "create", "before")
    with started("events", "--json") as process:
        assert process.stdout is not None
        found: list[dict[str, Any]] = []
        while not found or found[-1]["topic"] != "before":
            found.append(json.loads(process.stdout.readline()))
        run("topics", "create", "after")
        while found[-1]["topic"] != "after":
            found.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    assert f"{len(found)} events printed" in stderr
    assert found[0]["kind"] == "register_started"
    assert [one["number"] for one in found] == list(range(1, len(found) + 1))
    shown = run("events", "-e").stdout.splitlines()
    assert len(shown) == len(found)
    assert shown[-1].endswith("  topic_created     topic after was created")
    assert len(run("events", "-n", "2").stdout.splitlines()) == 2


def test_events_go_on_when_the_register_is_started_again(
    program: Program, nodes: NodeProcesses
) -> None:
    register = nodes.register()
    nodes.broker(register)
    with started("events", "--json", "--server", register.url, "--retry", "60") as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        register.kill9()
        register.restart()
        while (again := json.loads(process.stdout.readline()))["life"] == first["life"]:
            pass
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
    assert (again["number"], again["kind"]) == (1, "register_started")
    assert "the register was started anew" in stderr


def test_a_cluster_without_nodes_has_no_events(program: Program) -> None:
    refused = program("events", "--server", "ws://127.0.0.1:1", "--timeout", "0.1")
    assert (refused.exit_code, refused.stdout) == (3, "")
