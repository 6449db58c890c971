"""`produce` through real nodes: messages as arguments and as JSON, and runs that go on."""

import json
import subprocess
from pathlib import Path

import pytest

from harness.processes import NodeProcesses
from tests.cli.conftest import Consume, Program, command, produce

pytestmark = pytest.mark.process


def test_each_argument_is_a_message_with_the_key_and_headers_of_the_options(
    program: Program, consume: Consume, topic: str
) -> None:
    done = program(
        "produce", topic, "three\numbrellas", "", "-k", "c7", "-H", "source=shop", "-H", "a=b=c"
    )
    assert done.exit_code == 0
    assert done.stderr.startswith(f"created topic {topic}\n2 messages, 15 B, ")
    assert consume(topic, "-e", "-f", r"%k|%h|%v\0") == (
        b"c7|source=shop,a=b=c|three\numbrellas\0c7|source=shop,a=b=c|\0"
    )


def test_what_consume_prints_as_json_can_be_produced_again(
    program: Program, consume: Consume, tmp_path: Path, topic: str
) -> None:
    lines = [
        {"value": "text", "key": "k", "headers": {"a": "1", "b_base64": "/w=="}},
        {"value_base64": "/wA=", "key_base64": "/w==", "timestamp_ms": 1_700_000_000_123},
        {"value": "\u202e\n", "key": None, "headers": {"x_base64_base64": "eQ=="}},
    ]
    data = b"".join(json.dumps(one).encode() + b"\n" for one in lines)
    produce(program, tmp_path, topic, data, "--json")
    printed = consume(topic, "-e", "--json")
    produce(program, tmp_path, topic + "-copy", printed, "--json", "-H", "a=2", "-H", "c=3")

    def contents(text: bytes) -> list[dict[str, object]]:
        found = [json.loads(line) for line in text.splitlines()]
        return [
            {**one, "topic": "", "offset": 0, "next_offset": 0, "partition": 0} for one in found
        ]

    copies = contents(consume(topic + "-copy", "-e", "--json"))
    assert [{**one, "headers": {}} for one in copies] == [
        {**one, "headers": {}} for one in contents(printed)
    ]
    assert [one["headers"] for one in copies] == [
        {"a": "1", "c": "3", "b_base64": "/w=="},
        {"a": "2", "c": "3"},
        {"a": "2", "c": "3", "x_base64_base64": "eQ=="},
    ]
    assert json.loads(printed.splitlines()[1])["timestamp_ms"] == 1_700_000_000_123


def test_a_line_that_is_no_message_is_named_with_the_ways_to_go_on(
    program: Program, consume: Consume, tmp_path: Path, topic: str
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b'{"value": "1"}\n{"value": "2"}\nnonsense\n{"value": "4"}\n')
    failed = program("produce", topic, "-f", str(file), "--json")
    assert failed.exit_code == 1
    assert "line 3 is no message: it is no JSON" in failed.stderr
    assert "the 2 messages before it were produced" in failed.stderr
    assert "go on with --skip 2, or leave this line out with --skip 3" in failed.stderr
    assert consume(topic, "-e") == b"1\n2\n"
    assert program("produce", topic, "-f", str(file), "--json", "--skip", "3").exit_code == 0
    assert consume(topic, "-e") == b"1\n2\n4\n"


def test_headers_that_no_record_can_have_are_an_error_of_their_line(
    program: Program, topic: str
) -> None:
    failed = program("produce", topic, "a", "-H", f"{'n' * 1001}=1")
    assert failed.exit_code == 1
    assert "message 1 is no message: " in failed.stderr
    assert "the 0 messages before it were produced" in failed.stderr


def test_more_lines_to_skip_than_there_are_is_a_usage_error(
    program: Program, consume: Consume, tmp_path: Path, topic: str
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"1\n2\n")
    assert program("produce", topic, "-f", str(file), "--skip", "2").exit_code == 0
    for given in (["-f", str(file)], ["one", "two"]):
        failed = program("produce", topic, *given, "--skip", "3")
        assert failed.exit_code == 2
        assert "--skip 3: the input has only 2 " in failed.stderr
    assert consume(topic, "-e") == b""


def test_a_topic_that_is_created_is_told_with_one_of_a_similar_name(
    program: Program, topic: str
) -> None:
    first = program("produce", topic, "a")
    again = program("produce", topic, "b")
    similar = program("produce", topic + "s", "c")
    assert first.stderr.startswith(f"created topic {topic}\n")
    assert "created" not in again.stderr
    assert similar.stderr.startswith(f"created topic {topic}s; there is {topic}, too\n")


def test_no_topic_is_created_with_no_create(program: Program, topic: str) -> None:
    failed = program("produce", topic, "a", "--no-create")
    assert failed.exit_code == 4
    assert f"there is no topic {topic}" in failed.stderr
    assert topic not in program("topics", "list").stdout


def test_a_topic_of_a_similar_name_is_proposed_for_one_that_does_not_exist(
    program: Program, topic: str
) -> None:
    assert program("produce", topic, "a").exit_code == 0
    wrong = topic + "x"
    for arguments in (
        ["consume", wrong, "-e"],
        ["topics", "describe", wrong],
        ["topics", "delete", wrong, "--yes"],
        ["produce", wrong, "a", "--no-create"],
    ):
        failed = program(*arguments)
        assert failed.exit_code == 4
        assert f"did you mean {topic}?" in failed.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["-k", "a", "--key-separator", ":"],
        ["-k", "a", "--json"],
        ["--key-separator", ""],
        ["-H", "novalue"],
        ["-H", "=1"],
        ["-H", "a=1", "-H", "a=2"],
        ["message", "-f", "file"],
    ],
    ids=" ".join,
)
def test_options_that_make_no_sense_are_a_usage_error(
    program: Program, arguments: list[str]
) -> None:
    assert program("produce", "orders", *arguments).exit_code == 2


@pytest.mark.timeout(120)
def test_a_run_that_fails_names_the_first_line_not_acknowledged_and_skip_goes_on_there(
    program: Program,
    consume: Consume,
    nodes: NodeProcesses,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register = nodes.register()
    broker = nodes.broker(register)
    monkeypatch.setenv("OCTOPI_SERVER", register.url)
    monkeypatch.setenv("OCTOPI_TIMEOUT_S", "20")
    assert program("topics", "create", "lines").exit_code == 0
    with subprocess.Popen(
        command("produce", "lines", "--linger", "0", "--retry", "0.5"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"1\n2\n3\n")
        process.stdin.flush()
        assert consume("lines", "-n", "3") == b"1\n2\n3\n"
        broker.kill9()
        _, stderr = process.communicate(b"4\n5\n", timeout=60)
    assert process.returncode != 0
    assert b"line 4 is the first that was not acknowledged: --skip 3 goes on there" in stderr
    broker.restart()
    produce(program, tmp_path, "lines", b"1\n2\n3\n4\n5\n", "--skip", "3", "--retry", "30")
    assert consume("lines", "-e") == b"1\n2\n3\n4\n5\n"
