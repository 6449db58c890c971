"""`octopi-node consume`: print the messages of topics on standard output."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.duration import Duration
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import (
    Invocation,
    client_options,
    json_option,
    name_option,
    pass_invocation,
    retry_option,
)
from octopi.cli.output import say
from octopi.cli.queue_options import (
    MODE_HELP,
    MODES,
    QUEUE_MODES,
    given_queue_options,
    queue_options,
)
from octopi.cli.rate_meter import RateMeter
from octopi.cli.topic_completion import complete_topics

if TYPE_CHECKING:
    from octopi.cli.consuming import Output, Printer
    from octopi.cli.running import Interruption
    from octopi.clients.subscribing.administration import Creation

_STDOUT: Final = 1
_Mode: TypeAlias = Literal["exclusive", "failover", "shared", "key_shared"]


@click.command()
@click.argument(
    "topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topics
)
@click.option(
    "-o",
    "--offset",
    "start_text",
    default="earliest",
    show_default=True,
    metavar="START",
    help="Where to start: earliest, latest, OFFSET, -N for the last N messages, @TIME "
    "(@2026-01-31T12:00, @2026-01-31T12:00Z, 13 digits of milliseconds since 1970, or @-5m for "
    "five minutes ago), or a position (v1:...).",
)
@click.option(
    "--from-id",
    "identity",
    metavar="ID",
    help="Start behind the message of a relay topic that has this id: 32 hexadecimal digits.",
)
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after this many messages.")
@click.option(
    "-e",
    "--exit",
    "stop_at_end",
    is_flag=True,
    help="Stop at the end of the topic as it is now, instead of waiting for more.",
)
@click.option("-p", "--partition", type=int, help="Read only this partition.")
@click.option(
    "-f",
    "--format",
    "format_text",
    metavar="FORMAT",
    help=r"Print each message in this format, instead of its value and a newline: %t topic, "
    r"%p partition, %o offset, %k key, %v value, %T time stamp, %h headers, %%, \n, \t.",
)
@click.option(
    "--position-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Start at the position in FILE, if it exists, and save the position there.",
)
@click.option(
    "--on-fork",
    type=click.Choice(["raise", "resume"]),
    default="raise",
    show_default=True,
    help="What to do if messages that were read are gone from the log, and others may be in their "
    "place: raise ends with an error, resume warns and continues with the log as it is now.",
)
@click.option(
    "--subscription",
    "subscription_name",
    metavar="NAME",
    help="Be a member of this durable subscription: go on where its members stopped, and mark each "
    "line when it is written.",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help=f"Of the subscription; exclusive is the default.  {MODE_HELP}",
)
@queue_options
@click.option("--member", metavar="NAME", help="A name, to keep the logs through a restart.")
@click.option("--take-over", is_flag=True, help="Replace the member of an exclusive subscription.")
@click.option(
    "--create",
    type=click.Choice(["create", "attach", "create_or_attach"]),
    help="Whether the subscription has to be new, has to be there, or is made if it is missing "
    "(the default).",
)
@click.option(
    "--wait-for-topic",
    "wait_for_topic_s",
    type=Duration(0, 365 * 86_400),
    metavar="TIME",
    help="Wait so long for a topic that does not exist, such as 30s, 5m, 2h or 7d.",
)
@click.option(
    "--create-topic", is_flag=True, help="Create a topic that does not exist, instead of waiting."
)
@click.option(
    "--raw",
    is_flag=True,
    help="Print bytes unchanged on a terminal, too, control characters included.",
)
@json_option
@name_option
@retry_option
@client_options
@pass_invocation
def consume(
    invocation: Invocation,
    /,
    topics: tuple[str, ...],
    start_text: str,
    identity: str | None,
    count: int | None,
    stop_at_end: bool,
    partition: int | None,
    format_text: str | None,
    position_file: Path | None,
    on_fork: Literal["raise", "resume"],
    subscription_name: str | None,
    mode: _Mode | None,
    attempts: int | None,
    ack_timeout_s: float | None,
    member: str | None,
    take_over: bool,
    create: Creation | None,
    wait_for_topic_s: float | None,
    create_topic: bool,
    raw: bool,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
    retry_s: float | None,
) -> None:
    """Print the messages of each TOPIC, and wait for more.

    A TOPIC is a name, or a pattern in which * stands for any characters; topics that match it later
    join in.  Of several topics or a pattern, each value follows the name of its topic and a tab.

    \b
    For instance:
      octopi-node consume orders -e
      octopi-node consume orders -o -10 -f '%o %k %v\\n'
      octopi-node consume orders -o @-5m
      octopi-node consume orders -o @2026-11-21T10:00 --json | jq .value
      octopi-node consume prices --from-id 0000019341f0a1b29c3d5e7f80910003
      octopi-node consume orders --position-file orders.position -e >> orders.txt
      octopi-node consume orders --wait-for-topic 30s
      octopi-node consume orders 'eu.*' --json
      octopi-node consume orders --subscription billing | book-orders
      octopi-node consume orders --subscription mails --mode shared --attempts 3

    Each value is followed by a newline.  Standard output gets messages only.  On a terminal,
    control characters are printed as escapes such as \\x1b.
    """
    if as_json and format_text is not None:
        raise CommandError("--format and --json exclude each other: leave one out", ExitCode.USAGE)
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s, retry_s=retry_s
    )

    if subscription_name is None:
        for option, is_given in (
            ("--mode", mode),
            ("--member", member),
            ("--take-over", take_over),
            ("--create", create),
            ("--attempts", attempts is not None),
            ("--ack-timeout", ack_timeout_s),
        ):
            if is_given:
                raise CommandError(f"{option} is for --subscription", ExitCode.USAGE)
    elif position_file or stop_at_end or partition is not None:
        raise CommandError(
            "--subscription excludes --position-file, --exit and --partition: it has marks of its "
            "own, for all partitions, and waits for more",
            ExitCode.USAGE,
        )
    from octopi.cli.several_topics import is_several

    several = is_several(topics)
    if several and partition is not None:
        raise CommandError("--partition is for one topic", ExitCode.USAGE)
    if subscription_name is not None and (several or wait_for_topic_s is not None or create_topic):
        raise CommandError(
            "--subscription is for one topic that exists, and excludes patterns, --wait-for-topic "
            "and --create-topic",
            ExitCode.USAGE,
        )
    queue = given_queue_options(attempts, ack_timeout_s)
    if queue and mode not in QUEUE_MODES:
        raise CommandError(
            "--attempts and --ack-timeout are for --mode shared and key_shared", ExitCode.USAGE
        )
    if take_over and mode not in (None, "exclusive"):
        raise CommandError("--take-over is for --mode exclusive", ExitCode.USAGE)

    from octopi.cli.consuming import Output, PositionFile
    from octopi.cli.running import run, run_to_finish
    from octopi.cli.several_topics import parse_starts
    from octopi.cli.start_option import parse_message_id, parse_start
    from octopi.operating_system import SystemDisk

    if several and format_text is None:
        format_text = r"%t\t%v\n"
    start = parse_starts(start_text) if several else parse_start(start_text)
    if identity is not None:
        if several or subscription_name is not None or start_text != "earliest":
            raise CommandError(
                "--from-id is for one topic, and excludes --offset and --subscription",
                ExitCode.USAGE,
            )
        start = parse_message_id(identity)
    meter = RateMeter()
    output = Output(
        _STDOUT,
        _printer(format_text, as_json, for_terminal=os.isatty(_STDOUT) and not raw),
        meter,
        count_max=count,
        position_file=PositionFile(position_file, SystemDisk()) if position_file else None,
        warn=lambda text: say(f"warning: {text}", err=True),
    )
    if subscription_name is not None:
        if start_text not in ("earliest", "latest"):
            raise CommandError(
                "--subscription begins at earliest or latest; `octopi-node subscriptions reset` "
                "moves it elsewhere",
                ExitCode.USAGE,
            )
        membership = _Membership(
            subscription_name,
            mode or "exclusive",
            member,
            take_over,
            create or "create_or_attach",
            "earliest" if start_text == "earliest" else "latest",
            queue,
        )
        run_to_finish(
            partial(_be_member, settings, topics[0], membership, output),
            lambda: f"interrupted; {meter.summary()}",
        )
        return
    options: dict[str, Any] = {
        "topic": list(topics) if several else topics[0],
        "start": start,
        "stop_at_end": stop_at_end,
        "on_fork": on_fork,
        "reconnect_timeout_s": settings.retry_s,
        "wait_for_topic": wait_for_topic_s,
        "create": create_topic,
    }
    if partition is not None:
        options["partitions"] = [partition]
    run(
        partial(_consume, settings, options, output),
        lambda: f"interrupted; {meter.summary()}",
    )


def _printer(format_text: str | None, as_json: bool, *, for_terminal: bool) -> Printer:
    from octopi.cli import message_format
    from octopi.cli.consuming import one_by_one, values_as_lines, values_for_terminal

    if as_json:
        return one_by_one(message_format.as_json)
    if format_text is not None:
        form = message_format.compile_format(format_text, for_terminal=for_terminal)
        return one_by_one(form)
    return values_for_terminal if for_terminal else values_as_lines


async def _consume(settings: ClientSettings, options: dict[str, Any], output: Output) -> None:
    from octopi.cli.client_request import connected
    from octopi.cli.consuming import check_start

    saved = output.position_file.load(options["topic"]) if output.position_file else None
    if saved is not None:
        options["start"] = saved
    async with connected(settings) as client, client.consumer(**options) as consumer:
        await check_start(client, consumer, options["start"])
        await output.copy(consumer)


@attrs.frozen
class _Membership:
    """Of a durable subscription."""

    name: str
    mode: _Mode
    member: str | None
    take_over: bool
    create: Creation
    start: Literal["earliest", "latest"]
    queue: dict[str, Any]
    """Options of a queue."""


async def _be_member(
    settings: ClientSettings,
    topic: str,
    wanted: _Membership,
    output: Output,
    interruption: Interruption,
) -> None:
    from octopi.cli.client_request import connected
    from octopi.clients.subscribing.subscription_options import PREFETCH
    from octopi.errors import SubscriptionBusyError

    async with connected(settings) as client:
        if wanted.mode == "shared" or wanted.mode == "key_shared":
            async with client.subscription(
                topic,
                wanted.name,
                mode=wanted.mode,
                member=wanted.member,
                create=wanted.create,
                start=wanted.start,
                prefetch=min(PREFETCH, output.count_max or PREFETCH),
                reconnect_timeout_s=settings.retry_s,
                **wanted.queue,
            ) as queue:
                await output.copy_queue(queue, interruption)
            return
        try:
            async with client.subscription(
                topic,
                wanted.name,
                mode=wanted.mode,
                member=wanted.member,
                create=wanted.create,
                start=wanted.start,
                take_over=wanted.take_over,
                mark="manual",
                reconnect_timeout_s=settings.retry_s,
            ) as subscription:
                await output.copy_subscription(subscription, interruption)
        except SubscriptionBusyError as error:
            raise CommandError(
                f"{error}; wait for the other member to leave, or replace it with --take-over",
                ExitCode.REFUSED,
            ) from None
