"""`octopi-node pipeline audit`: the files of all replicas, checked and compared."""

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
    """Prove that the brokers' data directories DIR... hold what they must.

    \b
    For instance:
      octopi-node pipeline audit ./broker-1 ./broker-2 ./broker-3

    Checksums are right; replicas hold the same bytes up to the highwater mark; no request is
    there twice; each file begins where the one before ends.  Every fault names file and offset;
    one is enough for exit code 5.

    Records that are not known to be committed are not judged, and listed: the mark is noted
    within a second, also by brokers that run or were killed.  Where nothing could be judged,
    the exit code is 1.
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
