"""`octopi.environment.Link` by trio-websocket alone: the reference that `FramedLink` is tested
against.

trio-websocket reads in a task of its own and has one bound for all messages, so this link is slower
than `octopi.transport.framed_link.FramedLink` and enforces fewer limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from octopi.environment import Clock, Intake, Turn
from octopi.errors import ConnectionLostError, ProtocolError, Status
from octopi.limits import CLOSE_TIMEOUT_S, KIB, MESSAGE_BYTES_MAX
from octopi.transport.connection_slots import ConnectionSlot
from octopi.transport.framed_link import LAST_WORD_S
from octopi.transport.watched_stream import WatchedStream

_FRAMING_BYTES_MAX: Final = KIB
"""How many bytes beside its payload a short message may take: the heads of its fragments, and
some pings."""

_MESSAGE_TOO_BIG: Final = 1009
_UNSUPPORTED_DATA: Final = 1003


class WebSocketLink:
    """`octopi.environment.Link` over one WebSocket connection."""

    def __init__(
        self,
        websocket: WebSocketConnection,
        stream: WatchedStream,
        clock: Clock,
        peer: str,
        path: str,
    ) -> None:
        self._websocket = websocket
        self._stream = stream
        self._clock = clock
        self._peer = peer
        self._path = path
        self.place: ConnectionSlot | None = None
        """The slot of an accepted link; None on the side that connected."""
        self._is_torn = False
        self._is_closing = False
        self.closed: Final = trio.Event()
        self._refused_text = False

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def path(self) -> str:
        return self._path

    async def send(self, data: bytes) -> None:
        if self._is_torn:
            raise ConnectionLostError(f"the connection to {self._peer} is torn")
        self._is_torn = True  # it stays true if this is cancelled
        try:
            await self._websocket.send_message(data)
        except ConnectionClosed as error:
            self._is_torn = False
            raise self._lost(error) from None
        self._is_torn = False

    def offer(self, *parts: bytes) -> bool:
        return False  # trio-websocket can't send without waiting

    def settle(self, *, is_client: bool) -> bool:
        return self.place is None or self.place.settle(is_client=is_client)

    def meter(self, intake: Intake) -> None:
        """Do nothing: trio-websocket reads in a task of its own, which can't be held up."""

    async def receive_all(self, take: Callable[[bytes], bool], turn: Turn | None = None) -> None:
        while take(await self.receive()):
            pass

    async def receive(self, bytes_max: int = MESSAGE_BYTES_MAX) -> bytes:
        try:
            if bytes_max < MESSAGE_BYTES_MAX:
                message = await self._receive_short(bytes_max)
            else:
                if self._stream.is_limited:
                    self._stream.lift()
                message = await self._websocket.get_message()
        except ConnectionClosed as error:
            if error.reason is not None and error.reason.code == _MESSAGE_TOO_BIG:
                raise ProtocolError(
                    f"a message had more than {MESSAGE_BYTES_MAX} bytes", Status.MESSAGE_TOO_LARGE
                ) from None
            raise self._lost(error) from None
        if isinstance(message, str):
            self._refused_text = True
            raise ProtocolError("a text frame came; every message is a binary frame")
        return message

    async def _receive_short(self, bytes_max: int) -> str | bytes:
        """Receive a message of at most *bytes_max* bytes.  trio-websocket has one bound for all
        messages, so the stream enforces this one."""
        stream = self._stream
        stream.limit(bytes_max + _FRAMING_BYTES_MAX)
        answers: list[str | bytes | ConnectionClosed] = []
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await stream.exhausted.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            try:
                answers.append(await self._websocket.get_message())
            except ConnectionClosed as error:
                answers.append(error)
            nursery.cancel_scope.cancel()
        answer = answers[0] if answers else None
        if isinstance(answer, ConnectionClosed):
            raise answer
        if answer is None or len(answer) > bytes_max:
            stream.discard()
            raise ProtocolError(
                f"a message had more than {bytes_max} bytes", Status.MESSAGE_TOO_LARGE
            )
        return answer

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        if self._is_closing:
            await self.closed.wait()
            return
        self._is_closing = True
        if self._refused_text:
            code = _UNSUPPORTED_DATA
        try:
            # The close frame is sent even if the task that closes the link was cancelled; but then
            # the task that would read the peer's answer was probably cancelled, too.
            cancelled = trio.current_effective_deadline() == -math.inf
            with self._clock.timeout(LAST_WORD_S if cancelled else CLOSE_TIMEOUT_S) as scope:
                scope.shield = True
                if not self._is_torn:
                    await self._websocket.aclose(code, reason)
                    await self._stream.finish()
        finally:
            self.closed.set()
            await trio.aclose_forcefully(self._stream)

    def _lost(self, error: ConnectionClosed) -> ConnectionLostError:
        reason = error.reason
        if reason is None or reason.code == 1006:
            return ConnectionLostError(f"the connection to {self._peer} broke")
        said = f": {reason.reason}" if reason.reason else ""
        return ConnectionLostError(f"{self._peer} closed the connection ({reason.code}){said}")
