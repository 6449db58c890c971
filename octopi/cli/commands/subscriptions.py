"""`octopi-node subscriptions`: list, create, describe, watch, reset and delete durable ones."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import Invocation, client_options, json_option, pass_invocation
from octopi.cli.output import agreed, clear_screen, print_json, print_json_line, say
from octopi.cli.queue_options import (
    MODE_HELP,
    MODES,
    QUEUE_MODES,
    given_queue_options,
    queue_options,
)
from octopi.cli.rendering import print_table

if TYPE_CHECKING:
    from octopi import Client, MarkReset

_topic_option = click.option("--topic", required=True, help="The topic of the subscription.")


@click.group()
def subscriptions() -> None:
    """List, create, describe, watch, reset and delete durable subscriptions.

    A durable subscription remembers, in each log of its topic, up to where messages are processed:
    its mark.  `octopi-node consume TOPIC --subscription NAME` goes on there.  In the modes shared
    and key_shared it is a queue, whose messages are dealt to its members one by one.
    """


@subscriptions.command("list")
@click.option("--topic", help="Only those of this topic.")
@json_option
@client_options
@pass_invocation
def list_subscriptions(
    invocation: Invocation,
    /,
    topic: str | None,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Print the durable subscriptions of the cluster.

    \b
    For instance:
      octopi-node subscriptions list
      octopi-node subscriptions list --topic orders --json
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask
    from octopi.cli.subscription_tables import time_text

    found = ask(settings, lambda client: client.admin.subscriptions(topic))
    if as_json:
        print_json([attrs.asdict(one) for one in found])
    else:
        print_table(
            ["TOPIC", "SUBSCRIPTION", "MODE", "STATE", "CREATED", "USED"],
            [
                [
                    one.topic,
                    one.name,
                    one.mode,
                    one.state,
                    time_text(one.created_ms),
                    time_text(one.used_ms),
                ]
                for one in found
            ],
        )


@subscriptions.command()
@click.argument("name")
@_topic_option
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="exclusive",
    show_default=True,
    help=MODE_HELP,
)
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where it begins: at each log's oldest message, or behind its newest.",
)
@click.option(
    "--session-timeout",
    "session_timeout_s",
    type=click.FloatRange(1, 300),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="A member that is silent for so long loses its logs.",
)
@click.option(
    "--release-timeout",
    "release_timeout_s",
    type=click.FloatRange(0, 300),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a member may finish its work on a log that another member is to have.",
)
@click.option(
    "--expires-days",
    type=click.FloatRange(min=0),
    default=7.0,
    show_default=True,
    metavar="DAYS",
    help="It is deleted when nobody used it for so long; 0: never.",
)
@queue_options
@click.option(
    "--window",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Of a queue: so many messages behind the oldest unanswered one may be dealt.  "
    "[default: 1000]",
)
@json_option
@client_options
@pass_invocation
def create(
    invocation: Invocation,
    /,
    name: str,
    topic: str,
    mode: Literal["exclusive", "failover", "shared", "key_shared"],
    start: Literal["earliest", "latest"],
    session_timeout_s: float,
    release_timeout_s: float,
    expires_days: float,
    attempts: int | None,
    ack_timeout_s: float | None,
    window: int | None,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Create the durable subscription NAME.  Consuming with a missing one creates it, too.

    \b
    For instance:
      octopi-node subscriptions create billing --topic orders --mode failover --start latest
      octopi-node subscriptions create mails --topic orders --mode shared --attempts 3

    From then on each log keeps its mark: messages that are sent before the first member comes are
    given to that member.  Retention doesn't wait for a subscription.  A queue gets a topic for its
    dead letters, TOPIC.NAME.dead, on the same partitions.
    """
    queue = given_queue_options(attempts, ack_timeout_s)
    if window is not None:
        queue["window"] = window
    if queue and mode not in QUEUE_MODES:
        raise CommandError(
            "--attempts, --ack-timeout and --window are for --mode shared and key_shared",
            ExitCode.USAGE,
        )
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask

    made = ask(
        settings,
        lambda client: client.admin.create_subscription(
            topic,
            name,
            mode=mode,
            start=start,
            session_timeout_s=session_timeout_s,
            release_timeout_s=release_timeout_s,
            expires=timedelta(days=expires_days) if expires_days else None,
            **queue,
        ),
    )
    if as_json:
        print_json(attrs.asdict(made))
    else:
        say(f"created {made.name} of topic {made.topic} (id {made.sid}), mode {made.mode}")


