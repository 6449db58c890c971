"""Where production is wired: the one place that joins the seam to this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from octopi.environment import Environment
from octopi.operating_system import SystemChance, SystemClock, SystemDisk, SystemStreams
from octopi.transport.http_front import HttpSite
from octopi.transport.websocket import WebSocketNet


@asynccontextmanager
async def environment(site: HttpSite | None = None) -> AsyncIterator[Environment]:
    """This machine, for the nodes that run within the block, with *site* on their ports."""
    clock = SystemClock()
    async with trio.open_nursery() as nursery:
        net = WebSocketNet(SystemStreams(), clock, nursery, site=site)
        yield Environment(clock, net, SystemDisk(), SystemChance())
        nursery.cancel_scope.cancel()
