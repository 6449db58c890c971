"""The reader of files agrees with the golden vectors, and with nothing that is damaged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sim.real.records import NoRecordError, flipped_logs, log_bytes, read_records

PAGE = Path(__file__).parents[2] / "docs/record-format.md"
GOLDEN = b"".join(
    bytes.fromhex(block) for block in re.findall(r"```hex\n(.*?)```", PAGE.read_text(), re.DOTALL)
)
VALUES = [b"hello", b"", b"hello", b"hello", b"hello", b"", b"hello"]


def test_the_golden_records_are_read() -> None:
    records = list(read_records(GOLDEN, 100))
    assert [value for _, _, value in records] == VALUES
    assert records[0][0] == 100
    assert [first for first, _, _ in records[1:]] == [end for _, end, _ in records[:-1]]
    assert records[-1][1] == 100 + len(GOLDEN)


def test_a_log_that_is_cut_inside_a_record_is_not_read() -> None:
    ends = {end for _, end, _ in read_records(GOLDEN)}
    for size in set(range(1, len(GOLDEN))) - ends:
        with pytest.raises(NoRecordError):
            list(read_records(GOLDEN[:size]))


def test_no_bit_flips_unnoticed() -> None:
    record = GOLDEN[-75:]
    assert len(list(read_records(record))) == 1
    for bit in range(len(record) * 8):
        damaged = bytearray(record)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(NoRecordError):
            list(read_records(bytes(damaged)))


def test_segments_that_do_not_join_are_refused(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").write_bytes(GOLDEN)
    (tmp_path / f"{len(GOLDEN):020}.log").write_bytes(GOLDEN)
    assert log_bytes(tmp_path) == GOLDEN * 2
    (tmp_path / "00000000000000000000.log").write_bytes(GOLDEN[:-1])
    with pytest.raises(NoRecordError, match="begins behind"):
        log_bytes(tmp_path)


def test_a_log_with_a_flipped_bit_is_found_and_one_that_is_being_written_is_not(
    tmp_path: Path,
) -> None:
    whole, growing, flipped = (tmp_path / "logs/0" / name for name in ("whole", "growing", "flip"))
    for directory in (whole, growing, flipped):
        directory.mkdir(parents=True)
    (whole / "0.log").write_bytes(GOLDEN)
    (growing / "0.log").write_bytes(GOLDEN[:-1])
    (flipped / "0.log").write_bytes(GOLDEN[:50] + bytes([GOLDEN[50] ^ 1]) + GOLDEN[51:])
    assert flipped_logs(tmp_path) == [flipped]
