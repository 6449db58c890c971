"""The program `octopi-node`: its commands and its help.

Commands are imported when they are used, and import slow modules only when they run, so that help
and completion answer at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

import click

from octopi import __version__
from octopi.cli.failures import EXIT_CODES, PROGRAM
from octopi.cli.invocation import (
    Invocation,
    OctopiGroup,
    common_options,
    context_option,
    python_name,
)
from octopi.cli.search import FindSearch

_SECTIONS: Final = {
    "Try it": ("demo", "dev"),
    "Messages": ("produce", "consume", "topics", "subscriptions", "dead-letters", "consumers"),
    "Run a cluster": ("serve", "status", "events", "trace", "brokers", "partitions", "bench"),
    "Without a register": ("ring", "cluster", "relay"),
    "Topics in files": ("export", "import", "backup", "restore"),
    "Data on disks": ("verify", "salvage", "retired"),
    "Access": ("context", "token", "secret", "tls"),
    "Jobs on Spark": ("pipeline",),
    "This program": ("config", "completion"),
    "For developers of Octopi": ("sim",),
}
"""The commands by their purpose, in the order of the help."""

_COMMANDS: Final = {
    name: f"octopi.cli.commands.{python_name(name)}"
    for names in _SECTIONS.values()
    for name in names
}

_EPILOG: Final = "\b\nExit codes:\n" + "\n".join(
    f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES.items()
)


class _ProgramCommands(OctopiGroup):
    places = _COMMANDS
    sections = _SECTIONS


def _show_version(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not context.resilient_parsing:
        from octopi.cli.output import say
        from octopi.kernels import description

        say(f"{PROGRAM} {__version__} ({description()})")
        context.exit()


@click.group(
    cls=_ProgramCommands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version, and which code handles records, and exit.",
)
@context_option
@common_options
def cli() -> None:
    """A replicated log that speaks WebSocket: one program for every server role.

    \b
    See it work:
      octopi-node demo
    Try it out (in two terminals):
      octopi-node dev
      seq 1000 | octopi-node produce numbers && octopi-node consume numbers -e
    Run nodes:
      octopi-node --role register --listen 127.0.0.1:7000 --data-dir ./register
      octopi-node --role broker --register ws://127.0.0.1:7000 --data-dir ./broker \\
        --join-secret ./register/join-secret
    """


def main(find_search: FindSearch, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program with *arguments* (None: those of the process).  *find_search* imports the
    search for faults."""
    cli.main(arguments, obj=Invocation(find_search=find_search))
