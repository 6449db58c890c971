"""Runs a broker of a cluster without a register.  Other nodes don't load what it needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from octopi.admin.ring_view import RingBrokerView
from octopi.cli.compose import AGENT, place_for_node
from octopi.cli.config import BrokerSettings, NodeSettings
from octopi.cli.nodes import addresses_in, begin_broker
from octopi.history.ring_history import write_ring_history
from octopi.roles.broker.ring.node import RingBroker, run_ring_broker
from octopi.roles.broker.ring.options import RingOptions


async def run_ring_node(
    settings: BrokerSettings,
    partitions: int,
    replicas: int,
    common: NodeSettings,
    stop: trio.Event,
    ready: Callable[[str], None],
) -> None:
    """Run a broker of a cluster without a register until *stop* is set; *ready* is called with its
    url when it is in the ring.  *partitions* and *replicas* are those of a cluster that it forms.

    Raises:
      CommandError: if the settings contradict each other.
      InvalidOptionError: if an address is none.
      OctopiError: see `octopi.roles.broker.ring.node.run_ring_broker`.
    """
    secrets = begin_broker(settings, common)
    async with place_for_node(common, "broker", settings.listen, ready, secrets) as place:
        options = RingOptions(
            listen=settings.listen,
            data_directory=settings.data_dir,
            join=tuple(addresses_in(settings.join)),
            secrets=secrets,
            advertise=settings.advertise,
            host=settings.host,
            partition_count=partitions,
            replica_count=replicas,
            agent=AGENT,
            token=place.shelter.token,
            authenticator=place.shelter.authenticator,
            memory_budget_bytes=common.memory_budget,
        )

        def show(node: RingBroker) -> None:
            place.show(RingBrokerView(node))
            if common.history:
                place.history = partial(write_ring_history, node)

        await run_ring_broker(
            place.environment,
            options,
            stop=stop,
            show=show,
            task_status=place,
        )
