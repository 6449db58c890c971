"""Runs a register from its settings, for `serve` and for that of `dev`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from octopi.admin.register_view import RegisterNodeView, StandbyNodeView
from octopi.cli.compose import AGENT, place_for_node
from octopi.cli.config import NodeSettings, RegisterSettings, join_secret_in
from octopi.cli.nodes import addresses_in, warn_of_others
from octopi.cli.secret_files import refuse_open_file, secret_of_broker, secret_of_register
from octopi.coordination.shedding import SheddingRules
from octopi.coordination.topic_placement import PlacementRule
from octopi.history.register_events import write_events
from octopi.logger import bind
from octopi.operating_system import allow_many_files
from octopi.roles.register.node import RegisterNode
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.running import run_register


async def run_register_node(
    settings: RegisterSettings,
    common: NodeSettings,
    stop: trio.Event,
    ready: Callable[[str], None],
) -> None:
    """Run a register until *stop* is set; *ready* is called with its url.

    Raises:
      CommandError: if the settings contradict each other.
      OctopiError: see `octopi.roles.register.running.run_register`.
    """
    allow_many_files()
    bind(role="register")
    warn_of_others(settings.data_dir)
    if common.join_secret:
        secrets = secret_of_register(common.join_secret)
    else:
        refuse_open_file(join_secret_in(settings.data_dir))
        secrets = None
    shown = secrets or secret_of_broker(join_secret_in(settings.data_dir))
    async with place_for_node(common, "register", settings.listen, ready, shown) as place:
        options = RegisterOptions(
            listen=settings.listen,
            data_directory=settings.data_dir,
            partition_count=settings.partitions,
            replica_count=settings.replicas,
            gather_s=settings.gather_s,
            shedding=SheddingRules() if settings.shedding else None,
            placement=PlacementRule(settings.placement),
            peers=tuple(addresses_in(settings.peers)),
            advertise=settings.advertise,
            token=place.shelter.token,
            agent=AGENT,
            authenticator=place.shelter.authenticator,
            memory_budget_bytes=common.memory_budget,
            secrets=secrets,
        )

        def show(node: RegisterNode) -> None:
            place.show(RegisterNodeView(node))
            if common.history and not settings.peers:
                place.history = partial(write_events, node)

        await run_register(
            place.environment,
            options,
            stop=stop,
            show=show,
            show_standby=lambda standby: place.show(StandbyNodeView(standby)),
            task_status=place,
        )
