"""Runs a broker that may go from a cluster with a register to one without, and back."""

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
from octopi.roles.broker.ended_ring import registers_of
from octopi.roles.broker.taking_over import is_taken_over


async def run_changing_node(
    settings: BrokerSettings,
    common: NodeSettings,
    stop: trio.Event,
    ready: Callable[[str], None],
    *,
    has_register: bool = True,
    counts: tuple[int, int] = (PARTITION_COUNT_DEFAULT, REPLICA_COUNT_DEFAULT),
) -> None:
    """Run a broker until *stop* is set, or it has left its cluster for good; *ready* is called
    once, with its url, when it has joined the register or is in the ring.

    *has_register*: whether it was told one.  *counts*: the partitions, and the replicas of each, of
    a cluster without a register that it forms.

    Raises:
      OctopiError: see `octopi.roles.broker.node.run_broker` and
          `octopi.roles.broker.ring.node.run_ring_broker`.
    """
    told: list[str] = []
    disk, is_first = SystemDisk(), True

    def tell(url: str) -> None:
        told.append(url)
        if len(told) == 1:
            ready(url)

    while not stop.is_set():
        host, _, port = settings.listen.rpartition(":")
        if told and port == "0":  # clients and other brokers know the free one that it got
            settings = attrs.evolve(settings, listen=f"{host}:{urlsplit(told[0]).port}")
        if registers := registers_of(disk, settings.data_dir):
            # A register that it is told when it is started may have moved since.
            if not (is_first and has_register):
                settings = attrs.evolve(settings, register=",".join(registers))
            await run_broker_node(settings, common, stop, tell)
            return
        if has_register and is_first and not is_taken_over(disk, settings.data_dir):
            await run_broker_node(settings, common, stop, tell)
        else:
            await run_ring_node(settings, *counts, common, stop, tell)
            if not registers_of(disk, settings.data_dir):
                return  # it has left for good
        is_first = False
