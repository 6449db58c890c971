"""The sending half of a `FramedLink`.

`FrameSender.offer` sends a message at once if no other message is being sent and the system takes
all of it.  Bytes that can't be sent at once wait in `_unsent`, in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import trio

from octopi.environment import NonBlockingStream, Randomness
from octopi.errors import ConnectionLostError, OctopiError
from octopi.limits import KIB
from octopi.transport.frame_reader import BINARY, CLOSE, PONG, frame_head
from octopi.transport.masking import apply_mask

_PIECE_BYTES: Final = 1024 * KIB
"""How much is sent in one call on a stream that is not the system's own, such as TLS."""

_MASK_BYTES: Final = 4
_JOINED_BYTES_MAX: Final = 2 * KIB
"""Up to this size a message is copied behind its head, which costs less than sending two parts."""


def _pieces(parts: list[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """All of *parts* in pieces of at most `_PIECE_BYTES`, so that a large part isn't copied as a
    whole: encryption copies what it is given."""
    for part in parts:
        for at in range(0, len(part), _PIECE_BYTES):
            yield memoryview(part)[at : at + _PIECE_BYTES]


class FrameSender:
    """Sends the frames of one link to *peer*, whole and in order."""

    def __init__(
        self,
        stream: trio.abc.HalfCloseableStream,
        tasks: trio.Nursery,
        *,
        masks: Randomness | None,
        peer: str,
    ) -> None:
        """*tasks*: the nursery of this link, which ends with it.  *masks*: where a client's masks
        come from; None on the side of the server, which doesn't mask."""
        self._stream = stream
        self._prompt = stream if isinstance(stream, NonBlockingStream) else None
        self._tasks = tasks
        self._masks = masks
        self._peer = peer

        self._unsent: list[bytes | memoryview] = []
        """The rest of the frames that are sent next; the first one may be sent in part."""
        self._has_begun = False
        """Whether `offer` has begun to send the message that is passed to `send` next."""
        self._due: list[bytes] = []
        """Control frames that follow them."""
        self._is_sending = False
        self._sent = trio.lowlevel.ParkingLot()
        self._is_torn = False
        """Whether a frame was sent in part and is not finished: no other may be sent behind it."""
        self._is_broken = False
        self._has_sent_eof = False

        self._said_close = False
        self._is_closing = False
        self._end: OctopiError | None = None
        """Why nothing more is received."""

    @property
    def peer(self) -> str:
        return self._peer

    def offer(self, *parts: bytes) -> bool:
        if self._prompt is None or self._unsent or self._is_sending or self._is_over:
            return False
        self._unsent = self._frame(BINARY, *parts)
        try:
            self._send_now(self._prompt)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._is_torn = self._is_broken = True
        self._has_begun = bool(self._unsent)
        return not self._unsent

    async def send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._is_sending:
            await self._sent.park()
        if self._is_over:
            raise self._lost()
        if self._has_begun:
            self._has_begun = False
        else:
            self._unsent += self._frame(BINARY, data)
        await self._send_unsent()

    @property
    def _is_over(self) -> bool:
        """Whether no more messages can be sent."""
        gone = isinstance(self._end, ConnectionLostError)
        return gone or self._is_torn or self._said_close or self._is_closing

    def _frame(self, opcode: int, *parts: bytes) -> list[bytes | memoryview]:
        mask = b""
        if self._masks is not None:
            mask = self._masks.token_bytes(_MASK_BYTES)
            parts = (apply_mask(parts[0] if len(parts) == 1 else b"".join(parts), mask),)
        size_bytes = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        head = frame_head(opcode, size_bytes, mask)
        return [b"".join((head, *parts))] if size_bytes <= _JOINED_BYTES_MAX else [head, *parts]

    async def _send_unsent(self) -> None:
        """Send what is unsent, and control frames that become due meanwhile."""
        self._is_sending = True
        self._is_torn = True  # it stays true if this is cancelled, or fails
        try:
            while self._unsent:
                if self._prompt is not None:
                    self._send_now(self._prompt)
                    if self._unsent:
                        await self._prompt.wait_writable()
                else:
                    unsent, self._unsent = self._unsent, []
                    if len(unsent) == 1:  # a small frame: its head is part of it
                        await self._stream.send_all(unsent[0])
                    elif sum(map(len, unsent)) <= _PIECE_BYTES:
                        await self._stream.send_all(b"".join(unsent))
                    else:
                        for piece in _pieces(unsent):
                            await self._stream.send_all(piece)
                if not self._unsent:
                    self._unsent, self._due = [*self._due], []
            self._is_torn = False
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._is_broken = True
            raise self._lost() from None
        finally:
            self._is_sending = False
            self._sent.unpark_all()

    def _send_now(self, stream: NonBlockingStream) -> None:
        """Send as much of what is unsent as the system takes at once."""
        sent_bytes = stream.send_nowait(self._unsent)
        while self._unsent and sent_bytes >= len(self._unsent[0]):
            sent_bytes -= len(self._unsent.pop(0))
        if self._unsent and sent_bytes:
            self._unsent[0] = memoryview(self._unsent[0])[sent_bytes:]

    def _send_control(self, opcode: int, payload: bytes) -> None:
        """Send a control frame, at once if possible.  A pong replaces pongs that still wait, as
        RFC 6455 section 5.5.3 allows."""
        if self._said_close or self._is_torn:
            return
        self._due = [*map(bytes, self._frame(opcode, payload))]
        self._said_close = opcode == CLOSE
        if self._is_sending or self._unsent:
            return
        if self._prompt is not None and opcode == PONG:
            self._unsent, self._due = [*self._due], []
            try:
                self._send_now(self._prompt)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._is_torn = self._is_broken = True
                return
            if not self._unsent:
                return
        self._tasks.start_soon(self._send_due)

    async def _send_due(self) -> None:
        if not self._is_sending and not self._is_torn:
            if not self._unsent:
                self._unsent, self._due = [*self._due], []
            try:
                await self._send_unsent()
                if self._said_close:
                    await self._send_eof()
            except (ConnectionLostError, trio.BrokenResourceError, trio.ClosedResourceError):
                return  # the task that receives on this stream gets an error, too

    async def _send_eof(self) -> None:
        if not self._has_sent_eof:
            self._has_sent_eof = True
            await self._stream.send_eof()

    def _lost(self) -> ConnectionLostError:
        if isinstance(self._end, ConnectionLostError):
            return ConnectionLostError(str(self._end))
        is_cut = self._is_torn and not self._is_broken
        how = "is closed" if self._is_closing else "is torn" if is_cut else "broke"
        return ConnectionLostError(f"the connection to {self._peer} {how}")
