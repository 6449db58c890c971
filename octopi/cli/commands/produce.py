"""`octopi-node produce`: append messages, or the lines of a file, to a topic."""

from __future__ import annotations

import math
import os
import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from octopi.cli.config import ClientSettings, help_text
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.input_file import STDIN, opened, size_bytes_of
from octopi.cli.invocation import (
    Invocation,
    client_options,
    name_option,
    pass_invocation,
    retry_option,
)
from octopi.cli.output import say
from octopi.cli.rate_meter import RateMeter
from octopi.cli.topic_completion import complete_topics

if TYPE_CHECKING:
    from octopi.cli.producing import LineProducer


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("messages", metavar="[MESSAGE...]", nargs=-1)
@click.option(
    "-f", "--file", default="-", metavar="FILE", help="Read FILE instead of standard input."
)
@click.option("-k", "--key", help="Key of every message.")
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="Split each line at the first TEXT into key and value; a line without TEXT has no key.",
)
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of every message (repeatable).",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Each line is a JSON object as `consume --json` prints it.",
)
@click.option(
    "-p", "--partition", type=int, help="Partition of every message; by default the key decides."
)
@click.option(
    "--expected-end",
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="Append only if the log ends at OFFSET, and all messages there in a row.",
)
@click.option(
    "--skip",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Leave out the first N lines, which an earlier run has produced.",
)
@click.option(
    "--no-create", is_flag=True, help="Fail if TOPIC doesn't exist, instead of creating it."
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MESSAGES",
    help="Send at most this many messages per second.",
)
@click.option(
    "--linger",
    "linger_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Time that a batch waits for more messages before it is sent.",
)
@click.option(
    "--on-wrong-node",
    type=click.Choice(["redirect", "forward"]),
    help=help_text(ClientSettings, "on_wrong_node"),
)
@name_option
@retry_option
@client_options
@pass_invocation
def produce(
    invocation: Invocation,
    /,
    topic: str,
    messages: tuple[str, ...],
    file: str,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    as_json: bool,
    partition: int | None,
    expected_end: int | None,
    skip: int,
    no_create: bool,
    rate: float | None,
    linger_s: float | None,
    on_wrong_node: str | None,
    server: str | None,
    timeout_s: float | None,
    retry_s: float | None,
) -> None:
    """Append each MESSAGE to TOPIC; without any, each line of a file or of standard input.

    \b
    For instance:
      octopi-node produce orders 'three umbrellas' -k customer-7 -H source=shop
      octopi-node produce orders -f orders.csv
      tail -f access.log | octopi-node produce access
      echo "customer-7:three umbrellas" | octopi-node produce orders --key-separator :
      octopi-node consume orders -e --json | octopi-node produce copy --json

    The newline is not part of the message; all other bytes of the line are.  A missing topic is
    created, which is told.  The command returns when every message is acknowledged, and prints a
    summary on standard error.  If it fails, it names the first line that was not acknowledged, and
    --skip goes on there.

    With --expected-end the first message is appended only if the log ends there, and each further
    one only directly behind the one before.  The new end is printed on standard output.

    With --json a line has "value", and perhaps "key", "headers" and "timestamp_ms"; bytes that are
    no text are in "value_base64" and "key_base64" in base 64.
    """
    _check(key, key_separator, as_json)
    if messages and file != "-":
        raise CommandError(
            "messages as arguments and --file exclude each other: leave one out", ExitCode.USAGE
        )
    settings = invocation.configuration().section(
        ClientSettings,
        server=server,
        timeout_s=timeout_s,
        retry_s=retry_s,
        on_wrong_node=on_wrong_node,
    )

    from octopi.cli.produce_run import ProduceRun
    from octopi.cli.producing import LineOptions
    from octopi.cli.running import run
    from octopi.limits import LINGER_S

    options = LineOptions(
        key=None if key is None else os.fsencode(key),
        key_separator=os.fsencode(key_separator or ""),
        headers=_headers(headers),
        as_json=as_json,
        partition=partition,
        expected_end=expected_end,
        rate=math.inf if rate is None else rate,
        skip=skip,
        unit="message" if messages else "line",
    )
    meter = RateMeter()
    with opened(file) as descriptor:
        size_bytes = None if messages else size_bytes_of(descriptor)
        if not messages and descriptor == STDIN and sys.stdin.isatty():
            say("Each line is a message; end with Ctrl-D.", err=True)
        produce_run = ProduceRun(
            settings,
            topic,
            options,
            meter,
            create_topic=not no_create,
            can_go_on=bool(messages) or size_bytes is not None,
            linger_s=LINGER_S if linger_s is None else linger_s,
        )

        async def work(lines: LineProducer) -> None:
            if messages:
                await lines.produce_lines([os.fsencode(one) for one in messages])
            else:
                await lines.produce(descriptor)

        with meter.shown("producing", size_bytes):
            run(partial(produce_run.produce, work), produce_run.summary)
    say(meter.summary(), err=True)
    if produce_run.end is not None:
        say(str(produce_run.end))


def _check(key: str | None, key_separator: str | None, as_json: bool) -> None:
    given = [
        name
        for name, is_given in (
            ("--key", key is not None),
            ("--key-separator", key_separator is not None),
            ("--json", as_json),
        )
        if is_given
    ]
    if len(given) > 1:
        raise CommandError(
            f"{given[0]} and {given[1]} exclude each other: leave one out", ExitCode.USAGE
        )
    if key_separator == "":
        raise CommandError(
            "--key-separator is empty: give the text between key and value, such as ':'",
            ExitCode.USAGE,
        )


def _headers(given: tuple[str, ...]) -> dict[str, bytes]:
    headers: dict[str, bytes] = {}
    for one in given:
        name, separator, value = one.partition("=")
        if not separator or not name:
            raise CommandError(
                f"--header {one!r} is no header: write NAME=VALUE, such as source=shop",
                ExitCode.USAGE,
            )
        if name in headers:
            raise CommandError(f"--header {name} is given twice", ExitCode.USAGE)
        headers[name] = os.fsencode(value)
    return headers
