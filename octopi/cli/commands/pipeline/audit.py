"""`octopi-node pipeline audit`: checks and compares the files of all replicas."""

from __future__ import annotations

from pathlib import Path

import attrs
import click

from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import json_option
from octopi.cli.output import print_json, say
from octopi.cli.rendering import counted, size
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
    """Check the brokers' data directories DIR..., and compare their replicas.

    \b
    For instance:
      octopi-node pipeline audit ./broker-1 ./broker-2 ./broker-3

    Checks that all checksums match, that replicas hold the same bytes up to the highwater mark,
    that no request is stored twice, and that each file begins where the one before ends.  Every
    fault is printed with file and offset; the exit code is 5 if there is any.

    Records that are not known to be committed are listed, and not compared.  Brokers note the
    highwater mark within a second, so they may run, or have been killed.  If nothing could be
    compared, the exit code is 1.
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
            say(str(fault))
        for rest in done.not_judged:
            say(str(rest))
        verdict = counted(len(done.faults), "fault") if done.faults else "no fault"
        say(
            f"audited {counted(done.logs, 'log')}, {counted(done.replicas, 'replica')}, "
            f"{size(done.size_bytes)}: {verdict}"
        )
    if done.faults:
        return ExitCode.DATA_FAULT
    if not done.size_bytes and (done.not_judged or not done.logs):
        raise CommandError(
            "nothing was judged: "
            + (
                "no record is known to be committed; let the brokers run for a second, or stop "
                "them with SIGTERM, and audit again"
                if done.not_judged
                else "these directories hold no records"
            )
        )
    return ExitCode.OK
