"""`octopi-node pipeline rates`: counts messages and bytes by time, topic and key."""

from __future__ import annotations

import tempfile
from pathlib import Path

import attrs
import click

from octopi.cli.config import ClientSettings
from octopi.cli.invocation import Invocation, json_option, pass_invocation
from octopi.cli.output import print_json, say
from octopi.cli.rendering import print_table
from octopi.cli.spark_job import cluster_options, connection, spark_job, spark_options


@click.command()
@click.argument("topics", metavar="T[,T...]")
@cluster_options
@click.option(
    "--window", default="1 minute", show_default=True, help="A duration, as Spark writes it."
)
@click.option("--by-key", is_flag=True, help="Count each key separately.")
@click.option(
    "--chart",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a page of HTML with charts.",
)
@click.option(
    "--continuous", is_flag=True, help="Go on counting, and update the page, until stopped."
)
@json_option
@spark_options
@pass_invocation
def rates(
    invocation: Invocation,
    /,
    topics: str,
    server: str | None,
    window: str,
    by_key: bool,
    chart: Path | None,
    continuous: bool,
    as_json: bool,
    master: str,
    settings: tuple[str, ...],
) -> None:
    """Count messages and bytes in windows of time, by topic and key.

    \b
    For instance:
      octopi-node pipeline rates orders --window '10 seconds' --chart rates.html
      octopi-node pipeline rates orders --by-key --chart rates.html --continuous

    With --continuous, it prints, and the page shows, how many bytes are not counted yet.
    """
    client = invocation.configuration().section(ClientSettings, server=server)
    source = connection(client) | {"subscribe": topics}
    with spark_job("octopi rates", master, settings) as spark, tempfile.TemporaryDirectory() as own:
        from octopi.spark.jobs import rates as job
        from octopi.spark.jobs.progress import batch_lines, shown

        options = job.RatesOptions(source, window=window, by_key=by_key)
        with shown(spark, "counting"):
            if continuous:
                query = job.start_rates(spark, options, Path(own))
                for line in batch_lines(query):
                    say(line, err=True)
                    if chart is not None:
                        page = job.chart_page(job.current_rates(spark), job.bytes_behind(query))
                        chart.write_text(page, encoding="utf-8")
            found = job.current_rates(spark) if continuous else job.rates(spark, options)
    if chart is not None:
        chart.write_text(job.chart_page(found, {}), encoding="utf-8")
    if as_json:
        print_json([attrs.asdict(one) for one in found])
    else:
        print_table(
            ["BEGIN", "TOPIC", "KEY", "MESSAGES", "BYTES"],
            [[one.begin, one.topic, one.key, one.count, one.size_bytes] for one in found],
        )
