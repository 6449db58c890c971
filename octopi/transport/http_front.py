"""Answers HTTP requests on an accepted connection until one asks for the upgrade to WebSocket.

This module frames HTTP and checks its bounds: the length of a head, the time for it, and the time
in which a peer has to take an answer.  The `HttpSite` decides about the answer.  A request for the
upgrade is left unread on the stream, for the code that speaks WebSocket.
"""

from __future__ import annotations

from typing import Final, Protocol

import attrs
import h11
import trio

from octopi.environment import Clock
from octopi.errors import OctopiError
from octopi.limits import CLOSE_TIMEOUT_S, HANDSHAKE_TIMEOUT_S, HTTP_IDLE_S, SEND_TIMEOUT_S
from octopi.logger import get_logger
from octopi.transport.http_bodies import ReceivedBody
from octopi.transport.http_requests import (
    HEAD_BYTES_MAX,
    Asker,
    HttpAnswer,
    HttpRefusal,
    HttpRequest,
    end_of_head,
    plain,
    read_head,
)
from octopi.transport.watched_stream import WatchedStream

_log = get_logger(__name__)

_RECEIVE_BYTES: Final = 4096

_REST_BYTES_MAX: Final = 256 * 1024
"""The most that is received of a body that nobody wants."""

_ALWAYS: Final = (
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
)


class TooSlowError(Exception):
    """The peer doesn't take the answer in time."""


class HttpSite(Protocol):
    """Answers the HTTP requests to a node."""

    def refuse_upgrade(self, request: HttpRequest) -> HttpAnswer | None:
        """The refusal of a request for the upgrade; None: the peer may speak WebSocket here."""

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """The answer to a request.  Implementations have to return within a bounded time."""


class EmptySite:
    """A site without pages that refuses no upgrade."""

    def refuse_upgrade(self, request: HttpRequest) -> HttpAnswer | None:
        return None

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        return plain(404, "there is nothing here")


