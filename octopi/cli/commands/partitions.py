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
    """List partitions, add some, move a replica, recover a partition without a leader."""


@partitions.command("list")
@json_option
@client_options
@pass_invocation
def list_partitions(
    invocation: Invocation, /, as_json: bool, server: str | None, timeout_s: float | None
) -> None:
    """Print the partitions that are in use, and how many there are.

    \b
    For instance:
      octopi-node partitions list

    A partition is placed on brokers when the first topic is created on it; from then on it is in
    use.
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
    """Add COUNT partitions to the cluster, for topics that are created from now on.

    \b
    For instance:
      octopi-node partitions add 8

    Existing topics keep their partitions, so every key keeps its partition.
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
    help="Let the best replica lead, although acknowledged messages may be lost.",
)
@click.option(
    "--empty-on",
    type=int,
    metavar="ID",
    help="All replicas are lost: let the partition begin again on this broker, empty.",
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
    """Show what the replicas of a PARTITION without a leader hold, and let one lead.

    \b
    For instance:
      octopi-node partitions recover 3
      octopi-node partitions recover 3 --accept-loss
      octopi-node partitions recover 3 --empty-on 4

    A partition has no leader while every broker with an in-sync replica is away, or while one of
    several that lost data together (in a common power failure) is away.  Start these brokers first:
    then nothing more is lost.  If one is gone for good, --accept-loss lets the best other replica
    lead; the messages that it lacks are lost.

    If the disks of all replicas are lost, --empty-on prints the topics that lose all their messages
    in this partition; together with --accept-loss it lets the partition begin again on broker ID.
    The topics continue to exist and accept messages.  A broker that comes back later with an old
    replica keeps its files aside (`octopi-node retired`).

    The exit code is 1 if the partition still has no leader.  In a cluster without a register,
    --empty-on is refused.
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
            say(f"  it waits for brokers {names}: start them, if that is possible")
        if found.candidate is None:
            say("  no replica answers; if all their disks are lost for good, run")
            say(
                f"  `octopi-node partitions recover {found.partition} --empty-on ID` to see what is"
            )
            say("  lost if the partition begins again on broker ID")
        elif found.emptied_count:
            say(f"  --accept-loss lets it begin again on broker {found.candidate}, empty")
        else:
            say(f"  --accept-loss lets broker {found.candidate} lead")
    else:
        how = "leads now" if found.recovered else "leads, no loss had to be accepted"
        say(f"partition {found.partition}: broker {found.leader} {how}, epoch {found.epoch}")
    if found.candidate is None or not (found.recovered or found.leader is None):
        return
    word = "are" if found.recovered else "would be"
    if found.emptied_count:
        more = found.emptied_count - len(found.emptied)
        names = " ".join(found.emptied) + f" and {more:,} more" * (more > 0)
        say(f"  all messages of these topics in this partition {word} lost: {names}")
        return
    say(f"  acknowledged messages that only other replicas had {word} lost")
    for one in found.lost:
        say(f"  known: topic {one.topic}, offsets {one.kept_end} to {one.known_end}")
    if found.lost_log_count > len(found.lost):
        say(f"  and {counted(found.lost_log_count - len(found.lost), 'other log')}")
    if not found.lost:
        say("  known: nothing")


@partitions.command()
@click.argument("partition", type=click.IntRange(min=0))
@click.option(
    "--from",
    "leaving",
    type=int,
    required=True,
    metavar="ID",
    help="The broker that has the replica now.",
)
@click.option(
    "--to", "joining", type=int, required=True, metavar="ID", help="The broker that gets it."
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

    The new replica copies the partition's logs and joins the in-sync set; then the old one is
    removed.  Producers and consumers are not interrupted.  A terminal shows the progress.  If the
    command is interrupted, the partition may have a replica on both brokers: run it again to
    finish the move.

    In a cluster without a register replicas lie where the ring says, and none is moved by order:
    `brokers drain` and `ring leave` empty a broker.
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
    say(f"partition {partition}: moved from broker {leaving} to broker {joining}", err=True)


async def _watch(
    client: Client, partition: int, joining: int, show: Callable[[int, int], None]
) -> None:
    """Poll the cluster, and call *show* with the bytes that broker *joining* has and the total."""
    import trio

    while True:
        with suppress(
            NotReadyError, UnreachableError, ConnectionLostError
        ):  # a failed poll is repeated
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
    """Show the copied bytes on standard error; yields None if that is not a terminal."""
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
