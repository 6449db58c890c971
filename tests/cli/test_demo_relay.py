"""`demo --relay`: shared cursors go on when the sequencer is killed, and it cleans up."""

import re
import signal
from pathlib import Path

import pytest

from octopi.cli.cursor_counts import CursorCounts, CursorPosition, whose
from tests.cli.conftest import Program
from tests.cli.test_demo import demo, processes_using, seconds


def test_a_reader_counts_positions_that_are_missing_and_that_come_twice() -> None:
    counts = CursorCounts()
    for who, number in [("one", 3), ("one", 4), ("two", 0), ("one", 7), ("one", 4), ("two", 1)]:
        counts.take(who, number)
    assert (counts.read, counts.missing, counts.twice) == (6, 2, 1)
    assert (counts.taken("one"), counts.taken("two"), counts.taken("three")) == (8, 2, 0)


def test_a_position_is_read_as_it_was_written() -> None:
    assert whose(CursorPosition("robot 1", 7, 0.25, 0.5).encode()) == ("robot 1", 7)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"7",
        b"[]",
        b"\xff",
        b'{"who": "one"}',
        b'{"who": "", "number": 1}',
        b'{"who": 1, "number": 1}',
        b'{"who": "one", "number": -1}',
        b'{"who": "one", "number": true}',
        b'{"who": "one", "number": 1.5}',
        b'{"who": "%s", "number": 1}' % (b"a" * 41),
        b"[" * 100_000,
    ],
)
def test_what_is_no_position_is_not_counted(value: bytes) -> None:
    assert whose(value) is None


@pytest.mark.process
def test_no_position_is_lost_when_the_sequencer_is_killed_and_nothing_stays_behind(
    tmp_path: Path,
) -> None:
    with demo(tmp_path, "--relay", "--seconds", "4") as process:
        stdout, stderr = process.communicate(timeout=90)
    assert (process.returncode, stderr) == (0, ""), stdout
    assert (
        len(re.findall(r"^page .*http://127\.0\.0\.1:\d+/console/cursors\.html", stdout, re.M)) == 3
    )
    killed = re.search(r"^killed     relay (\d), the sequencer", stdout, re.MULTILINE)
    assert killed is not None, stdout
    successor = re.search(r"^took over  relay (\d), after [\d.]+ s$", stdout, re.MULTILINE)
    assert successor is not None, stdout
    assert successor[1] != killed[1]
    assert seconds(r"^took over .* after ([\d.]+) s$", stdout) < 10
    verdict = r"^OK: [\d,]+ positions of 2 cursors, 0 missing, 0 twice, through \d kills? "
    assert re.match(verdict, stdout.splitlines()[-1]), stdout
    assert list((tmp_path / "tmp").iterdir()) == []
    assert processes_using(tmp_path) == []


@pytest.mark.process
def test_shared_cursors_that_are_interrupted_leave_no_file_and_no_process(tmp_path: Path) -> None:
    with demo(tmp_path, "--relay", "--seconds", "600") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("started    3 relays")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.match(
        r"octopi-node: interrupted; every process was stopped; [\d,]+ positions? of \d cursors?, "
        r"0 missing, 0 twice\n$",
        stderr,
    )
    assert list((tmp_path / "tmp").iterdir()) == []
    assert processes_using(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--relay", "--brokers", "5"], "--relay runs three relays only"),
        (["--relay", "--registers", "3"], "--relay runs three relays only"),
        (["--relay", "--keep"], "--relay runs three relays only"),
        (["--seconds", "5"], "--seconds is for --relay"),
        (["--relay", "--seconds", "1"], "1.0 is not in the range"),
    ],
)
def test_options_that_do_not_go_with_relays_are_refused(
    program: Program, arguments: list[str], why: str
) -> None:
    result = program("demo", *arguments)
    assert result.exit_code == 2
    assert why in " ".join(result.stderr.split())