class HttpFront:
    """One accepted connection, as long as it speaks HTTP."""

    def __init__(self, stream: WatchedStream, clock: Clock, site: HttpSite, asker: Asker) -> None:
        self._stream = stream
        self._clock = clock
        self._site = site
        self._asker = asker
        self._received = bytearray()

    async def serve(self) -> HttpRequest | None:
        """Answer requests until one asks for the upgrade; return that one, with its head still to
        be received from the stream.  None: the connection has ended."""
        try:
            return await self._serve()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None  # the peer closed it, or another connection needed its slot

    async def _serve(self) -> HttpRequest | None:
        idle_s = HANDSHAKE_TIMEOUT_S
        while True:
            request, wants_body = None, True
            protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
            try:
                head = await self._head(idle_s)
                if head is None:
                    return None
                # Set before the head is checked: the refusal of a HEAD has no body either.
                wants_body = not head.startswith(b"HEAD ")
                request = read_head(protocol, head, self._asker)
                if request.is_upgrade:
                    refused = self._site.refuse_upgrade(request)
                    if refused is None:
                        # In two pieces: if trio-websocket received what follows the head before it
                        # has accepted, it would not look at it until more is received.
                        self._stream.unread(head, bytes(self._received))
                        return request
                    answer = refused
                elif request.is_of_stream:
                    if not await self._exchange(protocol, request):
                        return None
                    idle_s = HTTP_IDLE_S
                    continue
                else:
                    answer = await self._answer(request)
            except HttpRefusal as refusal:
                answer = refusal.answer
            try:
                goes_on = await self._send(protocol, request, answer, wants_body=wants_body)
            finally:
                if answer.done is not None:
                    answer.done()
            if not goes_on:
                return None
            idle_s = HTTP_IDLE_S

    async def _exchange(self, protocol: h11.Connection, request: HttpRequest) -> bool:
        """Answer a request of a stream.  Return whether the peer may send another request."""
        body = ReceivedBody(protocol, self._stream, self._received, self._clock, request)
        answer = await self._answer(attrs.evolve(request, body=body))
        try:
            if not await self._send_parts(protocol, answer, request.method):
                return False
            # A short rest of the body is dropped, so that the connection can go on.
            rest_bytes = 0
            while not body.is_over and rest_bytes < _REST_BYTES_MAX:
                rest_bytes += len(await body.receive())
            if body.is_over and protocol.our_state is h11.DONE:
                return True
        except HttpRefusal:
            pass  # the answer is sent; only what follows it can't be understood
        finally:
            if answer.done is not None:
                answer.done()
            if answer.close is not None:
                await answer.close()
        with self._clock.timeout(CLOSE_TIMEOUT_S):
            await self._stream.finish()
        return False

    async def _send_parts(self, protocol: h11.Connection, answer: HttpAnswer, method: str) -> bool:
        """Send *answer*, in parts if it comes so; return whether the peer has taken all of it."""
        given = {name for name, _ in answer.headers}
        headers = [pair for pair in _ALWAYS if pair[0] not in given]
        headers += [("content-type", answer.content_type)] if answer.content_type else []
        headers += answer.headers
        has_body = answer.status not in {204, 304}
        if answer.stream is None and has_body and "content-length" not in given:
            headers.append(("content-length", str(len(answer.body))))

        async def send(event: h11.Event) -> None:
            data = protocol.send(event)
            with self._clock.timeout(SEND_TIMEOUT_S):
                if data:
                    await self._stream.send_all(data)
                return
            raise TooSlowError

        async def send_part(part: bytes) -> None:
            await send(h11.Data(data=part))

        try:
            await send(h11.Response(status_code=answer.status, headers=headers))
            if has_body and method != "HEAD":
                if answer.stream is not None:
                    await answer.stream(send_part)
                elif answer.body:
                    await send_part(answer.body)
            await send(h11.EndOfMessage())
        except (TooSlowError, OctopiError, h11.LocalProtocolError) as error:
            # The peer sees that the answer is incomplete, as its connection ends.
            _log.sparing(self._clock).info(
                "answer_cut", peer=self._asker.peer, why=str(error) or "the peer is too slow"
            )
            return False
        return True

    async def _head(self, idle_s: float) -> bytes | None:
        """The next head, or None.  The head has to begin within *idle_s* seconds, and to end within
        `HANDSHAKE_TIMEOUT_S` after its first byte, or after the connection was accepted.

        Raises:
          HttpRefusal: if the head is too long.
        """
        self._stream.limit(HEAD_BYTES_MAX + 1)
        searched_bytes = 0
        if not self._received and idle_s > HANDSHAKE_TIMEOUT_S:
            with self._clock.timeout(idle_s):
                self._received += await self._stream.receive_some(_RECEIVE_BYTES)
            if not self._received:
                return None
        with self._clock.timeout(HANDSHAKE_TIMEOUT_S):
            while (end := end_of_head(self._received, searched_bytes)) is None:
                searched_bytes = len(self._received)
                data = await self._stream.receive_some(_RECEIVE_BYTES)
                if not data:
                    return None
                self._received += data
            head = bytes(self._received[:end])
            del self._received[:end]
            return head
        if self._received:
            _log.sparing(self._clock).info("request_too_slow", peer=self._asker.peer)
        return None

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        try:
            return await self._site.answer(request)
        except HttpRefusal as refusal:
            return refusal.answer
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise  # while its body was received
        except Exception:
            # A bug of this node; it ends this request only.
            _log.sparing(self._clock).exception("request_failed", peer=self._asker.peer)
            return plain(500, "the node failed internally: look at its log")

    async def _send(
        self,
        protocol: h11.Connection,
        request: HttpRequest | None,
        answer: HttpAnswer,
        *,
        wants_body: bool,
    ) -> bool:
        """Send *answer*.  Return whether the peer may send another request."""
        is_last = request is None or answer.status >= 400 or request.is_upgrade
        headers = [
            *_ALWAYS,
            ("content-type", answer.content_type),
            *answer.headers,
        ]
        if answer.status != 304:  # its length would be that of the body that the peer has already
            headers.append(("content-length", str(len(answer.body))))
        if is_last:
            headers.append(("connection", "close"))
        body = answer.body if wants_body else b""
        parts = [protocol.send(h11.Response(status_code=answer.status, headers=headers))]
        if is_last:
            parts.append(body)  # not through h11, which may not have parsed the request
        else:
            parts.append(protocol.send(h11.Data(data=body)))
            parts.append(protocol.send(h11.EndOfMessage()))
        with self._clock.timeout(SEND_TIMEOUT_S) as slow:
            await self._stream.send_all(b"".join(part for part in parts if part))
        if slow.cancelled_caught:
            return False
        if not is_last and protocol.our_state is h11.DONE:
            return True
        with self._clock.timeout(CLOSE_TIMEOUT_S):
            await self._stream.finish()
        return False
