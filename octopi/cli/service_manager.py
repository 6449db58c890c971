"""Tells the service manager that started a node, such as systemd, how the node is: sd_notify(3).

The manager names a datagram socket in NOTIFY_SOCKET, and how often it wants to hear of the node in
WATCHDOG_USEC.  Without these variables nothing is sent.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import attrs
import trio

from octopi.cli.failures import leaves
from octopi.logger import get_logger
from octopi.printable import printable

_log = get_logger(__name__)

_PINGS_PER_INTERVAL: Final = 3
"""A manager that hears nothing for the whole interval kills the node; sd_watchdog_enabled(3) asks
for at least two."""


@attrs.define
class ServiceManager:
    """The service manager of this process, if there is one."""

    _address: str
    """Of its socket; empty: there is no manager."""
    _ping_interval_s: float
    """Between two pings of the watchdog (s); 0: it wants none."""
    _is_ready: trio.Event = attrs.field(factory=trio.Event)
    _status: str = ""

    @classmethod
    def of(cls, environ: Mapping[str, str], pid: int) -> ServiceManager:
        """The manager that *environ* names for the process *pid*."""
        address = environ.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):
            return cls("", 0.0)
        interval_us = environ.get("WATCHDOG_USEC", "")
        is_watched = environ.get("WATCHDOG_PID", str(pid)) == str(pid) and interval_us.isdecimal()
        return cls(
            # A leading @ is an address of Linux's abstract namespace: unix(7).
            "\0" + address[1:] if address.startswith("@") else address,
            int(interval_us) / 1e6 / _PINGS_PER_INTERVAL if is_watched else 0.0,
        )

    def ready(self, status: str) -> None:
        """The node can be used; *status* is a line about it for people."""
        self._status = printable(status)
        self._is_ready.set()

    async def run(self, stop: trio.Event) -> None:
        """Say when the node is ready and, after *stop*, that it stops; meanwhile ping the watchdog
        for as long as the tasks of this process have their turns."""
        if not self._address:
            return
        with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_DGRAM) as manager:
            lock = trio.Lock()

            async def tell(message: str) -> None:
                async with lock:  # only one task may wait until there is room
                    await manager.send(message.encode())

            async def say_ready() -> None:
                await self._is_ready.wait()
                await tell(f"READY=1\nSTATUS={self._status}")

            async def say_stopping() -> None:
                await stop.wait()
                await tell("STOPPING=1\nSTATUS=stopping")

            async def ping() -> None:
                while self._ping_interval_s > 0:
                    await tell("WATCHDOG=1")
                    await trio.sleep(self._ping_interval_s)

            try:
                # Whether there is room is known for a connected socket only.
                await manager.connect(self._address)
                async with trio.open_nursery() as nursery:
                    for say in (say_ready, say_stopping, ping):
                        nursery.start_soon(say)
            except* OSError as group:
                error = str(leaves(group)[0])
                _log.warning("the service manager can't be told", error=error)


async def with_service_manager(
    run: Callable[[Callable[[str], None]], Awaitable[None]],
    announce: Callable[[str], None],
    role: str,
    stop: trio.Event,
) -> None:
    """Run a node with *run*, which gets a function to call with the node's url when it is ready;
    its service manager and *announce* are told."""
    manager = ServiceManager.of(os.environ, os.getpid())

    def ready(url: str) -> None:
        announce(url)
        manager.ready(f"{role} at {url}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run, stop)
        await run(ready)
        nursery.cancel_scope.cancel()
