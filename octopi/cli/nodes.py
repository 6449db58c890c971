"""Runs a node from its settings, for `serve` and for each node of `dev`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial

import trio

from octopi.admin.node_views import (
    BrokerNodeView,
    RegisterNodeView,
    StandbyNodeView,
)
from octopi.cli.compose import AGENT, place_for_node
from octopi.cli.config import BrokerSettings, NodeSettings, RegisterSettings, join_secret_in
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.secret_files import refuse_open_file, secret_of_broker, secret_of_register
from octopi.cli.workers import check_single
from octopi.history.writer import write_events, write_rates
from octopi.identifiers import BrokerId
from octopi.logger import bind, get_logger
from octopi.operating_system import allow_many_files, is_open_to_others
from octopi.roles.broker.node import BrokerNode, BrokerOptions, run_broker
from octopi.roles.register.node import RegisterNode
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.running import run_register
from octopi.security.join_secret import SecretSource
from octopi.storage.flush_policy import FlushOptions
from octopi.transport.addresses import is_secure, server_address

_log = get_logger(__name__)


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
    async with place_for_node(common, settings.listen, ready, shown) as place:
        options = RegisterOptions(
            listen=settings.listen,
            data_directory=settings.data_dir,
            partition_count=settings.partitions,
            replica_count=settings.replicas,
            gather_s=settings.gather_s,
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
    async with place_for_node(common, settings.listen, ready, secrets) as place:
        options = BrokerOptions(
            listen=settings.listen,
            data_directory=settings.data_dir,
            registers=addresses_in(settings.register),
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


def begin_broker(settings: BrokerSettings, common: NodeSettings) -> SecretSource:
    """Do what a broker of any cluster does first; return its join secret.

    Raises:
      CommandError: if the settings contradict each other.
      InvalidOptionError: if the address to advertise is none.
    """
    check_single(settings.data_dir)
    refuse_plain_address(settings.advertise, common)
    allow_many_files()
    bind(role="broker")
    warn_of_others(settings.data_dir)
    return secret_of_broker(common.join_secret)


def addresses_in(text: str) -> list[str]:
    """The addresses in *text*, which commas separate."""
    return [one.strip() for one in text.split(",") if one.strip()]


def refuse_plain_address(advertise: str, common: NodeSettings) -> None:
    """Refuse to advertise an address without TLS for a broker that serves with TLS only: clients
    and other brokers would be sent there, and would never reach it."""
    if not advertise:
        return
    server_address(advertise)
    if common.tls_cert and not is_secure(advertise):
        raise CommandError(
            f"this broker serves with TLS, and {advertise} is an address without: nothing that is "
            f"sent there could connect; advertise wss://{advertise.partition('://')[2]} "
            "(--advertise, OCTOPI_ADVERTISE, broker.advertise)",
            ExitCode.USAGE,
        )


def warn_of_others(directory: str) -> None:
    """Warn if other users can access a data directory that existed before.  Its permissions are not
    changed, because they may be intended."""
    if is_open_to_others(directory):
        _log.warning(
            "the data directory is open to other users",
            directory=directory,
            next=f"chmod -R go-rwx {shlex.quote(directory)}",
        )
