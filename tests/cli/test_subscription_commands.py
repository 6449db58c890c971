"""Durable subscriptions by the program: made, looked at, moved, consumed with, deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.conftest import Program, RunningCluster

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTOPI_TIMEOUT_S", "20")


Run = Callable[..., Result]


@pytest.fixture
def run(program: Program, cluster: RunningCluster) -> Run:
    """`octopi-node` with these arguments, at the cluster."""

    def at_cluster(*arguments: str, **settings: object) -> Result:
        return program(*arguments, "--server", cluster.url, **settings)

    return at_cluster


@pytest.fixture
def produce(run: Run, tmp_path: Path) -> Callable[[str, str], None]:
    """Send lines to a topic."""

    def send(topic: str, lines: str) -> None:
        file = tmp_path / "lines"
        file.write_text(lines)
        assert run("produce", topic, "-f", str(file)).exit_code == 0

    return send


@pytest.fixture
def consume(run: Run, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What is printed with these arguments."""

    def printed(*arguments: str) -> str:
        capfd.readouterr()
        result = run("consume", *arguments)
        assert (result.exit_code, result.stderr) == (0, "")
        return capfd.readouterr().out

    return printed


def rows(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.stderr
    return [line.split() for line in result.stdout.splitlines()]


def test_a_subscription_is_created_listed_described_and_deleted(run: Run) -> None:
    run("topics", "create", "parts", "--partitions", "2")
    created = run("subscriptions", "create", "stock", "--topic", "parts", "--mode", "failover")
    assert created.stdout.startswith("created stock of topic parts (id "), created.stderr
    assert created.stdout.endswith("), mode failover\n")
    again = run("subscriptions", "create", "stock", "--topic", "parts")
    assert again.exit_code == 4
    listed = rows(run("subscriptions", "list", "--topic", "parts"))
    assert listed[0][:4] == ["TOPIC", "SUBSCRIPTION", "MODE", "STATE"]
    assert [line[:4] for line in listed[1:]] == [["parts", "stock", "failover", "ready"]]
    described = run("subscriptions", "describe", "stock", "--topic", "parts").stdout
    assert described.startswith("stock of topic parts: failover, ready, id ")
    assert "session timeout 10 s, expires after 7 days without use" in described
    facts = json.loads(
        run("subscriptions", "describe", "stock", "--topic", "parts", "--json").stdout
    )
    assert [one["mark"] for one in facts["logs"]] == [0, 0]
    deleted = run("subscriptions", "delete", "stock", "--topic", "parts", "--yes")
    assert (deleted.exit_code, deleted.stderr) == (0, "deleted stock of topic parts\n")
    assert rows(run("subscriptions", "list", "--topic", "parts"))[1:] == []
    gone = run("subscriptions", "describe", "stock", "--topic", "parts")
    assert gone.exit_code == 4
    assert "subscriptions create" in gone.stderr


def test_lines_are_consumed_once_by_one_run_after_another(
    produce: Callable[[str, str], None], consume: Callable[..., str]
) -> None:
    produce("lines", "a\nb\nc\nd\n")
    assert consume("lines", "--subscription", "reader", "-n", "3") == "a\nb\nc\n"
    once_more = ("lines", "--subscription", "reader", "-n", "1", "--create", "attach")
    assert consume(*once_more) == "d\n"


def test_marks_are_moved_and_a_dry_run_says_what_would_be(
    run: Run, produce: Callable[[str, str], None], consume: Callable[..., str]
) -> None:
    produce("numbers", "1\n2\n3\n")
    assert consume("numbers", "--subscription", "sum", "-n", "3") == "1\n2\n3\n"
    reset = ("subscriptions", "reset", "sum", "--topic", "numbers", "--to", "earliest")
    planned = run(*reset, "--dry-run")
    assert planned.stderr == "nothing was changed (--dry-run)\n"
    assert rows(planned)[0] == ["PARTITION", "MARK", "NEW", "MARK", "CHANGE"]
    _, mark, new, change = rows(planned)[1]
    assert (int(mark) > 0, new, change) == (True, "0", f"-{mark}")
    done = json.loads(run(*reset, "--json").stdout)
    assert [one["after"] for one in done] == [0]
    assert consume("numbers", "--subscription", "sum", "-n", "2") == "1\n2\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["consume", "t", "--mode", "failover"], "--mode is for --subscription"),
        (["consume", "t", "--take-over"], "--take-over is for --subscription"),
        (["consume", "t", "--subscription", "s", "-e"], "--subscription excludes"),
        (["consume", "t", "--subscription", "s", "-o", "17"], "subscriptions reset"),
        (["subscriptions", "reset", "s", "--topic", "t", "--to", "noon"], "--to 'noon' is not"),
        (["subscriptions", "delete", "s", "--topic", "t"], "confirm with --yes"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(
    program: Program, arguments: list[str], told: str
) -> None:
    result = program(*arguments, "--server", "ws://127.0.0.1:1")
    assert result.exit_code == 2
    assert told in result.stderr
