"""Runs a broker from its settings, for `serve` and for each broker of `dev`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from octopi.admin.broker_view import BrokerNodeView
from octopi.cli.compose import AGENT, place_for_node
from octopi.cli.config import BrokerSettings, NodeSettings
from octopi.cli.nodes import addresses_in, begin_broker
from octopi.history.broker_rates import write_rates
from octopi.identifiers import BrokerId
from octopi.roles.broker.node import BrokerNode, BrokerOptions, run_broker
from octopi.storage.flush_policy import FlushOptions


async def run_broker_node(
    settings: BrokerSettings,
    common: NodeSettings,
    stop: trio.Event,
    ready: Callable[[str], None],
) -> None:
    """Run a broker until *stop* is set; *ready* is called with its url when it has joined.

    Raises:
      CommandError: if the settings contradict each other.
      InvalidOptionError: if the address to advertise is none.
      OctopiError: see `octopi.roles.broker.node.run_broker`.
    """
    secrets = begin_broker(settings, common)
    async with place_for_node(common, "broker", settings.listen, ready, secrets) as place:
        options = BrokerOptions(
            listen=settings.listen,
            data_directory=settings.data_dir,
            registers=addresses_in(settings.register),
            join=tuple(addresses_in(settings.join)),
            secrets=secrets,
            advertise=settings.advertise,
            broker=None if settings.id is None else BrokerId(settings.id),
            host=settings.host,
            flush=FlushOptions(
                messages=settings.flush_messages,
                bytes=settings.flush_bytes,
                interval_s=settings.flush_interval_s,
            ),
            catch_up_slowdown_max=settings.catch_up_slowdown,
            keep_retired_s=settings.keep_retired_s,
            agent=AGENT,
            token=place.shelter.token,
            authenticator=place.shelter.authenticator,
            relay_memory_bytes=settings.relay_memory,
            memory_budget_bytes=common.memory_budget,
        )

        def show(node: BrokerNode) -> None:
            place.show(BrokerNodeView(node))
            if common.history:
                place.history = partial(write_rates, node)

        await run_broker(
            place.environment,
            options,
            stop=stop,
            show=show,
            task_status=place,
        )
