"""Runs one seed of a campaign in a worker of Spark.

Spark sends a worker the name of `run_seed`, so a worker needs this package.  The simulator is
imported only by the first run, because the worker may have to be prepared before.
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
