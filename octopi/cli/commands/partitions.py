"""`octopi-node partitions`: list, add and move partitions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.invocation import Invocation, client_options, json_option, pass_invocation
from octopi.cli.rendering import counted, print_json, print_table, size
from octopi.errors import ConnectionLostError, NotReadyError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from octopi import Client

_LOOK_INTERVAL_S: Final = 0.5


@click.group()
def partitions() -> None:
    """List partitions, add some, move a replica to another broker."""


@partitions.command("list")
@json_option
@client_options
@pass_invocation
def list_partitions(
    invocation: Invocation, /, as_json: bool, server: str | None, timeout_s: float | None
) -> None:
    """Print the partitions that lie on brokers, and how many there are.

    \b
    For instance:
      octopi-node partitions list

    A partition lies on brokers from when the first topic is created on it.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.admin.replicas import PARTITION_HEADINGS, partition_rows
    from octopi.cli.asking import ask

    cluster = ask(settings, lambda client: client.describe_cluster())
    if as_json:
        places = [attrs.asdict(one) for one in cluster.partitions]
        print_json({"partition_count": cluster.partition_count, "partitions": places})
    else:
        print_table(PARTITION_HEADINGS, partition_rows(cluster, cluster.partitions))
        in_use = len(cluster.partitions)
        click.echo()
        click.echo(f"{in_use} of {counted(cluster.partition_count, 'partition')} in use")


@partitions.command()
@click.argument("count", type=click.IntRange(min=1))
@client_options
@pass_invocation
def add(invocation: Invocation, /, count: int, server: str | None, timeout_s: float | None) -> None:
    """Have COUNT more partitions, for topics that are created from now on.

    \b
    For instance:
      octopi-node partitions add 8

    Topics that exist stay where they are, so that every key keeps its place.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.asking import ask

    total = ask(settings, lambda client: client.add_partitions(count))
    click.echo(f"the cluster has {counted(total, 'partition')}", err=True)


@partitions.command()
@click.argument("partition", type=click.IntRange(min=0))
@click.option(
    "--from", "leaving", type=int, required=True, metavar="ID", help="The broker that gives it up."
)
@click.option(
    "--to", "joining", type=int, required=True, metavar="ID", help="The broker that takes it."
)
@client_options
@pass_invocation
def move(
    invocation: Invocation,
    /,
    partition: int,
    leaving: int,
    joining: int,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Move a replica of PARTITION from one broker to another.

    \b
    For instance, to empty broker 1, which will not come back:
      octopi-node partitions move 3 --from 1 --to 4

    The new replica copies the partition's logs and becomes in sync; only then the old one
    goes.  Producers and consumers go on meanwhile.  On a terminal the progress is shown.
    Interrupted, the partition may have a replica on both; the same command again goes on
    from there.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    import trio

    from octopi.cli.asking import ask

    async def question(client: Client) -> None:
        async with trio.open_nursery() as nursery:
            with _progress(partition, joining) as show:
                if show is not None:
                    nursery.start_soon(_watch, client, partition, joining, show)
                await client.move_replica(partition, leaving, joining)
            nursery.cancel_scope.cancel()

    ask(settings, question)
    click.echo(f"partition {partition}: broker {joining} in the place of {leaving}", err=True)


async def _watch(
    client: Client, partition: int, joining: int, show: Callable[[int, int], None]
) -> None:
    """Tell *show* again and again how many bytes the joining broker has, of how many."""
    import trio

    while True:
        with suppress(NotReadyError, UnreachableError, ConnectionLostError):  # only a look
            cluster = await client.describe_cluster()
            leaders = [one.leader for one in cluster.partitions if one.partition == partition]
            asked = [one for one in cluster.brokers if one.broker in {*leaders, joining}]
            held = dict.fromkeys([*leaders, joining], 0)
            for one in await client.describe_logs(brokers=asked):
                if one.log.partition == partition:
                    held[one.broker] += one.log.log_end - one.log.log_start
            if any(held.values()):
                show(held[joining], max(held.values()))
        await trio.sleep(_LOOK_INTERVAL_S)


@contextmanager
def _progress(partition: int, joining: int) -> Iterator[Callable[[int, int], None] | None]:
    """Show the bytes that were copied on standard error; None if that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = [
        TextColumn(f"partition {partition} to broker {joining}"),
        BarColumn(),
        TextColumn("{task.description}"),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)

        def show(copied_bytes: int, total_bytes: int) -> None:
            what = f"{size(copied_bytes)} of {size(total_bytes)}"
            progress.update(task, completed=copied_bytes, total=total_bytes, description=what)

        yield show
