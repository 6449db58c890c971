"""Records as two columns: the values of a batch, and the offsets of its messages.

A program that needs only values has no use for keys, headers, time stamps and request ids, so
nothing is made of them.  Every record is checked as by `octopi.record.decode`, which stays the
reference: the same records are refused, with the same errors.

Pure.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from zlib import crc32

from octopi import kernels
from octopi.errors import MalformedRecordError, RecordError
from octopi.identifiers import Offset
from octopi.record import check_record
from octopi.record_format import (
    CHECKSUM_END,
    HEADER_BYTES,
    LENGTH_BYTES,
    LENGTH_MAX,
    LENGTH_MIN_V2,
    NO_KEY,
    OPAQUE,
    STRUCTURED,
    STRUCTURED_BYTES_MIN,
    UINT32_MAX,
    VALUE_ONLY,
)
from octopi.record_headers import decode_headers

_HEAD: Final = struct.Struct(">IBI20xI16xQ")
"""length, version, checksum, the reserved bytes of the request id, and then key_length and
headers_length as one number; see `octopi.record_format`."""
_LENGTHS_AT: Final = HEADER_BYTES + 8
"""Where the lengths of key and headers are in a version 2 record."""
_LENGTHS: Final = struct.Struct(">II")

assert _HEAD.size == STRUCTURED_BYTES_MIN == _LENGTHS_AT + _LENGTHS.size


if TYPE_CHECKING:
    OffsetArray: TypeAlias = array[int]
else:
    OffsetArray = array  # before Python 3.12 it takes no type


class RecordColumns(NamedTuple):
    """One entry for each message, in the order of the log."""

    values: list[bytes]
    """Each is an object of its own, and doesn't keep the buffer."""
    offsets: OffsetArray
    """Of type ``q``.  The last message ends where the buffer does."""


def columns(buffer: bytes | memoryview, base_offset: Offset) -> RecordColumns:
    """The values and offsets of *buffer*, which has whole records from *base_offset* on.

    Raises:
      IncompleteRecordError, MalformedRecordError, ChecksumError: as `octopi.record.decode`.
    """
    found = RecordColumns([], array("q"))
    compiled = kernels.KERNELS
    position, end = 0, len(buffer)
    while position < end:
        before = position
        if compiled is not None:
            position, values, offsets = compiled.values(buffer, position, base_offset)
            found.values.extend(values)
            found.offsets.frombytes(offsets)
            if position == end:
                break
        buffer = bytes(buffer)  # no copy, if it is bytes
        position = _take_sound(buffer, position, base_offset, found, compiled is not None)
        if position == before:
            position = _take_any(buffer, position, base_offset, found)
    return found


def _take_sound(
    buffer: bytes, position: int, base_offset: int, found: RecordColumns, has_kernels: bool
) -> int:
    """Take the sound records of version 2 from *position* on; return where the first other record
    starts, or the end.  If *has_kernels*, those without headers are left to the kernels.  It raises
    nothing."""
    view = memoryview(buffer)
    end = len(buffer)
    last = end - STRUCTURED_BYTES_MIN
    unpack = _HEAD.unpack_from
    add_value, add_offset = found.values.append, found.offsets.append
    while position <= last:
        length, version, checksum, reserved, lengths = unpack(buffer, position)
        stop = position + LENGTH_BYTES + length
        if has_kernels and not lengths & UINT32_MAX:
            break
        if version != STRUCTURED or not LENGTH_MIN_V2 <= length <= LENGTH_MAX or stop > end:
            break
        if reserved or crc32(view[position + CHECKSUM_END : stop]) != checksum:
            break
        at = position + STRUCTURED_BYTES_MIN
        if lengths != VALUE_ONLY:
            key_length, headers_length = divmod(lengths, 1 << 32)
            at += headers_length + (0 if key_length == NO_KEY else key_length)
            if at > stop or (headers_length and not _has_headers(buffer, position, headers_length)):
                break
        add_value(buffer[at:stop])
        add_offset(base_offset + position)
        position = stop
    return position


def _has_headers(buffer: bytes, position: int, headers_length: int) -> bool:
    """Whether the header block of the record at *position* is one that an encoder writes."""
    start = position + STRUCTURED_BYTES_MIN
    try:
        decode_headers(buffer[start : start + headers_length])
    except MalformedRecordError:
        return False
    return True


def _take_any(buffer: bytes, position: int, base_offset: int, found: RecordColumns) -> int:
    """Take the record at *position*, of any kind; return where it ends.

    Raises:
      RecordError: if it is not valid.
    """
    try:
        stop = check_record(buffer, position)
    except RecordError as error:
        raise type(error)(f"record at offset {base_offset + position}: {error}") from None
    if buffer[position + LENGTH_BYTES] == OPAQUE:
        at = position + HEADER_BYTES
    else:
        key_length, headers_length = _LENGTHS.unpack_from(buffer, position + _LENGTHS_AT)
        at = position + STRUCTURED_BYTES_MIN + headers_length
        at += 0 if key_length == NO_KEY else key_length
    found.values.append(buffer[at:stop])
    found.offsets.append(base_offset + position)
    return stop
