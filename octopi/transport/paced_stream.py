"""Turns for connections that have not said hello yet.

Libraries do TLS, HTTP and the WebSocket handshake, and their code goes on as soon as something is
received.  So a thousand peers that connect at the same moment, or send HTTP requests without pause,
would all be answered in one round of the event loop.  To prevent that, each waits for its turn when
something was received (`PacedStream`), and each step of its task is measured (`measured`).
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

import trio

from octopi.transport.turns import ConnectionTurn

_T = TypeVar("_T")


class PacedStream(trio.abc.HalfCloseableStream):
    """A stream whose user waits for its turn after each receive and each send."""

    def __init__(self, stream: trio.abc.HalfCloseableStream, turn: ConnectionTurn) -> None:
        self._stream = stream
        self._turn: ConnectionTurn | None = turn
        self._held: bytes | bytearray | None = None
        """Bytes that were received and not handed over yet."""

    def __str__(self) -> str:
        return str(self._stream)

    def lift(self) -> tuple[trio.abc.HalfCloseableStream, bytes]:
        """Stop waiting for turns.  Return the bare stream, and the bytes that were received on it
        and not handed over; a caller that keeps using this stream receives them first."""
        self._turn = None
        return self._stream, bytes(self._held or b"")

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._held is None:
            self._held = await self._stream.receive_some(max_bytes)
        await self._wait()  # cancelled here: the bytes are kept in `_held`
        data, self._held = self._held, None
        if max_bytes is not None and len(data) > max_bytes:
            data, self._held = data[:max_bytes], data[max_bytes:]
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)
        await self._wait()

    async def _wait(self) -> None:
        if self._turn is not None and not self._turn.begin():
            await self._turn.wait()

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


@types.coroutine
def measured(turn: ConnectionTurn, work: Coroutine[Any, Any, _T]) -> Generator[Any, Any, _T]:
    """Run *work* and return its result; each of its steps, between two waits, counts as a turn."""
    value: Any = None
    error: BaseException | None = None
    while True:
        turn.go_on()
        try:
            trap = work.send(value) if error is None else work.throw(error)
        except StopIteration as done:
            result: _T = done.value
            return result
        finally:
            turn.end()
        try:
            value, error = (yield trap), None
        except BaseException as thrown:  # thrown into *work*, as if it were awaited directly
            error = thrown
