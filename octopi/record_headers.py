"""The headers of a version 2 record: names and values, one behind the other.

==========  =====  ======================================================================
field       bytes  meaning
==========  =====  ======================================================================
length      2      the length of the name
name        n      UTF-8; each name is used once
length      4      the length of the value
value       m
==========  =====  ======================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from octopi.errors import MalformedRecordError
from octopi.limits import HEADER_COUNT_MAX, HEADER_NAME_BYTES_MAX

NO_HEADERS: Final[Mapping[str, bytes]] = MappingProxyType({})

INPUT_HEADER: Final = "octopi-input"
"""The header of records that a pipe wrote: which message they come from
(`octopi.clients.piping.input_place`)."""

_UNFIT: Final = "invalid_option"

_HEADER_NAME: Final = struct.Struct(">H")
_HEADER_VALUE: Final = struct.Struct(">I")


def encode_headers(headers: Mapping[str, bytes]) -> bytes:
    """The header block of a version 2 payload.

    Raises:
      MalformedRecordError: if there are too many, or a name is too long or not UTF-8.
    """
    if len(headers) > HEADER_COUNT_MAX:
        raise MalformedRecordError(
            f"a message has at most {HEADER_COUNT_MAX} headers, this one has {len(headers)}",
            code=_UNFIT,
        )
    parts: list[bytes] = []
    for name, value in headers.items():
        try:
            raw = name.encode()
        except UnicodeEncodeError:
            raise MalformedRecordError(
                f"header name {name[:40]!r} is not UTF-8", code=_UNFIT
            ) from None
        if len(raw) > HEADER_NAME_BYTES_MAX:
            raise MalformedRecordError(
                f"a header's name has at most {HEADER_NAME_BYTES_MAX} bytes: {name[:40]!r}...",
                code=_UNFIT,
            )
        parts += (_HEADER_NAME.pack(len(raw)), raw, _HEADER_VALUE.pack(len(value)), value)
    return b"".join(parts)


def decode_headers(block: bytes) -> Mapping[str, bytes]:
    """The inverse of `encode_headers`.

    Raises:
      MalformedRecordError: if no encoder writes such a block.
    """
    headers: dict[str, bytes] = {}
    position, end = 0, len(block)
    while position < end:
        try:
            (name_length,) = _HEADER_NAME.unpack_from(block, position)
            position += _HEADER_NAME.size
            name = block[position : position + name_length].decode()
            position += name_length
            (value_length,) = _HEADER_VALUE.unpack_from(block, position)
        except struct.error:
            raise MalformedRecordError("the header block ends within a header") from None
        except UnicodeDecodeError:
            raise MalformedRecordError("a header's name is not UTF-8") from None
        position += _HEADER_VALUE.size
        if position + value_length > end:
            raise MalformedRecordError("the header block ends within a header")
        if name in headers:
            raise MalformedRecordError(f"header {name[:40]!r} is there twice")
        headers[name] = block[position : position + value_length]
        position += value_length
        if name_length > HEADER_NAME_BYTES_MAX or len(headers) > HEADER_COUNT_MAX:
            raise MalformedRecordError("the header block has too many or too long names")
    return headers
