"""`octopi-node restore`: make a topic of a backup."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.failures import PROGRAM
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
    from octopi.cli.backup_files import Manifest


@click.command()
@click.argument(
    "directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False, exists=True)
)
@click.option("--topic", metavar="NAME", help="Restore to this topic.  [default: as in the backup]")
@click.option(
    "--new-offsets",
    is_flag=True,
    help="Produce the messages again, with new offsets, instead of keeping them.",
)
@click.option(
    "--no-retention",
    is_flag=True,
    help="Create the topic without the retention that it had, so that old messages stay.",
)
@name_option
@retry_option
@client_options
@pass_invocation
def restore(
    invocation: Invocation,
    /,
    directory: Path,
    topic: str | None,
    new_offsets: bool,
    no_retention: bool,
    server: str | None,
    timeout_s: float | None,
    retry_s: float | None,
) -> None:
    """Make a topic of the backup in DIR, with the same offsets, time stamps, keys and headers.

    \b
    For instance:
      octopi-node restore ./backups/orders-monday
      octopi-node restore ./backups/orders-monday --topic orders-again

    The topic is created with its options and on its partitions; one that is there has to be empty,
    and keeps its options.  The whole backup is checked first: if a file is cut or damaged, nothing
    is restored.  Afterwards each log is read again and compared with the backup.

    A log whose beginning retention had removed can't keep its offsets; --new-offsets restores its
    messages.  The topic has a new id, so saved positions are not valid in it, but offsets are.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s, retry_s=retry_s
    )

    from octopi.cli.backup_files import read_manifest
    from octopi.cli.restoring import check_files, check_starts
    from octopi.cli.running import run

    manifest = read_manifest(directory)
    topic = topic or manifest.topic
    if not new_offsets:
        check_starts(manifest)
    check_files(manifest, directory)
    if no_retention:
        options = attrs.evolve(
            manifest.options,
            retention_ms=None,
            retention_bytes=None,
            hold_ms=None,
            hold_bytes=None,
        )
        manifest = attrs.evolve(manifest, options=options)
    meter = RateMeter()
    with meter.shown(f"restoring {topic}", sum(log.size_bytes for log in manifest.logs)):
        moved = run(
            partial(_restore, settings, manifest, directory, topic, new_offsets, meter),
            lambda: (
                f"interrupted; {topic} is not whole: run `{PROGRAM} topics delete {topic}`, and "
                "restore again"
            ),
        )
    logs = counted(len(manifest.logs), "log")
    offsets = "with new offsets" if new_offsets else "with its offsets"
    say(f"restored {topic} {offsets}: {logs}, {meter.summary()}", err=True)
    for before, now in moved:
        say(f"note: what was in partition {before} is in partition {now}", err=True)


async def _restore(
    settings: ClientSettings,
    manifest: Manifest,
    directory: Path,
    topic: str,
    new_offsets: bool,
    meter: RateMeter,
) -> list[tuple[int, int]]:
    """Restore; return the numbers of the partitions that are others now."""
    from octopi.cli.client_request import connected
    from octopi.cli.restoring import find_targets, restore_log, restore_messages

    async with connected(settings) as client:
        info, targets = await find_targets(client, manifest, directory, topic)
    # Only what follows goes on through an outage: a wrong address was reported at once.
    patient = attrs.evolve(settings, timeout_s=max(settings.timeout_s, settings.retry_s))
    meter.start()
    async with connected(patient) as client:
        if new_offsets:
            async with client.producer(
                delivery_timeout_s=settings.retry_s, create_topics=False
            ) as producer:
                for target in targets:
                    await restore_messages(producer, info, target, meter)
        else:
            for target in targets:
                await restore_log(client, info, target, meter)
    meter.stop()
    return [
        (target.log.partition, target.partition)
        for target in targets
        if target.log.partition != target.partition
    ]
