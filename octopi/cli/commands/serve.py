"""`octopi-node serve`: run a node, either a register or a broker."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import click

from octopi.cli.config import (
    DEFAULT_SERVER,
    BrokerSettings,
    Configuration,
    LogSettings,
    NodeSettings,
    RegisterSettings,
    help_text,
    join_secret_in,
)
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import (
    Invocation,
    common_options,
    node_options,
    pass_invocation,
    taken,
)
from octopi.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import trio

    _Node = Callable[[trio.Event], Awaitable[None]]

_REGISTER_ONLY: Final = ("peers", "partitions", "replicas", "gather_s", "shedding", "placement")

_NOT_OF_RELAYS: Final[tuple[str, ...]] = (
    "register",
    "join",
    "advertise",
    "host",
    "workers",
    "flush_messages",
    "flush_bytes",
    "flush_interval_s",
    "catch_up_slowdown",
    "keep_retired_s",
)
"""What a relay of a static list has no use for."""

_NOT_OF_RING: Final[tuple[str, ...]] = ("register", "id", "workers", "relay_memory")
"""What a broker of a ring has no use for."""


@click.command()
@click.option(
    "--role",
    type=click.Choice(["register", "broker"]),
    required=True,
    envvar="OCTOPI_ROLE",
    help="Role of this node.  [OCTOPI_ROLE]",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address to listen at, port 0 for a free one.  "
    "[OCTOPI_LISTEN; default 127.0.0.1:7000 for a register, 127.0.0.1:0 for a broker]",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    help="Directory for the node's data, created if missing.  "
    "[OCTOPI_DATA_DIR; default octopi-data/ROLE]",
)
@click.option(
    "--peers", metavar="URL,...", help="Register: " + help_text(RegisterSettings, "peers")
)
@click.option(
    "--partitions", type=int, help="Register: " + help_text(RegisterSettings, "partitions")
)
@click.option("--replicas", type=int, help="Register: " + help_text(RegisterSettings, "replicas"))
@click.option(
    "--gather",
    "gather_s",
    type=float,
    metavar="SECONDS",
    help="Register: " + help_text(RegisterSettings, "gather_s"),
)
@click.option(
    "--shedding/--no-shedding",
    default=None,
    help="Register: move leaderships away from brokers that have much more to do than others.  "
    "[OCTOPI_SHEDDING; default --shedding]",
)
@click.option(
    "--placement",
    type=click.Choice(["hash", "random", "least_loaded"]),
    help="Register: " + help_text(RegisterSettings, "placement"),
)
@click.option(
    "--register", metavar="URL,...", help="Broker: " + help_text(BrokerSettings, "register")
)
@click.option("--join", metavar="URL,...", help="Broker: " + help_text(BrokerSettings, "join"))
@click.option(
    "--relay-peers",
    metavar="ID=URL,...",
    help="Broker: " + help_text(BrokerSettings, "relay_peers"),
)
@click.option(
    "--relay-place",
    metavar="PATTERN=ID+ID+ID,...",
    help="Broker with --relay-peers: " + help_text(BrokerSettings, "relay_place"),
)
@click.option(
    "--relay-memory",
    type=int,
    metavar="BYTES",
    help="Broker: " + help_text(BrokerSettings, "relay_memory"),
)
@click.option(
    "--advertise",
    metavar="URL",
    help="Broker: "
    + help_text(BrokerSettings, "advertise")
    + "  Register with --peers: its address among them.",
)
@click.option("--id", type=int, help="Broker: " + help_text(BrokerSettings, "id"))
@click.option("--host", metavar="LABEL", help="Broker: " + help_text(BrokerSettings, "host"))
@click.option(
    "--workers", type=int, metavar="N", help="Broker: " + help_text(BrokerSettings, "workers")
)
@click.option(
    "--flush-messages", type=int, help="Broker: " + help_text(BrokerSettings, "flush_messages")
)
@click.option("--flush-bytes", type=int, help="Broker: " + help_text(BrokerSettings, "flush_bytes"))
@click.option(
    "--flush-interval",
    "flush_interval_s",
    type=float,
    metavar="SECONDS",
    help="Broker: " + help_text(BrokerSettings, "flush_interval_s"),
)
@click.option(
    "--catch-up-slowdown",
    type=float,
    metavar="SHARE",
    help="Broker: " + help_text(BrokerSettings, "catch_up_slowdown"),
)
@click.option(
    "--keep-retired",
    "keep_retired_s",
    type=float,
    metavar="SECONDS",
    help="Broker: " + help_text(BrokerSettings, "keep_retired_s"),
)
@node_options
@click.option(
    "--stop-at-eof",
    is_flag=True,
    help="Stop when standard input ends, so that the node ends with the program that started it.",
)
@common_options
@pass_invocation
def serve(invocation: Invocation, /, role: str, stop_at_eof: bool, **flags: object) -> None:
    """Run a node.  `octopi-node --role ...` is a short form.

    \b
    For instance, a register and a broker on this machine:
      octopi-node --role register --data-dir ./register
      octopi-node --role broker --data-dir ./broker-1 --register ws://127.0.0.1:7000 \\
        --join-secret ./register/join-secret

    \b
    Four brokers, each with a core of this machine, at the ports 7101 to 7104:
      octopi-node --role broker --workers 4 --listen 127.0.0.1:7101 --data-dir ./brokers \\
        --register ws://127.0.0.1:7000 --join-secret ./register/join-secret

    When the node is ready, it prints one line on standard output: `ready ROLE URL` (of workers:
    URL,URL,...), and tells systemd, if that started it (Type=notify).  Its log goes to standard
    error.  The first SIGTERM or Ctrl-C stops it gracefully, the second at once.
    """
    configuration = invocation.configuration()
    common = configuration.section(NodeSettings, **taken(NodeSettings, flags))
    start = _register if role == "register" else _broker
    node = start(configuration, common, flags)

    from octopi.cli.node_log import set_up_log
    from octopi.cli.running import run_node

    set_up_log(configuration.section(LogSettings))
    run_node(node, stop_at_eof=stop_at_eof)


def _register(
    configuration: Configuration, common: NodeSettings, flags: dict[str, object]
) -> _Node:
    own = {key: flags.pop(key) for key in ("listen", "data_dir", "advertise", *_REGISTER_ONLY)}
    _refuse("register", flags)
    settings = configuration.section(RegisterSettings, **own)

    async def node(stop: trio.Event) -> None:
        from octopi.cli.register_nodes import run_register_node

        await _managed("register", partial(run_register_node, settings, common, stop), stop)

    return node


def _broker(configuration: Configuration, common: NodeSettings, flags: dict[str, object]) -> _Node:
    formed = {key: flags.pop(key) for key in _REGISTER_ONLY}
    settings = configuration.section(BrokerSettings, **flags)
    if not settings.relay_peers:
        _refuse("broker without --relay-peers", {"relay_place": flags["relay_place"]})
    if settings.join and not settings.relay_peers and _has_register(settings, flags):
        return _prepared(settings, common, formed)
    if settings.relay_peers or settings.join:
        return _without_register(configuration, settings, common, formed, flags)
    _refuse("broker", formed)
    if settings.workers > 1:
        return _workers(settings, common)
    if not common.join_secret:
        register = configuration.section(RegisterSettings)
        common = attrs.evolve(common, join_secret=join_secret_in(register.data_dir))

    async def node(stop: trio.Event) -> None:
        from octopi.cli.broker_nodes import run_broker_node

        await _managed("broker", partial(run_broker_node, settings, common, stop), stop)

    return node


def _has_register(settings: BrokerSettings, flags: dict[str, object]) -> bool:
    """Whether it was said which register the broker has."""
    return flags["register"] is not None or settings.register != DEFAULT_SERVER


def _prepared(settings: BrokerSettings, common: NodeSettings, formed: dict[str, object]) -> _Node:
    """A broker with a register, which goes on without when that has handed the cluster over."""
    workers = settings.workers if settings.workers > 1 else None
    _refuse("broker with --join", {**formed, "workers": workers})
    _need_secret(common)

    async def node(stop: trio.Event) -> None:
        from octopi.cli.changing_nodes import run_changing_node

        await _managed("broker", partial(run_changing_node, settings, common, stop), stop)

    return node


def _without_register(
    configuration: Configuration,
    settings: BrokerSettings,
    common: NodeSettings,
    formed: dict[str, object],
    flags: dict[str, object],
) -> _Node:
    """A broker of a cluster without a register: of a ring, or a relay of a static list.  *formed*
    has the flags for what the cluster is divided into."""
    if settings.relay_peers:
        name, useless = "broker with --relay-peers", _NOT_OF_RELAYS
    else:
        name, useless = "broker with --join", _NOT_OF_RING
    of_cluster = {key: formed.pop(key) for key in ("partitions", "replicas")}
    _refuse(name, {**formed, **{key: flags[key] for key in useless}})
    new = configuration.section(RegisterSettings, **of_cluster)
    _need_secret(common)

    async def node(stop: trio.Event) -> None:
        begin: Callable[[Callable[[str], None]], Awaitable[None]]
        if settings.relay_peers:
            from octopi.cli.relay_nodes import run_relay_node

            begin = partial(run_relay_node, settings, new.partitions, new.replicas, common, stop)
        else:
            from octopi.cli.changing_nodes import run_changing_node

            counts = new.partitions, new.replicas
            begin = partial(
                run_changing_node, settings, common, stop, has_register=False, counts=counts
            )
        await _managed("broker", begin, stop)

    return node


def _need_secret(common: NodeSettings) -> None:
    """Refuse to start without a join secret where no register makes one.

    Raises:
      CommandError: if none was given.
    """
    if not common.join_secret:
        raise CommandError(
            "brokers without a register need one join secret: make it with `octopi-node secret "
            "FILE`, and give each of them that file (--join-secret)",
            ExitCode.USAGE,
        )


def _workers(settings: BrokerSettings, common: NodeSettings) -> _Node:
    async def node(stop: trio.Event) -> None:
        from octopi.cli.workers import WorkerOptions, command_line, run_workers

        options = WorkerOptions(command_line(), settings, common.metrics_listen)
        await _managed("broker", partial(run_workers, options, stop), stop)

    return node


async def _managed(
    role: str, run: Callable[[Callable[[str], None]], Awaitable[None]], stop: trio.Event
) -> None:
    """Run a node, and tell the service manager and the program that started it."""
    from octopi.cli.service_manager import with_service_manager

    await with_service_manager(run, partial(announce, role), role, stop)


def _refuse(role: str, flags: dict[str, object]) -> None:
    """Refuse the flags of the other role, which would have no effect.

    Raises:
      CommandError: if one of them was given.
    """
    for key, value in flags.items():
        if value is not None:
            flag = f"--{key.removesuffix('_s').replace('_', '-')}"
            raise CommandError(f"{flag} is not an option of a {role}: leave it out", ExitCode.USAGE)


def announce(role: str, url: str) -> None:
    """Print the line that reports the node as ready to the program that started it."""
    say(f"ready {role} {url}")
