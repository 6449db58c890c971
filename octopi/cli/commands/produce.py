"""`octopi-node produce`: append the lines of a file, or of standard input, to a topic."""

from __future__ import annotations

import math
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import (
    Invocation,
    client_options,
    name_option,
    pass_invocation,
    retry_option,
)
from octopi.cli.output import say
from octopi.cli.rate_meter import RateMeter
from octopi.cli.rendering import counted

if TYPE_CHECKING:
    from octopi import Producer
    from octopi.cli.producing import LineOptions

_STDIN: Final = 0


@attrs.define
class _Acknowledged:
    """The number of acknowledged messages, while the command runs and after it."""

    producer: Producer | None = None

    def summary(self) -> str:
        count = 0 if self.producer is None else self.producer.acknowledged_count
        return f"interrupted; {counted(count, 'message')} acknowledged"


@click.command()
@click.argument("topic")
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
    "-p", "--partition", type=int, help="Partition of every message; by default the key decides."
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
@name_option
@retry_option
@client_options
@pass_invocation
def produce(
    invocation: Invocation,
    /,
    topic: str,
    file: str,
    key: str | None,
    key_separator: str | None,
    partition: int | None,
    rate: float | None,
    linger_s: float | None,
    server: str | None,
    timeout_s: float | None,
    retry_s: float | None,
) -> None:
    """Append each line of a file, or of standard input, to TOPIC.

    \b
    For instance:
      octopi-node produce orders -f orders.csv
      tail -f access.log | octopi-node produce access
      echo "customer-7:three umbrellas" | octopi-node produce orders --key-separator :

    The newline is not part of the message; all other bytes of the line are.  A missing topic is
    created.  The command returns when every message is acknowledged, and prints a summary on
    standard error.
    """
    if key is not None and key_separator is not None:
        raise CommandError(
            "--key and --key-separator exclude each other: leave one out", ExitCode.USAGE
        )
    if key_separator == "":
        raise CommandError(
            "--key-separator is empty: give the text between key and value, such as ':'",
            ExitCode.USAGE,
        )
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s, retry_s=retry_s
    )

    from octopi.cli.producing import LineOptions
    from octopi.cli.running import run

    options = LineOptions(
        key=None if key is None else os.fsencode(key),
        key_separator=os.fsencode(key_separator or ""),
        partition=partition,
        rate=math.inf if rate is None else rate,
    )
    meter = RateMeter()
    acknowledged = _Acknowledged()
    with _opened(file) as descriptor:
        if descriptor == _STDIN and sys.stdin.isatty():
            say("Each line is a message; end with Ctrl-D.", err=True)
        body = partial(
            _produce, settings, topic, options, descriptor, linger_s, meter, acknowledged
        )
        with meter.shown("producing", _size_bytes(descriptor)):
            run(body, acknowledged.summary)
    say(meter.summary(), err=True)


@contextmanager
def _opened(file: str) -> Iterator[int]:
    if file == "-":
        yield _STDIN
        return
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _size_bytes(descriptor: int) -> int | None:
    """The size of the input; None if it is not a regular file."""
    status = os.fstat(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


async def _produce(
    settings: ClientSettings,
    topic: str,
    options: LineOptions,
    descriptor: int,
    linger_s: float | None,
    meter: RateMeter,
    acknowledged: _Acknowledged,
) -> None:
    from octopi.cli.client_request import connected
    from octopi.cli.producing import LineProducer
    from octopi.limits import LINGER_S

    async with (
        connected(settings) as client,
        client.producer(
            linger_s=LINGER_S if linger_s is None else linger_s,
            delivery_timeout_s=settings.retry_s,
        ) as producer,
    ):
        acknowledged.producer = producer
        # Reports a wrong topic name or address at once, not after the delivery time-out.
        await client.describe_topic(topic, create=True)
        await LineProducer(producer, topic, options, meter).produce(descriptor)
