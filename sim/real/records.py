"""Reads the files of a log, written after docs/record-format.md alone.

It shares nothing with `octopi.record`: an error there can't hide itself here.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PAYLOAD_AT: Final = 41
_HEAD: Final = struct.Struct(">IBI")
"""Length of what follows, version, checksum."""
_CHECKED_FROM: Final = {1: _PAYLOAD_AT, 2: 9}
_SIZE_MIN: Final = {1: 41, 2: 57}
_SIZE_MAX: Final = 8 * 1024 * 1024


class NoRecordError(Exception):
    """The bytes at an offset are no sound record."""


def read_records(log: bytes, start: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """The records of *log*, which begins at offset *start*: offset, offset of the next, value.

    Raises:
        NoRecordError: a record is malformed, incomplete, or not what its checksum says.
    """
    at = 0
    while at < len(log):
        if len(log) - at < _HEAD.size:
            raise NoRecordError(f"an incomplete record at {start + at}")
        length, version, checksum = _HEAD.unpack_from(log, at)
        end = at + 4 + length
        if version not in _SIZE_MIN or not _SIZE_MIN[version] <= end - at <= _SIZE_MAX:
            raise NoRecordError(f"a malformed record at {start + at}")
        if end > len(log):
            raise NoRecordError(f"an incomplete record at {start + at}")
        if zlib.crc32(log[at + _CHECKED_FROM[version] : end]) != checksum:
            raise NoRecordError(f"a wrong checksum at {start + at}")
        value_at = at + _PAYLOAD_AT
        if version == 2:
            _, key_length, headers_length = struct.unpack_from(">QII", log, value_at)
            value_at += 16 + headers_length + (0 if key_length == 0xFFFFFFFF else key_length)
        if value_at > end:
            raise NoRecordError(f"a malformed record at {start + at}")
        yield start + at, start + end, log[value_at:end]
        at = end


def flipped_logs(data_dir: Path) -> list[Path]:
    """The directories of logs in which a record is not what its checksum says.  The broker may
    run: an incomplete record, or a segment that is just begun, is none of them."""
    found = []
    for directory in sorted(data_dir.glob("logs/*/*")):
        for path in directory.glob("*.log"):
            try:
                for _ in read_records(path.read_bytes()):
                    pass
            except (NoRecordError, FileNotFoundError) as error:
                if "incomplete" not in str(error) and isinstance(error, NoRecordError):
                    found.append(directory)
                    break
    return found


def log_directory(data_dir: Path, topic: str, partition: int) -> Path:
    """Where a broker with *data_dir* keeps a log."""
    return data_dir / "logs" / str(partition) / topic


def log_bytes(directory: Path) -> bytes:
    """The segments of a log, one behind the other.

    Raises:
        NoRecordError: a segment does not begin where the one before it ends.
    """
    content = b""
    for path in sorted(directory.glob("*.log")):
        if int(path.stem) != len(content):
            raise NoRecordError(f"{path.name} begins behind {len(content)} bytes")
        content += path.read_bytes()
    return content
