"""`octopi-node partitions`: list, add, move and recover partitions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.failures import ExitCode
from octopi.cli.invocation import Invocation, client_options, json_option, pass_invocation
from octopi.cli.output import is_watched, print_json, progress, say
from octopi.cli.rendering import counted, print_table, size
from octopi.errors import ConnectionLostError, NotReadyError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from octopi import Client
    from octopi.wire.messages import PartitionRecovery

_LOOK_INTERVAL_S: Final = 0.5


@click.group()
def partitions() -> None:
    """List partitions, add some, move a replica, recover one without a leader."""


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

    from octopi.admin.cluster_snapshot import PARTITION_HEADINGS, notes, partition_rows
    from octopi.cli.client_request import ask

    cluster = ask(settings, lambda client: client.admin.describe_cluster())
    if as_json:
        places = [attrs.asdict(one) for one in cluster.partitions]
        print_json({"partition_count": cluster.partition_count, "partitions": places})
    else:
        print_table(PARTITION_HEADINGS, partition_rows(cluster, cluster.partitions))
        in_use = len(cluster.partitions)
        say()
        say(f"{in_use} of {counted(cluster.partition_count, 'partition')} in use")
        for note in notes(cluster.partitions):
            say(f"note: {note}")


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

    from octopi.cli.client_request import ask

    total = ask(settings, lambda client: client.admin.add_partitions(count))
    say(f"the cluster has {counted(total, 'partition')}", err=True)


@partitions.command()
@click.argument("partition", type=click.IntRange(min=0))
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Have the best replica lead, though acknowledged messages may be lost.",
)
@click.option(
    "--empty-on",
    type=int,
    metavar="ID",
    help="No replica will ever be back: begin again on this broker, without any message.",
)
@json_option
@client_options
@pass_invocation
def recover(
    invocation: Invocation,
    /,
    partition: int,
    accept_loss: bool,
    empty_on: int | None,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> int:
    """Show what the replicas of PARTITION, which has no leader, hold; and have one lead.

    \b
    For instance:
      octopi-node partitions recover 3
      octopi-node partitions recover 3 --accept-loss
      octopi-node partitions recover 3 --empty-on 4

    A partition has no leader while all brokers are away whose replicas were in sync, or while
    one is away of those that lost data together (when the power failed for all of them).
    Start them: nothing more is lost then.  If one is gone for good, --accept-loss has the best
    of the others lead, and what they lack is lost.

    If the disks of all its replicas are lost, --empty-on says which topics lose all messages that
    they have there, and together with --accept-loss has the partition begin again on broker ID.
    Its topics stay, and take messages again.  A broker that comes back with a replica all the
    same keeps that aside (`octopi-node retired`).

    The exit code is 1 if the partition still has no leader.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask

    found = ask(
        settings,
        lambda client: client.admin.recover_partition(
            partition, accept_loss=accept_loss, empty_on=empty_on
        ),
    )
    if as_json:
        print_json({key: value for key, value in attrs.asdict(found).items() if key != "request"})
    else:
        _print_recovery(found)
    return ExitCode.FAILED if found.leader is None else ExitCode.OK


def _print_recovery(found: PartitionRecovery) -> None:
    if found.replicas:
        print_table(
            ["BROKER", "STATE", "LAST IN SYNC", "EPOCH", "LOGS", "HELD", "MISSING", "DAMAGED"],
            [
                [
                    one.broker,
                    "answered" if one.answered else "silent" if one.live else "away",
                    "yes" if one.was_in_sync else "no",
                    *(
                        [
                            one.log_epoch,
                            one.log_count,
                            one.held_bytes,
                            one.missing_bytes,
                            "no" if one.sound else "yes",
                        ]
                        if one.answered
                        else [None] * 5
                    ),
                ]
                for one in found.replicas
            ],
        )
        say()
    if found.leader is None:
        say(f"partition {found.partition} has no leader")
        if found.waits_for:
            names = " ".join(map(str, found.waits_for))
            say(f"  it waits for brokers {names}: start them, if that can be done")
        if found.candidate is None:
            say("  no replica answers; if all their disks are lost for good,")
            say(f"  `octopi-node partitions recover {found.partition} --empty-on ID` says what is")
            say("  lost if it begins again on broker ID")
        elif found.emptied_count:
            say(f"  with --accept-loss it begins again on broker {found.candidate}, empty")
        else:
            say(f"  with --accept-loss broker {found.candidate} leads")
    else:
        how = "leads now" if found.recovered else "leads, nothing had to be given up"
        say(f"partition {found.partition}: broker {found.leader} {how}, epoch {found.epoch}")
    if found.candidate is None or not (found.recovered or found.leader is None):
        return
    word = "is" if found.recovered else "would be"
    if found.emptied_count:
        more = found.emptied_count - len(found.emptied)
        names = " ".join(found.emptied) + f" and {more:,} more" * (more > 0)
        say(f"  every message that this partition had of these topics {word} lost: {names}")
        return
    say(f"  messages that were acknowledged and that only others had {word} lost")
    for one in found.lost:
        say(f"  known: topic {one.topic}, offsets {one.kept_end} to {one.known_end}")
    if found.lost_log_count > len(found.lost):
        say(f"  and {counted(found.lost_log_count - len(found.lost), 'other log')}")
    if not found.lost:
        say("  known: nothing")


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

    from octopi.cli.client_request import ask

    async def question(client: Client) -> None:
        async with trio.open_nursery() as nursery:
            with _progress(partition, joining) as show:
                if show is not None:
                    nursery.start_soon(_watch, client, partition, joining, show)
                await client.admin.move_replica(partition, leaving, joining)
            nursery.cancel_scope.cancel()

    ask(settings, question)
    say(f"partition {partition}: broker {joining} in the place of {leaving}", err=True)


async def _watch(
    client: Client, partition: int, joining: int, show: Callable[[int, int], None]
) -> None:
    """Tell *show* again and again how many bytes the joining broker has, of how many."""
    import trio

    while True:
        with suppress(NotReadyError, UnreachableError, ConnectionLostError):  # only a look
            cluster = await client.admin.describe_cluster()
            leaders = [one.leader for one in cluster.partitions if one.partition == partition]
            asked = [one for one in cluster.brokers if one.broker in {*leaders, joining}]
            held = dict.fromkeys([*leaders, joining], 0)
            for one in await client.admin.describe_logs(brokers=asked):
                if one.log.partition == partition:
                    held[one.broker] += one.log.log_end - one.log.log_start
            if any(held.values()):
                show(held[joining], max(held.values()))
        await trio.sleep(_LOOK_INTERVAL_S)


@contextmanager
def _progress(partition: int, joining: int) -> Iterator[Callable[[int, int], None] | None]:
    """Show the bytes that were copied on standard error; None if that is no terminal."""
    if not is_watched():
        yield None
        return
    from rich.progress import BarColumn, TextColumn

    columns = [
        TextColumn(f"partition {partition} to broker {joining}"),
        BarColumn(),
        TextColumn("{task.description}"),
    ]
    with progress(*columns) as display:
        task = display.add_task("", total=None)

        def show(copied_bytes: int, total_bytes: int) -> None:
            what = f"{size(copied_bytes)} of {size(total_bytes)}"
            display.update(task, completed=copied_bytes, total=total_bytes, description=what)

        yield show
