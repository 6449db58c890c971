"""The relays of `octopi-node dev --relays`: topics in memory, in one process, for development."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
import trio

from octopi.cli.config import BrokerSettings, NodeSettings
from octopi.cli.free_ports import free_ports
from octopi.cli.relay_nodes import run_relay_node
from octopi.cli.secret_files import shared_secret
from octopi.identifiers import BrokerId
from octopi.logger import bind
from octopi.transport.addresses import host_and_port, listen_address


def dev_relays(listen: str, count: int, *, has_tls: bool) -> dict[BrokerId, str]:
    """The addresses of *count* relays, the first of which listens at *listen*, and the others at
    the ports behind it.

    Raises:
      InvalidOptionError: if they can't listen at that address.
    """
    host, port = listen_address(listen)
    ports = [port + behind for behind in range(count)] if port else free_ports(count)
    scheme = "wss" if has_tls else "ws"
    return {
        BrokerId(number): f"{scheme}://{host_and_port(host, one)}"
        for number, one in enumerate(ports, 1)
    }


async def run_dev_relays(
    directory: Path,
    relays: Mapping[BrokerId, str],
    replicas: int,
    broker: BrokerSettings,
    common: NodeSettings,
    stop: trio.Event,
    ready: Callable[[str], None],
) -> None:
    """Run *relays* until *stop* is set; call *ready* with their addresses when all take part.
    They have one relay partition, of *replicas* members.

    Raises:
      OctopiError: see `octopi.cli.relay_nodes.run_relay_node`.
      OSError: if the join secret can't be written.
    """
    secret = common.join_secret or shared_secret(directory)
    peers = ",".join(f"{number}={address}" for number, address in relays.items())
    waiting = set(relays)

    async def run(number: BrokerId) -> None:
        def takes_part(_: str) -> None:
            waiting.discard(number)
            if not waiting:
                ready(",".join(relays.values()))

        name = f"relay-{number}"
        bind(node=name)
        settings = attrs.evolve(
            broker,
            id=number,
            data_dir=str(directory / name),
            relay_peers=peers,
            listen=BrokerSettings().listen,
        )
        beside = attrs.evolve(
            common,
            join_secret=secret,
            metrics_listen=common.metrics_listen if number == min(relays) else "",
        )
        await run_relay_node(settings, 1, replicas, beside, stop, takes_part)

    async with trio.open_nursery() as nursery:
        for number in relays:
            nursery.start_soon(run, number)
