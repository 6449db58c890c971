"""Records put together by hand, so that they can lie where no encoder would."""

from __future__ import annotations

import struct
from zlib import crc32

from octopi.identifiers import ProducerEpoch, ProducerId, Sequence
from octopi.record import HEADER_BYTES, LENGTH_BYTES, OPAQUE, STRUCTURED, BatchBuilder, record_end

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


def plain_batch(count: int, size: int = 10) -> bytes:
    """So many records without keys and headers, whose values have *size* bytes each."""
    builder = BatchBuilder()
    for number in range(count):
        builder.add(bytes([number % 256]) * size, timestamp_ms=number)
    return builder.encode(ProducerId(b"p" * 16), ProducerEpoch(1), Sequence(0))


def with_checksums(data: bytes) -> bytes:
    """*data*, with the checksums that its records should have, as far as their lengths lead."""
    changed = bytearray(data)
    at = 0
    while at + HEADER_BYTES <= len(data):
        end = at + LENGTH_BYTES + int.from_bytes(data[at : at + LENGTH_BYTES], "big")
        if not at + HEADER_BYTES <= end <= len(data):
            break
        covered = HEADER_BYTES if data[at + LENGTH_BYTES] == OPAQUE else 9
        changed[at + 5 : at + 9] = struct.pack(">I", crc32(data[at + covered : end]))
        at = end
    return bytes(changed)


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
