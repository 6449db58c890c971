"""Lines through real nodes and back, by the program."""

import base64
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from octopi.limits import RECORD_BYTES_MAX
from octopi.record import STRUCTURED_BYTES_MIN
from tests.cli.conftest import Consume, Program, command, produce

pytestmark = pytest.mark.process

LINES = b"first\nsecond\n\nfo\xffur\r\n"

# --- there and back ----------------------------------------------------------------------


def test_consumed_lines_are_the_produced_ones(
    program: Program, consume: Consume, tmp_path: Path, topic: str
) -> None:
    summary = produce(program, tmp_path, topic, LINES)
    assert summary.startswith(f"created topic {topic}\n4 messages, 21 B, ")
    assert consume(topic, "-e") == LINES


def test_a_last_line_without_newline_is_kept(
    program: Program, consume: Consume, tmp_path: Path, topic: str
) -> None:
    produce(program, tmp_path, topic, b"a\nb")
    assert consume(topic, "-e") == b"a\nb\n"


def test_an_empty_file_makes_no_messages(
    program: Program, consume: Consume, tmp_path: Path, topic: str
) -> None:
    assert "\n0 messages, 0 B, " in produce(program, tmp_path, topic, b"")
    assert consume(topic, "-e") == b""


def test_bytes_piped_through_produce_and_consume_stay_the_same(topic: str) -> None:
    data = b"".join(b"line %d of a longer text\n" % number for number in range(50_000))
    done = subprocess.run(command("produce", topic), input=data, capture_output=True, check=True)
    assert done.stdout == b""
    assert b"\n50,000 messages, 1.4 MB, " in done.stderr
    assert subprocess.check_output(command("consume", topic, "-e")) == data


# --- produce -----------------------------------------------------------------------------


def test_a_key_goes_with_every_message(
    program: Program, consume: Consume, tmp_path: Path, topic: str
) -> None:
    produce(program, tmp_path, topic, b"a\nb\n", "-k", "customer-7")
    assert consume(topic, "-e", "-f", r"%k=%v\n") == b"customer-7=a\ncustomer-7=b\n"


def test_a_line_may_bring_its_own_key(
    program: Program, consume: Consume, tmp_path: Path, topic: str
) -> None:
    produce(program, tmp_path, topic, b"k::v::w\nno key\n::x\n", "--key-separator", "::")
    keys = [
        (m["key"], m["value"]) for m in map(json.loads, consume(topic, "-e", "--json").splitlines())
    ]
    assert keys == [("k", "v::w"), (None, "no key"), ("", "x")]


def test_messages_are_appended_in_a_row_where_the_log_is_said_to_end(
    program: Program, consume: Consume, topic: str
) -> None:
    first = program("produce", topic, "a", "b", "--expected-end", "0")
    assert first.exit_code == 0, first.stderr
    end = first.stdout.strip()
    for wrong in ("0", "1000000"):
        late = program("produce", topic, "never", "--expected-end", wrong)
        assert (late.exit_code, late.stdout) == (4, "")
        assert f"the log ends at {end}, not at {wrong}" in late.stderr
        assert "read the log up to" in late.stderr
    second = program("produce", topic, "c", "--expected-end", end)
    assert int(second.stdout) > int(end)
    assert consume(topic, "-e") == b"a\nb\nc\n"


def test_messages_go_to_the_partition_that_is_named(
    program: Program, consume: Consume, tmp_path: Path, topic: str
) -> None:
    assert program("topics", "create", topic, "--on", "2,5").exit_code == 0
    produce(program, tmp_path, topic, b"two\n", "-p", "2")
    produce(program, tmp_path, topic, b"five\n", "-p", "5")
    assert consume(topic, "-e", "-p", "5", "-f", "%p %v") == b"5 five"
    assert sorted(consume(topic, "-e").splitlines()) == [b"five", b"two"]


def test_a_line_beyond_the_limit_is_named_and_the_lines_before_it_are_produced(
    program: Program, consume: Consume, tmp_path: Path, topic: str
) -> None:
    file = tmp_path / "long"
    longest = b"x" * (RECORD_BYTES_MAX - STRUCTURED_BYTES_MIN)
    file.write_bytes(b"a\n" + longest + b"\n" + longest + b"x\nb\n")
    result = program("produce", topic, "-f", str(file))
    assert result.exit_code == 1
    assert "line 3 is longer than 8,388,551 bytes" in result.stderr
    assert "the 2 messages before it were produced" in result.stderr
    assert consume(topic, "-e") == b"a\n" + longest + b"\n"


def test_the_rate_can_be_bounded(program: Program, tmp_path: Path, topic: str) -> None:
    summary = produce(program, tmp_path, topic, b"x\n" * 21, "--rate", "100")
    rate = float(summary.split(", ")[2].removesuffix(" msg/s"))
    assert 20 < rate <= 105


