"""The demonstration: what it shows, and that nothing of it stays behind."""

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from octopi.cli.demonstration import compare, in_turns
from octopi.cli.failures import CommandError
from octopi.cli.node_processes import node_environment
from octopi.identifiers import Offset, PartitionId, TimestampMs, TopicName
from octopi.record import NO_HEADERS, Message


def demo(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    """The demo, with its temporary directory in *tmp_path*."""
    (tmp_path / "tmp").mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "octopi_node", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**node_environment(), "TMPDIR": str(tmp_path / "tmp")},
        text=True,
    )


def large_file(tmp_path: Path) -> Path:
    """Lines that keep a demo busy for longer than a test looks at it."""
    file = tmp_path / "large"
    file.write_bytes(b"a line of some length\n" * 5_000_000)
    return file


def processes_using(directory: Path) -> list[int]:
    """Processes that have *directory* in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if os.fsencode(directory) in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue  # it has ended meanwhile
    return found


@pytest.mark.process
def test_the_sample_comes_back_byte_for_byte(tmp_path: Path) -> None:
    with demo(tmp_path, "--brokers", "2") as process:
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")
    assert re.search(r"^produced  10,000 messages, 914.1 kB, [\d,]+ msg/s", stdout, re.MULTILINE)
    assert re.search(r"^consumed  10,000 messages, 914.1 kB, [\d,]+ msg/s", stdout, re.MULTILINE)
    assert "compared  914,081 bytes: the same\n" in stdout
    assert stdout.splitlines()[-1].startswith("OK: 10,000 lines (914.1 kB) through ")
    assert list((tmp_path / "tmp").iterdir()) == []
    assert processes_using(tmp_path) == []


@pytest.mark.process
@pytest.mark.parametrize("content", [b"", b"one", b"a\n\nb\xff\r\nc", b"\n"], ids=repr)
def test_any_file_comes_back(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with demo(tmp_path, "--brokers", "1", "-f", str(file)) as process:
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")
    assert stdout.splitlines()[-1].startswith("OK: ")


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_stays_behind_an_interruption(tmp_path: Path, number: signal.Signals) -> None:
    with demo(tmp_path, "--brokers", "1", "-f", str(large_file(tmp_path))) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("started")
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr == "octopi-node: interrupted; every process was stopped\n"
    assert list((tmp_path / "tmp").iterdir()) == []
    assert processes_using(tmp_path) == []


@pytest.mark.process
def test_nodes_end_even_if_the_demo_is_killed(tmp_path: Path) -> None:
    with demo(tmp_path, "--brokers", "1", "-f", str(large_file(tmp_path))) as process:
        assert process.stdout is not None
        process.stdout.readline()
        nodes = [pid for pid in processes_using(tmp_path) if pid != process.pid]
        assert len(nodes) == 2
        watched = [os.pidfd_open(pid) for pid in nodes]
        process.kill()
    for descriptor in watched:
        assert select.select([descriptor], [], [], 20)[0], "a node lives on"
        os.close(descriptor)


@pytest.mark.process
def test_a_node_that_dies_fails_the_demo(tmp_path: Path) -> None:
    with demo(tmp_path, "--brokers", "1", "-f", str(large_file(tmp_path))) as process:
        assert process.stdout is not None
        process.stdout.readline()
        broker = next(
            pid
            for pid in processes_using(tmp_path)
            if b"--register" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        )
        os.kill(broker, signal.SIGKILL)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert stderr.startswith("octopi-node: broker-1 ended by itself, code -9: ")
    assert processes_using(tmp_path) == []


def message(value: bytes) -> Message:
    return Message(
        TopicName("t"),
        PartitionId(0),
        Offset(0),
        Offset(1),
        TimestampMs(0),
        None,
        value,
        NO_HEADERS,
        bytes(32),
    )


class Batches:
    """What a consumer's `batches` give."""

    def __init__(self, *values: list[bytes]) -> None:
        self._values = iter(values)

    def __aiter__(self) -> "Batches":
        return self

    async def __anext__(self) -> list[Message]:
        for batch in self._values:
            return [message(value) for value in batch]
        raise StopAsyncIteration


async def test_lines_are_taken_in_turns() -> None:
    dealt: list[AsyncIterator[list[Message]]] = [
        Batches([b"0", b"3"], [b"6"]),
        Batches([b"1"], [b"4"]),
        Batches([b"2", b"5"]),
    ]
    taken = [value async for values in in_turns(dealt) for value in values]
    assert taken == [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]


@pytest.mark.parametrize(
    ("copy", "byte"), [(b"abd", 2), (b"ab", 2), (b"abcd", 3), (b"", 0)], ids=repr
)
def test_the_first_difference_is_named(tmp_path: Path, copy: bytes, byte: int) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"abc")
    other.write_bytes(copy)
    with pytest.raises(CommandError, match=f"differs from byte {byte} on"):
        compare(one, other)


def test_equal_files_are_equal(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"abc")
    compare(tmp_path / "one", tmp_path / "one")
