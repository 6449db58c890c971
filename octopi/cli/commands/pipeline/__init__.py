"""`octopi-node pipeline`: jobs on Spark, one file for each.

Spark is imported only when a job runs, so that the help is quick and works without Spark.
"""

from __future__ import annotations

from typing import Final

import click

from octopi.cli.invocation import LazyGroup

_JOBS: Final = {
    name: f"octopi.cli.commands.pipeline.{name}"
    for name in ("archive", "replay", "rates", "audit", "simulate")
}


class _Jobs(LazyGroup):
    places = _JOBS


@click.group(cls=_Jobs)
def pipeline() -> None:
    """Move, count and check messages with Apache Spark.

    Needs `pip install 'octopi-node[spark]'` and Java 17 or newer.  Jobs run on this machine's
    processors, or on the Spark cluster that --master names.
    """
