"""The queue of encoded messages that wait for a connection's writer, and the admission to it.

Replies are always admitted; the connection's reader pauses while too many bytes wait.  Records are
read from a log only when there is room for them, within an `OutboxRoom`.  Only one task of a
connection has an `OutboxRoom` at a time, in the order in which they ask; so a thousand readings of
one connection hold no more memory than one.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Final

import trio

from octopi.errors import ConnectionLostError
from octopi.limits import GRANT_BYTES, MEMORY_ALLOWANCE_BYTES, OUTBOX_BYTES_MAX
from octopi.transport.memory_budget import OUTBOX
from octopi.transport.memory_pool import MemoryAccount


class Outbox:
    """Encoded messages of one connection, in the order in which they are sent."""

    __slots__ = (
        "_account",
        "_charged_bytes",
        "_end",
        "_granted_bytes",
        "_order",
        "_sent",
        "messages",
        "size_bytes",
    )

    def __init__(self, account: MemoryAccount | None) -> None:
        """*account*: where the messages are charged; None: nothing bounds them."""
        self._account = account
        self.messages: Final[deque[bytes]] = deque()
        """The messages that the writer has not taken."""
        self.size_bytes = 0
        """The size of the messages, including the one that is being sent."""
        self._charged_bytes = 0
        """What was charged to the account for these messages."""
        self._granted_bytes = 0
        """What was charged to the account in advance, for the messages that are put next."""
        self._order: trio.Lock | None = None
        """Queues the tasks that ask for room; None until a task first does."""
        self._sent = trio.lowlevel.ParkingLot()
        self._end: str | None = None

    @property
    def is_full(self) -> bool:
        """Whether the peer has to receive some messages before the node does more for it.  False
        while the messages fit the allowance."""
        size_bytes = self.size_bytes
        if size_bytes > OUTBOX_BYTES_MAX:
            return True
        if self._account is None or size_bytes <= MEMORY_ALLOWANCE_BYTES:
            return False
        return self._account.is_over

    def put(self, data: bytes) -> None:
        """Add a message, whether or not there is room."""
        self.messages.append(data)
        self.size_bytes = size_bytes = self.size_bytes + len(data)
        if size_bytes > MEMORY_ALLOWANCE_BYTES:
            self._count()

    def sent(self, data: bytes) -> None:
        """The link has sent *data*, which had been the first message."""
        size_bytes = self.size_bytes
        self.size_bytes = size_bytes - len(data)
        if size_bytes > MEMORY_ALLOWANCE_BYTES:  # else it was not charged, and no task waited
            if self._charged_bytes:
                self._count()
            if self._sent:
                self._sent.unpark_all()

    def _count(self) -> None:
        """Charge the account with what the outbox holds now."""
        if self._account is not None:
            size_bytes = self.size_bytes if self.size_bytes > MEMORY_ALLOWANCE_BYTES else 0
            more_bytes = size_bytes - self._charged_bytes - self._granted_bytes
            self._charged_bytes, self._granted_bytes = size_bytes, 0
            self._account.charge(OUTBOX, more_bytes)

    def close(self, why: str) -> None:
        """Drop everything.  Tasks that wait for room get a `ConnectionLostError` with *why*."""
        self._end = why
        self.messages.clear()
        self.size_bytes = 0
        if self._account is not None:
            self._account.close()
        self._sent.unpark_all()

    # --- room ------------------------------------------------------------------------

    def has_ample(self, size_bytes: int) -> bool:
        """Whether any account of the pool may take *size_bytes* without asking."""
        return self._account is None or size_bytes <= self._account.pool.ample_bytes

    def may_put(self, size_bytes: int) -> bool:
        """Whether there is room for a message of *size_bytes*."""
        if self.size_bytes + size_bytes <= MEMORY_ALLOWANCE_BYTES:
            return True
        return bool(self.room_now(size_bytes, size_bytes))

    def room_now(self, wanted_bytes: int, least_bytes: int) -> int:
        """How many of *wanted_bytes* may be put now; 0 if that is less than *least_bytes*, or if
        another task has room or waits for it."""
        if self._order is not None and self._order.locked():
            return 0
        return self._room(wanted_bytes, least_bytes)

    def room(self, wanted_bytes: int, least_bytes: int, *, holds: bool = False) -> OutboxRoom:
        """Room for *least_bytes* to *wanted_bytes*, to be used in an ``async with`` statement.
        *holds*: charge the room to the account until something is put or the block ends, so that
        the block may wait."""
        return OutboxRoom(self, wanted_bytes, least_bytes, holds)

    async def enter(self, wanted_bytes: int, least_bytes: int, holds: bool) -> int:
        """See `OutboxRoom`."""
        if self._order is None:
            self._order = trio.Lock()
        if self._order.locked() or not self._room(wanted_bytes, least_bytes):
            await self._order.acquire()
        else:
            self._order.acquire_nowait()
        try:
            room_bytes = await self._wait(wanted_bytes, least_bytes)
            if holds and not self._granted_bytes and self._account is not None:
                self._account.charge(OUTBOX, room_bytes)
                self._granted_bytes = room_bytes
            return room_bytes
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """See `OutboxRoom`."""
        if self._granted_bytes:
            self._count()  # charge what was put instead of what was granted
        assert self._order is not None
        self._order.release()

    async def _wait(self, wanted_bytes: int, least_bytes: int) -> int:
        while self._end is None:
            await trio.lowlevel.checkpoint_if_cancelled()
            if self._granted_bytes:
                return self._granted_bytes
            room_bytes = self._room(wanted_bytes, least_bytes)
            if room_bytes:
                return room_bytes
            if self.size_bytes > OUTBOX_BYTES_MAX:
                await self._sent.park()
                continue
            assert self._account is not None
            size_bytes = max(least_bytes, min(wanted_bytes, GRANT_BYTES))
            if await granted(self._account, OUTBOX, size_bytes):
                self._granted_bytes = size_bytes
        raise ConnectionLostError(self._end)

    def _room(self, wanted_bytes: int, least_bytes: int) -> int:
        account = self._account
        if self.size_bytes > OUTBOX_BYTES_MAX:
            return 0
        if account is None or wanted_bytes <= account.pool.ample_bytes:
            return wanted_bytes
        return 0 if account.has_loan else account.room(wanted_bytes, least_bytes)


class OutboxRoom:
    """Within the block, as many bytes may be put as entering it returned.  The block must not wait
    unless the room is held (see `Outbox.room`).

    Raises:
      ConnectionLostError: if the connection ends before there is room.
    """

    __slots__ = ("_holds", "_least_bytes", "_outbox", "_wanted_bytes")

    def __init__(self, outbox: Outbox, wanted_bytes: int, least_bytes: int, holds: bool) -> None:
        self._outbox = outbox
        self._wanted_bytes = wanted_bytes
        self._least_bytes = least_bytes
        self._holds = holds

    async def __aenter__(self) -> int:
        return await self._outbox.enter(self._wanted_bytes, self._least_bytes, self._holds)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._outbox.leave()


async def granted(account: MemoryAccount, kind: str, size_bytes: int) -> bool:
    """Wait until *size_bytes* of *kind* were charged to *account*.  False: the account was closed
    instead.  Cancelled: nothing was charged."""
    ended = trio.Event()
    waiter = account.wait(kind, size_bytes, ended.set)
    try:
        await ended.wait()
    except BaseException:
        waiter.withdraw()
        raise
    return waiter.is_granted
