"""Turns for those that have not said hello yet: TLS, HTTP and the handshake of WebSocket are done
by libraries, which go on as soon as something comes.

A thousand that connect at the same moment, or ask over HTTP without pause, would have their answers
worked out in one round of the event loop.  So each waits for its turn when something has come
(`PacedStream`), and each step of its task is measured (`measured`).
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

import trio

from octopi.transport.turns import ConnectionTurn

_T = TypeVar("_T")


class PacedStream(trio.abc.HalfCloseableStream):
    """A stream whose user waits for its turn behind what it receives and sends."""

    def __init__(self, stream: trio.abc.HalfCloseableStream, turn: ConnectionTurn) -> None:
        self._stream = stream
        self._turn: ConnectionTurn | None = turn
        self._held: bytes | bytearray | None = None
        """What came, and was not handed over yet."""

    def __str__(self) -> str:
        return str(self._stream)

    def lift(self) -> tuple[trio.abc.HalfCloseableStream, bytes]:
        """From here on no task waits for a turn: return the bare stream, and what came on it and
        was not handed over.  Who goes on with this one gets that first."""
        self._turn = None
        return self._stream, bytes(self._held or b"")

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._held is None:
            self._held = await self._stream.receive_some(max_bytes)
        await self._wait()  # cancelled here: what came is held
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
    """The result of *work*, each step of which, between two waits, counts as a turn."""
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
        except BaseException as thrown:  # handed to the work, as it would be without us
            error = thrown
