"""`octopi-node dev`: a whole cluster in one process, for development."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from octopi.cli.commands.serve import announce
from octopi.cli.config import (
    BrokerSettings,
    LogSettings,
    NodeSettings,
    RegisterSettings,
    help_text,
)
from octopi.cli.invocation import (
    Invocation,
    allow_origin_option,
    common_options,
    pass_invocation,
    registers_option,
)
from octopi.security.origins import LOOPBACK_ORIGINS

if TYPE_CHECKING:
    from collections.abc import Callable

    import trio

    from octopi.cli.dev_registers import DevRegisters


@click.command()
@click.option("--brokers", type=click.IntRange(1, 100), default=1, show_default=True)
@registers_option
@click.option("--replicas", type=int, help=help_text(RegisterSettings, "replicas"))
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address that the register listens at; several listen at the ports from there on.  "
    "[default 127.0.0.1:7000]",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    help="Directory for all data.  [default: a temporary directory, removed at the end]",
)
@click.option(
    "--auth",
    is_flag=True,
    help="Ask for tokens.  The key, and a token for you that grants everything, are made in the "
    "data directory.",
)
@click.option(
    "--tls",
    is_flag=True,
    help="Serve with TLS.  The authority and the certificate are made in the data directory.",
)
@allow_origin_option
@common_options
@pass_invocation
def dev(
    invocation: Invocation,
    /,
    brokers: int,
    registers: int,
    replicas: int | None,
    listen: str | None,
    data_dir: str | None,
    auth: bool,
    tls: bool,
    allow_origin: str | None,
) -> None:
    """Run a register and brokers in one process, until Ctrl-C.

    \b
    In one terminal:
      octopi-node dev
    In another:
      seq 1000 | octopi-node produce numbers
      octopi-node consume numbers -e
    With three replicas of every partition, kept for the next time:
      octopi-node dev --brokers 3 --data-dir ./dev
    As in production, with TLS and tokens:
      octopi-node dev --tls --auth
    As on several machines, with three registers that keep one journal:
      octopi-node dev --registers 3 --brokers 3

    Broker 1 has its data in the directory broker-1, and that name in the log.

    When the cluster is ready, the command prints `ready register URL` (of several: URL,URL,...) on
    standard output, and what to try on standard error.  Pages from http://localhost and
    http://127.0.0.1, of any port, may connect.
    """
    configuration = invocation.configuration()
    register = configuration.section(RegisterSettings, listen=listen, replicas=replicas)
    broker = attrs.evolve(configuration.section(BrokerSettings), listen="127.0.0.1:0", advertise="")

    common = configuration.section(NodeSettings, allow_origin=allow_origin)
    origins = (common.allow_origin, *LOOPBACK_ORIGINS)
    common = attrs.evolve(common, allow_origin=",".join(filter(None, origins)))

    from octopi.cli.dev_cluster import DevSecurity, greet
    from octopi.cli.dev_registers import dev_registers
    from octopi.cli.node_log import is_for_people, set_up_log
    from octopi.cli.running import run_node

    log = configuration.section(LogSettings)
    set_up_log(log)
    with (
        tempfile.TemporaryDirectory(prefix="octopi-dev-")
        if data_dir is None
        else nullcontext(data_dir) as directory
    ):
        path = Path(directory).absolute()
        shown = str(path) + (", removed at the end" if data_dir is None else "")
        if not path.exists() or not any(path.iterdir()):
            # A new cluster has no brokers that could report older decisions: don't wait for them.
            register = attrs.evolve(register, gather_s=0.0)
        several = dev_registers(
            register, path, registers, has_tls=tls, is_kept=data_dir is not None
        )
        security = DevSecurity(path / "security", has_tls=tls, has_tokens=auth)
        if tls or auth:
            security.make()
        common = security.settings(common)

        def ready(url: str) -> None:
            announce("register", url)
            greet(url, shown, security, for_people=is_for_people(log))

        async def cluster(stop: trio.Event) -> None:
            await _run_cluster(path, several, broker, common, brokers, stop, ready)

        run_node(cluster)


async def _run_cluster(
    directory: Path,
    registers: DevRegisters,
    broker: BrokerSettings,
    common: NodeSettings,
    broker_count: int,
    stop: trio.Event,
    ready: Callable[[str], None],
) -> None:
    """Run all nodes; call *ready* with the urls of the registers when all serve.  At *stop* the
    brokers end before the registers, so that none loses them."""
    import trio

    from octopi.cli.broker_nodes import run_broker_node
    from octopi.cli.register_nodes import run_register_node
    from octopi.logger import bind

    brokers_ended = trio.Event()

    async def run_register(number: int, task_status: trio.TaskStatus[str]) -> None:
        settings, beside = registers.settings[number], common
        if registers.has_several:
            bind(node=f"register-{number + 1}")
            secret = common.join_secret or registers.join_secret
            beside = attrs.evolve(common, join_secret=secret)
        if number > 0:
            beside = attrs.evolve(beside, metrics_listen="")
        await run_register_node(settings, beside, brokers_ended, task_status.started)

    async with trio.open_nursery() as nursery:
        numbers = range(len(registers.settings))
        urls: list[str] = [await nursery.start(partial(run_register, number)) for number in numbers]
        url = ",".join(urls)
        waiting = set(range(1, broker_count + 1))

        async def run_broker(number: int) -> None:
            def serves(_: str) -> None:
                waiting.discard(number)
                if not waiting:
                    ready(url)

            name = f"broker-{number}"
            bind(node=name)
            settings = attrs.evolve(broker, id=number, data_dir=str(directory / name), register=url)
            beside_it = attrs.evolve(
                common,
                metrics_listen="",
                join_secret=common.join_secret or registers.join_secret,
            )
            await run_broker_node(settings, beside_it, stop, serves)

        async with trio.open_nursery() as brokers:
            for number in list(waiting):
                brokers.start_soon(run_broker, number)
        brokers_ended.set()
