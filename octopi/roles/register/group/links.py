"""The connections of a register to the others: one to each, over which only this one speaks."""

from __future__ import annotations

import contextlib

from octopi.environment import Environment
from octopi.errors import ConnectionLostError, OctopiError, ProtocolError
from octopi.limits import BACKOFF_S_FIRST
from octopi.logger import get_logger
from octopi.transport.connection import Connection
from octopi.transport.handshake import NodeCredentials, open_node_connection
from octopi.wire.endpoints import REGISTERS
from octopi.wire.registers import ToRegister

_log = get_logger(__name__)


class RegisterPeer:
    """The connection to the register at one address.  `run` is one task of the group's nursery."""

    def __init__(
        self, environment: Environment, address: str, agent: str, credentials: NodeCredentials
    ) -> None:
        self._environment = environment
        self._address = address
        self._agent = agent
        self._credentials = credentials
        self._connection: Connection | None = None

    def post(self, message: ToRegister) -> None:
        """Send *message*; without a connection it is lost."""
        connection = self._connection
        if connection is not None and connection.end_reason is None:
            with contextlib.suppress(ConnectionLostError):
                connection.post(message)

    async def run(self) -> None:
        """Stay connected until cancelled."""
        clock, randomness = self._environment.clock, self._environment.randomness
        while True:
            try:
                connection = await open_node_connection(
                    self._environment, self._address, REGISTERS, self._agent, self._credentials
                )
                self._connection = connection
                await connection.run(_take_nothing)
                why = connection.end_reason
            except OctopiError as error:
                why = str(error)
            self._connection = None
            _log.sparing(clock).info("register not connected", register=self._address, why=why)
            await clock.sleep_until(clock.now() + BACKOFF_S_FIRST * (1 + randomness.random()))

    async def drain(self) -> None:
        """Wait until what was sent is on its way."""
        connection = self._connection
        if connection is not None and connection.end_reason is None:
            with contextlib.suppress(ConnectionLostError):
                await connection.drained()


def _take_nothing(message: object) -> None:
    raise ProtocolError(f"a register answered with {type(message).__name__}")
