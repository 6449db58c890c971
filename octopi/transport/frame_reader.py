"""WebSocket frames (RFC 6455 section 5): bytes in, whole messages out.

Checks the frames, puts fragments together, and checks the size of a message before it keeps any
of it.  A large message can be received in place: its bytes go from the stream straight to the
buffer in which it is handed on.  Knows no stream, no deadline and no handshake.  Extensions are
never negotiated, so reserved bits are never set.

========  ====  ========================================================================
bits      mask  meaning
========  ====  ========================================================================
first     0x80  FIN: the last frame of a message
byte      0x70  reserved, zero
\\         0x0F  opcode: 0 continuation, 1 text, 2 binary, 8 close, 9 ping, 10 pong
second    0x80  the payload is masked, by four bytes that follow the length
byte      0x7F  length; 126: in the next 2 bytes, 127: in the next 8
========  ====  ========================================================================
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Final

from octopi.limits import FRAGMENT_BYTES_MIN
from octopi.transport.masking import apply_mask
from octopi.transport.receive_buffers import ReceiveBuffers

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
PROTOCOL_ERROR: Final = 1002
UNSUPPORTED_DATA: Final = 1003
NO_CODE: Final = 1005
"""The code of a close frame that has none; never sent."""
INVALID_TEXT: Final = 1007
MESSAGE_TOO_BIG: Final = 1009
"""Close codes, section 7.4.1."""

CONTROL_BYTES_MAX: Final = 125

_FIN: Final = 0x80
_RESERVED: Final = 0x70
_OPCODE: Final = 0x0F
_MASKED: Final = 0x80
_WHOLE: Final = _FIN | BINARY
"""The first byte of nearly every frame: a binary message in one frame."""
_LENGTH_IN_2: Final = 126
_COPIED_BYTES_MAX: Final = 4096
"""Below this a copy of the payload costs less than a view of it."""
_FRAMES_IN_A_ROW_MAX: Final = 16
"""How many frames that complete no message are read in one call of `FrameReader.next`."""
_KNOWN: Final = frozenset({CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG})
_CODES: Final = frozenset({*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)})
"""The codes that a close frame may hold."""
_LENGTH_16: Final = struct.Struct(">BBH")
_LENGTH_64: Final = struct.Struct(">BBQ")
_CODE: Final = struct.Struct(">H")


class FrameFault(Exception):
    """The peer broke RFC 6455, or sent something else than binary messages within their bound."""

    def __init__(self, code: int, text: str) -> None:
        """*code*: the close code for the connection."""
        super().__init__(text)
        self.code = code


def frame_head(opcode: int, size_bytes: int, mask: bytes = b"") -> bytes:
    """The head of an unfragmented frame whose payload has *size_bytes*, *mask* included."""
    masked = _MASKED if mask else 0
    if size_bytes < 126:
        return bytes((_FIN | opcode, masked | size_bytes)) + mask
    if size_bytes < 1 << 16:
        return _LENGTH_16.pack(_FIN | opcode, masked | 126, size_bytes) + mask
    return _LENGTH_64.pack(_FIN | opcode, masked | 127, size_bytes) + mask


def close_payload(code: int, reason: str) -> bytes:
    """The payload of a close frame with *code* and *reason*; a long *reason* is cut."""
    cut = reason.encode(errors="replace")[: CONTROL_BYTES_MAX - _CODE.size]
    return _CODE.pack(code) + cut.decode(errors="ignore").encode()


def parse_close(payload: bytes) -> tuple[int, str]:
    """Code and reason of a close frame.

    Raises:
      FrameFault: if *payload* is not that of a close frame.
    """
    if not payload:
        return NO_CODE, ""
    if len(payload) < _CODE.size:
        raise FrameFault(PROTOCOL_ERROR, "a close frame came with half a code")
    (code,) = _CODE.unpack_from(payload)
    if code not in _CODES:
        raise FrameFault(PROTOCOL_ERROR, f"a close frame came with the code {code}")
    try:
        return code, payload[_CODE.size :].decode()
    except UnicodeDecodeError:
        raise FrameFault(INVALID_TEXT, "a close frame came with a reason not in UTF-8") from None


class FrameReader:
    """Takes bytes as they are received and returns whole messages.

    Invariant: while a frame is incomplete and its head has been read, `_is_in_frame` is true and
    `_payload` holds what was received behind the head; or `place`, if that isn't None, all but the
    last `_missing_bytes` of which are received.  While the head is incomplete, `_buffer` holds it
    from `_at` on.
    """

    __slots__ = (
        "_at",
        "_buffer",
        "_buffers",
        "_first_byte",
        "_is_fragmented",
        "_is_in_frame",
        "_is_masked",
        "_mask",
        "_message",
        "_missing_bytes",
        "_on_control",
        "_payload",
        "_placed_bytes_min",
        "is_paused",
        "may_keep",
        "place",
        "useless_count",
    )

    def __init__(
        self,
        *,
        is_masked: bool,
        on_control: Callable[[int, bytes], None],
        buffers: ReceiveBuffers | None = None,
    ) -> None:
        """*is_masked*: whether the peer masks its frames, as a client does.  *on_control* is called
        by `next` with opcode and payload of each control frame, in order with the messages; `next`
        passes on what it raises.  *buffers*: where large messages are received in place; None:
        nowhere."""
        assert buffers is None or not is_masked, "what is received in place is never unmasked"
        self._is_masked = is_masked
        self._buffers = buffers
        self._placed_bytes_min = math.inf if buffers is None else buffers.bytes_min
        self.place: memoryview | None = None
        """The payload of the incomplete frame, if it is received in place (see `rest`)."""
        self._on_control = on_control
        self._buffer = b""
        self._at = 0
        self._is_in_frame = False
        self._first_byte = 0
        self._mask = b""
        self._payload = bytearray()
        self._missing_bytes = 0
        self._message = bytearray()
        """The fragments of a message so far that comes in several frames."""
        self._is_fragmented = False
        self.is_paused = False
        """Whether `next` stopped before it had read all, and has to be called again."""
        self.may_keep = False
        """False: `kept_bytes` is 0, and there is no need to ask for it."""
        self.useless_count = 0
        """Control frames and tiny fragments that were read; callers reset it."""

    def feed(self, data: bytes) -> None:
        """Take received bytes.  Call it only when `next` has returned None without pausing."""
        self.may_keep = True
        taken = 0
        if self._is_in_frame:
            taken = min(len(data), self._missing_bytes)
            received = data if taken == len(data) else memoryview(data)[:taken]
            if self.place is None:
                self._payload += received
            else:
                self.rest()[:taken] = received
            self._missing_bytes -= taken
            self._buffer, self._at = data, taken
        else:
            self._buffer, self._at = self._buffer[self._at :] + data, 0
        self._drop_what_was_read()

    def rest(self) -> memoryview:
        """Where the rest of the payload at `place` goes: fill the beginning of it, and call
        `received`.  Bytes from elsewhere may be given to `feed` as ever."""
        assert self.place is not None, "no frame is received in place"
        return self.place[len(self.place) - self._missing_bytes :]

    def received(self, size_bytes: int) -> None:
        """The first *size_bytes* of `rest` were received."""
        self.may_keep = True
        self._missing_bytes -= size_bytes

    @property
    def unread_bytes(self) -> int:
        """How many received bytes `next` has not read."""
        return len(self._buffer) - self._at

    @property
    def kept_bytes(self) -> int:
        """How many received bytes are kept: parts of messages, and messages not read yet."""
        placed = 0 if self.place is None else len(self.place) - self._missing_bytes
        return len(self._payload) + placed + len(self._message) + len(self._buffer)

    @property
    def missing_bytes(self) -> int:
        """How many bytes of an incomplete frame are missing; 0 if its head is incomplete, too."""
        return self._missing_bytes if self._is_in_frame else 0

    def next(self, bytes_max: int) -> bytes | memoryview | None:
        """The next message, of at most *bytes_max* bytes; a memoryview if it was received in place.
        None if it is incomplete, or if `is_paused`: after several frames without a message, so that
        the caller can check the time.

        Raises:
          FrameFault: if the peer must not send this.  Nothing can be read after it.
        """
        self.is_paused = False
        if not self._buffer and not self._is_in_frame:  # the usual case behind the last message
            self.may_keep = self._is_fragmented
            return None
        others = 0
        while (payload := self._next_payload(bytes_max)) is not None:
            first_byte = self._first_byte
            if first_byte == _WHOLE and not self._is_fragmented:
                return payload
            if first_byte & _OPCODE >= CLOSE:
                self.useless_count += 1
                self._on_control(first_byte & _OPCODE, bytes(payload))
            else:
                self.useless_count += len(payload) < FRAGMENT_BYTES_MIN
                self._message += payload
                self._is_fragmented = not first_byte & _FIN
                if not self._is_fragmented:
                    message, self._message = self._message, bytearray()
                    return bytes(message)
            others += 1
            if others == _FRAMES_IN_A_ROW_MAX:
                self.is_paused = True
                return None
        return None

    def _next_payload(self, bytes_max: int) -> bytes | memoryview | None:
        """The unmasked payload of the next frame, whose first byte is `_first_byte`; None if the
        frame is incomplete."""
        payload: bytes | bytearray | memoryview
        if self._is_in_frame:
            if self._missing_bytes:
                return None
            self._is_in_frame = False
            if self.place is not None:
                payload, self.place = self.place.toreadonly(), None
                return payload
            payload, self._payload = self._payload, bytearray()
        else:
            begin, size_bytes = self._read_head(bytes_max)
            end = begin + size_bytes
            buffer = self._buffer
            if not begin:
                return None
            if end > len(buffer):
                self._begin_frame(memoryview(buffer)[begin:], size_bytes)
                self._buffer, self._at = b"", 0
                return None
            if size_bytes >= self._placed_bytes_min:
                self._begin_frame(memoryview(buffer)[begin:end], size_bytes)
                self._at = end
                self._drop_what_was_read()
                return self._next_payload(bytes_max)
            if size_bytes >= _COPIED_BYTES_MAX:
                payload = memoryview(buffer)[begin:end]
            else:
                payload = buffer[begin:end]
            self._at = end
            self._drop_what_was_read()
        return apply_mask(payload, self._mask) if self._is_masked else bytes(payload)

    def _begin_frame(self, begun: memoryview, size_bytes: int) -> None:
        """The frame whose payload has *size_bytes* has come as far as *begun*."""
        self._is_in_frame = True
        self._missing_bytes = size_bytes - len(begun)
        if self._buffers is not None and size_bytes >= self._placed_bytes_min:
            self.place = self._buffers.take(size_bytes)
            self.place[: len(begun)] = begun
        else:
            self._payload += begun

    def _read_head(self, bytes_max: int) -> tuple[int, int]:
        """Where in the buffer the payload begins (0: the head is incomplete), and its size."""
        buffer, at = self._buffer, self._at
        available_bytes = len(buffer) - at
        if available_bytes < 2:
            return 0, 0
        first_byte, second_byte = buffer[at], buffer[at + 1]
        self._first_byte = first_byte
        size_bytes = second_byte & ~_MASKED
        at += 2
        if size_bytes >= _LENGTH_IN_2:
            width = 2 if size_bytes == _LENGTH_IN_2 else 8
            if available_bytes < 2 + width:
                return 0, 0
            size_bytes = int.from_bytes(buffer[at : at + width], "big")
            at += width
            if size_bytes < (_LENGTH_IN_2 if width == 2 else 1 << 16) or size_bytes >> 63:
                raise FrameFault(PROTOCOL_ERROR, "a frame came whose length is not the shortest")
        if bool(second_byte & _MASKED) != self._is_masked:
            wanted = "without" if self._is_masked else "with"
            raise FrameFault(PROTOCOL_ERROR, f"a frame came {wanted} a mask")
        if first_byte != _WHOLE or self._is_fragmented or size_bytes > bytes_max:
            self._check(first_byte, size_bytes, bytes_max)
        if self._is_masked:
            self._mask = buffer[at : at + 4]
            at += 4
            if at > len(buffer):
                return 0, 0
        return at, size_bytes

    def _check(self, first_byte: int, size_bytes: int, bytes_max: int) -> None:
        opcode = first_byte & _OPCODE
        if first_byte & _RESERVED:
            raise FrameFault(PROTOCOL_ERROR, "a frame came with a reserved bit")
        if opcode not in _KNOWN:
            raise FrameFault(PROTOCOL_ERROR, f"a frame came with the opcode {opcode}")
        if opcode >= CLOSE:
            if not first_byte & _FIN or size_bytes > CONTROL_BYTES_MAX:
                raise FrameFault(PROTOCOL_ERROR, "a control frame came in parts, or too long")
            return
        if opcode == TEXT:
            raise FrameFault(UNSUPPORTED_DATA, "a text frame came; every message is a binary frame")
        if (opcode == CONTINUATION) != self._is_fragmented:
            raise FrameFault(PROTOCOL_ERROR, "the frames of a message came out of order")
        if len(self._message) + size_bytes > bytes_max:
            raise FrameFault(MESSAGE_TOO_BIG, f"a message had more than {bytes_max} bytes")

    def _drop_what_was_read(self) -> None:
        """Drop the buffer when all of it was read, so that an idle connection keeps nothing."""
        if self._at == len(self._buffer):
            self._buffer, self._at = b"", 0
