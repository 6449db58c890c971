"""`octopi-node pipeline audit`: the files of all replicas, checked and compared."""

from __future__ import annotations

from pathlib import Path

import attrs
import click

from octopi.cli.failures import ExitCode
from octopi.cli.invocation import json_option
from octopi.cli.rendering import counted, print_json, size
from octopi.cli.spark_job import spark_job, spark_options


@click.command()
@click.argument(
    "directories",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR...",
    nargs=-1,
    required=True,
)
@json_option
@spark_options
def audit(
    directories: tuple[Path, ...], as_json: bool, master: str, settings: tuple[str, ...]
) -> int:
    """Prove that the brokers' data directories DIR... hold what they must.

    \b
    For instance:
      octopi-node pipeline audit ./broker-1 ./broker-2 ./broker-3

    Checksums are right; replicas hold the same bytes up to the highwater mark; no request is
    there twice; each file begins where the one before ends.  Every fault names file and offset;
    one is enough for exit code 5.
    """
    with spark_job("octopi audit", master, settings) as spark:
        from octopi.spark.jobs import audit as job
        from octopi.spark.jobs.progress import shown

        with shown(spark, "auditing"):
            done = job.audit(spark, directories)
    if as_json:
        print_json(attrs.asdict(done))
    else:
        for fault in done.faults:
            click.echo(str(fault))
        verdict = counted(len(done.faults), "fault") if done.faults else "no fault"
        click.echo(
            f"audited {counted(done.logs, 'log')}, {counted(done.replicas, 'replica')}, "
            f"{size(done.size_bytes)}: {verdict}"
        )
    return ExitCode.DATA_FAULT if done.faults else ExitCode.OK
