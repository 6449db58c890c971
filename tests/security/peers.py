"""A hostile program that speaks the protocol of a broker or a follower."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from octopi.environment import Environment
from octopi.errors import OctopiError
from octopi.security.join_secret import JoinSecrets
from octopi.transport.connection import Connection
from octopi.transport.handshake import NodeCredentials, open_connection, open_node_connection
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT, MEMBERSHIP, Endpoint

OFFERED_S = 2.0


@asynccontextmanager
async def peer(
    environment: Environment, url: str, secrets: JoinSecrets, endpoint: Endpoint = MEMBERSHIP
) -> AsyncIterator[Connection]:
    """A connection to an endpoint for nodes, of somebody who has *secrets*.  It takes every order
    and carries none out."""
    shown = NodeCredentials(lambda: secrets)
    connection = await open_node_connection(environment, url, endpoint, "peer", shown)
    async with trio.open_nursery() as nursery:
        await nursery.start(connection.run, lambda message: None)
        try:
            yield connection
        finally:
            with trio.CancelScope(shield=True):
                await connection.close()
            nursery.cancel_scope.cancel()


async def joined(connection: Connection, join: m.Join, *inventory: m.Inventory) -> m.Joined:
    """Ask to join, with a report."""
    for page in inventory:
        await connection.send(page)
    return await connection.request(join, m.Joined, 10)


async def look(environment: Environment, url: str) -> m.ClusterDescription:
    """What anybody may ask a register, wherever it is by then."""
    while True:
        try:
            connection = await open_connection(environment, url, CLIENT, "peer")
            async with trio.open_nursery() as nursery:
                await nursery.start(connection.run, lambda message: None)
                question = m.DescribeCluster(connection.next_request())
                answer = await connection.request(question, m.ClusterDescription, 5)
                await connection.close()
                nursery.cancel_scope.cancel()
            return answer
        except OctopiError:
            await environment.clock.sleep_until(environment.clock.now() + 0.1)
