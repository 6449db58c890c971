"""The sending half of a connection: its outbox, its writer, and how it ends.

The writer is the only task that sends, so a caller that is cancelled never leaves half a message
on the link.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from octopi.environment import Clock, Link
from octopi.errors import ConnectionLostError
from octopi.limits import CLOSE_TIMEOUT_S
from octopi.security.authenticator import AuthenticatedPeer
from octopi.transport.close_codes import GOING_AWAY
from octopi.transport.memory_budget import ConnectionMemory, unbounded_memory
from octopi.transport.outbox import Outbox


class MessageSender:
    """Sends encoded messages over *link*, in the order in which callers hand them over.

    Invariant: once `end_reason` is set, no further message is accepted.
    """

    # fmt: off
    __slots__ = (
        "_bucket", "_clock", "_close_code", "_close_reason", "_end", "_flushed", "_link",
        "_room", "_scope", "_sending_since", "_sent_at", "_sent_bytes", "_sent_count", "_work",
        "entry", "memory", "outbox",
    )
    # fmt: on

    def __init__(
        self,
        link: Link,
        clock: Clock,
        entry: AuthenticatedPeer | None,
        memory: ConnectionMemory | None,
    ) -> None:
        """*entry*: the identity that the peer's token proved; None where tokens are not required.
        *memory*: the accounts to which memory for the peer is charged; None: memory is not
        bounded."""
        self._link = link
        self._clock = clock
        self.memory: Final = memory or unbounded_memory()
        """The accounts to which memory for the peer is charged."""
        self.outbox: Final = Outbox(None if memory is None else memory.outgoing)
        self._work = trio.lowlevel.ParkingLot()
        """Where the writer waits for messages."""
        self._room = trio.lowlevel.ParkingLot()
        """Where reader and callers wait until the outbox has room, or requests were answered."""
        self.entry: Final = entry
        """The identity that the peer's token proved; None: no token was required."""
        self._bucket = entry.bucket if entry is not None else None

        self._scope = trio.CancelScope()
        self._end: ConnectionLostError | None = None
        self._close_code = GOING_AWAY
        self._close_reason = ""
        self._flushed = trio.Event()

        self._sent_at = clock.now()
        self._sending_since: float | None = None
        """When the message that is being sent was handed to the link; None: none is."""
        self._sent_count = self._sent_bytes = 0

    @property
    def peer(self) -> str:
        """The other side's address, for people to read."""
        return self._link.peer

    @property
    def end_reason(self) -> str | None:
        """Why the connection ended; None while it hasn't."""
        return None if self._end is None else str(self._end)

    @property
    def is_prompt(self) -> bool:
        """Whether a message that is handed over now goes to the link without waiting for others, or
        for the peer's share of bytes a second."""
        if self._end is not None or self.outbox.size_bytes:
            return False
        return self._bucket is None or self._bucket.wait_s(self._clock.now()) <= 0

    def detach(self) -> int | None:
        """Give away the TCP connection: return its file descriptor, on which WebSocket frames
        follow in both directions.  None: that isn't possible, such as with TLS.  Call it instead of
        `Connection.run`; this object is of no further use but for `close`."""
        detach: Callable[[], int | None] = getattr(self._link, "detach", lambda: None)
        return detach()

    def try_send_encoded(self, data: bytes, now: float) -> bool:
        """Send an encoded message that answers no request, if it need not wait; *now* is the
        clock's time.  False: it would have to wait, or the connection has ended."""
        if self._end is not None or not self.outbox.may_put(len(data)):
            return False
        if self._bucket is not None:
            if self._bucket.wait_s(now) > 0:
                return False
            self._bucket.spend(len(data), now)
        self._send_or_keep(now, data)
        return True

    def post_parts(self, parts: list[bytes]) -> None:
        """Hand over an encoded message that answers no request, even if the outbox is full.  Its
        *parts* are not copied if the system takes them at once.

        Raises:
          ConnectionLostError: if the connection has ended.
        """
        if self._end is not None:
            raise ConnectionLostError(str(self._end))
        now = self._clock.now()
        if self._bucket is not None:
            self._bucket.spend(sum(map(len, parts)), now)
        self._send_or_keep(now, *parts)

    def _send_or_keep(self, now: float, *parts: bytes) -> None:
        data = parts[0]
        if not self.outbox.messages and self._sending_since is None and self._link.offer(*parts):
            self._sent_at = now
            self._sent_count += 1
            self._sent_bytes += len(data) if len(parts) == 1 else sum(map(len, parts))
            return
        self.outbox.put(data if len(parts) == 1 else b"".join(parts))
        if self._work:
            self._work.unpark()

    async def _write(self) -> None:
        """The writer's task: send what is in the outbox until the connection ends."""
        while True:
            while self.outbox.messages:
                if not await self._send_next():
                    return
            if self._end is not None:
                self._flushed.set()
                return
            await self._work.park()

    async def _send_next(self) -> bool:
        data = self.outbox.messages.popleft()
        self._sent_at = self._sending_since = self._clock.now()
        try:
            await self._link.send(data)
        except ConnectionLostError as error:
            self._abort(str(error))
            return False
        self._sending_since = None
        self.outbox.sent(data)
        self._sent_count += 1
        self._sent_bytes += len(data)
        if self._room:
            self._room.unpark_all()
        return True

    # --- the end ---------------------------------------------------------------------

    def _begin_close(self, code: int, reason: str, text: str) -> None:
        """Accept no further messages; the writer still sends those in the outbox."""
        if self._end is None:
            self._end = ConnectionLostError(text)
            self._close_code = code
            self._close_reason = reason
        self._work.unpark_all()
        self._room.unpark_all()

    async def _flush(self) -> None:
        with self._clock.timeout(CLOSE_TIMEOUT_S):
            await self._flushed.wait()
        self._scope.cancel()

    def _abort(self, text: str, code: int = GOING_AWAY) -> None:
        """End the connection without sending anything more."""
        self._begin_close(code, text, text)
        self._scope.cancel()
