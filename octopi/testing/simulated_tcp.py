"""TCP of a test's programs, on the simulated network.

A program that serves HTTP or WebSockets of its own, or asks another one, does so by Trio's usual
functions: `trio.serve_tcp`, `trio.open_tcp_listeners` and `trio.open_tcp_stream`.  While a cluster
is up they use the network of the cluster, with the names of hosts for addresses, and its faults
strike there, too.  Libraries that use these functions work unchanged, such as trio-websocket.
Sockets themselves (`trio.socket`, asyncio, blocking ones) can't be simulated: they fail the test.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

from octopi.simulation.kernel.host import ProcessLife
from octopi.simulation.kernel.owners import OWNER
from octopi.simulation.network.network import Network
from octopi.simulation.network.streams import SimulatedListener, SimulatedStreams
from octopi.testing.errors import MisuseError


@contextmanager
def tcp_of_programs(network: Network) -> Iterator[None]:
    """Have Trio's functions for TCP use *network* within the block."""

    async def open_tcp_stream(
        host: str | bytes, port: int, **_: object
    ) -> trio.abc.HalfCloseableStream:
        name = host.decode("ascii") if isinstance(host, bytes) else host
        return await SimulatedStreams(network, _life("open_tcp_stream")).connect(name, port)

    async def open_tcp_listeners(
        port: int, *, host: str | bytes | None = None, **_: object
    ) -> list[SimulatedListener]:
        name = host.decode("ascii") if isinstance(host, bytes) else host or ""
        listener = SimulatedListener(network, _life("open_tcp_listeners"))
        await trio.lowlevel.checkpoint()
        listener.take_address(name, port)
        return [listener]

    real = {name: getattr(trio, name) for name in ("open_tcp_stream", "open_tcp_listeners")}
    stand_ins: dict[str, Any] = {
        "open_tcp_stream": open_tcp_stream,
        "open_tcp_listeners": open_tcp_listeners,
    }
    for name, stand_in in stand_ins.items():
        setattr(trio, name, stand_in)
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(trio, name, function)


def _life(what: str) -> ProcessLife:
    """The process that calls."""
    life = OWNER.get()
    if not isinstance(life, ProcessLife):
        raise MisuseError(
            f"the test itself runs on no host, so trio.{what} has no network: call it in a "
            "function that cluster.program starts"
        )
    return life
