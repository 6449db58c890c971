"""`consume` of several topics, of patterns, and of topics that do not exist yet, on real nodes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Program, RunningCluster

pytestmark = pytest.mark.process

Produce = Callable[[str, bytes], None]
"""Produces the lines of a text to a topic."""


@pytest.fixture
def prefix(
    request: pytest.FixtureRequest, cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> str:
    """What the names of this test's topics begin with; every command finds the cluster."""
    monkeypatch.setenv("OCTOPI_SERVER", cluster.url)
    monkeypatch.setenv("OCTOPI_TIMEOUT_S", "20")
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:100]


@pytest.fixture
def produce(program: Program, tmp_path: Path) -> Produce:
    def run(topic: str, data: bytes) -> None:
        file = tmp_path / "lines"
        file.write_bytes(data)
        assert program("produce", topic, "-f", str(file)).exit_code == 0

    return run


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "octopi_node", *arguments]


def consumed(*arguments: str) -> bytes:
    return subprocess.run(
        command("consume", *arguments), capture_output=True, check=True, timeout=60
    ).stdout


def test_each_value_follows_the_name_of_its_topic(prefix: str, produce: Produce) -> None:
    produce(f"{prefix}.a", b"1\n2\n")
    produce(f"{prefix}.b", b"3\n")
    produce(f"{prefix}-other", b"4\n")
    lines = consumed(f"{prefix}.*", f"{prefix}-other", "-e").splitlines()
    assert sorted(lines) == [
        f"{prefix}-other\t4".encode(),
        f"{prefix}.a\t1".encode(),
        f"{prefix}.a\t2".encode(),
        f"{prefix}.b\t3".encode(),
    ]
    objects = [json.loads(one) for one in consumed(f"{prefix}.*", "-e", "--json").splitlines()]
    assert {(one["topic"], one["value"]) for one in objects} == {
        (f"{prefix}.a", "1"),
        (f"{prefix}.a", "2"),
        (f"{prefix}.b", "3"),
    }
    assert consumed(f"{prefix}.*", "-n", "1", "-f", r"%v\n") in {b"1\n", b"3\n"}


def test_a_position_file_of_several_topics_continues_exactly(
    prefix: str, produce: Produce, program: Program, tmp_path: Path
) -> None:
    file = str(tmp_path / "position")
    printed: list[bytes] = []
    for number in range(4):
        produce(f"{prefix}.{number // 2}", b"%d-1\n%d-2\n%d-3\n" % (number, number, number))
        some = consumed(f"{prefix}.*", "-n", "2", "-f", r"%v\n", "--position-file", file)
        printed += some.splitlines()
    rest = consumed(f"{prefix}.*", "-e", "-f", r"%v\n", "--position-file", file)
    printed += rest.splitlines()
    assert sorted(printed) == [b"%d-%d" % (n, line) for n in range(4) for line in (1, 2, 3)]
    saved = Path(file).read_text().strip()
    assert consumed(f"{prefix}.*", "-e", "-o", saved) == b""
    result = program("consume", f"{prefix}.0", f"{prefix}.9", "-e", "--position-file", file)
    assert result.exit_code == 2
    assert file in result.stderr
    assert f"start names topic '{prefix}.1'" in result.stderr


def test_a_topic_that_is_produced_to_later_is_waited_for(prefix: str, produce: Produce) -> None:
    with subprocess.Popen(
        command("consume", prefix, "-n", "2", "--wait-for-topic", "60s"),
        stdout=subprocess.PIPE,
    ) as process:
        produce(prefix, b"first\nsecond\n")
        output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, b"first\nsecond\n")


def test_a_topic_that_begins_to_match_joins_in_and_one_that_is_deleted_is_told(
    prefix: str, produce: Produce, program: Program
) -> None:
    produce(f"{prefix}.a", b"1\n")
    with subprocess.Popen(
        command("consume", f"{prefix}.*"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert os.read(process.stdout.fileno(), 1000) == f"{prefix}.a\t1\n".encode()
        assert program("topics", "delete", f"{prefix}.a", "--yes").exit_code == 0
        produce(f"{prefix}.b", b"2\n")
        assert os.read(process.stdout.fileno(), 1000) == f"{prefix}.b\t2\n".encode()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
    assert f"warning: {prefix}.a is not read: ".encode() in stderr


def test_a_topic_that_does_not_come_is_an_error_that_says_how_long_was_waited(
    prefix: str, program: Program
) -> None:
    result = program("consume", prefix, "--wait-for-topic", "1s")
    assert result.exit_code == 4
    assert "waited 1 s for it" in result.stderr


def test_a_topic_may_be_created(prefix: str, program: Program) -> None:
    assert consumed(prefix, "-e", "--create-topic") == b""
    assert prefix in program("topics", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["a", "b", "-p", "0"], "--partition is for one topic"),
        (["a", "b", "-o", "5"], "name its topic"),
        (["a", "b", "-o", "v1:c@0123456789abcdef:0=1"], "start names topic 'c'"),
        (["a", "b", "-o", "v1:nonsense"], "no position"),
        (["a*", "--subscription", "s"], "--subscription is for one topic"),
        (["a", "--subscription", "s", "--wait-for-topic", "5s"], "--wait-for-topic"),
        (["~a*"], "no pattern"),
        (["a", "--wait-for-topic", "soon"], "no span of time"),
        ([], "Missing argument"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(
    arguments: list[str], why: str, program: Program, prefix: str
) -> None:
    result = program("consume", *arguments)
    assert result.exit_code == 2, result.stderr
    assert why in result.stderr
