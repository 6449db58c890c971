"""`octopi-node retired`: list and remove the replicas that a broker has retired."""

from __future__ import annotations

import sys

import attrs
import click

from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import common_options, json_option
from octopi.cli.output import agreed, print_json, say
from octopi.cli.rendering import counted, print_table, size

_DIRECTORY = click.Path(exists=True, file_okay=False)


@click.group()
def retired() -> None:
    """List and remove retired replicas: those that a broker no longer has, but still keeps.

    DIR is the data directory of a broker, running or stopped.
    """


@retired.command("list")
@click.argument("directory", type=_DIRECTORY, metavar="DIR")
@json_option
@common_options
def list_retired(directory: str, as_json: bool) -> None:
    """Print the retired replicas in DIR.

    A broker retires a replica when the register places the partition on other brokers.  It keeps
    the files for --keep-retired seconds of its running time.  If the partition was moved by
    mistake, and no other broker has the records, `octopi-node salvage` prints them.

    \b
    For instance:
      octopi-node retired list ./broker-1
      octopi-node verify ./broker-1/retired/NAME
      octopi-node salvage ./broker-1/retired/NAME
    """
    from octopi.cli.retired_replicas import find_retired
    from octopi.operating_system import SystemDisk

    found = find_retired(SystemDisk(), directory)
    if as_json:
        print_json([attrs.asdict(one) for one in found])
        return
    print_table(
        ["NAME", "PARTITION", "EPOCH", "RETIRED", "KEPT SECONDS", "LOGS", "SIZE", "STATE"],
        [
            [
                one.name,
                one.partition,
                one.epoch,
                one.retired_at,
                one.kept_s,
                one.logs,
                size(one.size_bytes),
                one.state,
            ]
            for one in found
        ],
    )


@retired.command()
@click.argument("directory", type=_DIRECTORY, metavar="DIR")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--yes", is_flag=True, help="Don't ask for confirmation.")
@common_options
def remove(directory: str, names: tuple[str, ...], yes: bool) -> None:
    """Remove retired replicas from DIR, with every message in them, for good.

    \b
    For instance:
      octopi-node retired remove ./broker-1 0-5-20260131T120000Z --yes
    """
    from octopi.cli.retired_replicas import remove as remove_one
    from octopi.operating_system import SystemDisk

    if not yes:
        if not sys.stdin.isatty():
            raise CommandError(
                "removing a retired replica deletes its messages: confirm with --yes, as standard "
                "input is not a terminal",
                ExitCode.USAGE,
            )
        agreed(f"remove {counted(len(names), 'retired replica')} of {directory} for good?")
    disk = SystemDisk()
    for name in names:
        remove_one(disk, directory, name)
        say(f"removed {name}")
