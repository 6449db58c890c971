"""`octopi-node pipeline archive`: writes topics to Parquet files."""

from __future__ import annotations

from pathlib import Path

import click

from octopi.cli.config import ClientSettings
from octopi.cli.invocation import Invocation, json_option, pass_invocation
from octopi.cli.output import print_json, say
from octopi.cli.rendering import counted
from octopi.cli.spark_job import cluster_options, connection, spark_job, spark_options


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
@click.option("--topic", "topics", metavar="T[,T...]", help="Archive these topics.")
@click.option("--pattern", metavar="REGEX", help="Or archive topics whose names match.")
@cluster_options
@click.option("--continuous", is_flag=True, help="Archive new messages until stopped.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How often files are written with --continuous.",
)
@click.option(
    "--file-bytes",
    type=click.IntRange(min=0),
    metavar="N",
    help="Merge neighbouring files up to this size; 0: merge none.  [default: 256 MiB]",
)
@json_option
@spark_options
@pass_invocation
def archive(
    invocation: Invocation,
    /,
    directory: Path,
    topics: str | None,
    pattern: str | None,
    server: str | None,
    continuous: bool,
    interval_s: float,
    file_bytes: int | None,
    as_json: bool,
    master: str,
    settings: tuple[str, ...],
) -> None:
    """Write topics to Parquet files in DIR; each message is in exactly one file.

    \b
    For instance:
      octopi-node pipeline archive ./archive --topic orders
      octopi-node pipeline archive ./archive --pattern 'orders.*' --continuous

    If the command was stopped or killed, run it again: it continues where it was.  In the end
    small files are merged; don't read the archive during that time.
    """
    if bool(topics) == bool(pattern):
        raise click.UsageError("say which topics: --topic orders,bills or --pattern 'orders.*'")
    client = invocation.configuration().section(ClientSettings, server=server)
    source = connection(client)
    if topics:
        source["subscribe"] = topics
    if pattern:
        source["subscribePattern"] = pattern
    with spark_job("octopi archive", master, settings) as spark:
        from octopi.spark.jobs import archive as job
        from octopi.spark.jobs.progress import batch_lines, shown

        size = job.FILE_BYTES if file_bytes is None else file_bytes
        options = job.ArchiveOptions(
            directory, source, continuous=continuous, interval_s=interval_s, file_bytes=size
        )
        with shown(spark, "archiving"):
            query = job.start_archive(spark, options)
            for line in batch_lines(query):
                say(line, err=True)
            done = job.finish(spark, options, query)
    if as_json:
        print_json(
            {
                "batches": done.batches,
                "rows": done.rows,
                "merged": done.merged_files,
                "gaps": done.gaps,
            }
        )
    else:
        merged = f"; {counted(done.merged_files, 'file')} merged into others"
        gaps = f"; messages are missing at {counted(done.gaps, 'place')}: see the warnings"
        say(
            f"archived {counted(done.rows, 'message')}"
            f"{merged if done.merged_files else ''}{gaps if done.gaps else ''}"
        )
