"""`octopi-node topics grow` and `topics move`: give a topic other partitions while it is in use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.invocation import Invocation, client_options, json_option, pass_invocation
from octopi.cli.output import is_watched, print_json, progress, say
from octopi.cli.rendering import counted, print_table
from octopi.cli.topic_completion import complete_topics
from octopi.limits import LIST_COUNT_MAX, PARTITIONS_PER_TOPIC_MAX

if TYPE_CHECKING:
    from octopi import Client, TopicInfo


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--partitions",
    "partition_count",
    type=click.IntRange(1, PARTITIONS_PER_TOPIC_MAX),
    required=True,
    help="The number of partitions that it gets, with those that it has.",
)
@json_option
@client_options
@pass_invocation
def grow(
    invocation: Invocation,
    /,
    topic: str,
    partition_count: int,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Give TOPIC more partitions, while programs write to it and read it.

    \b
    For instance:
      octopi-node topics grow orders --partitions 16

    It keeps its partitions, and gets new ones behind them.  No message is copied: what is stored
    stays where it is, and new messages go where their keys choose among all partitions.  The order
    of each key is kept.  With twice as many partitions as before, half of the keys move.

    Messages to the topic wait for a moment, until the leaders of all its logs have confirmed.  If
    one doesn't within 20 s, the topic keeps its partitions, and the messages go on.

    All brokers with its logs have to be there (`octopi-node brokers list`).  Programs with an
    earlier version of the client are refused the topic from then on, as they can't keep the order.
    The cluster has to have that many partitions: `octopi-node partitions add` adds some.  A topic
    can't shrink.
    """
    _reshape(
        invocation.configuration().section(ClientSettings, server=server, timeout_s=timeout_s),
        topic,
        lambda client: client.admin.grow_topic(topic, partition_count),
        as_json=as_json,
    )


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--partition",
    type=click.IntRange(0, LIST_COUNT_MAX - 1),
    required=True,
    help="The partition to which its messages go from now on.",
)
@json_option
@client_options
@pass_invocation
def move(
    invocation: Invocation,
    /,
    topic: str,
    partition: int,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Have TOPIC, which has one partition, go on in another one, while it is in use.

    \b
    For instance:
      octopi-node topics move orders --partition 5

    That takes the load of a busy topic from the broker that leads its partition to another one.
    No message is copied: what is stored stays in the former partition, and is read first.  The
    order is kept.  Otherwise it is as for `octopi-node topics grow`, whose help says what has to
    hold.

    `octopi-node partitions move` moves a replica of a partition, with the messages of all topics in
    it, from one broker to another.
    """
    _reshape(
        invocation.configuration().section(ClientSettings, server=server, timeout_s=timeout_s),
        topic,
        lambda client: client.admin.move_topic(topic, partition),
        as_json=as_json,
    )


def _reshape(
    settings: ClientSettings,
    topic: str,
    order: Callable[[Client], Awaitable[TopicInfo]],
    *,
    as_json: bool,
) -> None:
    from octopi.cli.client_request import ask

    with _waiting(topic):
        info = ask(settings, order)
    if as_json:
        print_json(attrs.asdict(info))
        return
    places = [one.partition for one in info.partitions]
    say(
        f"{info.topic} is on {counted(len(places), 'partition')} now: {_numbers(places)}"
        f" (generation {info.generations[-1].number})"
        if info.generations
        else f"{info.topic} is on {counted(len(places), 'partition')}"
    )


@contextmanager
def _waiting(topic: str) -> Iterator[None]:
    """Show on a terminal what is waited for."""
    if not is_watched():
        yield
        return
    from rich.progress import SpinnerColumn, TextColumn

    text = f"{topic}: waiting until the leaders of its logs have confirmed"
    with progress(SpinnerColumn(), TextColumn(text)) as display:
        display.add_task("", total=None)
        yield


def print_generations(info: TopicInfo) -> None:
    """Print which partitions a topic had and has; nothing, if it never got other ones."""
    if not info.generations:
        return
    say()
    print_table(
        ["GENERATION", "PARTITIONS", "LOGS END AT"],
        [
            [one.number, _numbers(one.partitions), _numbers(one.sealed) or "in force"]
            for one in info.generations
        ],
    )


def _numbers(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))
