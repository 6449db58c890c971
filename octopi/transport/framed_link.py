"""A link on a stream whose WebSocket handshake is done: frames and messages without
trio-websocket, which takes a turn of the scheduler and five copies for each.

In charge of who sends and receives when, of answering pings and closes, and of the closing
handshake.  What a frame looks like is the business of `octopi.transport.frame_reader`.

A message goes out in the call that hands it over (`offer`) if nothing else is on its way and the
system takes it at once, and all messages of a piece that came are taken in one turn
(`receive_all`).  Whatever can't be sent at once waits in `_unsent`, where the order is kept.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Final

import trio

from octopi.environment import Clock, Intake, NonBlockingStream, Randomness, Turn
from octopi.errors import ConnectionLostError, OctopiError, ProtocolError, Status
from octopi.limits import CLOSE_TIMEOUT_S, KIB, MESSAGE_BYTES_MAX, PING_FRAMES
from octopi.transport.connection_slots import ConnectionSlot
from octopi.transport.frame_reader import (
    BINARY,
    CLOSE,
    MESSAGE_TOO_BIG,
    NO_CODE,
    NORMAL,
    PING,
    PONG,
    FrameFault,
    FrameReader,
    close_payload,
    frame_head,
    parse_close,
)
from octopi.transport.masking import apply_mask

RECEIVE_BYTES: Final = 256 * KIB
"""One read from the socket, at most.  Nothing of that size is kept while a connection is idle."""

RECEIVE_BYTES_MIN: Final = 8 * KIB
"""One read of a connection that takes the time of a turn for less.  What is left at the end of a
turn is kept until the next one, so much more is not read."""

READS_IN_A_ROW_MAX: Final = 8
"""So much may be read before others have their turn."""

LAST_WORD_S: Final = 0.05
"""For sending a close frame when there is nobody left to wait for the answer."""

_FRAMING_BYTES_MAX: Final = KIB
"""Of a short message: the heads of its fragments, and some pings."""

_PIECE_BYTES: Final = 1024 * KIB
"""Sent at a time where a stream is not the system's own."""

_MASK_BYTES: Final = 4
_JOINED_BYTES_MAX: Final = 2 * KIB
"""Up to this a message is copied behind its head: that costs less than a second part."""


