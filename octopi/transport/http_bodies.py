"""The body of a request, as it arrives on its connection.

Its length is bounded by who reads it, its time by this module.
"""

from __future__ import annotations

import math
from typing import Final

import h11

from octopi.environment import Clock
from octopi.limits import HTTP_BODY_S, SEND_TIMEOUT_S
from octopi.transport.http_requests import HttpRefusal, HttpRequest
from octopi.transport.watched_stream import WatchedStream

_RECEIVE_BYTES: Final = 64 * 1024


class ReceivedBody:
    """See `octopi.transport.http_requests.RequestBody`."""

    def __init__(
        self,
        protocol: h11.Connection,
        stream: WatchedStream,
        received: bytearray,
        clock: Clock,
        request: HttpRequest,
    ) -> None:
        """*received*: bytes behind the head, which belong to the body first; it keeps those that
        belong to the next request."""
        self._protocol = protocol
        self._stream = stream
        self._received = received
        self._clock = clock
        length = request.headers.get("content-length")
        self.announced_bytes = None if "transfer-encoding" in request.headers else int(length or 0)
        self._ends_at = math.inf
        self._has_begun = False
        self.is_over = False
        """Whether its end was received."""

    async def receive(self) -> bytes:
        """The next part; empty at the end.

        Raises:
          HttpRefusal: if the peer is too slow, or breaks the rules.
        """
        if self.is_over:
            return b""
        if not self._has_begun:
            await self._begin()
        while True:
            try:
                event = self._protocol.next_event()
            except h11.RemoteProtocolError as error:
                raise HttpRefusal(400, f"the body is malformed: {error}") from None
            if isinstance(event, h11.Data):
                return bytes(event.data)
            if isinstance(event, h11.EndOfMessage):
                self.is_over = True
                rest, _ = self._protocol.trailing_data
                self._received += rest
                return b""
            if event is not h11.NEED_DATA:
                raise HttpRefusal(400, "the body ends before its length")
            self._protocol.receive_data(await self._more())

    async def _begin(self) -> None:
        self._has_begun = True
        self._ends_at = self._clock.now() + HTTP_BODY_S
        self._stream.lift()
        if self._received:
            self._protocol.receive_data(bytes(self._received))
            self._received.clear()
        if self._protocol.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            await self._stream.send_all(self._protocol.send(go_on) or b"")

    async def _more(self) -> bytes:
        wait_s = min(SEND_TIMEOUT_S, self._ends_at - self._clock.now())
        if wait_s > 0:
            with self._clock.timeout(wait_s):
                return bytes(await self._stream.receive_some(_RECEIVE_BYTES))
        raise HttpRefusal(
            408, f"a body arrives within {HTTP_BODY_S:g} s, without pauses of {SEND_TIMEOUT_S:g} s"
        )
