"""`octopi-node topics`: list, create, alter, grow, move, describe and delete topics."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import attrs
import click

from octopi.cli.byte_size import ByteSize
from octopi.cli.config import ClientSettings
from octopi.cli.duration import Duration
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import Invocation, client_options, json_option, pass_invocation
from octopi.cli.output import agreed, print_json, say
from octopi.cli.rendering import counted, print_table, size
from octopi.cli.topic_completion import complete_topics
from octopi.cli.topic_list import ORDERS, RATE_S, ListedTopic, in_order, listed
from octopi.cli.topic_options import given_options, topic_options
from octopi.cli.topic_reshaping import grow, move, print_generations
from octopi.errors import OctopiError
from octopi.limits import RELAY_BUFFER_BYTES_MAX
from octopi.model import TopicKind

if TYPE_CHECKING:
    from octopi import BrokerCount, Client, TopicInfo
    from octopi.admin.cluster_snapshot import ClusterSnapshot, ReplicaStatus


@click.group()
def topics() -> None:
    """List, create, alter, grow, move, describe and delete topics."""


topics.add_command(grow)
topics.add_command(move)


@topics.command("list")
@click.option(
    "--rates", is_flag=True, help=f"Also show how much is written, observed for {RATE_S:g} s."
)
@click.option(
    "--sort",
    "by",
    type=click.Choice([*ORDERS]),
    default="name",
    show_default=True,
    help="The order; the largest comes first.",
)
@click.option(
    "--system", is_flag=True, help="Also list the topics in which the cluster keeps its history."
)
@json_option
@client_options
@pass_invocation
def list_topics(
    invocation: Invocation,
    /,
    rates: bool,
    by: str,
    system: bool,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Print the topics of the cluster.

    \b
    For instance:
      octopi-node topics list
      octopi-node topics list --rates --sort rate

    MESSAGES and SIZE are those of the committed messages that are kept, counted once; ON DISK is
    the size of all replicas.  A number that no broker can tell at present is shown as `-`.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask

    with_rates = rates or by == "rate"
    found = in_order(
        ask(settings, lambda client: listed(client, rates=with_rates, system=system)), by
    )
    if as_json:
        print_json([one.as_json() for one in found])
        return
    headings = ["TOPIC", "KIND", "PARTITIONS", "LEADERS", "MESSAGES", "SIZE", "ON DISK"]
    print_table(
        [*headings, "WRITTEN/S"] if rates else headings, [_row(one, rates) for one in found]
    )


def _row(one: ListedTopic, rates: bool) -> list[object]:
    places, written = one.info.partitions, one.written_bytes_per_s
    row: list[object] = [
        one.info.topic,
        one.info.kind,
        " ".join(str(place.partition) for place in places),
        " ".join("-" if place.leader is None else str(place.leader) for place in places),
        one.message_count,
        None if one.messages_bytes is None else size(one.messages_bytes),
        None if one.disk_bytes is None else size(one.disk_bytes),
    ]
    return [*row, None if written is None else size(written)] if rates else row


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "--partitions",
    "partition_count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of partitions; messages are ordered within a partition.",
)
@click.option(
    "--on",
    metavar="P[,P...]",
    help="Place the topic on these partitions; by default the register chooses.",
)
@click.option(
    "--kind",
    type=click.Choice([one.value for one in TopicKind]),
    default="log",
    show_default=True,
    help="Where the messages are: in logs on disks, or in the memory of brokers.",
)
@click.option(
    "--buffer-bytes",
    "buffer_bytes",
    type=ByteSize(1, RELAY_BUFFER_BYTES_MAX),
    metavar="SIZE",
    help="Of a relay topic: keep the newest messages up to this size.",
)
@click.option(
    "--buffer-count",
    type=click.IntRange(min=1),
    help="Of a relay topic: keep so many transactions, each of which one request has brought.",
)
@click.option(
    "--buffer-age",
    type=Duration(0.001, 365 * 24 * 3600.0),
    metavar="TIME",
    help="Of a relay topic: keep nothing older.",
)
@topic_options(alters=False)
@json_option
@client_options
@pass_invocation
def create(
    invocation: Invocation,
    /,
    names: tuple[str, ...],
    partition_count: int,
    on: str | None,
    kind: str,
    buffer_bytes: int | None,
    buffer_count: int | None,
    buffer_age: float | None,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
    **options: Any,  # noqa: ANN401
) -> None:
    """Create topics.  Producing to a missing topic creates it, too, with the defaults.

    \b
    For instance:
      octopi-node topics create orders --partitions 4 --retention 1d
      octopi-node topics create payments refunds --min-insync 2
      octopi-node topics create clicks --retention-size 1GB --hold-size 5GB
      octopi-node topics create prices --kind relay --buffer-bytes 4MiB --buffer-age 1m

    Several topics are created at the same time, which takes much less time than one after the
    other.

    An acknowledged message is on every in-sync replica.  With --min-insync 2 these are at least
    two, so the message survives the loss of a broker and its disk even while other brokers are
    away.  The price: producers wait while only one replica is in sync.

    A topic with --kind relay is in the memory of three brokers or more, acknowledged by a majority
    of them, and never on a disk.  It has one partition, and keeps the newest messages within the
    --buffer-... bounds, of which the one that is reached first counts (16MiB, 100000 transactions
    and 10m by default).

    With --hold or --hold-size, old messages stay while a durable subscription has yet to process
    them, up to that bound; of two bounds, the one that is reached first counts.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )
    partitions = None if on is None else _partitions(on)

    from octopi.cli.client_request import ask

    found, refused = ask(
        settings,
        lambda client: _created(
            client,
            names,
            partition_count,
            partition_ids=partitions,
            kind=kind,
            buffer_bytes=buffer_bytes,
            buffer_count=buffer_count,
            buffer_age=None if buffer_age is None else timedelta(seconds=buffer_age),
            **given_options(**options),
        ),
    )
    if as_json:
        infos = [attrs.asdict(info) for info in found]
        print_json(infos[0] if len(names) == 1 and infos else infos)
    else:
        for info in found:
            places = " ".join(str(one.partition) for one in info.partitions)
            if info.is_relay:
                members = " ".join(map(str, info.partitions[0].replicas))
                say(f"created {info.topic} in the memory of brokers {members}")
                continue
            say(f"created {info.topic} on partition{'s' * (len(info.partitions) > 1)} {places}")
    if len(names) == 1 or not refused:
        for error in refused.values():
            raise error
        return
    for name, error in refused.items():
        say(f"not created: {name}: {error}", err=True)
    raise CommandError(f"{len(refused)} of {counted(len(names), 'topic')} could not be created")


