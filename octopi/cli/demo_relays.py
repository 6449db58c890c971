"""The relays of `demo --relay`: three brokers with topics in memory, as processes."""

from __future__ import annotations

from typing import Final

import trio

from octopi.cli.free_ports import free_ports
from octopi.cli.node_processes import NodeProcesses
from octopi.cli.secret_files import shared_secret

RELAY_COUNT: Final = 3


class DemoRelays:
    """Three relays of a static list, with one relay partition."""

    def __init__(self, nodes: NodeProcesses) -> None:
        self._nodes: Final = nodes
        self._secret: Final = shared_secret(nodes.directory)
        self.addresses: Final = tuple(f"ws://127.0.0.1:{port}" for port in free_ports(RELAY_COUNT))
        self._peers: Final = ",".join(
            f"{relay}={address}" for relay, address in enumerate(self.addresses, 1)
        )

    async def start_all(self) -> None:
        """Start all relays; return when all take part.

        Raises:
          CommandError: if one did not start.
        """
        async with trio.open_nursery() as nursery:
            for relay in range(1, RELAY_COUNT + 1):
                nursery.start_soon(self.start, relay)

    async def start(self, relay: int) -> None:
        """Start a relay, which count from 1; return when it takes part."""
        await self._nodes.start(
            _name(relay),
            "broker",
            *("--listen", self.addresses[relay - 1].removeprefix("ws://")),
            *("--relay-peers", self._peers, "--id", str(relay)),
            *("--partitions", "1", "--join-secret", self._secret),
        )

    async def kill(self, relay: int) -> None:
        """End a relay with SIGKILL; return when it has ended."""
        await self._nodes.kill(_name(relay))

    def from_relay(self, relay: int) -> list[str]:
        """All addresses, that of *relay* first."""
        first = (relay - 1) % RELAY_COUNT
        return [*self.addresses[first:], *self.addresses[:first]]


def _name(relay: int) -> str:
    """The name of the relay's process and of its folder."""
    return f"relay-{relay}"
