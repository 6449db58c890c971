"""`octopi-node trace`: what nodes did, from the files that they wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import common_options
from octopi.cli.output import say

if TYPE_CHECKING:
    from octopi.simulation.report.recording import Recording

_LAST: Final = 20_000


@click.command()
@click.argument(
    "places", nargs=-1, required=True, metavar="FILE|DIR...", type=click.Path(exists=True)
)
@click.option("--page", metavar="FILE", help="Write a page with a diagram, to be read offline.")
@click.option("--shiviz", metavar="FILE", help="Write a log for ShiViz, with vector clocks.")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=_LAST,
    metavar="N",
    help=f"How many of the newest steps and messages to show.  [default: {_LAST}]",
)
@common_options
def trace(places: tuple[str, ...], page: str | None, shiviz: str | None, last: int) -> None:
    """Show what the nodes of a cluster did: each step of the protocol, and each message between
    them, from the files that they wrote.

    A node writes such a file when it is started with --trace, or with OCTOPI_TRACE.  If that is a
    directory, each node has a file in it, named after its role and port.  Give the files of all
    nodes, or their directory; whose file is missing is shown as a client.

    \b
    For instance:
      mkdir traces && OCTOPI_TRACE=traces octopi-node dev --brokers 3
      octopi-node trace traces | less
      octopi-node trace traces --page traces.html

    Nothing precedes its cause, even where clocks of machines differ.  Tokens, secrets and what
    programs produce are not in the files.
    """
    from octopi.simulation.report.html import write_page
    from octopi.simulation.report.shiviz import shiviz_log
    from octopi.simulation.report.timeline import timeline

    recording = _recording([Path(one) for one in places], last)
    if page is not None:
        write_page(recording, Path(page))
        say(f"wrote {page}")
    if shiviz is not None:
        Path(shiviz).write_text(shiviz_log(recording), encoding="utf-8")
        say(f"wrote {shiviz}")
    if page is None and shiviz is None:
        for line in timeline(recording):
            say(line)


def _recording(places: list[Path], last: int) -> Recording:
    """What is in *places*.

    Raises:
      CommandError: if there is no trace, or a file is none.
    """
    from octopi.simulation.report.trace_files import read_traces

    files = [
        file
        for place in places
        for file in (sorted(place.glob("*.trace")) if place.is_dir() else [place])
    ]
    if not files:
        raise CommandError(
            f"no file in {places[0]} ends with .trace; start nodes with --trace {places[0]}",
            ExitCode.USAGE,
        )
    try:
        return read_traces(files, last)
    except ValueError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
