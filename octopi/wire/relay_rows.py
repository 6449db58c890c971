"""Rows of one size in byte strings, in which relays tell places in streams and ids
(`octopi.wire.relay`)."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from octopi.identifiers import Offset, TopicId
from octopi.limits import ID_CHARACTERS, OFFSET_MAX

TOPIC_ID_BYTES: Final = ID_CHARACTERS // 2
POINT_ROW: Final = Struct(">Q32s")
STREAM_ROW: Final = Struct(">8sQ32s")
STREAM_END_ROW: Final = Struct(">8sQ32sQ")


def packed_points(points: Iterable[tuple[Offset, bytes]]) -> bytes:
    """The bytes of places in a stream, each with the digest there."""
    return b"".join(POINT_ROW.pack(end, digest) for end, digest in points)


def points_of(data: bytes) -> list[tuple[Offset, bytes]]:
    """The inverse of `packed_points`."""
    return [(Offset(end), digest) for end, digest in POINT_ROW.iter_unpack(data)]


def packed_streams(streams: Iterable[tuple[TopicId, Offset, bytes]]) -> bytes:
    """The bytes of streams: topic id, end, and the digest there."""
    return b"".join(STREAM_ROW.pack(bytes.fromhex(one), *point) for one, *point in streams)


def streams_of(data: bytes) -> list[tuple[TopicId, Offset, bytes]]:
    """The inverse of `packed_streams`."""
    return [
        (TopicId(one.hex()), Offset(end), digest)
        for one, end, digest in STREAM_ROW.iter_unpack(data)
    ]


def packed_ends(streams: Iterable[tuple[TopicId, Offset, bytes, Offset]]) -> bytes:
    """The bytes of streams: topic id, end, the digest there, and highwater mark."""
    return b"".join(STREAM_END_ROW.pack(bytes.fromhex(one), *end) for one, *end in streams)


def ends_of(data: bytes) -> list[tuple[TopicId, Offset, bytes, Offset]]:
    """The inverse of `packed_ends`."""
    return [
        (TopicId(one.hex()), Offset(end), digest, Offset(highwater))
        for one, end, digest, highwater in STREAM_END_ROW.iter_unpack(data)
    ]


def packed_ids(ids: Iterable[TopicId]) -> bytes:
    """The bytes of topic ids."""
    return b"".join(map(bytes.fromhex, ids))


def ids_of(data: bytes) -> list[TopicId]:
    """The inverse of `packed_ids`."""
    begins = range(0, len(data), TOPIC_ID_BYTES)
    return [TopicId(data[begin : begin + TOPIC_ID_BYTES].hex()) for begin in begins]


def rows_fault(field: str, data: bytes, rows: Struct) -> str:
    """Why *data* holds no such rows; empty: it does."""
    if len(data) % rows.size:
        return f"{field} has {len(data)} bytes, and a row has {rows.size}"
    for row in rows.iter_unpack(data):
        if any(isinstance(one, int) and one > OFFSET_MAX for one in row):
            return f"{field} has an offset above {OFFSET_MAX}"
    return ""
