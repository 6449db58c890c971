"""A connection to a broker that the program's own threads use: a blocking socket.

The Trio client opens it, with handshake, hello and welcome, and then gives it away.  Whole binary
messages pass, framed and parsed by the same code as in `octopi.transport.framed_link`.  One thread
uses it at a time.  Whatever isn't the usual case (a close, a ping, a message that is no message,
silence) is a `DirectFault`, and after it the link is of no further use.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from octopi.environment import Randomness
from octopi.errors import OctopiError
from octopi.limits import KIB, LEADER_SILENCE_S, MESSAGE_BYTES_MAX
from octopi.operating_system import stopwatch
from octopi.transport.frame_reader import (
    BINARY,
    CLOSE,
    GOING_AWAY,
    PONG,
    FrameFault,
    FrameReader,
    close_payload,
    frame_head,
)
from octopi.transport.masking import apply_mask
from octopi.wire.codec import decode, encode
from octopi.wire.endpoints import CLIENT
from octopi.wire.messages import Failure, Heartbeat

_RECEIVE_BYTES: Final = 4 * KIB
_MASK_BYTES: Final = 4
_HEARTBEAT: Final = encode(Heartbeat())
_RECEIVED: Final = CLIENT.back | {Heartbeat, Failure}
_TIME: Final = struct.Struct("ll")
"""The system's ``struct timeval``."""


class DirectFault(Exception):
    """The link can't be used any more; the text says why."""


class DirectLink:
    """Whole messages on a TCP connection whose WebSocket handshake is done."""

    def __init__(self, descriptor: int, randomness: Randomness) -> None:
        """*descriptor*: of the connection, which belongs to this link from now on."""
        self._socket = socket.socket(fileno=descriptor)
        self._randomness = randomness
        self._reader = FrameReader(is_masked=False, on_control=self._take_control)
        self._wait_s = 0.0
        self._is_in_frame = False
        """Whether a frame may be sent in part, behind which nothing may follow."""
        # The system bounds each wait; Python's own time-outs would ask it before each call, too.
        self._socket.setblocking(True)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _time(LEADER_SILENCE_S))

    def send(self, data: bytes) -> None:
        """Send one message.

        Raises:
          DirectFault: if the broker took nothing for `LEADER_SILENCE_S`, or the connection has
              ended; a part may be sent.
        """
        mask = self._randomness.token_bytes(_MASK_BYTES)
        self._is_in_frame = True
        try:
            self._socket.sendall(frame_head(BINARY, len(data), mask) + apply_mask(data, mask))
            self._is_in_frame = False
        except OSError as error:
            raise DirectFault(f"could not send: {error}") from error

    def receive(self, wait_s: float) -> object:
        """Receive one message that is no heartbeat; wait for at most *wait_s*, and as long again
        behind the last part that comes in time.

        Raises:
          DirectFault: if none came, or something else did.
        """
        if wait_s != self._wait_s:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _time(wait_s))
            self._wait_s = wait_s
        until = stopwatch() + wait_s
        while True:
            message = self._next()
            if message is not None:
                return message
            if stopwatch() > until:
                raise DirectFault(f"no whole answer within {wait_s:g} s")
            try:
                self._feed(self._socket.recv(_RECEIVE_BYTES))
            except BlockingIOError:
                raise DirectFault(f"no answer within {wait_s:g} s") from None
            except OSError as error:
                raise DirectFault(f"could not receive: {error}") from error

    def keep_alive(self) -> None:
        """Send a heartbeat, and take those that have come; without waiting.

        Raises:
          DirectFault: if the connection has ended, or anything else came.
        """
        mask = self._randomness.token_bytes(_MASK_BYTES)
        beat = frame_head(BINARY, len(_HEARTBEAT), mask) + apply_mask(_HEARTBEAT, mask)
        try:
            if self._socket.send(beat, socket.MSG_DONTWAIT) < len(beat):
                self._is_in_frame = True
                raise DirectFault("the broker takes nothing")
            while True:
                self._feed(self._socket.recv(_RECEIVE_BYTES, socket.MSG_DONTWAIT))
                if self._next() is not None:
                    raise DirectFault("a message came that nobody asked for")
        except BlockingIOError:
            return
        except OSError as error:
            raise DirectFault(str(error)) from error

    def close(self) -> None:
        """Say that this side goes, as far as that takes no time, and close the socket."""
        mask = self._randomness.token_bytes(_MASK_BYTES)
        payload = close_payload(GOING_AWAY, "")
        goodbye = frame_head(CLOSE, len(payload), mask) + apply_mask(payload, mask)
        try:
            if not self._is_in_frame:
                self._socket.send(goodbye, socket.MSG_DONTWAIT)
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has ended already, or takes nothing more
        self._socket.close()

    def _feed(self, data: bytes) -> None:
        if not data:
            raise DirectFault("the broker closed the connection")
        self._reader.feed(data)

    def _next(self) -> object | None:
        """The next message that is no heartbeat; None: it has not come."""
        try:
            while (data := self._reader.next(MESSAGE_BYTES_MAX)) is not None:
                message = decode(data, _RECEIVED)
                if type(message) is not Heartbeat:
                    return message
        except (FrameFault, OctopiError) as fault:
            raise DirectFault(str(fault)) from fault
        return None

    def _take_control(self, opcode: int, payload: bytes) -> None:
        if opcode != PONG:
            raise DirectFault("the broker closed the connection, or pinged")


def _time(seconds: float) -> bytes:
    """*seconds*, for the system; 0 would be without end."""
    whole, part = divmod(max(1, round(seconds * 1e6)), 1_000_000)
    return _TIME.pack(whole, part)
