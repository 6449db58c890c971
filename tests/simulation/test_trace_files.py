"""What nodes wrote of their steps and messages is read as one recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octopi.simulation.kernel.world import Event
from octopi.simulation.report.html import page
from octopi.simulation.report.recording import Came, Recording, Sent
from octopi.simulation.report.timeline import timeline
from octopi.simulation.report.trace_files import read_traces

Line = dict[str, Any]

HELLO, WELCOME = "1111", "2222"


def write(path: Path, *lines: Line) -> Path:
    path.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    return path


def dialled(at: float) -> list[Line]:
    """A broker opens link 4 to the register."""
    return [
        {"at": at, "start": "broker", "listen": "127.0.0.1:7001"},
        {"at": at, "link": 4, "to": "127.0.0.1:7000", "path": "/v1/member"},
        {"at": at, "link": 4, "sent": "hello", "bytes": 9, "sum": HELLO},
        {"at": at + 0.2, "link": 4, "came": "welcome", "bytes": 7, "sum": WELCOME},
        {"at": at + 0.2, "step": "J1 broker knows its id", "facts": {"broker": 1}},
    ]


def answered(at: float) -> list[Line]:
    """The register answers it."""
    return [
        {"at": at, "start": "register", "listen": "127.0.0.1:7000"},
        {"at": at, "link": 0, "from": "127.0.0.1:51000", "path": "/v1/member"},
        {"at": at, "link": 0, "came": "hello", "bytes": 9, "sum": HELLO},
        {"at": at, "link": 0, "sent": "welcome", "bytes": 7, "sum": WELCOME},
    ]


def told(recording: Recording) -> list[tuple[str, str]]:
    return [
        (one.host, f"{one.kind} to {one.target}")
        if isinstance(one, Sent)
        else (one.host, "gets" if isinstance(one, Came) else one.what)
        for one in recording.happenings
    ]


def test_a_message_arrives_behind_its_sending_even_if_clocks_say_otherwise(tmp_path: Path) -> None:
    # The register's clock is 5 s behind that of the broker.
    files = [
        write(tmp_path / "broker-1.trace", *dialled(105.0)),
        write(tmp_path / "register.trace", *answered(100.1)),
    ]
    recording = read_traces(files, 100)
    assert told(recording) == [
        ("register", "boot"),
        ("broker-1", "boot"),
        ("broker-1", "hello to register"),
        ("register", "gets"),
        ("register", "welcome to broker-1"),
        ("broker-1", "gets"),
        ("broker-1", "J1 broker knows its id"),
    ]
    assert recording.hosts == (("broker-1", "broker"), ("register", "register"))
    times = [one.at for one in recording.happenings]
    assert times == sorted(times)
    assert "All is well" not in page(recording)


def test_a_node_without_a_file_is_shown_by_its_address(tmp_path: Path) -> None:
    recording = read_traces([write(tmp_path / "register.trace", *answered(100.0))], 100)
    assert told(recording)[1:] == [
        ("127.0.0.1:51000", "hello to register"),
        ("register", "gets"),
        ("register", "welcome to 127.0.0.1:51000"),
        ("127.0.0.1:51000", "gets"),
    ]
    assert recording.hosts == (("register", "register"), ("127.0.0.1:51000", "client"))


def test_a_node_that_was_started_again_has_another_life(tmp_path: Path) -> None:
    file = write(tmp_path / "register.trace", *answered(100.0), *answered(200.0))
    lives = {one.life for one in read_traces([file], 100).happenings if isinstance(one, Event)}
    assert lives == {1, 2}
    assert any("register (2)" in line for line in timeline(read_traces([file], 100)))


def test_an_answer_is_about_the_log_of_its_request(tmp_path: Path) -> None:
    lines: list[Line] = [
        *answered(100.0),
        {
            "at": 101.0,
            "link": 0,
            "came": "produce",
            "bytes": 80,
            "facts": {"request": 3, "topic": "orders", "partition": 2, "records": "64 bytes"},
        },
        {"at": 101.1, "link": 0, "sent": "produced", "bytes": 8, "facts": {"request": 3}},
    ]
    recording = read_traces([write(tmp_path / "broker-1.trace", *lines)], 4)
    asked, _, answer, _ = recording.happenings
    assert isinstance(asked, Sent)
    assert isinstance(answer, Sent)
    assert (answer.kind, answer.topic, answer.partition) == ("produced", "orders", 2)
    assert "records='64 bytes'" in "\n".join(timeline(recording))


def test_a_line_that_was_cut_by_a_kill_is_left_out(tmp_path: Path) -> None:
    file = write(tmp_path / "register.trace", *answered(100.0))
    whole = len(read_traces([file], 100).happenings)
    with file.open("a") as more:
        more.write('{"at": 101.0, "st')
    assert len(read_traces([file], 100).happenings) == whole


def test_only_the_newest_are_shown(tmp_path: Path) -> None:
    file = write(tmp_path / "broker-1.trace", *dialled(100.0))
    assert [one[1] for one in told(read_traces([file], 1))] == ["J1 broker knows its id"]


@pytest.mark.parametrize(
    "text", ["no json\n", "[]\n", "{}\n", '{"at": "x"}\n', '{"at": 1, "link": [], "sent": "x"}\n']
)
def test_a_file_that_is_no_trace_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "notes.trace"
    file.write_text('{"at": 1.0, "start": "broker"}\n' + text)
    with pytest.raises(ValueError, match=r"notes\.trace: line 2 is none of a node's trace"):
        read_traces([file], 100)


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    files = [
        write(tmp_path / "node.trace", *answered(1.0)),
        write(tmp_path / "a" / "node.trace", *dialled(1.0)),
    ]
    with pytest.raises(ValueError, match="another file is named node, too"):
        read_traces(files, 100)
