"""Bounds how much a link may read from its peer, because the parts of an incomplete message are
kept until the rest was received.

A link asks before each read, and waits while there is no room, so that the peer's system has to
keep the rest (TCP's flow control).  `octopi.transport.connection` bounds how long a message may
take, whether or not its link waits for room.
"""

from __future__ import annotations

from typing import Final

from octopi.limits import KIB, MEMORY_ALLOWANCE_BYTES
from octopi.transport.memory_pool import UNFINISHED, MemoryAccount
from octopi.transport.outbox import granted

_READ_BYTES_MIN: Final = 256
"""Reading less is not worth a system call."""

_WAIT_BYTES_MIN: Final = KIB
"""How much a link waits for, at least; it may not know how much of the message is missing."""


class ReceiveBudget:
    """`octopi.environment.Intake` that charges an account of the node's memory."""

    __slots__ = ("_account", "_charged_bytes", "_granted_bytes", "_uncounted_bytes", "pool")

    def __init__(self, account: MemoryAccount) -> None:
        self.pool: Final = account.pool
        self._account = account
        self._charged_bytes = 0
        """What was charged to the account for the bytes that are kept."""
        self._uncounted_bytes = 0
        """How many bytes are kept that are within the allowance, and so not charged."""
        self._granted_bytes = 0
        """What was charged to the account in advance, for the next read."""

    def room(self, wanted_bytes: int) -> int:
        if self._granted_bytes:
            return min(wanted_bytes, self._granted_bytes)
        little_bytes = self._uncounted_bytes
        least_bytes = min(wanted_bytes, _READ_BYTES_MIN) + little_bytes
        room_bytes = self._account.room(wanted_bytes + little_bytes, least_bytes)
        return room_bytes and room_bytes - little_bytes

    async def wait(self, wanted_bytes: int, missing_bytes: int) -> None:
        size_bytes = min(wanted_bytes, max(missing_bytes, _WAIT_BYTES_MIN))
        if await granted(self._account, UNFINISHED, size_bytes):
            self._granted_bytes = size_bytes

    def keep(self, size_bytes: int) -> None:
        counted_bytes = size_bytes if size_bytes > MEMORY_ALLOWANCE_BYTES else 0
        self._uncounted_bytes = size_bytes - counted_bytes
        is_less = counted_bytes < self._charged_bytes
        more_bytes = counted_bytes - self._charged_bytes - self._granted_bytes
        self._charged_bytes, self._granted_bytes = counted_bytes, 0
        self._account.charge(UNFINISHED, more_bytes)
        if is_less and self._account.has_loan:
            self._account.settle()  # the message that the loan was for is complete
