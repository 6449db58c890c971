"""Runs a campaign of simulator seeds on a Spark cluster.

The function that runs a seed is an argument, because the search for faults (`octopi.cli.search`)
is a layer above this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VERDICT = (
    "seed bigint, rule string, text string, token string, digest string, cpu_s double, "
    "virtual_s double"
)
"""The fields of `SeedVerdict`, in their order."""

_TASK_SEEDS = 50
"""Large enough that the cost of a task hardly counts, and small enough that all cores end at about
the same time."""


@attrs.frozen
class SeedVerdict:
    """The result of the run of one seed."""

    seed: int
    rule: str
    """The rule that was broken; empty: none was."""
    text: str
    token: str
    """The plan token, which repeats that run."""
    digest: str
    cpu_s: float
    virtual_s: float


RunSeed = Callable[[str, int], SeedVerdict]
"""Runs the plan that a source draws from a seed; see `octopi.cli.search.FaultSearch.run_seed`."""


@attrs.frozen
class CampaignOptions:
    """Which seeds to run, and where to store the verdicts."""

    directory: Path
    """The directory for the verdicts, as Parquet; it must not exist yet."""
    count: int = 1000
    first: int = 1
    plans: str = "swarm"
    """The source that draws a plan from a seed: ``swarm`` or ``scenarios``."""
    prepare: Callable[[], None] | None = None
    """Called in each worker before its first run."""


@attrs.frozen
class Failures:
    """The runs that broke one rule."""

    rule: str
    count: int
    seed: int
    """The smallest seed of these runs."""
    text: str
    token: str
    """The plan token, which repeats the run of that seed."""


@attrs.frozen
class Campaign:
    """The result of a campaign."""

    runs: int
    cpu_s: float
    """The processor time of all runs together."""
    failures: list[Failures]


def simulate(spark: SparkSession, options: CampaignOptions, run_seed: RunSeed) -> Campaign:
    """Run the seeds with *run_seed*, store the verdicts, and group the failures by the rule that
    they broke."""
    from pyspark.sql.functions import count as count_rows, min as minimum

    prepare, plans = options.prepare, options.plans
    seeds = range(options.first, options.first + options.count)
    slices = max(1, min(options.count // _TASK_SEEDS, 10_000))
    slices = max(slices, min(options.count, spark.sparkContext.defaultParallelism))
    verdicts = spark.sparkContext.parallelize(seeds, slices).mapPartitions(
        lambda some: _run(some, plans, run_seed, prepare)
    )
    path = str(options.directory.absolute())
    spark.createDataFrame(verdicts, _VERDICT).write.parquet(path)
    stored = spark.read.parquet(path)
    (total,) = stored.selectExpr("count(*) as runs", "sum(cpu_s) as cpu_s").collect()
    failed = (
        stored.where("rule <> ''")
        .selectExpr("rule", "struct(seed, text, token) as run")
        .groupBy("rule")
        .agg(count_rows("*").alias("count"), minimum("run").alias("run"))
        .orderBy("rule")
        .collect()
    )
    failures = [
        Failures(
            one["rule"], one["count"], one["run"]["seed"], one["run"]["text"], one["run"]["token"]
        )
        for one in failed
    ]
    return Campaign(total["runs"], total["cpu_s"] or 0.0, failures)


def _run(
    seeds: Iterable[int], plans: str, run_seed: RunSeed, prepare: Callable[[], None] | None
) -> Iterator[tuple[Any, ...]]:
    if prepare is not None:
        prepare()
    for seed in seeds:
        yield attrs.astuple(run_seed(plans, seed))
