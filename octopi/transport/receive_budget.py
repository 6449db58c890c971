"""How much of what a peer sends may be read: of a message that has not come completely, all that
was read is kept until the rest has come.

A link asks before each read, and waits while there is no room, so that the peer's system has to
keep the rest (TCP's flow control).  How long a message may take is bounded by
`octopi.transport.connection`, whether or not its link waits for room.
"""

from __future__ import annotations

from typing import Final

from octopi.limits import KIB, MEMORY_ALLOWANCE_BYTES
from octopi.transport.memory_pool import UNFINISHED, MemoryAccount
from octopi.transport.outbox import granted

_READ_BYTES_MIN: Final = 256
"""Less is not worth a call of the system."""

_WAIT_BYTES_MIN: Final = KIB
"""Waited for where it is not known how much is missing."""


class ReceiveBudget:
    """`octopi.environment.Intake` by an account of the node's memory."""

    __slots__ = ("_account", "_charged_bytes", "_granted_bytes", "_uncounted_bytes", "pool")

    def __init__(self, account: MemoryAccount) -> None:
        self.pool: Final = account.pool
        self._account = account
        self._charged_bytes = 0
        """For what is kept."""
        self._uncounted_bytes = 0
        """Kept, and so little that it is not charged."""
        self._granted_bytes = 0
        """Charged for what is read next."""

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
            self._account.settle()  # the message that it was for has come
