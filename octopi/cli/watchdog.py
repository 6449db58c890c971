"""Notices that a child process hangs, as a service manager does: sd_watchdog_enabled(3).

The child gets the address of a datagram socket in its environment, and sends WATCHDOG=1 there for
as long as its tasks have their turns (`octopi.cli.service_manager`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

WATCHDOG_VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Tell a process who watches it.  They are not meant for its children."""
_PARTS: Final = 2
"""The time that a child may be silent is counted in so many parts, one after the other: if all
processes are stopped for longer, that looks like silence in one of them."""
_DATAGRAM_BYTES: Final = 4096


@attrs.frozen
class Watchdog:
    """Hears from one child process."""

    silence_s: float
    """For how long the child may say nothing (s)."""
    _address: str
    _socket: trio.socket.SocketType

    @property
    def variables(self) -> Mapping[str, str]:
        """What the child needs in its environment."""
        return {"NOTIFY_SOCKET": self._address, "WATCHDOG_USEC": str(round(self.silence_s * 1e6))}

    async def wait_for_silence(self) -> None:
        """Return when the child has said nothing for `silence_s`."""
        parts = 0
        while parts < _PARTS:
            parts += 1
            with trio.move_on_after(self.silence_s / _PARTS):
                await self._socket.recv(_DATAGRAM_BYTES)
                parts = 0


@asynccontextmanager
async def watchdog(silence_s: float) -> AsyncIterator[Watchdog]:
    """A watchdog for one child process, which may be silent for *silence_s* (s).

    Raises:
      OSError: if there can't be another socket.
    """
    with (
        tempfile.TemporaryDirectory(prefix="octopi-") as directory,
        trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_DGRAM) as heard,
    ):
        address = os.path.join(directory, "watchdog")
        await heard.bind(address)
        yield Watchdog(silence_s, address, heard)
