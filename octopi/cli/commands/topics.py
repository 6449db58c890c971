"""`octopi-node topics`: list, create, describe and delete topics."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import Invocation, client_options, json_option, pass_invocation
from octopi.cli.output import agreed, print_json, say
from octopi.cli.rendering import counted, print_table, size
from octopi.cli.topic_completion import complete_topics

if TYPE_CHECKING:
    from octopi import Client, TopicInfo
    from octopi.admin.cluster_snapshot import ClusterSnapshot, ReplicaStatus


@click.group()
def topics() -> None:
    """List, create, describe and delete topics."""


@topics.command("list")
@json_option
@client_options
@pass_invocation
def list_topics(
    invocation: Invocation, /, as_json: bool, server: str | None, timeout_s: float | None
) -> None:
    """Print the topics of the cluster.

    \b
    For instance:
      octopi-node topics list
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask

    infos = ask(settings, lambda client: client.topics())
    if as_json:
        print_json([attrs.asdict(info) for info in infos])
    else:
        print_table(
            ["TOPIC", "PARTITIONS", "LEADERS"],
            [
                [
                    info.topic,
                    " ".join(str(one.partition) for one in info.partitions),
                    " ".join(
                        "-" if one.leader is None else str(one.leader) for one in info.partitions
                    ),
                ]
                for info in infos
            ],
        )


@topics.command()
@click.argument("topic")
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
@click.option("--retention-ms", type=click.IntRange(min=1), help="Remove messages older than this.")
@click.option(
    "--retention-bytes",
    type=click.IntRange(min=1),
    help="Remove the oldest messages of a log beyond this size.",
)
@click.option(
    "--segment-bytes", type=click.IntRange(min=1), help="Begin a new segment file beyond this size."
)
@click.option(
    "--flush-before-ack",
    is_flag=True,
    help="Acknowledge messages only after they are flushed to the disk.",
)
@click.option(
    "--min-insync",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Acknowledge messages only while this many replicas are in sync, leader included.",
)
@click.option(
    "--hold-ms",
    type=click.IntRange(min=1),
    help="Keep messages for subscriptions so much longer than --retention-ms.",
)
@click.option(
    "--hold-bytes",
    type=click.IntRange(min=1),
    help="Keep so much more of a log for subscriptions.",
)
@json_option
@client_options
@pass_invocation
def create(
    invocation: Invocation,
    /,
    topic: str,
    partition_count: int,
    on: str | None,
    retention_ms: int | None,
    retention_bytes: int | None,
    segment_bytes: int | None,
    flush_before_ack: bool,
    min_insync: int,
    hold_ms: int | None,
    hold_bytes: int | None,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Create TOPIC.  Producing to a missing topic creates it, too, with the defaults.

    \b
    For instance:
      octopi-node topics create orders --partitions 4 --retention-ms 86400000
      octopi-node topics create payments --min-insync 2
      octopi-node topics create clicks --retention-bytes 1000000000 --hold-bytes 5000000000

    An acknowledged message is on every in-sync replica.  With --min-insync 2 these are at least
    two, so the message survives the loss of a broker and its disk even while other brokers are
    away.  The price: producers wait while only one replica is in sync.

    With --hold-ms or --hold-bytes, old messages stay while a durable subscription has yet to
    process them, up to that bound; of two bounds, the one that is reached first counts.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )
    partitions = None if on is None else _partitions(on)

    from octopi.cli.client_request import ask

    info = ask(
        settings,
        lambda client: client.create_topic(
            topic,
            partition_count,
            partition_ids=partitions,
            retention=_time(retention_ms),
            retention_bytes=retention_bytes,
            segment_bytes=segment_bytes,
            flush_before_ack=flush_before_ack,
            min_insync=min_insync,
            hold=_time(hold_ms),
            hold_bytes=hold_bytes,
        ),
    )
    if as_json:
        print_json(attrs.asdict(info))
    else:
        places = " ".join(str(one.partition) for one in info.partitions)
        say(f"created {info.topic} on partition{'s' * (len(info.partitions) > 1)} {places}")


def _time(milliseconds: int | None) -> timedelta | None:
    return None if milliseconds is None else timedelta(milliseconds=milliseconds)


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

    Offsets are in bytes.  LAG is the number of bytes that the leader's log has and the replica's
    log lacks.  Consumers read up to HIGHWATER, the end of what every in-sync replica has.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.admin.cluster_snapshot import look, replicas
    from octopi.cli.client_request import ask

    async def question(client: Client) -> tuple[TopicInfo, ClusterSnapshot]:
        return await client.describe_topic(topic), await look(client, topic)

    info, seen = ask(settings, question)
    found = replicas(seen, info.partitions)
    if as_json:
        print_json(
            {
                **attrs.asdict(info),
                "replicas": [attrs.asdict(one) for one in found],
                "logs": [attrs.asdict(one) for one in seen.logs],
            }
        )
    else:
        _print(info, seen, found)


def _print(info: TopicInfo, seen: ClusterSnapshot, found: list[ReplicaStatus]) -> None:
    from octopi import TopicOptions
    from octopi.admin.cluster_snapshot import PARTITION_HEADINGS, faults, holds, partition_rows

    usual = attrs.asdict(TopicOptions())
    options = [
        f"{name} {value}"
        for name, value in attrs.asdict(info.options).items()
        if value != usual[name]
    ]
    say(f"{info.topic} (id {info.topic_id}){': ' if options else ''}{', '.join(options)}")
    say()
    rows = partition_rows(seen.cluster, info.partitions, info.options.min_insync)
    print_table(PARTITION_HEADINGS, rows)
    say()
    print_table(
        [
            "PARTITION",
            "BROKER",
            "ROLE",
            "STATE",
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
