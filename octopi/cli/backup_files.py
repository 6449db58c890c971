"""The files of a backup: the records of a topic's logs, byte for byte, and what they are.

``DIR/5.log`` has the records of partition 5, one behind the other, as docs/record-format.md
describes them.  ``DIR/backup.json`` (`Manifest`) names the topic, its options and the logs with
their ends and digests.  It is written last: a directory without it is no complete backup.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import cattrs

from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.rendering import counted
from octopi.errors import MalformedRecordError
from octopi.identifiers import topic_name
from octopi.limits import KIB, RECORD_BYTES_MAX, RECORDS_PER_PRODUCE_MAX
from octopi.model import TopicOptions
from octopi.record import HEADER_BYTES, Scan, scan, whole_records_end

FORMAT: Final = "octopi backup 1"
MANIFEST: Final = "backup.json"
UNFINISHED: Final = "unfinished"
"""An empty file that is there while a backup is being made."""
PIECE_BYTES: Final = 384 * KIB
"""At most this much of a log is restored with one request, or one record: so few bytes never have
more records than one request may."""

assert PIECE_BYTES // HEADER_BYTES < RECORDS_PER_PRODUCE_MAX

_CONVERTER: Final = cattrs.Converter(forbid_extra_keys=True)


@attrs.frozen
class BackedUpLog:
    """One log in a backup."""

    partition: int
    start: int
    """The offset of its first record (bytes)."""
    end: int
    """The offset behind its last record (bytes)."""
    messages: int
    sha256: str
    """The SHA-256 digest of the bytes between, in hexadecimal."""

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return f"{self.partition}.log"

    @property
    def size_bytes(self) -> int:
        """The size of its file."""
        return self.end - self.start


@attrs.frozen
class Manifest:
    """What is in a backup."""

    format: str
    topic: str
    topic_id: str
    taken_at: str
    """When the backup was begun: ISO 8601, UTC."""
    options: TopicOptions
    logs: list[BackedUpLog]
    """In the order in which the topic lists its partitions, by which keys choose among them."""

    def to_json(self) -> bytes:
        """What `read_manifest` reads."""
        return json.dumps(attrs.asdict(self), indent=2).encode() + b"\n"

    def fault(self) -> str:
        """Why there is no such backup; empty if there is."""
        partitions = [log.partition for log in self.logs]
        if self.format != FORMAT:
            return f"its format is {self.format!r}, and this program reads {FORMAT!r}"
        if not partitions or len(set(partitions)) < len(partitions) or min(partitions) < 0:
            return f"its partitions are none, or not all different: {partitions}"
        if any(not 0 <= log.start <= log.end for log in self.logs):
            return "a log of it ends before it starts"
        return self.options.fault()


def read_manifest(directory: Path) -> Manifest:
    """What is in the backup in *directory*.

    Raises:
      CommandError: if there is no complete backup.
    """
    path = directory / MANIFEST
    try:
        manifest = _CONVERTER.structure(json.loads(path.read_bytes()), Manifest)
        topic_name(manifest.topic)
    except FileNotFoundError:
        raise CommandError(
            f"{directory} is no complete backup: it has no {MANIFEST}, which is written last; "
            "make the backup again, or name another directory",
            ExitCode.USAGE,
        ) from None
    except OSError:
        raise
    except Exception as error:  # cattrs raises groups of what its hooks raise
        raise CommandError(f"{path} is damaged: {error}", ExitCode.DATA_FAULT) from None
    if fault := manifest.fault():
        raise CommandError(f"{path} can't be restored: {fault}", ExitCode.DATA_FAULT)
    return manifest


class LogFile:
    """Reads the file of a log, and checks each record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sound_bytes = 0
        """How far its records are whole and valid, as far as it was read."""
        self.messages = 0
        """How many they are."""
        self.fault = ""
        """Why it was not read further; empty if it ended or was not read yet."""

    def pieces(self) -> Iterator[tuple[bytes, Scan]]:
        """Records from the beginning of the file on, of which each piece is at most `PIECE_BYTES`
        long, or one record.  Ends at the end of the file, or at a `fault`.

        Raises:
          OSError: if reading fails.
        """
        self.sound_bytes, self.messages, self.fault = 0, 0, ""
        held = b""
        length = 0
        with self.path.open("rb") as file:
            while not self.fault:
                more = b""
                if not length or len(held) < PIECE_BYTES:
                    more = file.read(PIECE_BYTES)
                    held += more
                if not held:
                    return
                try:
                    length = whole_records_end(held, PIECE_BYTES)
                except MalformedRecordError:
                    length = len(held)  # the scan finds the fault, and what is sound before it
                if length:
                    piece = self._checked(held[:length])
                    if piece[0]:
                        yield piece
                    held = held[length:]
                elif not more or len(held) > RECORD_BYTES_MAX:
                    self.fault = "its last record is cut"

    def _checked(self, data: bytes) -> tuple[bytes, Scan]:
        found = scan(data)
        if found.fault is not None:
            self.fault = str(found.fault)
        self.sound_bytes += found.valid_bytes
        self.messages += found.count
        return data[: found.valid_bytes], found

    def check(self, log: BackedUpLog) -> str:
        """Why the file is not what *log* says, with what of it is sound; empty if it is.

        Raises:
          OSError: if reading fails.
        """
        digest = hashlib.sha256()
        for piece, _ in self.pieces():
            digest.update(piece)
        why = self.fault
        if not why and self.sound_bytes != log.size_bytes:
            why = f"it has {self.sound_bytes:,} bytes and not {log.size_bytes:,}"
        if not why and digest.hexdigest() != log.sha256:
            why = "its digest is another one, although each record is sound"
            self.sound_bytes = self.messages = 0
        if not why:
            return ""
        return (
            f"{self.path}: {why}; sound are the first {self.sound_bytes:,} of "
            f"{log.size_bytes:,} bytes, {self.messages:,} of {counted(log.messages, 'message')}"
        )