async def _created(
    client: Client,
    names: tuple[str, ...],
    count: int,
    **options: Any,  # noqa: ANN401
) -> tuple[list[TopicInfo], dict[str, OctopiError]]:
    """The topics that were created, in the order of *names*, and why others were not."""
    import trio

    found: dict[str, TopicInfo] = {}
    refused: dict[str, OctopiError] = {}

    async def make(name: str) -> None:
        try:
            found[name] = await client.create_topic(name, count, **options)
        except OctopiError as error:
            refused[name] = error

    async with trio.open_nursery() as nursery:
        for name in dict.fromkeys(names):
            nursery.start_soon(make, name)
    return [found[name] for name in names if name in found], refused


@topics.command()
@click.argument("topic", shell_complete=complete_topics)
@topic_options(alters=True)
@json_option
@client_options
@pass_invocation
def alter(
    invocation: Invocation,
    /,
    topic: str,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
    **options: Any,  # noqa: ANN401
) -> None:
    """Change options of TOPIC, without a restart.  What is not named stays as it is.

    \b
    For instance:
      octopi-node topics alter orders --retention 7d --retention-size 10GB
      octopi-node topics alter payments --min-insync 2 --flush-before-ack
      octopi-node topics alter orders --retention default --no-flush-before-ack

    `default` takes an option back: without --retention and --retention-size everything is kept.
    The command returns when all brokers that are connected to the register go by the new options;
    one that is away is told when it comes back.

    Messages that are too old or too many by the new options are removed at the next check, a
    segment at a time.  While fewer than --min-insync replicas are in sync, producers wait.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )
    changes = given_options(**options)
    if not changes:
        raise CommandError(
            "name the options to change; `octopi-node topics alter --help` lists them",
            ExitCode.USAGE,
        )

    from octopi.cli.client_request import ask

    info = ask(settings, lambda client: client.alter_topic(topic, **changes))
    if as_json:
        print_json(attrs.asdict(info))
        return
    say(f"altered {info.topic}: {', '.join(_special_options(info)) or 'all options are defaults'}")
    few = [one for one in info.partitions if len(one.in_sync) < info.options.min_insync]
    for one in few:
        say(
            f"warning: partition {one.partition} has {len(one.in_sync)} of "
            f"{info.options.min_insync} replicas in sync: producers wait until more are; "
            f"`octopi-node topics describe {info.topic}` shows which are missing",
            err=True,
        )


def _special_options(info: TopicInfo) -> list[str]:
    """The options that differ from the defaults, each with its value."""
    from octopi import TopicOptions

    usual = attrs.asdict(TopicOptions())
    return [
        f"{name} {value}"
        for name, value in attrs.asdict(info.options).items()
        if value != usual[name]
    ]


def _partitions(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise CommandError(
            f"--on takes partition numbers with commas between them, not {text!r}",
            ExitCode.USAGE,
        ) from None


@topics.command()
@click.argument("topic", shell_complete=complete_topics)
@json_option
@client_options
@pass_invocation
def describe(
    invocation: Invocation,
    /,
    topic: str,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Print the partitions of TOPIC, their size, and the state of their replicas.

    \b
    For instance:
      octopi-node topics describe orders

    MESSAGES is the number of committed messages that the replica keeps; `-` if its broker can't
    tell.  Offsets are in bytes.  LAG is the number of bytes that the leader's log has and the
    replica's log lacks.  Consumers read up to HIGHWATER, the end of what every in-sync replica has.

    A topic that got other partitions has several generations of them.  The newest is in force; the
    logs of the others take no messages any more, and end where the table says.  A partition can be
    part of several: its log goes on behind that.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.admin.cluster_snapshot import look, replicas
    from octopi.admin.message_counts import count_messages
    from octopi.cli.client_request import ask
    from octopi.cli.relayed_topics import print_relayed

    async def question(client: Client) -> tuple[TopicInfo, ClusterSnapshot, list[BrokerCount]]:
        info, seen = await client.describe_topic(topic), await look(client, topic)
        return info, seen, await count_messages(client, seen.cluster.brokers, topic)

    info, seen, counts = ask(settings, question)
    places = [*info.partitions, *info.sealed_partitions]
    found = [] if info.is_relay else replicas(seen, places)
    if as_json:
        print_json(
            {
                **attrs.asdict(info),
                "replicas": [attrs.asdict(one) for one in found],
                "logs": [attrs.asdict(one) for one in seen.logs],
                "counts": [attrs.asdict(one) for one in counts],
            }
        )
    elif info.is_relay:
        print_relayed(info, _special_options(info), seen, counts)
    else:
        _print(info, seen, found, counts)


def _print(
    info: TopicInfo, seen: ClusterSnapshot, found: list[ReplicaStatus], counts: list[BrokerCount]
) -> None:
    from octopi.admin.cluster_snapshot import PARTITION_HEADINGS, faults, holds, partition_rows

    count_of = {(int(one.log.partition), one.broker): one.log.count for one in counts}
    options = _special_options(info)
    say(f"{info.topic} (id {info.topic_id}){': ' if options else ''}{', '.join(options)}")
    print_generations(info)
    say()
    places = [*info.partitions, *info.sealed_partitions]
    rows = partition_rows(seen.cluster, places, info.options.min_insync)
    print_table(PARTITION_HEADINGS, rows)
    say()
    print_table(
        [
            "PARTITION",
            "BROKER",
            "ROLE",
            "STATE",
            "MESSAGES",
            "LOG START",
            "LOG END",
            "HIGHWATER",
            "LAG",
            "SIZE",
        ],
        [
            [
                one.partition,
                one.broker,
                one.role,
                one.state,
                count_of.get((one.partition, one.broker)),
                one.log_start,
                one.log_end,
                one.highwater,
                one.lag_bytes,
                None if one.size_bytes is None else size(one.size_bytes),
            ]
            for one in found
        ],
    )
    for fault in faults(seen.logs):
        say(f"fault: {fault}")
    for held in holds(seen.logs):
        say(f"note: {held}")


@topics.command()
@click.argument("names", nargs=-1, metavar="[TOPIC...]", shell_complete=complete_topics)
@click.option(
    "--id", "topic_ids", multiple=True, metavar="ID", help="The topic with this id (repeatable)."
)
@click.option("--yes", is_flag=True, help="Don't ask for confirmation.")
@client_options
@pass_invocation
def delete(
    invocation: Invocation,
    /,
    names: tuple[str, ...],
    topic_ids: tuple[str, ...],
    yes: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Delete topics, with every message in them, for good.

    \b
    For instance:
      octopi-node topics delete orders --yes
      octopi-node topics delete --id 5f0c2a1b5f0c2a1b --yes

    Use --id for a topic whose name is not allowed (created by a program that did not check names);
    `octopi-node topics list --json` prints ids.  Use it also for a topic that a broker holds but
    does not serve because another topic has its name: `octopi-node status` prints its id.  The
    other topic stays.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )
    if not names and not topic_ids:
        raise CommandError("name the topics to delete, or give --id", ExitCode.USAGE)
    count = len(names) + len(topic_ids)
    if not yes:
        if not sys.stdin.isatty():
            raise CommandError(
                "deleting a topic deletes all its messages: confirm with --yes, as standard input "
                "is not a terminal",
                ExitCode.USAGE,
            )
        agreed(f"Delete {counted(count, 'topic')} for good?")

    from octopi.cli.client_request import ask

    async def question(client: Client) -> None:
        for name in names:
            await client.delete_topic(name)
            say(f"deleted {name}", err=True)
        for topic_id in topic_ids:
            await client.admin.delete_topic_by_id(topic_id)
            say(f"deleted the topic with id {topic_id}", err=True)

    ask(settings, question)
