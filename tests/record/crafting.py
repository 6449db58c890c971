"""Records put together by hand, so that they can lie where no encoder would."""

from __future__ import annotations

import struct
from zlib import crc32

from octopi.record import OPAQUE, STRUCTURED, record_end

NO_KEY = 0xFFFFFFFF


def craft(version: int, body: bytes, *, length: int | None = None) -> bytes:
    """A record whose checksum matches, over *body*: request id and payload."""
    checksum = crc32(body[32:] if version == OPAQUE else body)
    length = 5 + len(body) if length is None else length
    return struct.pack(">IBI", length, version, checksum) + body


def craft_structured(
    rest: bytes = b"",
    *,
    key_length: int = NO_KEY,
    headers_length: int = 0,
    reserved: int = 0,
    sequence: int = 0,
    timestamp_ms: int = 0,
) -> bytes:
    """A version 2 record whose checksum matches and whose other fields are as given."""
    fixed = struct.pack(
        ">16sIIQQII", b"p" * 16, 1, reserved, sequence, timestamp_ms, key_length, headers_length
    )
    return craft(STRUCTURED, fixed + rest)


def craft_header(name: bytes, value: bytes) -> bytes:
    """One entry of a header block."""
    return struct.pack(">H", len(name)) + name + struct.pack(">I", len(value)) + value


def is_boundary(buffer: bytes | memoryview, position: int) -> bool:
    """Whether *position*, at most the buffer's length, is where a record starts or the last
    one ends.  Walks lengths only.

    Raises:
      MalformedRecordError, IncompleteRecordError: if the walk meets bytes that are no record.
    """
    at = 0
    while at < position:
        at = record_end(buffer, at)
    return at == position
