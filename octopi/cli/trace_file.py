"""Writes what a node does, step by step and message by message, to a file: ``--trace``.

Each line is a JSON object.  ``at`` is the time in seconds since 1970: that of the wall clock when
the process began to write, and from then on of a clock that doesn't jump.

* ``{"at", "start": role, "listen"}``: a process begins to write.
* ``{"at", "step": text, "facts": {...}}``: a step of `octopi.tracing`.
* ``{"at", "link": number, "to" or "from": peer, "path"}``: a link is open, to a node or from one.
* ``{"at", "link": number, "sent" or "came": kind, "bytes", "facts": {...}}``: a whole message; the
  first one of each direction also has ``sum``, a checksum of its bytes, by which the two ends of a
  link find each other (nodes greet each other with bytes that were never used before).

Neither secrets nor what programs produce is written: of bytes only their number.
`octopi.simulation.report.trace_files` reads such files.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
from collections.abc import Mapping
from io import SEEK_END, FileIO
from itertools import count
from pathlib import Path
from typing import Any, Final, cast

import attrs

from octopi.cli.failures import CommandError, ExitCode
from octopi.environment import Clock, TraceEvent
from octopi.limits import MIB
from octopi.logger import get_logger
from octopi.simulation.report.formatting import brief
from octopi.simulation.report.frame_decoder import message

_log = get_logger(__name__)

FILE_BYTES_MAX: Final = 512 * MIB
"""The size at which the file ends."""

SECRET_FIELDS: Final = frozenset({"token", "nonce", "proof", "proofs"})
"""Fields of messages that are not written, as far as they are there."""

_TEXT_CHARACTERS_MAX: Final = 200


def trace_path(given: str, role: str, listen: str) -> Path:
    """The file that a node in *role* that listens at *listen* writes to: *given*, or one of its own
    in the directory *given*, by its port; a node whose port may be another one at each start has a
    new file each time."""
    path, port = Path(given), listen.rpartition(":")[2]
    if not path.is_dir():
        return path
    if port != "0":
        return path / f"{role}-{port}.trace"
    names = (path / f"{role}-{number}.trace" for number in count(1))
    return next(name for name in names if not name.exists())


class TraceFile:
    """Appends to one file what one node does.

    It ends, with a warning in the node's log, when the file has `FILE_BYTES_MAX` bytes, or
    can't be written to: a node never fails because of its trace.
    """

    def __init__(self, path: Path, clock: Clock, role: str, listen: str) -> None:
        """Begin to write to *path*.

        Raises:
          CommandError: if that isn't possible.
        """
        self._path = path
        self._clock = clock
        try:
            file = path.open("a+b", buffering=0)
        except OSError as error:
            raise CommandError(f"--trace: {path}: {error.strerror}", ExitCode.USAGE) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size_bytes = file.seek(0, SEEK_END)
            if size_bytes and _last_byte(file) != b"\n":
                file.write(b"\n")  # the process before was killed, or lost power, while it wrote
        except OSError as error:
            file.close()
            why = f"{path}: {error.strerror}"
            if isinstance(error, BlockingIOError):
                why = (
                    f"another node writes to {path}; name a directory, in which each node has a "
                    "file of its own"
                )
            raise CommandError(f"--trace: {why}", ExitCode.USAGE) from error
        self._file = file
        self._left_bytes = FILE_BYTES_MAX - size_bytes
        self._zero = clock.wall_ms() / 1000 - clock.now()
        self._write({"start": role, "listen": listen})

    def step(self, event: TraceEvent) -> None:
        """The node has reached a step."""
        self._write({"step": event.text, "facts": _facts(event.facts)})

    def opened(self, link: int, peer: str, path: str, *, is_ours: bool) -> None:
        """See `octopi.transport.traced_net.MessageObserver`."""
        self._write({"link": link, "to" if is_ours else "from": peer, "path": path})

    def sent(self, link: int, data: bytes, *, is_first: bool) -> None:
        """See `octopi.transport.traced_net.MessageObserver`."""
        self._message("sent", link, data, is_first=is_first)

    def received(self, link: int, data: bytes | memoryview, *, is_first: bool) -> None:
        """See `octopi.transport.traced_net.MessageObserver`."""
        self._message("came", link, bytes(data), is_first=is_first)

    def close(self) -> None:
        """Close the file.  What the node does after that is not written."""
        self._left_bytes = 0
        self._file.close()

    def _message(self, way: str, link: int, data: bytes, *, is_first: bool) -> None:
        if self._left_bytes <= 0:
            return
        kind, content = message(data)
        line: dict[str, Any] = {"link": link, way: kind, "bytes": len(data)}
        if is_first:
            line["sum"] = hashlib.blake2b(data, digest_size=8).hexdigest()
        if content is not None:
            names = (
                field.name
                for field in attrs.fields(cast("type[attrs.AttrsInstance]", type(content)))
            )
            line["facts"] = _facts({name: getattr(content, name) for name in names})
        self._write(line)

    def _write(self, line: dict[str, Any]) -> None:
        if self._left_bytes <= 0:
            return
        text = json.dumps({"at": round(self._zero + self._clock.now(), 6), **line}).encode() + b"\n"
        try:
            written_bytes = self._file.write(text)
            if written_bytes < len(text):
                raise OSError(errno.ENOSPC, "there was no room for a whole line")
        except OSError as error:
            self._left_bytes = 0
            _log.warning("trace_not_written", file=str(self._path), error=str(error))
            return
        self._left_bytes -= written_bytes
        if self._left_bytes <= 0:
            _log.warning("trace_full", file=str(self._path), bytes=FILE_BYTES_MAX)


def _last_byte(file: FileIO) -> bytes:
    file.seek(-1, SEEK_END)
    return file.read(1)


def _facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _fact(value) for name, value in facts.items() if name not in SECRET_FIELDS}


def _fact(value: object) -> object:
    """*value* as JSON has it: numbers as they are, of bytes their number, of others their text."""
    match value:
        case bool() | int() | float() | None:
            return value
        case str():
            return value[:_TEXT_CHARACTERS_MAX]
        case bytes() | bytearray() | memoryview():
            return f"{len(value)} bytes"
    return brief(value)