def test_ctrl_c_tells_how_many_are_acknowledged(
    program: Program, consume: Consume, topic: str
) -> None:
    assert program("topics", "create", topic).exit_code == 0
    with subprocess.Popen(
        command("produce", topic, "--linger", "0"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"a\nb\nc\n")
        process.stdin.flush()
        assert consume(topic, "-n", "3") == b"a\nb\nc\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        stderr = process.stderr.read()
        assert process.wait(20) == 130
    assert stderr == b"octopi-node: interrupted; 3 messages acknowledged\n"


def test_options_that_contradict_each_other_are_a_usage_error(program: Program) -> None:
    for arguments in (["-k", "a", "--key-separator", ":"], ["--key-separator", ""]):
        assert program("produce", "orders", *arguments).exit_code == 2


def test_a_file_that_is_not_there_is_named(program: Program, server: str) -> None:
    result = program("produce", "orders", "-f", "nowhere.csv")
    assert result.exit_code == 1
    assert result.stderr == "octopi-node: nowhere.csv: No such file or directory\n"


# --- consume -----------------------------------------------------------------------------


@pytest.fixture
def numbers(program: Program, tmp_path: Path, topic: str) -> str:
    """A topic with the messages 1 to 5, alone."""
    produce(program, tmp_path, topic, b"1\n2\n3\n4\n5\n")
    return topic


def test_the_start_can_be_chosen(consume: Consume, numbers: str) -> None:
    offsets = consume(numbers, "-e", "-f", r"%o\n").split()
    times = consume(numbers, "-e", "-f", r"%T\n").split()
    assert consume(numbers, "-e", "-o", "earliest") == b"1\n2\n3\n4\n5\n"
    assert consume(numbers, "-e", "-o", "latest") == b""
    assert consume(numbers, "-e", "-o", "-2") == b"4\n5\n"
    assert consume(numbers, "-e", "-o", "-99") == b"1\n2\n3\n4\n5\n"
    assert consume(numbers, "-e", "-o", offsets[2].decode()) == b"3\n4\n5\n"
    assert consume(numbers, "-e", "-o", f"@{times[0].decode()}") == b"1\n2\n3\n4\n5\n"
    assert consume(numbers, "-e", "-o", f"@{int(times[-1]) + 1}") == b""


def test_consume_ends_after_the_given_number_of_messages(consume: Consume, numbers: str) -> None:
    assert consume(numbers, "-n", "2") == b"1\n2\n"
    assert consume(numbers, "-n", "99", "-e") == b"1\n2\n3\n4\n5\n"


def test_json_has_one_object_per_line(
    program: Program, consume: Consume, tmp_path: Path, topic: str
) -> None:
    produce(program, tmp_path, topic, b"text\n\xff\n", "-k", "k")
    first, second = map(json.loads, consume(topic, "-e", "--json").splitlines())
    assert (first["topic"], first["offset"], first["key"], first["value"]) == (
        topic,
        0,
        "k",
        "text",
    )
    assert second["offset"] == first["next_offset"]
    assert base64.b64decode(second["value_base64"]) == b"\xff"


def test_a_position_file_continues_exactly(
    program: Program, consume: Consume, numbers: str, tmp_path: Path
) -> None:
    position = str(tmp_path / "position")
    assert consume(numbers, "-n", "2", "--position-file", position) == b"1\n2\n"
    assert consume(numbers, "-n", "1", "--position-file", position) == b"3\n"
    assert consume(numbers, "-e", "--position-file", position) == b"4\n5\n"
    assert consume(numbers, "-e", "--position-file", position) == b""
    produce(program, tmp_path, numbers, b"6\n")
    assert consume(numbers, "-e", "--position-file", position) == b"6\n"


def test_a_position_is_kept_before_the_first_message(
    program: Program, consume: Consume, numbers: str, tmp_path: Path
) -> None:
    position = str(tmp_path / "position")
    assert consume(numbers, "-e", "-o", "latest", "--position-file", position) == b""
    produce(program, tmp_path, numbers, b"6\n")
    assert consume(numbers, "-e", "-o", "latest", "--position-file", position) == b"6\n"


def test_a_position_file_of_something_else_is_refused(
    program: Program, numbers: str, tmp_path: Path
) -> None:
    file = tmp_path / "position"
    for content in ("shopping list", "v1:other@0123456789abcdef:0=0"):
        file.write_text(content)
        result = program("consume", numbers, "-e", "--position-file", str(file))
        assert result.exit_code == 2
        assert str(file) in result.stderr
        assert file.read_text() == content


def test_consume_starts_at_a_given_position(consume: Consume, numbers: str, tmp_path: Path) -> None:
    file = tmp_path / "position"
    consume(numbers, "-n", "2", "--position-file", str(file))
    assert consume(numbers, "-e", "-o", file.read_text().strip()) == b"3\n4\n5\n"


def test_lost_records_that_were_read_are_an_error_that_names_the_option_to_go_on(
    program: Program, consume: Consume, numbers: str, tmp_path: Path
) -> None:
    """As if the log had been longer before a failure of power."""
    file = tmp_path / "position"
    consume(numbers, "-e", "--position-file", str(file))
    head, _, place = file.read_text().strip().rpartition("=")
    end, _, epoch = place.partition("~")
    file.write_text(f"{head}={int(end) + 5000}~{epoch}")
    result = program("consume", numbers, "-e", "--position-file", str(file))
    assert result.exit_code == 4
    assert f"the records from offset {end} to {int(end) + 5000} were lost" in result.stderr
    assert f"-o {end}" in result.stderr
    assert file.read_text().strip() == f"{head}={int(end) + 5000}~{epoch}"
    produce(program, tmp_path, numbers, b"6\n")
    resumed = program(
        "consume", numbers, "-e", "--on-fork", "resume", "-o", file.read_text().strip()
    )
    assert resumed.exit_code == 0
    assert f"warning: {numbers}/" in resumed.stderr


def test_consume_ends_quietly_when_its_output_is_closed(topic: str) -> None:
    data = b"a line of text\n" * 100_000
    subprocess.run(command("produce", topic), input=data, capture_output=True, check=True)
    with subprocess.Popen(
        command("consume", topic), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert os.read(process.stdout.fileno(), 15) == b"a line of text\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_consume_with_a_summary(
    program: Program, tmp_path: Path, numbers: str, number: signal.Signals
) -> None:
    with subprocess.Popen(
        command("consume", numbers), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 100) == b"1\n2\n3\n4\n5\n"
        produce(program, tmp_path, numbers, b"6\n")
        assert os.read(process.stdout.fileno(), 100) == b"6\n"
        process.send_signal(number)
        _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    # Whether the last one was counted when the signal came can't be known from here.
    assert re.match(rb"octopi-node: interrupted; [56] messages, 1[02] B, ", stderr)
    assert stderr.count(b"\n") == 1


def test_consume_can_be_interrupted_while_nobody_reads_its_output(topic: str) -> None:
    data = b"a line of text\n" * 100_000
    subprocess.run(command("produce", topic), input=data, capture_output=True, check=True)
    with subprocess.Popen(
        command("consume", topic), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 15) == b"a line of text\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


def test_a_consumer_with_a_name_is_listed_under_it(program: Program, numbers: str) -> None:
    with subprocess.Popen(
        command("consume", numbers, "--name", "nightly export"), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 100) == b"1\n2\n3\n4\n5\n"
        [seen] = json.loads(program("consumers", "list", numbers, "--json").stdout)
        assert seen["name"] == "nightly export"
        process.kill()


# --- what can be wrong -------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "orders", "-e"],
        ["topics", "list"],
        ["topics", "create", "orders"],
        ["topics", "delete", "orders", "--yes"],
        ["topics", "describe", "orders"],
        ["status"],
        ["produce", "orders", "-f", "/dev/null"],
    ],
    ids=" ".join,
)
def test_a_server_that_is_not_there_is_reported_in_time(
    program: Program, arguments: list[str]
) -> None:
    result = program(*arguments, "--server", "ws://127.0.0.1:9", "--timeout", "0.3")
    assert result.exit_code == 3
    assert "ws://127.0.0.1:9" in result.stderr
    assert "another address with --server" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", ["produce", "consume"])
