"""`octopi-node events`: what a register, or brokers without one, decide and see, as it happens."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.invocation import (
    Invocation,
    client_options,
    json_option,
    pass_invocation,
    retry_option,
)
from octopi.cli.output import print_json_line, say

if TYPE_CHECKING:
    from octopi import Client
    from octopi.wire.messages import ClusterEvent, EventList

_INTERVAL_S: Final = 1.0
"""How often the register is asked for new events."""

_ORIGINS_KEPT: Final = 5_000
"""Of how many events it is remembered that they were printed: more than a broker tells."""


@click.command()
@click.option(
    "-n", "--count", "count_max", type=click.IntRange(min=1), help="End after this many events."
)
@click.option("-e", "--exit-at-end", is_flag=True, help="End after the events up to now.")
@json_option
@retry_option
@client_options
@pass_invocation
def events(
    invocation: Invocation,
    /,
    count_max: int | None,
    exit_at_end: bool,
    as_json: bool,
    retry_s: float | None,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Print what happens in a cluster, until Ctrl-C: brokers that join and leave, partitions that
    get another leader or other in-sync replicas, topics that are created and deleted.

    \b
    For instance:
      octopi-node events
      octopi-node events -e --json | jq 'select(.kind == "leader")'

    The register keeps its newest 1,000 events in memory; they are printed first, and begin anew
    when the register is started.  The console shows the same events.  If the register can't be
    reached for a time, the command goes on when it is back.  With --json each event is an object on
    a line of its own.

    In a cluster without a register each broker notes what it decides and sees itself, and the
    broker that is asked collects what all have noted.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s, retry_s=retry_s
    )

    from octopi.cli.client_request import connected
    from octopi.cli.running import run

    printer = _Printer(as_json, count_max)

    async def body() -> None:
        async with connected(settings) as client:
            printer.print(await client.admin.describe_events())
            if not exit_at_end:
                await _follow(client, printer, settings.retry_s)

    run(body, printer.summary)


async def _follow(client: Client, printer: _Printer, retry_s: float) -> None:
    """Print new events until *printer* has printed enough.

    Raises:
      OctopiError: if the register could not be reached for *retry_s*.
    """
    import trio

    from octopi.errors import OctopiError
    from octopi.retry import may_pass

    answered_at = trio.current_time()
    is_missing = False
    while not printer.is_done:
        await trio.sleep(_INTERVAL_S)
        try:
            printer.print(await client.admin.describe_events(printer.last))
        except OctopiError as error:
            if not may_pass(error) or trio.current_time() - answered_at >= retry_s:
                raise
            if not is_missing:
                say(f"no answer: {error}; asking again for {retry_s:g} s", err=True)
            is_missing = True
            continue
        if is_missing:
            say("events are told again", err=True)
        is_missing, answered_at = False, trio.current_time()


class _Printer:
    """Prints each event once."""

    def __init__(self, as_json: bool, count_max: int | None) -> None:
        self._as_json = as_json
        self._count_max = count_max
        self._count = 0
        self._life: str | None = None
        self._origins: dict[str, None] = {}
        """Of events of brokers without a register: those that were printed, the newest last."""
        self.last = 0
        """The number of the newest event that was printed."""

    @property
    def is_done(self) -> bool:
        """Whether as many were printed as shall be."""
        return self._count_max is not None and self._count >= self._count_max

    def summary(self) -> str:
        """What was done by now."""
        return f"{self._count} events printed"

    def print(self, found: EventList) -> None:
        """Print the events that are new.  After a start of the register the next answer has
        them, from the first one on."""
        if self._life not in (None, "", found.life):
            if not self._origins:
                say("the register was started anew; its events begin again", err=True)
            # Otherwise another broker tells what all have noted, with numbers of its own.
            self._life, self.last = found.life, 0
            return
        self._life = found.life
        for one in found.events:
            if one.number <= self.last or self.is_done:
                continue
            self.last = one.number
            if self._is_known(one.origin):
                continue
            self._count += 1
            if self._as_json:
                print_json_line({"life": found.life, **attrs.asdict(one)})
            else:
                say(_line(one))

    def _is_known(self, origin: str) -> bool:
        """Whether the event from there was printed; it counts as printed from now on."""
        is_known = origin in self._origins
        if origin and not is_known:
            self._origins[origin] = None
            if len(self._origins) > _ORIGINS_KEPT:
                del self._origins[next(iter(self._origins))]
        return is_known


def _line(event: ClusterEvent) -> str:
    time = datetime.fromtimestamp(event.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return f"{time.replace('+00:00', 'Z')}  {event.kind:<16}  {event.text}"
