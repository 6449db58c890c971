"""Decodes the messages that one end of a connection sent.

On the message tier each piece is a message.  On the WebSocket tier the pieces are bytes; this
module reads the handshake (RFC 6455 section 4) and the frames (section 5.2) without validating
them: the reader of a run wants to know what was sent, even if it was wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from octopi.errors import ProtocolError
from octopi.wire.codec import decode
from octopi.wire.messages import MESSAGES, TYPE_NAMES

_ALL_MESSAGES: Final = frozenset(MESSAGES.values())
_HEAD_END: Final = b"\r\n\r\n"
_CONTROL_FRAMES: Final = {8: "close", 9: "ping", 10: "pong"}
_FINAL: Final = 0x80
_MASKED: Final = 0x80
_LENGTH_IN_16_BITS: Final = 126
_LENGTH_IN_64_BITS: Final = 127
_HEAD_BYTES_MAX: Final = 64 * 1024
"""The most bytes in which the head of a handshake is looked for."""


def message(data: bytes) -> tuple[str, object]:
    """The type name of an encoded message, and the message; "bytes" and None if *data* is none."""
    try:
        content = decode(data, _ALL_MESSAGES)
    except ProtocolError:
        return "bytes", None
    return TYPE_NAMES[type(content)], content


class SpokenStream:
    """Finds the messages in a stream of bytes, piece by piece."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._read_bytes = 0
        """The number of bytes before the rest."""
        self._has_head = False
        self._is_foreign = False
        """Whether it is no WebSocket, but HTTP or something else of a program's own."""
        self._payload = b""
        """The payload of the frames of a message that isn't complete yet."""

    def add(self, piece: bytes) -> Iterator[tuple[str, object, int]]:
        """Yield the kind, the content and the end (bytes since the beginning of the stream) of each
        message that *piece* completes."""
        if self._is_foreign:
            self._read_bytes += len(piece)
            yield "bytes", None, self._read_bytes
            return
        self._rest += piece
        while (size_bytes := self._complete_bytes()) is not None:
            part = bytes(self._rest[:size_bytes])
            del self._rest[:size_bytes]
            self._read_bytes += size_bytes
            found = self._take(part)
            if found is not None:
                yield *found, self._read_bytes
            if self._is_foreign:
                break
        if not self._has_head and len(self._rest) > _HEAD_BYTES_MAX:
            self._is_foreign = True
        if self._is_foreign and self._rest:
            self._read_bytes += len(self._rest)
            self._rest.clear()
            yield "bytes", None, self._read_bytes

    def _complete_bytes(self) -> int | None:
        """The size of the handshake's head, or of the next frame, if it is complete."""
        if not self._has_head:
            at = self._rest.find(_HEAD_END)
            return at + len(_HEAD_END) if at >= 0 else None
        if len(self._rest) < 2:
            return None
        header_bytes = _header_bytes(self._rest[1])
        if len(self._rest) < header_bytes:
            return None
        size_bytes = header_bytes + _payload_bytes(self._rest)
        return size_bytes if len(self._rest) >= size_bytes else None

    def _take(self, part: bytes) -> tuple[str, object] | None:
        if not self._has_head:
            self._has_head = True
            is_accepted = part.startswith(b"HTTP/1.1 101 ")
            self._is_foreign = not is_accepted and not _may_be_handshake(part.lower())
            return ("answer" if part.startswith(b"HTTP/") else "request"), None
        header_bytes, opcode = _header_bytes(part[1]), part[0] & 0x0F
        if opcode in _CONTROL_FRAMES:
            return _CONTROL_FRAMES[opcode], None
        payload = part[header_bytes:]
        if part[1] & _MASKED:
            payload = _unmasked(payload, part[header_bytes - 4 : header_bytes])
        self._payload += payload
        if not part[0] & _FINAL:
            return None
        whole, self._payload = self._payload, b""
        return message(whole)


def _may_be_handshake(head: bytes) -> bool:
    """Whether *head*, in small letters, may begin a WebSocket (RFC 6455 section 4.1)."""
    asks = b"upgrade: websocket" in head or b": " not in head
    return head.startswith(b"get ") and asks


def _header_bytes(second: int) -> int:
    """The size of a frame's header, mask included, by its second byte."""
    length = second & 0x7F
    extended = 2 if length == _LENGTH_IN_16_BITS else 8 if length == _LENGTH_IN_64_BITS else 0
    return 2 + extended + (4 if second & _MASKED else 0)


def _payload_bytes(frame: bytearray) -> int:
    length = frame[1] & 0x7F
    if length == _LENGTH_IN_16_BITS:
        return int.from_bytes(frame[2:4], "big")
    if length == _LENGTH_IN_64_BITS:
        return int.from_bytes(frame[2:10], "big")
    return length


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    whole = mask * (len(payload) // 4 + 1)
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(whole[: len(payload)], "big")
    return masked.to_bytes(len(payload), "big")
