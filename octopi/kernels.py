"""The compiled kernels: what takes most of the time with records, in C.

`octopi/_kernels.c` is compiled when Octopi is installed, where there are a C compiler and Python's
headers (`hatch_build.py`).  Elsewhere, or where the environment variable OCTOPI_KERNELS is ``0``,
`KERNELS` is None, and Python does all by itself.

The kernels take only plain records: valid ones of version 2 without headers.  They stop in front of
the first other one, at which Python looks.  So `octopi.record` stays the reference, and only it
words errors.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

_SOURCE: Final = Path(__file__).with_name("_kernels.c")
_DIGEST_CHARACTERS: Final = 16
_Message = TypeVar("_Message", bound=tuple[object, ...])


class Kernels(Protocol):
    """The functions of `octopi/_kernels.c`, which says what each takes and where it stops."""

    SOURCE: str
    """The beginning of the SHA-256 digest of the source that was compiled."""
    RECORD_BYTES_MAX: int

    def scan(
        self,
        buffer: bytes | memoryview,
        position: int,
        limit: int,
        producer: bytes,
        sequence: int,
        timestamp_max_ms: int,
        /,
    ) -> tuple[int, int, int]:
        """Walk over plain records from *position* on that start before *limit* and continue the run
        of *producer* (its id and epoch, 20 bytes) behind *sequence*.  Returns the position behind
        them, the last sequence, and the largest time stamp, that given included."""

    def decode(
        self,
        buffer: bytes | memoryview,
        position: int,
        base_offset: int,
        topic: str,
        partition: int,
        message_type: type[_Message],
        no_headers: Mapping[str, bytes],
        messages: list[_Message],
        /,
    ) -> int:
        """Append the messages of plain records from *position* on to *messages*; return the
        position behind them.  *base_offset* is that of the buffer's first byte."""

    def values(
        self, buffer: bytes | memoryview, position: int, base_offset: int, /
    ) -> tuple[int, list[bytes], bytes]:
        """The position behind the plain records from *position* on, their values, and their
        offsets, as ``array('q').frombytes`` takes them."""

    def encode(
        self,
        messages: list[tuple[bytes, bytes | None, bytes, int]],
        producer: bytes,
        first_sequence: int,
        /,
    ) -> bytes | None:
        """The records of *messages* (value, key, header block, time stamp), with consecutive
        sequences; None if Python has to encode them."""

    def crc32(self, way: str, buffer: bytes | memoryview, /) -> int | None:
        """As `zlib.crc32`, by ``tables`` or ``clmul``; None if this processor can't.  For tests."""


def digest_of(source: bytes) -> str:
    """What `Kernels.SOURCE` is if they are compiled from *source*."""
    return hashlib.sha256(source).hexdigest()[:_DIGEST_CHARACTERS]


def load(setting: str, source: Path = _SOURCE) -> Kernels | str:
    """The kernels, or why there are none.  *setting* is the value of OCTOPI_KERNELS.

    If their *source* is there, they have to be made of it: another one may mean something else by a
    function.
    """
    if setting == "0":
        return "OCTOPI_KERNELS is 0"
    try:
        kernels = cast(Kernels, importlib.import_module("octopi._kernels"))
    except ModuleNotFoundError:
        return "none were built; install again where there is a C compiler"
    except ImportError as error:
        return f"they can't be loaded: {error}"
    if source.exists() and digest_of(source.read_bytes()) != kernels.SOURCE:
        return "they were built from another source; install again"
    return kernels


_loaded: Final = load(os.environ.get("OCTOPI_KERNELS", ""))

KERNELS: Kernels | None = None if isinstance(_loaded, str) else _loaded
"""None: Python does all by itself."""

WHY_NONE: Final = _loaded if isinstance(_loaded, str) else ""
"""Why `KERNELS` is None."""


def description() -> str:
    """Which code this process has for records, for ``octopi-node --version``."""
    if KERNELS is not None:
        return "records: compiled"
    return f"records: Python; no compiled kernels: {WHY_NONE}"
