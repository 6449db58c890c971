"""Clients of simulated brokers without a register."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from octopi.clients.client import Client, connect
from tests.kit.ring import RingOfHosts, address


@asynccontextmanager
async def client_of(
    ring: RingOfHosts, brokers: Iterable[str], host: str = "client"
) -> AsyncIterator[Client]:
    """A client on a host of its own, which is given the addresses of *brokers*."""
    environment = await ring.cluster.environment(host)
    async with connect([address(one) for one in brokers], environment=environment) as client:
        yield client
