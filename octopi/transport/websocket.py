"""`octopi.environment.Net` over WebSocket: links of whole binary messages.

trio-websocket does the WebSocket handshake.  This module adds what trio-websocket leaves to its
user: deadlines for every wait, peers that disappear during a handshake, an orderly end after a
refusal, and that a fault of one connection ends no other.  Knows no message.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import attrs
import trio
import trio_websocket
from trio_websocket import ConnectionClosed, ConnectionRejected, WebSocketConnection

from octopi.environment import (
    Clock,
    Link,
    NonBlockingStream,
    Randomness,
    Stopwatch,
    StreamNet,
    standing_still,
)
from octopi.errors import UnreachableError
from octopi.limits import (
    CLOSE_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    CONNECTIONS_MAX,
    HANDSHAKE_TIMEOUT_S,
    KIB,
    MESSAGE_BYTES_MAX,
    STRANGERS_ROUND_S,
)
from octopi.logger import get_logger
from octopi.operating_system import SystemRandomness
from octopi.security.tls import Tls, tls_of_client
from octopi.transport.addresses import (
    host_and_port,
    is_secure,
    listen_address,
    server_address,
    server_url,
)
from octopi.transport.connection_slots import ConnectionSlot, ConnectionSlots
from octopi.transport.failures import cut
from octopi.transport.framed_link import RECEIVE_BYTES, FramedLink
from octopi.transport.http_front import EmptySite, HttpFront, HttpSite
from octopi.transport.http_requests import Asker
from octopi.transport.paced_stream import PacedStream, measured
from octopi.transport.plain_link import WebSocketLink
from octopi.transport.receive_buffers import ReceiveBuffers
from octopi.transport.secure_stream import SecureStream, secure_client, secure_server
from octopi.transport.turns import ConnectionTurns
from octopi.transport.watched_stream import WatchedStream, while_open
from octopi.wire.endpoints import CLIENT
from octopi.wire.messages import SUBPROTOCOL

_log = get_logger(__name__)

MESSAGE_QUEUE_COUNT: Final = 1
"""How many messages trio-websocket may queue beside the one that it assembles."""

_EARLY_BYTES_MAX: Final = 17 * KIB
"""How many bytes may pass behind the upgrade before the first message is asked for."""


class WebSocketNet:
    """Links over the streams of a `StreamNet`.

    *nursery* owns the background task that trio-websocket needs for each link made by
    `connect`; such a task ends with its link.
    """

    def __init__(
        self,
        streams: StreamNet,
        clock: Clock,
        nursery: trio.Nursery,
        *,
        connections_max: int = CONNECTIONS_MAX,
        site: HttpSite | None = None,
        randomness: Randomness | None = None,
        plain: bool = False,
        tls: Tls | None = None,
        stopwatch: Stopwatch = standing_still,
        buffers: ReceiveBuffers | None = None,
    ) -> None:
        """*site*: answers HTTP requests, on the same listeners.  *randomness*: where a client's
        masks come from.  *plain*: have trio-websocket frame messages, too, which is slower.
        *tls*: this side's certificate and the authorities that it trusts; None: listen without
        TLS, and trust the system's authorities.  *stopwatch*: times the turns of strangers.
        *buffers*: where a client's large messages are received; None: in buffers of its own."""
        self._streams = streams
        self._clock = clock
        self._nursery = nursery
        self._places = ConnectionSlots(connections_max)
        self._site = site or EmptySite()
        self._randomness = randomness or SystemRandomness()
        self._plain = plain
        self._tls = tls
        self._buffers = buffers or ReceiveBuffers()
        self._strangers = ConnectionTurns(clock, stopwatch, nursery, round_s=STRANGERS_ROUND_S)

    @property
    def connection_count(self) -> int:
        """How many accepted connections there are, including those whose handshake is not done."""
        return self._places.count

    async def connect(self, url: str, path: str) -> Link:
        """See `octopi.environment.Net.connect`; takes at most `CONNECT_TIMEOUT_S`."""
        host, port = server_address(url)
        with self._clock.timeout(CONNECT_TIMEOUT_S):
            stream = await self.open_stream(url)
            watched = WatchedStream(stream, holds_behind_head=not self._plain)
            hold = partial(self._hold_client, watched, host, port, path)
            link: Link = await self._nursery.start(hold)
            return link
        raise UnreachableError(f"{url} did not answer within {CONNECT_TIMEOUT_S:g} s")

    async def listen(
        self,
        address: str,
        handler: Callable[[Link], Awaitable[None]],
        *,
        paths: frozenset[str],
        handler_nursery: trio.Nursery,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """See `octopi.environment.Net.listen`."""
        host, port = listen_address(address)
        try:
            listening = await self._streams.listen(host, port)
        except OSError as error:
            raise UnreachableError(f"can't listen at {address}: {explained(error)}") from error
        secure = self._tls is not None and self._tls.server is not None
        task_status.started(server_url(host, listening.port, secure=secure))
        await trio.serve_listeners(
            partial(self._accept, handler, paths),
            listening.listeners,
            handler_nursery=handler_nursery,
        )

    async def open_stream(self, url: str) -> trio.abc.HalfCloseableStream:
        """A stream to the node at *url*, for HTTP; over TLS if *url* says so.

        Raises:
          UnreachableError: if that isn't possible within `CONNECT_TIMEOUT_S`.
        """
        host, port = server_address(url)
        with self._clock.timeout(CONNECT_TIMEOUT_S):
            try:
                stream = await self._streams.connect(host, port)
            except OSError as error:
                raise UnreachableError(f"no node answers at {url}: {explained(error)}") from error
            return await self._secured(stream, host, url) if is_secure(url) else stream
        raise UnreachableError(f"{url} did not answer within {CONNECT_TIMEOUT_S:g} s")

    async def _secured(
        self, stream: trio.abc.HalfCloseableStream, host: str, url: str
    ) -> SecureStream:
        if self._tls is None:
            self._tls = tls_of_client()
        try:
            return await secure_client(stream, self._tls.client, host)
        except UnreachableError as error:
            raise UnreachableError(f"{url}: {error}") from error

    async def _hold_client(
        self,
        stream: WatchedStream,
        host: str,
        port: int,
        path: str,
        *,
        task_status: trio.TaskStatus[Link],
    ) -> None:
        """Do the handshake as a client, then own the link's background task until the link ends."""
        peer = host_and_port(host, port)
        problem = "did not complete the WebSocket handshake: is it an Octopi node?"
        is_open = False
        try:
            async with trio.open_nursery() as nursery:
                async with self._handshaking(nursery) as reading:
                    websocket = await while_open(
                        stream,
                        partial(
                            trio_websocket.wrap_client_stream,
                            reading,
                            stream,  # type: ignore[arg-type]  # any stream does
                            peer,
                            path,
                            subprotocols=[SUBPROTOCOL],
                            message_queue_size=MESSAGE_QUEUE_COUNT,
                            max_message_size=MESSAGE_BYTES_MAX,
                            receive_buffer_size=RECEIVE_BYTES,
                        ),
                    )
                if websocket is not None and websocket.subprotocol == SUBPROTOCOL:
                    is_open = True
                    link = self._link(websocket, stream, nursery, peer, path)
                    task_status.started(link)
                    await link.closed.wait()
                elif websocket is not None:
                    problem = f"does not speak {SUBPROTOCOL}"
                nursery.cancel_scope.cancel()
        except* ConnectionRejected as group:
            problem = _rejection(group)
        except* Exception as group:
            _log_websocket_failure(self._clock, peer, group)
        finally:
            await trio.aclose_forcefully(stream)
        if not is_open:
            raise UnreachableError(f"{peer} {problem}")

    async def _accept(
        self,
        handler: Callable[[Link], Awaitable[None]],
        paths: frozenset[str],
        stream: trio.abc.HalfCloseableStream,
    ) -> None:
        """Serve one accepted connection to its end.  Its exceptions are logged, not passed on."""
        peer = str(stream)
        scope = trio.CancelScope()
        place: ConnectionSlot | None = None

        def give_up() -> None:
            scope.cancel()
            if place is not None and place.has_left and isinstance(stream, NonBlockingStream):
                stream.cut()  # another connection has its slot, and needs a file descriptor

        place = self._places.enter(give_up)
        if place is None:
            self._tell_full(peer)
            await trio.aclose_forcefully(stream)
            return
        try:
            with scope:
                await self._serve_one(handler, paths, stream, peer, place)
        except* Exception as group:
            _log_websocket_failure(self._clock, peer, group)
        finally:
            place.leave()
            await trio.aclose_forcefully(stream)

    def _tell_full(self, peer: str) -> None:
        _log.sparing(self._clock).warning(
            "too_many_connections", peer=peer, connections=self._places.count
        )

    async def _serve_one(
        self,
        handler: Callable[[Link], Awaitable[None]],
        paths: frozenset[str],
        stream: trio.abc.HalfCloseableStream,
        peer: str,
        place: ConnectionSlot,
    ) -> None:
        turn = self._strangers.turn()
        paced = PacedStream(stream, turn)
        asker = Asker(peer, settle=partial(place.settle, is_client=True))
        watched = await measured(turn, self._wants_websocket(paced, asker))
        if watched is None:
            return
        async with trio.open_nursery() as nursery:
            link = await measured(turn, self._shake_hands(nursery, watched, paths, peer))
            paced.lift()  # in case `_link` has not done it
            del watched  # 2 KiB that an idle connection doesn't need
            if link is not None:
                link.place = place
                try:
                    await handler(link)
                except Exception:
                    _log.sparing(self._clock).exception("link_handler_failed", peer=peer)
            nursery.cancel_scope.cancel()

    async def _wants_websocket(
        self, stream: trio.abc.HalfCloseableStream, asker: Asker
    ) -> WatchedStream | None:
        """Answer the peer's HTTP requests until it asks for the upgrade.  Return the stream, on
        which the request for the upgrade is received next; None: the connection has ended."""
        if self._tls is not None and self._tls.server is not None:
            secured = None
            try:
                with self._clock.timeout(HANDSHAKE_TIMEOUT_S):
                    secured = await secure_server(stream, self._tls.server)
            except UnreachableError as error:
                _log.sparing(self._clock).info("tls_failed", peer=asker.peer, error=str(error))
            if secured is None:
                return None
            asker = attrs.evolve(asker, is_secure=True, is_verified=secured.is_verified)
            stream = secured
        watched = WatchedStream(stream, bytes_max=0)
        request = await HttpFront(watched, self._clock, self._site, asker).serve()
        return None if request is None else watched

    async def _shake_hands(
        self, nursery: trio.Nursery, stream: WatchedStream, paths: frozenset[str], peer: str
    ) -> WebSocketLink | FramedLink | None:
        """The link of a peer that asks for an endpoint of ours; None: it didn't, or not in time."""
        with self._clock.timeout(HANDSHAKE_TIMEOUT_S) as slow:
            async with self._handshaking(nursery) as reading:
                request = await while_open(
                    stream,
                    partial(
                        trio_websocket.wrap_server_stream,
                        reading,
                        stream,
                        message_queue_size=MESSAGE_QUEUE_COUNT,
                        max_message_size=MESSAGE_BYTES_MAX,
                        receive_buffer_size=RECEIVE_BYTES,
                    ),
                )
                websocket = None
                if request is not None:
                    websocket = await self._answer(request, stream, paths)
            if request is not None and websocket is not None:
                path = request.path.partition("?")[0]
                return self._link(websocket, stream, nursery, peer, path)
        if slow.cancelled_caught:
            _log.sparing(self._clock).info("handshake_too_slow", peer=peer)
        return None

    async def _answer(
        self,
        request: trio_websocket.WebSocketRequest,
        stream: WatchedStream,
        paths: frozenset[str],
    ) -> WebSocketConnection | None:
        """Accept the peer if it asks for an endpoint of ours and offers the subprotocol."""
        if request.path.partition("?")[0] not in paths:
            await self._reject(request, stream, 404, f"no such endpoint; use {_any_of(paths)}")
        elif SUBPROTOCOL not in request.proposed_subprotocols:
            await self._reject(request, stream, 400, f"offer the subprotocol {SUBPROTOCOL}")
        else:
            websocket = await request.accept(subprotocol=SUBPROTOCOL)
            stream.limit(_EARLY_BYTES_MAX if self._plain else 0)
            return websocket
        return None

    @asynccontextmanager
    async def _handshaking(self, nursery: trio.Nursery) -> AsyncIterator[trio.Nursery]:
        """The nursery of trio-websocket's reader.  Unless the link is plain, the reader is
        cancelled at the end of the block."""
        if self._plain:
            yield nursery
            return
        async with trio.open_nursery() as reading:
            yield reading
            reading.cancel_scope.cancel()

    def _link(
        self,
        websocket: WebSocketConnection,
        stream: WatchedStream,
        nursery: trio.Nursery,
        peer: str,
        path: str,
    ) -> WebSocketLink | FramedLink:
        if self._plain:
            return WebSocketLink(websocket, stream, self._clock, peer, path)
        bare, early = stream.release()
        if isinstance(bare, PacedStream):  # else it lies below TLS, and `_serve_one` lifts it
            bare, held = bare.lift()
            early += held
        return FramedLink(
            bare,
            early,
            self._clock,
            nursery,
            masks=self._randomness if websocket.is_client else None,
            peer=peer,
            path=path,
            buffers=self._buffers if websocket.is_client and path == CLIENT.path else None,
        )

    async def _reject(
        self,
        request: trio_websocket.WebSocketRequest,
        stream: WatchedStream,
        status: int,
        text: str,
    ) -> None:
        body = f"{text}\n".encode()
        await request.reject(
            status, extra_headers=[(b"content-type", b"text/plain; charset=utf-8")], body=body
        )
        with self._clock.timeout(CLOSE_TIMEOUT_S):
            await stream.finish()


def _log_websocket_failure(clock: Clock, peer: str, group: BaseExceptionGroup[Exception]) -> None:
    """Log that trio-websocket failed, which happens when a peer leaves or sends at a bad moment.

    It ends one connection.  The log gets few such lines and no traceback, because any peer could
    fill it.
    """
    _, unusual = group.split(ConnectionClosed)
    if unusual is not None:
        _log.sparing(clock).info("websocket_failed", peer=peer, error=repr(unusual))


def _rejection(group: BaseExceptionGroup[ConnectionRejected]) -> str:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, ConnectionRejected)
    body = cut((error.body or b"").decode(errors="replace").strip(), 200)
    return f"refused the connection with HTTP status {error.status_code}: {body}"


def _any_of(paths: frozenset[str]) -> str:
    return " or ".join(sorted(paths))


def explained(error: OSError) -> str:
    """A text that says what to do about *error*; for other errors, the system's own text."""
    match error.errno:
        case errno.EADDRINUSE:
            return "another program listens there; stop it or choose another port"
        case errno.EACCES:
            return "this user may not; choose a port from 1024 on"
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address"
        case _:
            return error.strerror or str(error)
