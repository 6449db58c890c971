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
from octopi.cli.invocation import Invocation, OctopiGroup, common_options, python_name
from octopi.cli.search import FindSearch

_COMMANDS: Final = {
    name: f"octopi.cli.commands.{python_name(name)}"
    for name in (
        "serve",
        "dev",
        "demo",
        "produce",
        "consume",
        "export",
        "import",
        "backup",
        "restore",
        "topics",
        "subscriptions",
        "dead-letters",
        "consumers",
        "brokers",
        "partitions",
        "status",
        "verify",
        "salvage",
        "retired",
        "token",
        "secret",
        "tls",
        "pipeline",
        "sim",
        "config",
        "completion",
    )
}

_EPILOG: Final = "\b\nExit codes:\n" + "\n".join(
    f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES.items()
)


class _ProgramCommands(OctopiGroup):
    places = _COMMANDS


@click.group(
    cls=_ProgramCommands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
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
