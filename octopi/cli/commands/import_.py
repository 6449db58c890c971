"""`octopi-node import`: produce the messages of a file that `export` has written, or like that."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from octopi.cli.config import ClientSettings
from octopi.cli.input_file import opened, size_bytes_of
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
    from octopi.cli.parquet_files import ParquetReader
    from octopi.cli.produce_run import ProduceRun
    from octopi.cli.producing import LineProducer, Portion

_STANDARD: Final = Path("-")


@click.command("import")
@click.argument("topic", shell_complete=complete_topics)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["jsonl", "parquet"]),
    help="The format of FILE.  [default: parquet if it ends with .parquet, else jsonl]",
)
@click.option(
    "--skip",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Leave out the first N messages, which an earlier run has produced.",
)
@click.option(
    "-p", "--partition", type=int, help="Partition of every message; by default the key decides."
)
@click.option(
    "--no-create", is_flag=True, help="Fail if TOPIC doesn't exist, instead of creating it."
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MESSAGES",
    help="Send at most this many messages per second.",
)
@name_option
@retry_option
@client_options
@pass_invocation
def import_(
    invocation: Invocation,
    /,
    topic: str,
    file: Path,
    file_format: Literal["jsonl", "parquet"] | None,
    skip: int,
    partition: int | None,
    no_create: bool,
    rate: float | None,
    server: str | None,
    timeout_s: float | None,
    retry_s: float | None,
) -> None:
    """Append the messages in FILE to TOPIC, with their keys, headers and time stamps.

    \b
    For instance:
      octopi-node import orders orders.jsonl
      octopi-node import orders orders.parquet
      zcat orders.jsonl.gz | octopi-node import orders -
      octopi-node import orders orders.jsonl --skip 120000

    FILE is what `octopi-node export` writes, or another file of that form: JSON objects on lines
    with "value", and perhaps "key", "headers" and "timestamp_ms"; or Parquet with the columns
    value, and perhaps key, headers and timestamp.  It is read a piece at a time.  Messages get new
    offsets, and the key decides about the partition.  If the command fails or is interrupted, it
    names the first message that was not acknowledged, and --skip goes on there.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s, retry_s=retry_s
    )
    if file_format is None:
        file_format = "parquet" if file.suffix == ".parquet" else "jsonl"

    from octopi.cli.produce_run import ProduceRun
    from octopi.cli.producing import LineOptions

    meter = RateMeter()
    options = LineOptions(
        as_json=True,
        partition=partition,
        rate=math.inf if rate is None else rate,
        skip=skip,
        unit="line" if file_format == "jsonl" else "row",
    )
    produce_run = ProduceRun(
        settings,
        topic,
        options,
        meter,
        create_topic=not no_create,
        can_go_on=file != _STANDARD,
    )
    if file_format == "jsonl":
        _import_lines(produce_run, file)
    else:
        _import_parquet(produce_run, file)
    say(meter.summary(), err=True)


def _import_lines(produce_run: ProduceRun, file: Path) -> None:
    from octopi.cli.running import run

    with opened(str(file)) as descriptor:

        async def work(lines: LineProducer) -> None:
            await lines.produce(descriptor)

        with produce_run.meter.shown("importing", size_bytes_of(descriptor)):
            run(partial(produce_run.produce, work), produce_run.summary)


def _import_parquet(produce_run: ProduceRun, file: Path) -> None:
    from octopi.cli.exporting import require_pyarrow
    from octopi.cli.producing import check_skip
    from octopi.cli.running import run

    require_pyarrow()
    from octopi.cli.parquet_files import ParquetReader

    size_bytes = file.stat().st_size
    reader = ParquetReader(file)
    skip = produce_run.options.skip
    check_skip(skip, reader.count, "row")

    async def work(lines: LineProducer) -> None:
        await lines.produce_portions(_portions(reader, skip, size_bytes))

    try:
        with produce_run.meter.shown("importing", size_bytes):
            run(partial(produce_run.produce, work), produce_run.summary)
    finally:
        reader.close()


async def _portions(
    reader: ParquetReader, skip: int, size_bytes: int
) -> AsyncGenerator[Portion, None]:
    import trio

    portions = reader.portions(skip)
    while (messages := await trio.to_thread.run_sync(next, portions, None)) is not None:
        yield messages, len(messages) * size_bytes // reader.count
