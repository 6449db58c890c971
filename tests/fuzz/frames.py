"""WebSocket frames (RFC 6455), as they come from clients and from servers."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import attrs
from hypothesis import strategies as st
from wsproto import ConnectionType
from wsproto.connection import Connection, ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage

from octopi.transport.frame_reader import (
    CLOSE,
    MESSAGE_TOO_BIG,
    PING,
    PONG,
    PROTOCOL_ERROR,
    UNSUPPORTED_DATA,
    FrameFault,
    FrameReader,
    parse_close,
)
from tests.fuzz.target import Target, pieces

BYTES_MAX: Final = 3000
"""Of a message here, so that some are too long."""

_REST_OF_A_HEAD: Final = bytes(12)
_BAD_GATEWAY: Final = 1014
"""A registered code, which wsproto doesn't know."""

_MASK: Final = b"\x37\xfa\x21\x3d"

Event = tuple[object, ...]


class _ClosedError(Exception):
    """A close frame came: nothing is read behind it."""


@attrs.define
class Reading:
    """What was read of some bytes."""

    events: list[Event] = attrs.Factory(list)
    """``(MESSAGE, bytes)``, ``(opcode, payload)`` and ``(CLOSE, code, reason)``."""
    fault: int | None = None
    """What the connection is closed with; None: nothing was wrong."""

    def take(self, opcode: int, payload: bytes) -> None:
        if opcode == CLOSE:
            self.events.append((CLOSE, *parse_close(payload)))
            raise _ClosedError
        self.events.append((opcode, payload))


def read(data: Iterable[bytes], *, is_masked: bool) -> Reading:
    """What our reader makes of the pieces of *data*."""
    reading = Reading()
    reader = FrameReader(is_masked=is_masked, on_control=reading.take)
    try:
        for piece in data:
            reader.feed(piece)
            while (message := reader.next(BYTES_MAX)) is not None or reader.is_paused:
                if message is not None:
                    reading.events.append(("message", message))
    except FrameFault as fault:
        reading.fault = fault.code
    except _ClosedError:
        pass
    return reading


def read_by_wsproto(data: bytes, *, is_masked: bool) -> Reading:
    """What wsproto makes of *data*."""
    connection = Connection(ConnectionType.SERVER if is_masked else ConnectionType.CLIENT)
    reading = Reading()
    message = b""
    connection.receive_data(data)
    for event in connection.events():
        match event:
            case BytesMessage():
                message += event.data
                if event.message_finished:
                    reading.events.append(("message", message))
                    message = b""
            case TextMessage():
                reading.fault = UNSUPPORTED_DATA
                break
            case Ping():
                reading.events.append((PING, bytes(event.payload)))
            case Pong():
                reading.events.append((PONG, bytes(event.payload)))
            case CloseConnection():
                code = int(event.code)
                # What it says of a fault has the form of what the peer says of its end.
                if connection.state is ConnectionState.REMOTE_CLOSING:
                    reading.events.append((CLOSE, code, event.reason or ""))
                else:
                    reading.fault = code
                break
    return reading


def check(data: bytes) -> bool:
    """The first byte says who sent the others."""
    is_masked, data = data[:1] != b"s", data[1:]
    first, *others = [read(one, is_masked=is_masked) for one in pieces(data)]
    for other in others:
        assert other == first, "it depends on how the bytes are cut"
    assert first.fault in {None, PROTOCOL_ERROR, UNSUPPORTED_DATA, 1007, MESSAGE_TOO_BIG}
    assert all(len(one[1]) <= BYTES_MAX for one in first.events if isinstance(one[1], bytes))
    if first.events and first.events[-1][:2] == (CLOSE, _BAD_GATEWAY):
        return True
    theirs = read_by_wsproto(data, is_masked=is_masked)
    if (first.fault is None) != (theirs.fault is None):
        # Either may refuse a head before all of it has come.
        first = read([data + _REST_OF_A_HEAD], is_masked=is_masked)
        theirs = read_by_wsproto(data + _REST_OF_A_HEAD, is_masked=is_masked)
    assert theirs.events[: len(first.events)] == first.events, "wsproto reads it otherwise"
    if first.fault not in {UNSUPPORTED_DATA, MESSAGE_TOO_BIG}:  # what wsproto takes
        assert len(theirs.events) == len(first.events), "wsproto reads on"
        assert (first.fault is None) == (theirs.fault is None), "one of the two refuses it"
    return bool(first.events) or first.fault is None


@st.composite
def _frames(draw: st.DrawFn) -> bytes:
    is_masked = draw(st.booleans())
    parts = [b"c" if is_masked else b"s"]
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(
            st.sampled_from(["whole", "whole", "fragments", "ping", "pong", "close", "text"])
        )
        if kind == "whole":
            size = draw(st.sampled_from([0, 1, 10, 125, 126, 127, 300]))
            parts.append(frame(0x82, bytes(size), is_masked=is_masked))
        elif kind == "fragments":
            count = draw(st.integers(1, 4))
            for index in range(count + 1):
                first = (0x80 if index == count else 0) | (0 if index else 2)
                parts.append(frame(first, draw(st.binary(max_size=8)), is_masked=is_masked))
                if draw(st.booleans()):
                    parts.append(frame(0x89, b"between", is_masked=is_masked))
        elif kind == "close":
            code = draw(st.sampled_from([1000, 1001, 1007, 1011, 3000, 4999, 999, 1005, 1015]))
            payload = struct.pack(">H", code) + draw(st.text(max_size=8)).encode()
            parts.append(frame(0x88, payload, is_masked=is_masked))
        else:
            first = {"ping": 0x89, "pong": 0x8A, "text": 0x81}[kind]
            parts.append(frame(first, draw(st.binary(max_size=8)), is_masked=is_masked))
    return b"".join(parts)


def frame(first: int, payload: bytes, *, is_masked: bool) -> bytes:
    """One frame; the mask leaves the payload as it is or not, it doesn't matter."""
    size, bit = len(payload), 0x80 if is_masked else 0
    length = bytes([bit | size]) if size < 126 else bytes([bit | 126]) + struct.pack(">H", size)
    if not is_masked:
        return bytes([first]) + length + payload
    masked = bytes(byte ^ _MASK[at % 4] for at, byte in enumerate(payload))
    return bytes([first]) + length + _MASK + masked


TARGET = Target(
    "frames",
    "any bytes, however they are cut, give the same messages, or a close with a documented code; "
    "wsproto reads the same, where both accept",
    _frames(),
    check,
    ("octopi/transport/frame_reader.py",),
    words=(
        *(
            frame(first, payload, is_masked=is_masked)
            for is_masked in (True, False)
            for first in (2, 0x82, 0, 0x80, 1, 0x88, 0x89, 0x8A, 0xC2, 0x92, 0x83, 0x8B, 9)
            for payload in (b"", b"\x03\xe8")
        ),
        b"\x82\x7e\x00\x7d", b"\x82\xfe\x00\x7e\x00\x00\x00\x00", b"\x82\x7f" + b"\xff" * 8,
        b"\x82\x7f" + bytes(5) + b"\x01\x00\x00", b"\x82\x7e\x0b\xb9", b"\x88\x01\x03",
    ),
)  # fmt: skip
