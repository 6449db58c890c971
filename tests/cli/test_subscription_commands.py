"""Durable subscriptions by the program: made, looked at, moved, consumed with, deleted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
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

MORE_THAN_A_PIPE_HOLDS = "x" * 100_000 + "\n"


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


def test_lines_of_a_queue_are_acknowledged_when_they_are_written(
    run: Run, produce: Callable[[str, str], None], consume: Callable[..., str]
) -> None:
    produce("jobs", "a\nb\nc\nd\n")
    member = ("jobs", "--subscription", "work", "--mode", "shared")
    options = ("--attempts", "3", "--ack-timeout", "20s")
    assert sorted(consume(*member, *options, "-n", "3")) == sorted("a\nb\nc\n")
    described = run("subscriptions", "describe", "work", "--topic", "jobs").stdout
    assert described.startswith("work of topic jobs: shared, ready, id ")
    assert "3 attempts, ack timeout 20 s, window 1000" in described
    heading, values = described.splitlines()[2:4]
    columns = ["PARTITION", "MARK", "HIGHWATER", "LAG", "AGE", "OPEN", "WAITING", "DEAD", "STORED"]
    assert heading.split() == columns
    assert values.split()[-2] == "0"
    assert consume(*member, *options, "-n", "1", "--create", "attach") == "d\n"
    deleted = run("subscriptions", "delete", "work", "--topic", "jobs", "--yes")
    assert "its dead letters stay in the topic jobs.work.dead: `octopi-node topics delete " in (
        deleted.stderr
    )
    assert run("topics", "describe", "jobs.work.dead").exit_code == 0


def started(*arguments: str) -> subprocess.Popen[bytes]:
    """The program as a process."""
    return subprocess.Popen(
        [sys.executable, "-m", "octopi_node", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_member_that_finds_another_one_is_told_the_option_that_replaces_it(
    run: Run,
    produce: Callable[[str, str], None],
    cluster: RunningCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    produce("bookings", "1\n2\n")
    member = ("consume", "bookings", "--subscription", "desk")
    with started(*member, "--server", cluster.url) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        monkeypatch.setenv("OCTOPI_TIMEOUT_S", "1")
        refused = run(*member)
        assert (refused.exit_code, refused.stdout) == (4, "")
        assert refused.stderr.endswith("or replace it with --take-over\n")
        assert "take_over" not in refused.stderr
        reset = ("subscriptions", "reset", "desk", "--topic", "bookings", "--to", "earliest")
        refused = run(*reset)
        assert refused.exit_code == 4
        assert refused.stderr.endswith("stop its members first, or add --force\n")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


@pytest.mark.parametrize(
    ("mode", "number"),
    [
        ("exclusive", signal.SIGINT),
        ("failover", signal.SIGTERM),
        ("shared", signal.SIGINT),
        ("key_shared", signal.SIGTERM),
    ],
)
def test_a_signal_has_the_member_leave_at_once_with_all_marked_that_was_written(
    produce: Callable[[str, str], None],
    consume: Callable[..., str],
    cluster: RunningCluster,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    number: signal.Signals,
) -> None:
    topic = f"interrupted-{mode}"
    produce(topic, "1\n2\n")
    member = (topic, "--subscription", "desk", "--mode", mode)
    with started("consume", *member, "--server", cluster.url) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"1\n", b"2\n"]
        process.send_signal(number)
        _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    assert stderr.startswith(b"octopi-node: interrupted; 2 messages, 4 B, ")
    assert stderr.count(b"\n") == 1
    produce(topic, "3\n")
    monkeypatch.setenv("OCTOPI_TIMEOUT_S", "4")  # less than the session timeout
    assert consume(*member, "-n", "1") == "3\n"


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_what_a_reader_does_not_take_goes_to_the_next_member_at_once(
    produce: Callable[[str, str], None],
    consume: Callable[..., str],
    cluster: RunningCluster,
    mode: str,
) -> None:
    topic = f"untaken-{mode}"
    produce(topic, MORE_THAN_A_PIPE_HOLDS * 3)
    member = (topic, "--subscription", "desk", "--mode", mode)
    with started("consume", *member, "--server", cluster.url) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        process.stdout.close()
    assert consume(*member, "-n", "3") == MORE_THAN_A_PIPE_HOLDS * 3


def test_a_second_signal_ends_a_member_at_once(
    produce: Callable[[str, str], None], cluster: RunningCluster
) -> None:
    produce("in-haste", MORE_THAN_A_PIPE_HOLDS)
    member = ("in-haste", "--subscription", "desk", "--server", cluster.url)
    with started("consume", *member) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == b"x"
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        stderr = process.stderr.read()
        assert process.wait(20) == 130
    assert b"so the last of it may come again" in stderr


def test_a_subscription_is_watched_line_by_line_until_it_is_interrupted(
    run: Run, cluster: RunningCluster
) -> None:
    run("topics", "create", "watched")
    run("subscriptions", "create", "eye", "--topic", "watched")
    watch = ("subscriptions", "watch", "eye", "--topic", "watched", "--server", cluster.url)
    with started(*watch, "--json") as process:
        assert process.stdout is not None
        facts = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 130
    assert facts[0]["time_ms"] < facts[1]["time_ms"]
    assert [one["definition"]["name"] for one in facts] == ["eye", "eye"]
    with started(*watch) as process:
        assert process.stdout is not None
        heading = b"eye of topic watched: exclusive, ready, id "
        for _ in range(2):
            while not process.stdout.readline().startswith(heading):
                pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["consume", "t", "--mode", "failover"], "--mode is for --subscription"),
        (["consume", "t", "--take-over"], "--take-over is for --subscription"),
        (["consume", "t", "--attempts", "3"], "--attempts is for --subscription"),
        (["consume", "t", "--subscription", "s", "--ack-timeout", "9s"], "for --mode shared"),
        (["consume", "t", "--subscription", "s", "--ack-timeout", "soon"], "no span of time"),
        (
            ["consume", "t", "--subscription", "s", "--mode", "shared", "--take-over"],
            "--take-over is for --mode exclusive",
        ),
        (["subscriptions", "create", "s", "--topic", "t", "--attempts", "3"], "for --mode shared"),
        (
            ["subscriptions", "create", "s", "--topic", "t", "--ack-timeout", "13h"],
            "from 1s to 12h",
        ),
        (["consume", "t", "--subscription", "s", "-e"], "--subscription excludes"),
        (["consume", "t", "--subscription", "s", "-o", "17"], "subscriptions reset"),
        (["subscriptions", "reset", "s", "--topic", "t", "--to", "noon"], "--to 'noon' is not"),
        (["subscriptions", "delete", "s", "--topic", "t"], "confirm with --yes"),
    ],
)
def test_invalid_options_are_refused_before_any_node_is_asked(
    program: Program, arguments: list[str], told: str
) -> None:
    result = program(*arguments, "--server", "ws://127.0.0.1:1")
    assert result.exit_code == 2
    assert told in result.stderr
