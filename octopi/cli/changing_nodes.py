"""Runs a broker that has a register now, and goes on without when that has handed over."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import attrs
import trio

from octopi.cli.broker_nodes import run_broker_node
from octopi.cli.config import BrokerSettings, NodeSettings
from octopi.cli.ring_nodes import run_ring_node  # loaded before nobody leads for a moment
from octopi.limits import PARTITION_COUNT_DEFAULT, REPLICA_COUNT_DEFAULT
from octopi.operating_system import SystemDisk
from octopi.roles.broker.taking_over import is_taken_over


async def run_changing_node(
    settings: BrokerSettings,
    common: NodeSettings,
    stop: trio.Event,
    ready: Callable[[str], None],
) -> None:
    """Run a broker until *stop* is set; *ready* is called once, with its url, when it has joined
    the register or is in the ring.

    Raises:
      OctopiError: see `octopi.roles.broker.node.run_broker` and
          `octopi.roles.broker.ring.node.run_ring_broker`.
    """
    told: list[str] = []

    def tell(url: str) -> None:
        told.append(url)
        if len(told) == 1:
            ready(url)

    if not is_taken_over(SystemDisk(), settings.data_dir):
        await run_broker_node(settings, common, stop, tell)
        if stop.is_set():
            return
    host, _, port = settings.listen.rpartition(":")
    if told and port == "0":  # clients and other brokers know the free one that it got
        settings = attrs.evolve(settings, listen=f"{host}:{urlsplit(told[0]).port}")
    counts = PARTITION_COUNT_DEFAULT, REPLICA_COUNT_DEFAULT  # it forms no cluster
    await run_ring_node(settings, *counts, common, stop, tell)
