"""Links that carry whole messages, without WebSocket bytes: the fast tier.

This is the `octopi.environment.Net` and the `Link` on simulated connections, with the deadlines,
the closing handshake and the errors of `octopi.transport.websocket`.  What trio-websocket does to
bytes is not simulated here, but runs unchanged in `octopi.simulation.network.streams`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Final, NoReturn

import attrs
import trio

from octopi.environment import Intake, Link, Turn
from octopi.errors import ConnectionLostError, ProtocolError, Status, UnreachableError
from octopi.limits import (
    CLOSE_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    HANDSHAKE_TIMEOUT_S,
    MESSAGE_BYTES_MAX,
)
from octopi.logger import get_logger
from octopi.simulation.kernel.host import NodeDead, ProcessLife
from octopi.simulation.network.connection import PIECE_BYTES, End
from octopi.simulation.network.network import Network
from octopi.transport.addresses import host_and_port, listen_address, server_address, server_url
from octopi.transport.failures import cut
from octopi.transport.receive_buffers import ReceiveBuffers
from octopi.transport.websocket import MESSAGE_QUEUE_COUNT, explained
from octopi.wire.endpoints import CLIENT

_log = get_logger(__name__)

_FRAME_BYTES: Final = 14
"""The size of the largest header of a WebSocket frame (RFC 6455 section 5.2)."""

_HANDSHAKE_BYTES: Final = 200
"""The approximate size of a request to upgrade, and of the answer to one."""

_REASON_BYTES_MAX: Final = 123
"""The longest reason that a close frame has room for (RFC 6455 section 5.5)."""

_LAST_WORD_S: Final = 0.05
"""How long closing may take if the task that closes was cancelled."""

_YIELD_CHANCE: Final = 0.125
"""The probability that a task gives way to others where it need not wait.  In production it always
does, but there the order of tasks is arbitrary, and here each turn costs time."""

_MESSAGE_TOO_BIG: Final = 1009

IN_PLACE_BYTES_MIN: Final = 256
"""A client gets messages of this size in place (`octopi.transport.receive_buffers`); in production
they are larger, and simulated messages are small."""


@attrs.frozen
class _Request:
    """The request of a WebSocket handshake."""

    path: str


@attrs.frozen
class _Answer:
    """The answer of a WebSocket handshake: why it is refused, or None."""

    problem: str | None


@attrs.frozen
class _MessagePart:
    """A part of a message, but not its last one."""

    data: bytes


class FrameNet:
    """The `octopi.environment.Net` of one process; a `network.Tier`."""

    def __init__(self, network: Network, life: ProcessLife, tasks: trio.Nursery) -> None:
        self._network = network
        self._life = life
        self._buffers = ReceiveBuffers(IN_PLACE_BYTES_MIN)

    async def connect(self, url: str, path: str) -> Link:
        """See `octopi.environment.Net.connect`; takes at most `CONNECT_TIMEOUT_S`."""
        self._life.check()
        host, port = server_address(url)
        with self._life.host.clock.timeout(CONNECT_TIMEOUT_S):
            try:
                end = await self._network.connect(self._life, host, port)
            except OSError as error:
                raise UnreachableError(f"no node answers at {url}: {explained(error)}") from error
            return await self._shake_hands(end, host_and_port(host, port), path)
        self._life.check()
        raise UnreachableError(f"{url} did not answer within {CONNECT_TIMEOUT_S:g} s")

    async def _shake_hands(self, end: End, peer: str, path: str) -> Link:
        problem: str | None = "did not complete the WebSocket handshake: is it an Octopi node?"
        end.path = path
        try:
            end.put(_Request(path), _HANDSHAKE_BYTES + len(path))
            if await _arrival(end):
                problem = end.take().problem
            self._life.check()
            if problem is None:
                buffers = self._buffers if path == CLIENT.path else None
                return FrameLink(self._network, end, peer, path, buffers)
        except BaseException:
            end.close()
            raise
        end.close()
        raise UnreachableError(f"{peer} {problem}")

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
        self._life.check()
        host, port = listen_address(address)
        # No task of this process accepts a connection, so its handler gets the listener's context.
        context = copy_context()

        def accept(end: End) -> None:
            context.run(handler_nursery.start_soon, self._serve, handler, paths, end)

        try:
            port = self._network.take_address(self._life, host, port, accept)
        except OSError as error:
            raise UnreachableError(f"can't listen at {address}: {explained(error)}") from error
        try:
            task_status.started(server_url(host, port))
            await trio.sleep_forever()
        finally:
            self._network.leave_address(self._life, port)

    async def _serve(
        self, handler: Callable[[Link], Awaitable[None]], paths: frozenset[str], end: End
    ) -> None:
        """Serve one accepted connection; its errors end here."""
        peer = f"{end.other.life.host.name}:{end.connection}"
        try:
            link = await self._accept(end, paths, peer)
            if link is not None:
                await handler(link)
        except Exception:
            _log.exception("link_handler_failed", peer=peer)
        finally:
            end.close()

    async def _accept(self, end: End, paths: frozenset[str], peer: str) -> Link | None:
        """The link of a peer that asks for one of *paths* in time, else None."""
        with self._life.host.clock.timeout(HANDSHAKE_TIMEOUT_S):
            if not await _arrival(end):
                return None
            path: str = end.take().path
            self._life.check()
            if path in paths:
                end.put(_Answer(None), _HANDSHAKE_BYTES)
                return FrameLink(self._network, end, peer, path)
            text = f"no such endpoint; use {' or '.join(sorted(paths))}"
            problem = f"refused the connection with HTTP status 404: {text}"
            end.put(_Answer(problem), _HANDSHAKE_BYTES + len(text))
        return None


async def _arrival(end: End) -> bool:
    """Wait for data in the inbox; false if none will arrive."""
    await trio.lowlevel.checkpoint_if_cancelled()
    while not end.inbox and not end.is_finished and not end.is_gone:
        await end.arrived.park()
    return bool(end.inbox)


def _take_in_place(
    buffers: ReceiveBuffers, take: Callable[[bytes | memoryview], bool], message: bytes | memoryview
) -> bool:
    if len(message) < buffers.bytes_min:
        return take(message)
    place = buffers.take(len(message))
    place[:] = message
    return take(place.toreadonly())


class FrameLink:
    """The `octopi.environment.Link` over one simulated connection."""

    def __init__(
        self,
        network: Network,
        end: End,
        peer: str,
        path: str,
        buffers: ReceiveBuffers | None = None,
    ) -> None:
        """*buffers*: where larger messages are put in `receive_all`, as a client's link does."""
        self._network = network
        self._buffers = buffers
        self._end = end
        self._life = end.life
        self._randomness = network.world.random("turns", end.life.host.name, end.life.number).random
        self._peer = peer
        self._path = path
        self._parts: list[bytes] = []
        """The beginning of the message that is being received."""
        self._is_torn = False
        self._has_begun = False
        """Whether the message that `offer` left to `send` has reached its edge ``before``."""
        self._is_sated = False
        """Whether the function that takes messages wants no more."""
        self._is_closing = False
        self._closed = trio.Event()
        self._has_refused = False
        end.on_finished = self._answer_close

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def path(self) -> str:
        return self._path

    def offer(self, *parts: bytes) -> bool:
        life, end = self._life, self._end
        data = b"".join(parts)
        if not self._may_send(data) or self._randomness() < _YIELD_CHANCE:
            return False
        life.effect("send", "before", self._peer)
        if not self._may_send(data):  # a fault struck at that edge
            self._has_begun = True
            return False
        end.put(data, len(data) + _FRAME_BYTES)
        life.effect("send", "after", self._peer)
        return True

    def _may_send(self, data: bytes) -> bool:
        end = self._end
        return not (
            self._life.is_paused
            or self._is_torn
            or self._is_over
            or len(data) > PIECE_BYTES
            or not end.has_room
        )

    async def send(self, data: bytes) -> None:
        life, end = self._life, self._end
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self._has_begun:
            life.effect("send", "before", self._peer)
        self._has_begun = False
        if life.is_paused or self._randomness() < _YIELD_CHANCE:
            await trio.lowlevel.cancel_shielded_checkpoint()
            life.check()
        self._check_sending()
        self._is_torn = True  # and stays so if this is cancelled
        rest = data
        while len(rest) > PIECE_BYTES or not end.has_room:
            if end.has_room:
                end.put(_MessagePart(rest[:PIECE_BYTES]), PIECE_BYTES)
                rest = rest[PIECE_BYTES:]
            else:
                await end.room.park()
                life.check()
                self._check_end()
        end.put(rest, len(rest) + _FRAME_BYTES)
        self._is_torn = False
        life.effect("send", "after", self._peer)

    def _check_sending(self) -> None:
        if self._is_torn:
            raise ConnectionLostError(f"the connection to {self._peer} is torn")
        self._check_end()

    def _check_end(self) -> None:
        if self._is_over:
            self._is_torn = False
            raise self._lost()

    @property
    def _is_over(self) -> bool:
        """Whether nothing may be sent any more."""
        end = self._end
        return self._is_closing or end.is_gone or end.is_finished or end.has_finished

    async def receive(self, bytes_max: int = MESSAGE_BYTES_MAX) -> bytes:
        message = await self._next(bytes_max)
        assert message is not None
        return message

    def settle(self, *, is_client: bool) -> bool:
        return True  # this tier has no connection slots

    def meter(self, intake: Intake) -> None:
        """Do nothing: this link has no buffer that would count."""

    async def receive_all(
        self, take: Callable[[bytes | memoryview], bool], turn: Turn | None = None
    ) -> None:
        self._is_sated = False
        if self._buffers is not None:
            take = partial(_take_in_place, self._buffers, take)
        context = trio.lowlevel.current_task().context
        hand_over = partial(self._hand_over, lambda data: context.run(take, data))
        while True:
            message = await self._next(MESSAGE_BYTES_MAX, hand_over)
            if message is None or not take(message):
                return

    def _hand_over(
        self,
        take: Callable[[bytes], bool],
        data: Any,  # noqa: ANN401
        size_bytes: int,
    ) -> bool:
        """Usually pass what arrived to *take* at once: a turn of the task that waits for it would
        cost as much as everything else that happens to a small message."""
        if (
            self._life.is_paused
            or self._is_closing
            or self._parts
            or not isinstance(data, bytes)
            or self._randomness() < _YIELD_CHANCE
        ):
            return False
        self._end.taken(size_bytes)
        self._network.world.fold(data)
        try:
            self._is_sated = not take(data)
        except NodeDead:  # the tasks of the process notice it by themselves
            return True
        if self._is_sated:
            self._end.taker = None
            self._end.arrived.unpark_all()
        return True

    async def _next(
        self, bytes_max: int, hand_over: Callable[[Any, int], bool] | None = None
    ) -> bytes | None:
        """The next message that *hand_over* has not taken; None if it wants no more."""
        end = self._end
        self._life.check()
        await trio.lowlevel.checkpoint_if_cancelled()
        waited, message = False, None
        while message is None:
            is_over = not end.inbox and (end.is_finished or end.is_gone)
            if self._is_closing or self._has_refused or is_over:
                self._answer_close()
                raise self._no_message()
            if end.inbox:
                message = self._assemble(bytes_max)
            else:
                end.taker = hand_over
                try:
                    await end.arrived.park()
                finally:
                    end.taker = None
                self._life.check()
                if self._is_sated and hand_over is not None:
                    return None
                waited = True
        self._network.world.fold(message)
        if not waited and self._randomness() < _YIELD_CHANCE:
            await trio.lowlevel.cancel_shielded_checkpoint()
            self._life.check()
        return message

    def _assemble(self, bytes_max: int) -> bytes | None:
        """Take the first data of the inbox; return the message if that completes it."""
        data = self._end.take()
        if self._end.is_finished:
            self._answer_close()
        is_whole = isinstance(data, bytes)
        if isinstance(data, bytes) and not self._parts and len(data) <= bytes_max:
            return data
        self._parts.append(data if is_whole else data.data)
        size_bytes = sum(map(len, self._parts))
        if size_bytes > bytes_max:
            self._refuse(size_bytes, bytes_max)
        if not is_whole:
            return None
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _refuse(self, size_bytes: int, bytes_max: int) -> NoReturn:
        self._has_refused = True
        self._parts.clear()
        text = f"a message had more than {bytes_max} bytes"
        if size_bytes > MESSAGE_BYTES_MAX:  # which trio-websocket refuses by itself
            self._end.finish((_MESSAGE_TOO_BIG, text))
        raise ProtocolError(text, Status.MESSAGE_TOO_LARGE)

    def _answer_close(self) -> None:
        """Answer a close frame if trio-websocket's reader would have read it by now."""
        if len(self._end.inbox) <= MESSAGE_QUEUE_COUNT and not self._life.is_paused:
            self._end.finish()

    def _no_message(self) -> ConnectionLostError | ProtocolError:
        # Production doesn't tell either whose message was too large.
        last_word = self._end.last_word
        if self._has_refused or (last_word and last_word[0] == _MESSAGE_TOO_BIG):
            return ProtocolError(
                f"a message had more than {MESSAGE_BYTES_MAX} bytes", Status.MESSAGE_TOO_LARGE
            )
        return self._lost()

    def _lost(self) -> ConnectionLostError:
        if self._is_closing:
            return ConnectionLostError(f"the connection to {self._peer} is closed")
        if self._end.last_word is None:
            return ConnectionLostError(f"the connection to {self._peer} broke")
        code, reason = self._end.last_word
        said = f": {reason}" if reason else ""
        return ConnectionLostError(f"{self._peer} closed the connection ({code}){said}")

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        if self._life.is_over:
            return
        if self._is_closing:
            await self._closed.wait()
            return
        self._is_closing = True
        end = self._end
        end.arrived.unpark_all()
        end.room.unpark_all()
        try:
            cancelled = trio.current_effective_deadline() == -math.inf
            clock = self._life.host.clock
            with clock.timeout(_LAST_WORD_S if cancelled else CLOSE_TIMEOUT_S) as scope:
                scope.shield = True
                if not self._is_torn:
                    await self._say_goodbye(code, cut(reason, _REASON_BYTES_MAX))
        finally:
            self._closed.set()
            end.close(leaves_unread=self._is_torn)

    async def _say_goodbye(self, code: int, reason: str) -> None:
        """Send the close frame, and discard what arrives until the peer has closed, too."""
        end = self._end
        while not end.has_room and not end.is_gone:
            await end.room.park()
        end.finish((code, reason))
        while True:
            while end.inbox:
                end.take()
            if end.is_finished or end.is_gone:
                return
            await end.arrived.park()
