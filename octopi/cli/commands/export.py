"""`octopi-node export`: write the messages of a topic to a file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

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
from octopi.cli.topic_completion import complete_topics

if TYPE_CHECKING:
    from octopi import Client

_STDOUT: Final = 1
_STANDARD: Final = Path("-")


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("place", metavar="[FILE|DIR]", type=click.Path(path_type=Path), default=_STANDARD)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["jsonl", "parquet", "lite"]),
    help="JSON lines as `consume --json` prints them, Parquet, or the files of Octopi Lite.  "
    "[default: parquet for a FILE that ends with .parquet, else jsonl]",
)
@click.option(
    "-o",
    "--offset",
    "start_text",
    default="earliest",
    show_default=True,
    metavar="START",
    help="Where to start, as for `consume`.",
)
@click.option("-p", "--partition", type=int, help="Export only this partition.")
@click.option("--force", is_flag=True, help="Replace a FILE that exists.")
@name_option
@retry_option
@client_options
@pass_invocation
def export(
    invocation: Invocation,
    /,
    topic: str,
    place: Path,
    file_format: Literal["jsonl", "parquet", "lite"] | None,
    start_text: str,
    partition: int | None,
    force: bool,
    server: str | None,
    timeout_s: float | None,
    retry_s: float | None,
) -> None:
    """Write the messages that TOPIC has now to FILE, or to TOPIC.jsonl or TOPIC.parquet in DIR.

    \b
    For instance:
      octopi-node export orders orders.jsonl
      octopi-node export orders | gzip > orders.jsonl.gz
      octopi-node export orders orders.parquet
      octopi-node export orders yesterday.jsonl -o @-1d
      octopi-node export lite files --format lite

    Without FILE, JSON lines are written to standard output.  `octopi-node import` reads both
    formats.  Messages of a partition are in their order.  A FILE appears when it is complete; if
    the command fails, none is left.  Offsets are written, but an import gives new ones: see
    `octopi-node backup`.

    With --format lite, DIR gets a directory for each broker, with a file for each partition of a
    topic of Octopi Lite: its messages one behind the other, 256 bytes each, as that broker's
    replica has them.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s, retry_s=retry_s
    )
    if file_format == "lite":
        if place == _STANDARD or start_text != "earliest" or partition is not None:
            raise CommandError(
                "--format lite needs a DIR, and writes whole topics: leave -o and -p out",
                ExitCode.USAGE,
            )
        _export_as_lite(settings, topic, place, force=force)
        return
    if file_format is None:
        file_format = "parquet" if place.suffix == ".parquet" else "jsonl"
    if place.is_dir():
        place = place / f"{topic}.{file_format}"
    if place == _STANDARD and file_format == "parquet":
        raise CommandError("Parquet needs a FILE: its end says where its parts are", ExitCode.USAGE)
    if place != _STANDARD and place.exists() and not force:
        raise CommandError(
            f"{place} exists: choose another name, or replace it with --force", ExitCode.USAGE
        )

    from octopi.cli.exporting import require_pyarrow
    from octopi.cli.running import run
    from octopi.cli.start_option import parse_start

    if file_format == "parquet":
        require_pyarrow()
    options: dict[str, Any] = {
        "start": parse_start(start_text),
        "stop_at_end": True,
        "reconnect_timeout_s": settings.retry_s,
    }
    if partition is not None:
        options["partitions"] = [partition]
    meter = RateMeter()

    def interrupted() -> str:
        if place == _STANDARD:
            return f"interrupted; {meter.summary()}"
        return f"interrupted; {place} was not written: run the command again"

    with meter.shown(f"exporting {topic}"):
        run(partial(_export, settings, topic, options, place, file_format, meter), interrupted)
    where = "" if place == _STANDARD else f" in {place}"
    say(f"{meter.summary()}{where}", err=True)


def _export_as_lite(settings: ClientSettings, topic: str, place: Path, *, force: bool) -> None:
    from octopi.cli.client_request import connected
    from octopi.cli.lite_export import export_lite
    from octopi.cli.rendering import counted
    from octopi.cli.running import run

    meter = RateMeter()

    async def write() -> int:
        async with connected(settings) as client:
            return await export_lite(client, topic, place, meter, force=force)

    def interrupted() -> str:
        return f"interrupted; some files of {place} were not written: run the command again"

    with meter.shown(f"exporting {topic}"):
        count = run(write, interrupted)
    say(f"{meter.summary()} in {counted(count, 'file')} of {place}", err=True)


async def _export(
    settings: ClientSettings,
    topic: str,
    options: dict[str, Any],
    place: Path,
    file_format: str,
    meter: RateMeter,
) -> None:
    from octopi.cli import exporting
    from octopi.cli.client_request import connected
    from octopi.cli.consuming import Output, check_start, one_by_one
    from octopi.cli.message_format import as_json

    async def write(client: Client) -> None:
        async with client.consumer(topic, **options) as consumer:
            await check_start(client, consumer, options["start"])
            if place == _STANDARD:
                await Output(_STDOUT, one_by_one(as_json), meter).copy(consumer)
                meter.stop()
            elif file_format == "parquet":
                await exporting.export(consumer, place, exporting.parquet_writer, meter)
            else:
                await exporting.export(consumer, place, exporting.JsonLinesWriter, meter)

    async with connected(settings) as client:
        await write(client)
