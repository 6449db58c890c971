"""`octopi-node subscriptions`: list, create, describe, reset and delete durable subscriptions."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import Invocation, client_options, json_option, pass_invocation
from octopi.cli.output import agreed, print_json, say
from octopi.cli.rendering import print_table, size

if TYPE_CHECKING:
    from octopi import SubscriptionDefinition, SubscriptionStatus

_topic_option = click.option("--topic", required=True, help="The topic of the subscription.")


@click.group()
def subscriptions() -> None:
    """List, create, describe, reset and delete durable subscriptions.

    A durable subscription remembers, in each log of its topic, up to where messages are processed:
    its mark.  `octopi-node consume TOPIC --subscription NAME` goes on there.
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
                    _time(one.created_ms),
                    _time(one.used_ms),
                ]
                for one in found
            ],
        )


@subscriptions.command()
@click.argument("name")
@_topic_option
@click.option(
    "--mode",
    type=click.Choice(["exclusive", "failover"]),
    default="exclusive",
    show_default=True,
    help="exclusive: one member at a time; failover: each log has one, spread over the members.",
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
@json_option
@client_options
@pass_invocation
def create(
    invocation: Invocation,
    /,
    name: str,
    topic: str,
    mode: Literal["exclusive", "failover"],
    start: Literal["earliest", "latest"],
    session_timeout_s: float,
    release_timeout_s: float,
    expires_days: float,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Create the durable subscription NAME.  Consuming with a missing one creates it, too.

    \b
    For instance:
      octopi-node subscriptions create billing --topic orders --mode failover --start latest

    From then on each log keeps its mark: messages that are sent before the first member comes are
    given to that member.  Retention doesn't wait for a subscription.
    """
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
    each assignment and each reset of the log.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask

    status = ask(settings, lambda client: client.admin.describe_subscription(topic, name))
    if as_json:
        print_json(attrs.asdict(status))
    else:
        _print(status)


def _print(status: SubscriptionStatus) -> None:
    definition = status.definition
    say(f"{definition.name} of topic {definition.topic}: {_facts(definition)}")
    say()
    print_table(
        ["PARTITION", "STATE", "MEMBER", "CLAIM", "MARK", "HIGHWATER", "LAG", "AGE", "STORED"],
        [
            [
                one.partition,
                one.phase,
                one.member,
                one.claim,
                one.mark,
                one.highwater,
                size(one.lag_bytes),
                f"{one.lag_ms / 1000:.1f} s",
                _time(one.changed_ms),
            ]
            for one in status.logs
        ],
    )
    say()
    print_table(
        ["MEMBER", "STATIC", "LOGS", "AGENT", "SUBJECT"],
        [
            [one.member, "yes" if one.static else "no", one.log_count, one.agent, one.subject]
            for one in status.members
        ],
    )
    for log in status.logs:
        for begin, end in log.skipped:
            say(f"partition {log.partition}: {begin} to {end} was lost and passed over")


def _facts(definition: SubscriptionDefinition) -> str:
    options = definition.options
    expires = "never expires"
    if options.expires_ms is not None:
        expires = f"expires after {options.expires_ms / 86_400_000:g} days without use"
    return (
        f"{definition.mode}, {definition.state}, id {definition.sid}, session timeout "
        f"{options.session_timeout_ms / 1000:g} s, {expires}"
    )


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

    place = parse_start(to_text, "--to")
    resets = ask(
        settings,
        lambda client: client.admin.reset_subscription(
            topic, name, place, partition=partition, force=force, dry_run=dry_run
        ),
    )
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

    Its members are told, and end.
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

    ask(settings, lambda client: client.admin.delete_subscription(topic, name))
    say(f"deleted {name} of topic {topic}", err=True)


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
