"""`octopi-node produce`: each line of a file, or of standard input, becomes a message."""

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
from octopi.cli.invocation import Invocation, client_options, pass_invocation, retry_option
from octopi.cli.output import say
from octopi.cli.rate_meter import RateMeter
from octopi.cli.rendering import counted

if TYPE_CHECKING:
    from octopi import Producer
    from octopi.cli.producing import LineOptions

_STDIN: Final = 0


@attrs.define
class _Acknowledged:
    """Knows, while and after producing, how many messages are safe."""

    producer: Producer | None = None

    def summary(self) -> str:
        count = 0 if self.producer is None else self.producer.acknowledged_count
        return f"interrupted; {counted(count, 'message')} acknowledged"


@click.command()
@click.argument("topic")
@click.option("-f", "--file", default="-", metavar="FILE", help="Read FILE instead of stdin.")
@click.option("-k", "--key", help="The key of every message.")
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="A line's key is what stands before the first TEXT in it, its value what follows; "
    "a line without TEXT has no key.",
)
@click.option("-p", "--partition", type=int, help="The partition, instead of one by the key.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MESSAGES",
    help="At most so many messages a second.",
)
@click.option(
    "--linger",
    "linger_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long a batch waits for company.",
)
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

    A line's newline is no part of the message; all other bytes are.  The topic is created
    if it is missing.  Ends when every message is acknowledged, with a summary on standard
    error.
    """
    if key is not None and key_separator is not None:
        raise CommandError("give --key or --key-separator, not both", ExitCode.USAGE)
    if key_separator == "":
        raise CommandError("--key-separator can't be empty", ExitCode.USAGE)
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
    """How much there is to read, if that is known."""
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
        # A wrong name or address is reported now, not after long trying.
        await client.describe_topic(topic, create=True)
        await LineProducer(producer, topic, options, meter).produce(descriptor)