@subscriptions.command()
@click.argument("name")
@_topic_option
@json_option
@client_options
@pass_invocation
def describe(
    invocation: Invocation,
    /,
    name: str,
    topic: str,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Print the members of the durable subscription NAME, and how far it is in each log.

    \b
    For instance:
      octopi-node subscriptions describe billing --topic orders

    Messages below MARK are processed.  LAG is what lies between the mark and the end of what every
    in-sync replica has, in bytes, and AGE that of the message at the mark.  CLAIM counts up with
    each assignment and each reset of the log.  Of a queue, OPEN messages are dealt and not
    answered, WAITING ones are to be dealt again, and DEAD ones became dead letters.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask
    from octopi.cli.subscription_tables import print_status

    status = ask(settings, lambda client: client.admin.describe_subscription(topic, name))
    if as_json:
        print_json(attrs.asdict(status))
    else:
        print_status(status)


@subscriptions.command()
@click.argument("name")
@_topic_option
@json_option
@client_options
@pass_invocation
def watch(
    invocation: Invocation,
    /,
    name: str,
    topic: str,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Print how far the durable subscription NAME is, each second, until Ctrl-C.

    \b
    For instance:
      octopi-node subscriptions watch billing --topic orders
      octopi-node subscriptions watch billing --topic orders --json | jq .logs[0].lag_bytes

    The columns are those of `octopi-node subscriptions describe`.  On a terminal the table stays in
    its place.  With --json each second gives one line.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    import trio

    from octopi.cli.client_request import connected
    from octopi.cli.running import run
    from octopi.cli.subscription_tables import print_status

    async def body() -> None:
        async with connected(settings) as client:
            while True:
                status = await client.admin.describe_subscription(topic, name)
                if as_json:
                    print_json_line({"time_ms": _now_ms(), **attrs.asdict(status)})
                else:
                    clear_screen()
                    print_status(status)
                    say()
                await trio.sleep(1.0)

    run(body)


def _now_ms() -> int:
    return round(datetime.now(UTC).timestamp() * 1000)


@subscriptions.command()
@click.argument("name")
@_topic_option
@click.option(
    "--to",
    "to_text",
    required=True,
    metavar="PLACE",
    help="earliest, latest, OFFSET, -N for the last N messages, @TIME (ISO 8601, or milliseconds "
    "since 1970), or a position (v1:...).",
)
@click.option("-p", "--partition", type=int, help="Only in this partition.")
@click.option(
    "--force", is_flag=True, help="Also where a member has the log: it goes on at the new mark."
)
@click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
@json_option
@client_options
@pass_invocation
def reset(
    invocation: Invocation,
    /,
    name: str,
    topic: str,
    to_text: str,
    partition: int | None,
    force: bool,
    dry_run: bool,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Set the marks of the durable subscription NAME to another place.

    \b
    For instance:
      octopi-node subscriptions reset billing --topic orders --to earliest --dry-run
      octopi-node subscriptions reset billing --topic orders --to @2026-11-21T10:00
      octopi-node subscriptions reset billing --topic orders --to 4711 --partition 3 --force

    Messages from there on come again, or those before are passed over.  Logs that a member has are
    refused without --force: stop the members first, or they go on at the new mark.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask
    from octopi.cli.start_option import parse_start
    from octopi.errors import SubscriptionBusyError

    place = parse_start(to_text, "--to")

    async def question(client: Client) -> list[MarkReset]:
        try:
            return await client.admin.reset_subscription(
                topic, name, place, partition=partition, force=force, dry_run=dry_run
            )
        except SubscriptionBusyError as error:
            raise CommandError(
                f"{error}; stop its members first, or add --force", ExitCode.REFUSED
            ) from None

    resets = ask(settings, question)
    if as_json:
        print_json([attrs.asdict(one) for one in resets])
    else:
        print_table(
            ["PARTITION", "MARK", "NEW MARK", "CHANGE"],
            [[one.partition, one.before, one.after, one.after - one.before] for one in resets],
        )
        if dry_run:
            say("nothing was changed (--dry-run)", err=True)


@subscriptions.command()
@click.argument("name")
@_topic_option
@click.option("--yes", is_flag=True, help="Don't ask for confirmation.")
@client_options
@pass_invocation
def delete(
    invocation: Invocation,
    /,
    name: str,
    topic: str,
    yes: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Delete the durable subscription NAME, and its marks.  No message is deleted.

    \b
    For instance:
      octopi-node subscriptions delete billing --topic orders --yes

    Its members are told, and end.  The dead letters of a queue stay, in the topic TOPIC.NAME.dead.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )
    if not yes:
        if not sys.stdin.isatty():
            raise CommandError(
                "deleting a subscription deletes its marks: confirm with --yes, as standard input "
                "is not a terminal",
                ExitCode.USAGE,
            )
        agreed(f"Delete the subscription {name} of topic {topic} for good?")

    from octopi.cli.client_request import ask

    async def question(client: Client) -> str:
        status = await client.admin.describe_subscription(topic, name)
        await client.admin.delete_subscription(topic, name)
        return status.dead_letters

    letters = ask(settings, question)
    say(f"deleted {name} of topic {topic}", err=True)
    if letters:
        say(
            f"its dead letters stay in the topic {letters}: `octopi-node topics delete {letters}` "
            "deletes them",
            err=True,
        )
