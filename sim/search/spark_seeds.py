"""One seed of a campaign on Spark, in a worker there.

Spark sends a worker the name of `run_seed`, so a worker needs this package.  The simulator is
imported by the first run and not before, so that what is prepared in a worker comes first.
"""

from __future__ import annotations

from octopi.spark.jobs.simulate import SeedVerdict


def run_seed(source: str, seed: int) -> SeedVerdict:
    """Run the plan that *source* (`sim.search.seed_search.SOURCES`) draws from *seed*."""
    from sim.search import seed_search

    _, outcome = seed_search.run_seed(source, None, seed)
    return SeedVerdict(
        seed=seed,
        rule=outcome.rule,
        text=outcome.text,
        token=outcome.token,
        digest=outcome.digest,
        cpu_s=outcome.cpu_s,
        virtual_s=outcome.seconds,
    )
