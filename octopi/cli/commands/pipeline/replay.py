"""`octopi-node pipeline replay`: sends an archive to a topic."""

from __future__ import annotations

from pathlib import Path

import click

from octopi.cli.config import ClientSettings
from octopi.cli.invocation import Invocation, pass_invocation
from octopi.cli.output import say
from octopi.cli.rendering import counted
from octopi.cli.spark_job import cluster_options, connection, spark_job, spark_options


@click.command()
@click.argument(
    "directory", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR"
)
@click.argument("topic")
@click.option("--only", metavar="T[,T...]", help="Send only these archived topics.  [default: all]")
@cluster_options
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    metavar="X",
    help="Send at X times the recorded pace.  [default: as fast as possible]",
)
@spark_options
@pass_invocation
def replay(
    invocation: Invocation,
    /,
    directory: Path,
    topic: str,
    only: str | None,
    server: str | None,
    speed: float | None,
    master: str,
    settings: tuple[str, ...],
) -> None:
    """Send the messages archived in DIR to TOPIC, in order for each key.

    \b
    For instance, as fast as possible, and at the recorded pace:
      octopi-node pipeline replay ./archive orders-again
      octopi-node pipeline replay ./archive orders-live --speed 1

    If the command is repeated, it sends only the messages that are not in TOPIC yet.
    """
    client = invocation.configuration().section(ClientSettings, server=server)
    with spark_job("octopi replay", master, settings) as spark:
        from octopi.spark.jobs import replay as job
        from octopi.spark.jobs.progress import shown

        names = tuple(only.split(",")) if only else ()
        options = job.ReplayOptions(directory, topic, connection(client), only=names, speed=speed)
        with shown(spark, "replaying"):
            done = job.replay(spark, options)
    say(f"replayed {counted(done.logs, 'log')}: {counted(done.rows, 'message')} are in {topic}")