def _pieces(parts: list[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """All of *parts*, without a copy of a large one: encryption makes some of what it gets."""
    for part in parts:
        for at in range(0, len(part), _PIECE_BYTES):
            yield memoryview(part)[at : at + _PIECE_BYTES]


class FramedLink:
    """`octopi.environment.Link` in frames of our own."""

    def __init__(
        self,
        stream: trio.abc.HalfCloseableStream,
        early: bytes,
        clock: Clock,
        tasks: trio.Nursery,
        *,
        masks: Randomness | None,
        peer: str,
        path: str,
    ) -> None:
        """*early*: what came behind the handshake.  *tasks*: the link's own, ends with it.
        *masks*: a client needs it, a server sends without."""
        self._stream = stream
        self._prompt = stream if isinstance(stream, NonBlockingStream) else None
        self._clock = clock
        self._tasks = tasks
        self._masks = masks
        self._peer = peer
        self._path = path

        self._unsent: list[bytes | memoryview] = []
        """Of frames that are to be sent next, or partly are."""
        self._offered: bytes | None = None
        """The message that `offer` began to send and left to `send`."""
        self._due: list[bytes] = []
        """Control frames that come behind them."""
        self._is_sending = False
        self._sent = trio.lowlevel.ParkingLot()
        self._is_torn = False
        """A frame was begun, and is not or can't be finished: nothing can be sent behind it."""
        self._is_broken = False
        self._has_sent_eof = False

        self._reader = FrameReader(is_masked=masks is None, on_control=self._take_control)
        self._reader.feed(early)
        self._turn: Turn | None = None
        """Of the one who receives all, once somebody did."""
        self._receive_bytes = RECEIVE_BYTES_MIN
        """The next read."""
        self._fed_bytes = 0
        """What the reader was fed in this turn, or had left from the one before."""
        self._intake: Intake | None = None
        """Bounds what may be read; None: nothing does."""
        self._kept_bytes = 0
        """What the intake knows of."""
        self._reads_in_a_row = 0
        self._is_receiving = False
        self._end: OctopiError | None = None
        """Why nothing more is received."""
        self._received_all = trio.Event()
        self._drained: trio.Event | None = None
        self._fault_code: int | None = None
        """What to close with, because of what the peer sent."""

        self._said_close = False
        self._is_closing = False
        self.place: ConnectionSlot | None = None
        """That of an accepted link at its node."""
        self.closed: Final = trio.Event()

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def path(self) -> str:
        return self._path

    # --- sending -----------------------------------------------------------------------

    def offer(self, data: bytes) -> bool:
        if self._prompt is None or self._unsent or self._is_sending or self._is_over:
            return False
        self._unsent = self._frame(BINARY, data)
        try:
            self._send_now(self._prompt)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._is_torn = self._is_broken = True
        self._offered = data if self._unsent else None
        return not self._unsent

    async def send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._is_sending:
            await self._sent.park()
        if self._is_over:
            raise self._lost()
        if self._offered is data:
            self._offered = None
        else:
            self._unsent += self._frame(BINARY, data)
        await self._send_unsent()

    @property
    def _is_over(self) -> bool:
        """Whether no message can be sent any more."""
        gone = isinstance(self._end, ConnectionLostError)
        return gone or self._is_torn or self._said_close or self._is_closing

    def _frame(self, opcode: int, data: bytes) -> list[bytes | memoryview]:
        mask = b""
        if self._masks is not None:
            mask = self._masks.token_bytes(_MASK_BYTES)
            data = apply_mask(data, mask)
        head = frame_head(opcode, len(data), mask)
        return [head + data] if len(data) <= _JOINED_BYTES_MAX else [head, data]

    async def _send_unsent(self) -> None:
        """Send what is unsent, and control frames that come due meanwhile."""
        self._is_sending = True
        self._is_torn = True  # and stays so if this is cancelled, or fails
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
        """Send of what is unsent what the system takes at once."""
        sent_bytes = stream.send_nowait(self._unsent)
        while self._unsent and sent_bytes >= len(self._unsent[0]):
            sent_bytes -= len(self._unsent.pop(0))
        if self._unsent and sent_bytes:
            self._unsent[0] = memoryview(self._unsent[0])[sent_bytes:]

    def _send_control(self, opcode: int, payload: bytes) -> None:
        """Send a control frame, at once if that can be done; of the pongs that wait, the last one
        is enough (RFC 6455 section 5.5.3)."""
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
                return  # who receives finds out, too

    async def _send_eof(self) -> None:
        if not self._has_sent_eof:
            self._has_sent_eof = True
            await self._stream.send_eof()

    # --- receiving ---------------------------------------------------------------------

    async def receive(self, bytes_max: int = MESSAGE_BYTES_MAX) -> bytes:
        await trio.lowlevel.checkpoint()
        if self._is_closing:
            await self._received_all.wait()
        self._is_receiving = True
        allowed_bytes = bytes_max + _FRAMING_BYTES_MAX
        try:
            while (message := self._next(bytes_max)) is None or self._is_closing:
                if message is not None or self._reader.is_paused:
                    continue  # so little is read before the next turn that no time is looked at
                if allowed_bytes < 0:
                    text = f"a message had more than {bytes_max} bytes"
                    raise self._refuse(FrameFault(MESSAGE_TOO_BIG, text))
                allowed_bytes -= await self._receive_some()
        finally:
            self._is_receiving = False
        return message

    def settle(self, *, is_client: bool) -> bool:
        return self.place is None or self.place.settle(is_client=is_client)

    def meter(self, intake: Intake) -> None:
        self._intake = intake

    async def receive_all(self, take: Callable[[bytes], bool], turn: Turn | None = None) -> None:
        if self._is_closing:
            await self._received_all.wait()
        self._turn = turn
        await self._receive_on(take, turn)

    async def _receive_on(self, take: Callable[[bytes], bool], turn: Turn | None) -> None:
        reader, intake = self._reader, self._intake
        self._is_receiving = True
        try:
            if turn is not None and not turn.begin():
                await turn.wait()
            while True:
                if self._end is not None:
                    raise self._end.with_traceback(None)
                if (message := reader.next(MESSAGE_BYTES_MAX)) is not None:
                    if not (self._is_closing or take(message)):
                        return
                    message = b""  # an idle connection doesn't keep its last one
                elif not reader.is_paused:
                    if intake is not None and (reader.may_keep or self._kept_bytes):
                        self._keep(intake)
                    await self._receive_some()
                    continue
                if turn is not None:
                    if reader.useless_count:
                        turn.useless_count += reader.useless_count
                        reader.useless_count = 0
                    turn.look()
                    if turn.is_over:
                        self._receive_less()
                        if intake is not None:
                            self._keep(intake)
                        await turn.give_way()
        except FrameFault as fault:
            raise self._refuse(fault) from None
        finally:
            if turn is not None:
                turn.end()
            if intake is not None:
                self._keep(intake)
            self._is_receiving = False

    def _receive_less(self) -> None:
        """A turn is over before all was taken that had come: read next about what a turn takes."""
        taken_bytes = self._fed_bytes - self._reader.unread_bytes
        self._fed_bytes = self._reader.unread_bytes
        self._receive_bytes = min(RECEIVE_BYTES, max(RECEIVE_BYTES_MIN, 2 * taken_bytes))

    def _keep(self, intake: Intake) -> None:
        """Have counted what is kept of what was received."""
        self._kept_bytes = self._reader.kept_bytes
        intake.keep(self._kept_bytes)

    async def _room(self, size_bytes: int, intake: Intake) -> int:
        """How much of *size_bytes* to read now, once something may be.  Callers don't ask where
        so much is free that all of them may."""
        while not (room_bytes := intake.room(size_bytes)):
            self._rest(self._turn)
            await intake.wait(size_bytes, self._reader.missing_bytes)
            self._kept_bytes = -1  # so that what was granted is given back when it is known
            if self._turn is not None and not self._turn.begin():
                await self._turn.wait()
        return room_bytes

    def _next(self, bytes_max: int) -> bytes | None:
        """The next message that has come; None if there is none, or if the reader is paused.

        Raises:
          OctopiError: if no other can come.
        """
        if self._end is not None:
            raise self._end.with_traceback(None)
        try:
            return self._reader.next(bytes_max)
        except FrameFault as fault:
            raise self._refuse(fault) from None

    def _refuse(self, fault: FrameFault) -> ProtocolError:
        """Nothing of what the peer sends is of use any more, but it shall get to hear why."""
        too_large = fault.code == MESSAGE_TOO_BIG
        status = Status.MESSAGE_TOO_LARGE if too_large else Status.MALFORMED_MESSAGE
        error = ProtocolError(str(fault), status)
        self._fault_code = fault.code
        self._end_receiving(error)
        self._tasks.start_soon(self._drain)
        return error

    async def _receive_some(self) -> int:
        """Feed the reader with what comes next, and return how many bytes that were; cancelled,
        nothing of it is lost."""
        # Once for each message, so the checks that mostly pass are made here, without a call.
        prompt, turn, intake = self._prompt, self._turn, self._intake
        size_bytes = self._receive_bytes
        try:
            if prompt is None:
                if intake is not None and intake.pool.ample_bytes < size_bytes:
                    size_bytes = await self._room(size_bytes, intake)
                self._fed_bytes = 0
                if turn is not None:
                    turn.end()
                data = bytes(await self._stream.receive_some(size_bytes))
            else:
                if self._reads_in_a_row >= READS_IN_A_ROW_MAX:
                    self._reads_in_a_row = 0
                    if turn is None:
                        await trio.lowlevel.checkpoint()
                    else:
                        await turn.give_way()
                self._reads_in_a_row += 1
                while True:
                    room_bytes = size_bytes
                    if intake is not None and intake.pool.ample_bytes < size_bytes:
                        room_bytes = await self._room(size_bytes, intake)
                    now = prompt.receive_nowait(room_bytes)
                    if now is not None:
                        break
                    self._rest(turn)
                    await prompt.wait_readable()
                    if turn is not None and not turn.begin():
                        await turn.wait()
                data = now
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        received_bytes = len(data)
        if received_bytes:
            self._reader.feed(data)
            self._fed_bytes += received_bytes
            if received_bytes == size_bytes < RECEIVE_BYTES:
                self._receive_bytes = min(RECEIVE_BYTES, 2 * size_bytes)
        else:
            self._end_receiving(self._lost())
        if prompt is None and turn is not None and not turn.begin():
            await turn.wait()  # what came is kept, also if this is cancelled
        return received_bytes

    def _rest(self, turn: Turn | None) -> None:
        """There is nothing to take for now."""
        self._reads_in_a_row = self._fed_bytes = 0
        if turn is not None:
            turn.end()

    async def _drain(self) -> None:
        """Throw away what comes, until the peer is done.

        To close the stream while the peer still sends would have its system throw away what we
        said last, and a peer that can't send on doesn't read either.
        """
        if self._drained is None:
            self._drained = trio.Event()
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                while await self._stream.receive_some(RECEIVE_BYTES):
                    pass
            self._drained.set()
        await self._drained.wait()

    def _take_control(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            self._reader.useless_count += PING_FRAMES - 1
            self._send_control(PONG, payload)
        elif opcode == CLOSE:
            code, reason = parse_close(payload)
            self._send_control(CLOSE, payload[:2] if code != NO_CODE else b"")
            said = f": {reason}" if reason else ""
            text = f"{self._peer} closed the connection ({code}){said}"
            self._end_receiving(ConnectionLostError(text))
            raise ConnectionLostError(text)

    def _end_receiving(self, why: OctopiError) -> None:
        self._end = self._end or why
        self._received_all.set()

    def _lost(self) -> ConnectionLostError:
        if isinstance(self._end, ConnectionLostError):
            return ConnectionLostError(str(self._end))
        is_cut = self._is_torn and not self._is_broken
        how = "is closed" if self._is_closing else "is torn" if is_cut else "broke"
        return ConnectionLostError(f"the connection to {self._peer} {how}")

    # --- the end -----------------------------------------------------------------------

    async def aclose(self, code: int = NORMAL, reason: str = "") -> None:
        if self._is_closing:
            await self.closed.wait()
            return
        self._is_closing = True
        try:
            # The peer shall learn why, also when whoever closes was cancelled; but then nobody
            # has time to wait for its answer.
            cancelled = trio.current_effective_deadline() == -math.inf
            with self._clock.timeout(LAST_WORD_S if cancelled else CLOSE_TIMEOUT_S) as scope:
                scope.shield = True
                await self._say_goodbye(self._fault_code or code, reason)
        finally:
            self._end_receiving(self._lost())
            self.closed.set()
            await trio.aclose_forcefully(self._stream)

    async def _say_goodbye(self, code: int, reason: str) -> None:
        """Send what is unsent and a close frame, then wait until the peer is done, too."""
        try:
            while self._is_sending:
                await self._sent.park()
            if self._is_torn:
                return
            if not self._said_close:
                if isinstance(self._end, ConnectionLostError):
                    return  # the peer ended the stream without a word
                self._said_close = True
                self._due += map(bytes, self._frame(CLOSE, close_payload(code, reason)))
            self._unsent, self._due = [*self._unsent, *self._due], []
            await self._send_unsent()
            if self._is_receiving:
                await self._received_all.wait()
            else:
                await self._receive_on(lambda _: True, self._turn)
        except OctopiError:
            pass  # it is gone, or said what nobody wants to hear now
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._send_eof()
            await self._drain()
