"""`octopi-node dead-letters`: list the dead letters of a queue, send them again, or drop them."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from octopi.cli.config import ClientSettings
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import Invocation, client_options, json_option, pass_invocation
from octopi.cli.output import agreed, print_json, say
from octopi.cli.rate_meter import RateMeter
from octopi.cli.rendering import counted, print_table, size

if TYPE_CHECKING:
    from octopi import Client, Message
    from octopi.cli.dead_letters import WaitingLetters

_SHOWN: Final = 40
"""Characters of a key, a value or a reason in the table."""

_topic_option = click.option("--topic", required=True, help="The topic of the queue.")
_yes_option = click.option("--yes", is_flag=True, help="Don't ask for confirmation.")
_count_option = click.option(
    "-n", "--count", type=click.IntRange(min=1), help="At most so many, the oldest of each log."
)


@click.group()
def dead_letters() -> None:
    """List, replay and drop the dead letters of a queue.

    A queue is a durable subscription in the mode shared or key_shared.  A message that it dealt as
    often as its option --attempts says, and that was never acknowledged, becomes a dead letter, and
    so does one that a program rejected: it is copied to the topic TOPIC.NAME.dead, and is not dealt
    again.
    """


@dead_letters.command("list")
@click.argument("name")
@_topic_option
@click.option("--all", "show_all", is_flag=True, help="Also those that were replayed or dropped.")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Print at most so many.",
)
@json_option
@client_options
@pass_invocation
def list_letters(
    invocation: Invocation,
    /,
    name: str,
    topic: str,
    show_all: bool,
    count: int,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Print the dead letters of the queue NAME that wait.

    \b
    For instance:
      octopi-node dead-letters list billing --topic orders
      octopi-node dead-letters list billing --topic orders --json | jq .[].reason

    OFFSET is that of the letter in its own topic, ORIGIN the position of the original message:
    `octopi-node consume orders -o ORIGIN -n 1` prints it, while it is there.  Values are cut; all
    of them, with their headers: `octopi-node consume orders.billing.dead -e --json`.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask
    from octopi.cli.dead_letters import as_fields, header, read_letters, waiting_letters

    async def question(client: Client) -> tuple[WaitingLetters, list[Message]]:
        waiting = await waiting_letters(client, topic, name, from_the_first=show_all)
        return waiting, await read_letters(client, waiting, count)

    waiting, letters = ask(settings, question)
    if as_json:
        print_json([as_fields(one) for one in letters])
        return
    print_table(
        ["PARTITION", "OFFSET", "TIME", "ATTEMPTS", "KEY", "VALUE", "REASON", "ORIGIN"],
        [
            [
                one.partition,
                one.offset,
                _time(one.timestamp_ms),
                header(one, "attempts"),
                _cut(None if one.key is None else one.key.decode(errors="replace")),
                _cut(one.value.decode(errors="replace")),
                _cut(header(one, "reason")),
                header(one, "origin"),
            ]
            for one in letters
        ],
    )
    if len(letters) == count and sum(map(_size, letters)) < waiting.size_bytes:
        say(f"these are the first {count}; --count has more", err=True)


@dead_letters.command()
@click.argument("name")
@_topic_option
@_count_option
@_yes_option
@json_option
@client_options
@pass_invocation
def replay(
    invocation: Invocation,
    /,
    name: str,
    topic: str,
    count: int | None,
    yes: bool,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Send the messages that became dead letters of the queue NAME to its topic again.

    \b
    For instance:
      octopi-node dead-letters replay billing --topic orders -n 1
      octopi-node dead-letters replay billing --topic orders --yes

    Each one gets its original value, key and headers, and goes to its original partition, at the
    end of the log, as a new message.  So all consumers and subscriptions of the topic get it again,
    and not only NAME.  Mend first what made the messages fail: else they come back.

    It is remembered which ones were sent: the next replay goes on behind them.  If this command is
    killed, those that it sent last are sent again by the next one.
    """
    from octopi.cli.dead_letters import send_again

    _deal_with(
        invocation,
        name,
        topic,
        count,
        yes,
        as_json,
        server,
        timeout_s,
        question="Send {what} of {name} to {topic} again, for all of its consumers?",
        done="replayed",
        deal_with=lambda client, letters: send_again(client, topic, letters),
    )


@dead_letters.command()
@click.argument("name")
@_topic_option
@_count_option
@_yes_option
@json_option
@client_options
@pass_invocation
def drop(
    invocation: Invocation,
    /,
    name: str,
    topic: str,
    count: int | None,
    yes: bool,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Drop the dead letters of the queue NAME: they are not listed or replayed any more.

    \b
    For instance:
      octopi-node dead-letters drop billing --topic orders -n 1
      octopi-node dead-letters drop billing --topic orders --yes

    Those that come while this runs are not dropped.  The records stay in the topic TOPIC.NAME.dead:
    `list --all` shows them.
    """

    async def nothing(client: Client, letters: list[Message]) -> None:
        """That they are dealt with is all."""

    _deal_with(
        invocation,
        name,
        topic,
        count,
        yes,
        as_json,
        server,
        timeout_s,
        question="Drop {what} of {name} of topic {topic}?",
        done="dropped",
        deal_with=nothing,
    )


def _deal_with(
    invocation: Invocation,
    name: str,
    topic: str,
    count_max: int | None,
    yes: bool,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
    *,
    question: str,
    done: str,
    deal_with: Callable[[Client, list[Message]], Awaitable[None]],
) -> None:
    """Ask *question*, unless *yes*, and then have *deal_with* do it to each list of letters."""
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.client_request import ask, connected
    from octopi.cli.dead_letters import deal_with_letters, waiting_letters
    from octopi.cli.running import run
    from octopi.errors import SubscriptionBusyError

    waiting = ask(settings, partial(waiting_letters, topic=topic, name=name, from_the_first=False))
    meter = RateMeter()
    if waiting.size_bytes and not yes:
        if not sys.stdin.isatty():
            raise CommandError(
                "confirm with --yes, as standard input is not a terminal", ExitCode.USAGE
            )
        what = f"{size(waiting.size_bytes)} of dead letters"
        if count_max is not None:
            what = f"up to {counted(count_max, 'dead letter')}"
        agreed(question.format(what=what, name=name, topic=topic))

    async def body() -> int:
        async with connected(settings) as client:

            async def each(letters: list[Message]) -> None:
                await deal_with(client, letters)
                meter.add(len(letters), sum(map(_size, letters)))

            try:
                return await deal_with_letters(client, waiting, count_max, each)
            except SubscriptionBusyError:
                raise CommandError(
                    f"dead letters of {name} are replayed or dropped by another command now, or "
                    "were a moment ago: wait until it ends, then run this one again",
                    ExitCode.REFUSED,
                ) from None

    meter.start()
    with meter.shown(done, waiting.size_bytes):
        count = run(body, lambda: f"interrupted; {done} {counted(meter.messages, 'dead letter')}")
    if as_json:
        print_json({"subscription": name, "topic": topic, "from": waiting.topic, done: count})
    else:
        say(f"{done} {counted(count, 'dead letter')} of {name}", err=True)


def _size(message: Message) -> int:
    return message.next_offset - message.offset


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _time(at_ms: int | None) -> str:
    if at_ms is None:
        return ""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
