"""A link on a stream whose WebSocket handshake is done.

The link reads and writes frames itself, because trio-websocket takes a turn of the scheduler and
copies the bytes five times for each message.  This module receives messages, answers pings and
closes, and does the closing handshake.  `octopi.transport.frame_sender` sends, and
`octopi.transport.frame_reader` parses frames.  `FramedLink.receive_all` handles all messages of a
received piece in one turn.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Final

import trio

from octopi.environment import Clock, Intake, Randomness, Turn
from octopi.errors import ConnectionLostError, OctopiError, ProtocolError, Status
from octopi.limits import CLOSE_TIMEOUT_S, KIB, MESSAGE_BYTES_MAX, PING_FRAMES
from octopi.operating_system import SystemStream
from octopi.transport.connection_slots import ConnectionSlot
from octopi.transport.frame_reader import (
    CLOSE,
    MESSAGE_TOO_BIG,
    NO_CODE,
    NORMAL,
    PING,
    PONG,
    FrameFault,
    FrameReader,
    close_payload,
    parse_close,
)
from octopi.transport.frame_sender import FrameSender
from octopi.transport.receive_buffers import ReceiveBuffers
from octopi.transport.secure_stream import SecureStream

RECEIVE_BYTES: Final = 256 * KIB
"""The most that one read takes from the socket.  An idle connection keeps no such buffer."""

RECEIVE_BESIDE_BYTES: Final = 64 * KIB
"""The most that one read takes from the socket where large messages are received in place."""

RECEIVE_BYTES_MIN: Final = 8 * KIB
"""The least that a read asks for.  A connection that can't handle more in one turn doesn't read
more, because what is left at the end of a turn is kept until the next one."""

READS_IN_A_ROW_MAX: Final = 8
"""How many reads may follow one another before other tasks have their turn."""

LAST_WORD_S: Final = 0.05
"""How long a link that is closed by a cancelled task may take to send its close frame; it doesn't
wait for the answer."""

_FRAMING_BYTES_MAX: Final = KIB
"""How many bytes beside its payload a short message may take: the heads of its fragments, and
some pings."""


class FramedLink(FrameSender):
    """`octopi.environment.Link` that reads and writes WebSocket frames itself."""

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
        buffers: ReceiveBuffers | None = None,
    ) -> None:
        """*early*: bytes that were received behind the handshake.  *tasks*: the nursery of this
        link, which ends with it.  *masks*: where a client's masks come from; None on the side of
        the server, which doesn't mask.  *buffers*: where `receive_all` receives large messages in
        place, which it hands on as views; None: nowhere."""
        super().__init__(stream, tasks, masks=masks, peer=peer)
        self._clock = clock
        self._path = path

        self._reader = FrameReader(
            is_masked=masks is None, on_control=self._take_control, buffers=buffers
        )
        self._reader.feed(early)
        self._turn: Turn | None = None
        """The turn that `receive_all` was called with."""
        self._receive_bytes = RECEIVE_BYTES_MIN
        """How much the next read asks for."""
        self._receive_bytes_max = RECEIVE_BYTES if buffers is None else RECEIVE_BESIDE_BYTES
        self._fed_bytes = 0
        """What the reader was given in this turn, with what it had left from the turn before."""
        self._intake: Intake | None = None
        """Bounds how much may be read; None: unbounded."""
        self._kept_bytes = 0
        """The kept bytes that the intake was told last."""
        self._reads_in_a_row = 0
        self._is_receiving = False
        self._received_all = trio.Event()
        self._drained: trio.Event | None = None
        self._peer_said_close = False
        """Whether its close frame was received: nothing follows that."""
        self._fault_code: int | None = None
        """The close code for what the peer did wrong; None: nothing."""

        self.place: ConnectionSlot | None = None
        """The slot of an accepted link; None on the side that connected."""
        self.closed: Final = trio.Event()

    @property
    def path(self) -> str:
        return self._path

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
                    continue  # what was received at once is bounded, so this loop is short
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

    async def receive_all(
        self, take: Callable[[bytes | memoryview], bool], turn: Turn | None = None
    ) -> None:
        if self._is_closing:
            await self._received_all.wait()
        self._turn = turn
        await self._receive_on(take, turn)

    async def _receive_on(
        self, take: Callable[[bytes | memoryview], bool], turn: Turn | None
    ) -> None:
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
        """A turn was over before everything was handled: read less next time, about as much as
        two turns can handle."""
        taken_bytes = self._fed_bytes - self._reader.unread_bytes
        self._fed_bytes = self._reader.unread_bytes
        self._receive_bytes = min(self._receive_bytes_max, max(RECEIVE_BYTES_MIN, 2 * taken_bytes))

    def _keep(self, intake: Intake) -> None:
        """Tell the intake how many received bytes are kept."""
        self._kept_bytes = self._reader.kept_bytes
        intake.keep(self._kept_bytes)

    async def _room(self, size_bytes: int, intake: Intake) -> int:
        """Wait until something may be read, and return how much of *size_bytes*.  Callers skip
        this while the pool has *size_bytes* to spare for any account."""
        while not (room_bytes := intake.room(size_bytes)):
            self._rest(self._turn)
            await intake.wait(size_bytes, self._reader.missing_bytes)
            self._kept_bytes = -1  # so that `_keep` is called, which gives back what is not needed
            if self._turn is not None and not self._turn.begin():
                await self._turn.wait()
        return room_bytes

    def _next(self, bytes_max: int) -> bytes | None:
        """The next message that was received; None if there is none, or if the reader is paused.

        Raises:
          OctopiError: if nothing more can be received.
        """
        if self._end is not None:
            raise self._end.with_traceback(None)
        try:
            message = self._reader.next(bytes_max)
        except FrameFault as fault:
            raise self._refuse(fault) from None
        return bytes(message) if isinstance(message, memoryview) else message

    def _refuse(self, fault: FrameFault) -> ProtocolError:
        """Stop receiving because of *fault*, and return the error to raise.

        What the peer still sends is read and dropped, so that it can receive the close frame.
        """
        too_large = fault.code == MESSAGE_TOO_BIG
        status = Status.MESSAGE_TOO_LARGE if too_large else Status.MALFORMED_MESSAGE
        error = ProtocolError(str(fault), status)
        self._fault_code = fault.code
        self._end_receiving(error)
        self._tasks.start_soon(self._drain)
        return error

    async def _receive_some(self) -> int:
        """Receive once, give the bytes to the reader, and return how many there were.  Cancelled:
        no byte is lost."""
        # This runs once for each message, so the checks that mostly pass are made without a call.
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
                    if self._reader.place is not None:
                        received = prompt.receive_into(self._reader.rest())
                        if received:
                            self._reader.received(received)
                            return received
                        now = None if received is None else b""
                    else:
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
            if received_bytes == size_bytes < self._receive_bytes_max:
                self._receive_bytes = min(self._receive_bytes_max, 2 * size_bytes)
        else:
            self._end_receiving(self._lost())
        if prompt is None and turn is not None and not turn.begin():
            await turn.wait()  # the reader has the bytes, so cancelling this loses nothing
        return received_bytes

    def _rest(self, turn: Turn | None) -> None:
        """There is nothing to receive for now: end the turn."""
        self._reads_in_a_row = self._fed_bytes = 0
        if turn is not None:
            turn.end()

    async def _drain(self) -> None:
        """Receive and drop bytes until the peer ends the stream.

        If we closed the stream while the peer still sends, its system would discard our last
        message; and a peer that is blocked in sending doesn't read it either.
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
            self._peer_said_close = True
            code, reason = parse_close(payload)
            self._send_control(CLOSE, payload[:2] if code != NO_CODE else b"")
            said = f": {reason}" if reason else ""
            text = f"{self._peer} closed the connection ({code}){said}"
            self._end_receiving(ConnectionLostError(text))
            raise ConnectionLostError(text)

    def _end_receiving(self, why: OctopiError) -> None:
        self._end = self._end or why
        self._received_all.set()

    # --- the end -----------------------------------------------------------------------

    def detach(self) -> int | None:
        """End this link, and return the file descriptor of its TCP connection, on which frames
        follow in both directions.  None: it isn't TCP alone, or something was received or sent in
        part; then the link stays as it is.  Call it while no task uses the link."""
        stream = self._stream
        if not isinstance(stream, SystemStream) or self._is_over or self._end is not None:
            return None
        if self._unsent or self._due or self._reader.kept_bytes or self._reader.missing_bytes:
            return None
        detached = stream.duplicate()
        self._is_closing = True
        self._end_receiving(ConnectionLostError(f"the connection to {self._peer} was detached"))
        self.closed.set()  # its owner closes the stream
        return detached

    async def aclose(self, code: int = NORMAL, reason: str = "") -> None:
        if self._is_closing:
            await self.closed.wait()
            return
        self._is_closing = True
        try:
            # The close frame is sent even if the task that closes the link was cancelled; then the
            # time only suffices to send it, not to wait for the peer's answer.
            cancelled = trio.current_effective_deadline() == -math.inf
            with self._clock.timeout(LAST_WORD_S if cancelled else CLOSE_TIMEOUT_S) as scope:
                scope.shield = True
                await self._say_goodbye(self._fault_code or code, reason)
        finally:
            self._end_receiving(self._lost())
            self.closed.set()
            await trio.aclose_forcefully(self._stream)

    async def _say_goodbye(self, code: int, reason: str) -> None:
        """Send what is unsent and a close frame, then wait until the peer has closed, too."""
        try:
            while self._is_sending:
                await self._sent.park()
            if self._is_torn:
                return
            if not self._said_close:
                if isinstance(self._end, ConnectionLostError):
                    return  # the stream ended before a close frame was received
                self._said_close = True
                self._due += map(bytes, self._frame(CLOSE, close_payload(code, reason)))
            self._unsent, self._due = [*self._unsent, *self._due], []
            await self._send_unsent()
            if self._is_receiving:
                await self._received_all.wait()
            else:
                await self._receive_on(lambda _: True, self._turn)
        except OctopiError:
            pass  # the peer is gone, or broke the protocol: the link is closed in any case
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            if self._peer_said_close and isinstance(self._stream, SecureStream):
                # TLS can't end one direction alone, so each side would wait for the other's end.
                return
            await self._send_eof()
            await self._drain()
