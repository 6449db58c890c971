"""`octopi-node pipeline simulate`: runs many seeds of the simulator on Spark."""

from __future__ import annotations

from pathlib import Path

import click

from octopi.cli.failures import ExitCode
from octopi.cli.invocation import Invocation, pass_invocation
from octopi.cli.output import say
from octopi.cli.rendering import counted
from octopi.cli.spark_job import spark_job, spark_options


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--seeds", type=click.IntRange(min=1), default=1000, show_default=True, metavar="N")
@click.option("--first", type=click.IntRange(min=0), default=1, show_default=True, metavar="SEED")
@click.option(
    "--plans",
    type=click.Choice(["swarm", "scenarios"]),
    default="swarm",
    show_default=True,
    help="swarm draws each option independently, scenarios draws faults that belong together.",
)
@spark_options
@pass_invocation
def simulate(
    invocation: Invocation,
    /,
    directory: Path,
    seeds: int,
    first: int,
    plans: str,
    master: str,
    settings: tuple[str, ...],
) -> int:
    """Run the plans of many seeds; write the verdicts to Parquet files in DIR.

    \b
    For instance:
      octopi-node pipeline simulate ./verdicts --seeds 2000

    Failures are grouped by the promise that they break; for each group one line is printed that
    replays a run.  The simulator is part of the source: run this in a checkout, with the same
    checkout on each worker.
    """
    search = invocation.search()
    with spark_job("octopi simulate", master, settings) as spark:
        from octopi.spark.jobs import simulate as job
        from octopi.spark.jobs.progress import shown

        options = job.CampaignOptions(directory, count=seeds, first=first, plans=plans)
        with shown(spark, "simulating"):
            done = job.simulate(spark, options, search.run_seed)
    for one in done.failures:
        say(f"{one.rule}: {counted(one.count, 'run')}, the first is seed {one.seed}: {one.text}")
        say(f"  octopi-node sim replay '{one.token}'")
    say(
        f"{counted(done.runs, 'run')}, {done.cpu_s:,.0f} s of processor time: "
        f"{counted(len(done.failures), 'broken promise')}"
    )
    return ExitCode.FAILED if done.failures else ExitCode.OK
