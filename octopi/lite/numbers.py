"""Numbers of messages, by arithmetic.

A message of Lite has 256 bytes, no key and no headers, so every record has the same size, and
message n begins at offset n times that size.  No index is kept.
"""

from __future__ import annotations

from typing import Final

from octopi.errors import InvalidOptionError
from octopi.identifiers import Offset
from octopi.lite.errors import NotLiteError
from octopi.record import NO_HEADERS, Message, encode_headers, record_size_bytes

MESSAGE_BYTES: Final = 256
"""The size of every message."""
RECORD_BYTES: Final = record_size_bytes(bytes(MESSAGE_BYTES), None, encode_headers(NO_HEADERS))
"""The size of every record, which has a message, its checksum and its producer's sequence."""


def padded(data: bytes) -> bytes:
    """*data* with zeros behind it, up to `MESSAGE_BYTES`.

    Raises:
      InvalidOptionError: if it is longer.
    """
    if len(data) > MESSAGE_BYTES:
        raise InvalidOptionError(
            f"a message of Lite has {MESSAGE_BYTES} bytes at most, and this one has {len(data)}: "
            "other topics take larger ones (octopi.connect)"
        )
    return data.ljust(MESSAGE_BYTES, b"\0")


def offset_of(number: int) -> Offset:
    """Where message *number* begins.

    Raises:
      InvalidOptionError: if it is negative.
    """
    if number < 0:
        raise InvalidOptionError(f"messages are numbered from 0, so there is no message {number}")
    return Offset(number * RECORD_BYTES)


def number_at(offset: int) -> int:
    """The number of the message at *offset*.

    Raises:
      NotLiteError: if no message of Lite begins there.
    """
    number, rest = divmod(offset, RECORD_BYTES)
    if rest:
        raise NotLiteError(f"no message of Lite begins at offset {offset}: another program wrote")
    return number


def value_of(message: Message) -> bytes:
    """The bytes of a message.

    Raises:
      NotLiteError: if it isn't one of Lite; its text has topic, partition and offset.
    """
    if len(message.value) != MESSAGE_BYTES or message.key is not None or message.headers:
        raise NotLiteError(
            f"the message at {message.topic}/{message.partition}/{message.offset} is none of Lite: "
            "another program has written to the topic"
        )
    return message.value
