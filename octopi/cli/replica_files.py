"""Compares the log files of several replicas byte by byte.

Segments may end at different offsets on different brokers, but the bytes of the log must be the
same everywhere up to the highwater mark.  This only reads, and committed bytes never change, so
brokers may run meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from octopi.cli.failures import CommandError
from octopi.identifiers import Offset
from octopi.storage.file_names import segment_bases, segment_path

_PIECE_BYTES: Final = 1024 * 1024


@attrs.frozen
class _LogFiles:
    """The segments in one directory."""

    directory: Path
    bases: list[Offset]

    @classmethod
    def find(cls, directory: Path) -> _LogFiles:
        return cls(directory, segment_bases(path.name for path in directory.iterdir()))

    def read(self, position: int, bytes_max: int) -> bytes:
        """The bytes at *position*, within one segment; empty if there are none."""
        base = max((one for one in self.bases if one <= position), default=None)
        if base is None:
            return b""
        with Path(segment_path(str(self.directory), base)).open("rb") as file:
            file.seek(position - base)
            return file.read(bytes_max)


def compare_replicas(directories: Mapping[int, Path], end: int) -> None:
    """Compare the logs in *directories* (by broker) from offset 0 to *end*.

    Raises:
      CommandError: naming the first offset that differs or is missing, and the broker.
    """
    logs = {broker: _LogFiles.find(directory) for broker, directory in directories.items()}
    position = 0
    while position < end:
        pieces = {
            broker: log.read(position, min(_PIECE_BYTES, end - position))
            for broker, log in logs.items()
        }
        size_bytes = min(len(piece) for piece in pieces.values())
        (first, expected), *others = pieces.items()
        for broker, piece in others:
            same_bytes = shared_bytes(expected[:size_bytes], piece[:size_bytes])
            if same_bytes < size_bytes:
                raise CommandError(
                    f"the logs of brokers {first} and {broker} differ at offset "
                    f"{position + same_bytes}: that must never be; please report it"
                )
        if not size_bytes:
            broker = next(broker for broker, piece in pieces.items() if not piece)
            raise CommandError(
                f"the log of broker {broker} ends at offset {position}, before {end}: "
                "that must never be; please report it"
            )
        position += size_bytes


def compare_files(source: Path, copy: Path) -> None:
    """Compare two files.

    Raises:
      CommandError: naming the first byte that differs.
    """
    position = 0
    with source.open("rb") as one, copy.open("rb") as other:
        while True:
            expected, actual = one.read(_PIECE_BYTES), other.read(_PIECE_BYTES)
            if expected != actual:
                raise CommandError(
                    "what came back differs from byte "
                    f"{position + shared_bytes(expected, actual)} on: "
                    "that must never be; please report it"
                )
            if not expected:
                return
            position += len(expected)


def shared_bytes(one: bytes, other: bytes) -> int:
    """The number of bytes that *one* and *other* have in common at their beginnings."""
    if one == other:
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