def test_an_invalid_connection_name_is_a_usage_error(
    program: Program, server: str, verb: str
) -> None:
    refused = program(verb, "orders", "--name", "a" * 201)
    assert refused.exit_code == 2
    assert "the name of a connection has at most 200" in refused.stderr


def test_an_invalid_address_is_a_usage_error(program: Program) -> None:
    result = program("status", "--server", "http://127.0.0.1:7000")
    assert result.exit_code == 2
    assert "write ws://host:port" in result.stderr


def test_a_topic_that_is_not_there_is_refused(program: Program, server: str) -> None:
    for arguments in (["consume", "nowhere"], ["topics", "describe", "nowhere"]):
        result = program(*arguments)
        assert result.exit_code == 4
        assert "unknown_topic" in result.stderr
        assert "octopi-node topics create" in result.stderr


def test_a_partition_that_is_not_there_is_refused(program: Program, numbers: str) -> None:
    result = program("consume", numbers, "-e", "-p", "7777")
    assert result.exit_code == 4
    assert "unknown_partition" in result.stderr


@pytest.mark.parametrize("name", ["../etc", "a/b", "..", "", "nul\0", "é", "x" * 300])
def test_an_illegal_topic_name_is_a_usage_error(program: Program, server: str, name: str) -> None:
    for arguments in (["consume", name], ["topics", "create", name], ["produce", name]):
        result = program(*arguments)
        assert result.exit_code == 2, arguments
        assert result.stderr.count("\n") == 1


def test_an_offset_within_a_message_is_refused(program: Program, numbers: str) -> None:
    result = program("consume", numbers, "-e", "-o", "1")
    assert result.exit_code == 4
    assert "offset_inside_record" in result.stderr


def test_an_invalid_start_position_is_a_usage_error(program: Program, server: str) -> None:
    assert program("consume", "orders", "-o", "somewhere").exit_code == 2
    assert program("consume", "orders", "-f", "%q").exit_code == 2
    assert program("consume", "orders", "-f", "%v", "--json").exit_code == 2
