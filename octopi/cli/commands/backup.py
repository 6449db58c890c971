"""`octopi-node backup`: copy a topic's logs to a directory."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from octopi.cli.config import ClientSettings
from octopi.cli.invocation import Invocation, client_options, name_option, pass_invocation
from octopi.cli.output import say
from octopi.cli.rate_meter import RateMeter
from octopi.cli.rendering import counted
from octopi.cli.topic_completion import complete_topics

if TYPE_CHECKING:
    from octopi.cli.backup_files import Manifest


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@name_option
@client_options
@pass_invocation
def backup(
    invocation: Invocation,
    /,
    topic: str,
    directory: Path,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Copy what TOPIC has now to DIR, a new or empty directory, so that it can be restored.

    \b
    For instance:
      octopi-node backup orders ./backups/orders-monday
      octopi-node restore ./backups/orders-monday --topic orders-again

    A backup has the records themselves: `octopi-node restore` makes a topic with the same offsets,
    time stamps, keys and headers.  Each log is copied up to its end when its turn comes; each
    record is checked.  The file backup.json is written last: without it a backup is not complete.
    Durable subscriptions are not in it.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.cli.running import run

    meter = RateMeter()
    with meter.shown(f"backing up {topic}"):
        manifest = run(
            partial(_back_up, settings, topic, directory, meter),
            lambda: f"interrupted; {directory} has no complete backup: run the command again",
        )
    logs = counted(len(manifest.logs), "log")
    say(f"backed up {topic} to {directory}: {logs}, {meter.summary()}", err=True)
    for log in manifest.logs:
        if log.start > 0:
            say(
                f"warning: partition {log.partition} begins at offset {log.start:,}, because "
                "retention had removed what was before it: its offsets can't be kept by restore, "
                "which takes --new-offsets",
                err=True,
            )


async def _back_up(
    settings: ClientSettings, topic: str, directory: Path, meter: RateMeter
) -> Manifest:
    from octopi.cli.backing_up import back_up
    from octopi.cli.client_request import connected
    from octopi.operating_system import SystemDisk

    async with connected(settings) as client:
        return await back_up(client, topic, directory, SystemDisk(), meter)
