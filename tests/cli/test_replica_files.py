"""Files that have to be the same, and how a difference is named."""

import re
from pathlib import Path

import pytest

from octopi.cli.failures import CommandError
from octopi.cli.replica_files import compare_files, compare_replicas
from octopi.identifiers import Offset
from octopi.storage.file_names import segment_path


def log(directory: Path, *segments: bytes) -> Path:
    """A log of these segments, one behind the other."""
    directory.mkdir()
    base = 0
    for content in segments:
        Path(segment_path(str(directory), Offset(base))).write_bytes(content)
        base += len(content)
    (directory / "checkpoint").write_bytes(
        b"something else at every broker" + directory.name.encode()
    )
    return directory


def test_logs_that_are_cut_into_other_segments_are_the_same(tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    logs = {
        1: log(tmp_path / "1", content),
        2: log(tmp_path / "2", content[:1000], content[1000:7000], content[7000:]),
        3: log(tmp_path / "3", content[:1_500_000], content[1_500_000:]),
    }
    compare_replicas(logs, len(content))


def test_replicas_may_differ_above_the_highwater_mark(tmp_path: Path) -> None:
    logs = {1: log(tmp_path / "1", b"abcd", b"efgh"), 2: log(tmp_path / "2", b"abcde", b"XY")}
    compare_replicas(logs, 5)


@pytest.mark.parametrize(
    ("segments", "complaint"),
    [
        ([b"abcd", b"eXgh"], "the logs of brokers 1 and 2 differ at offset 5"),
        ([b"Xbcdefgh"], "the logs of brokers 1 and 2 differ at offset 0"),
        ([b"abcd", b"ef"], "the log of broker 2 ends at offset 6, before 8"),
        ([], "the log of broker 2 ends at offset 0, before 8"),
    ],
)
def test_the_first_offset_that_differs_is_named(
    tmp_path: Path, segments: list[bytes], complaint: str
) -> None:
    logs = {1: log(tmp_path / "1", b"abcdefgh"), 2: log(tmp_path / "2", *segments)}
    with pytest.raises(CommandError, match=re.escape(complaint)):
        compare_replicas(logs, 8)


@pytest.mark.parametrize(
    ("copy", "byte"), [(b"abd", 2), (b"ab", 2), (b"abcd", 3), (b"", 0)], ids=repr
)
def test_the_first_byte_that_differs_is_named(tmp_path: Path, copy: bytes, byte: int) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"abc")
    other.write_bytes(copy)
    with pytest.raises(CommandError, match=f"differs from byte {byte} on"):
        compare_files(one, other)


def test_equal_files_are_equal(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"abc")
    compare_files(tmp_path / "one", tmp_path / "one")
