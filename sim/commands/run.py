"""``sim run``: runs the plans of many seeds."""

from __future__ import annotations

from pathlib import Path

import click

from octopi.cli.failures import ExitCode
from octopi.cli.invocation import common_options
from octopi.cli.output import say_lines
from sim.commands.options import (
    interrupted,
    jobs_option,
    json_file_option,
    tier_option,
    write_numbers,
)


@click.command()
@click.option(
    "--seeds", type=click.IntRange(min=1), metavar="N", help="How many seeds.  [default: 100]"
)
@click.option("--first", type=click.IntRange(min=0), default=1, show_default=True, metavar="SEED")
@click.option(
    "--time", "time_s", type=float, metavar="SECONDS", help="Begin no run after this time."
)
@click.option(
    "--plans",
    type=click.Choice(["swarm", "scenarios", "registers", "ring", "relay", "pipes"]),
    default="swarm",
    show_default=True,
    help="swarm draws each option independently, scenarios draws faults that belong together, "
    "registers draws clusters with three registers, in both ways, ring draws clusters without a "
    "register, relay draws topics in memory, pipes draws pipes from topic to topic.",
)
@tier_option
@jobs_option
@click.option(
    "--pages",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write an HTML page for each failing run to DIR.",
)
@json_file_option
@common_options
def run(
    seeds: int | None,
    first: int,
    time_s: float | None,
    plans: str,
    tier: str | None,
    jobs: int,
    pages: Path | None,
    json_file: Path | None,
) -> int:
    """Run the plans of many seeds; print those that break a promise.

    \b
    For instance, a hundred, or for an hour with a page for each failure:
      octopi-node sim run
      octopi-node sim run --time 3600 --first 100000 --pages ./failures

    A seed stands for a plan: the cluster, its load, the network and the faults are drawn from the
    seed.  The oracle checks the nodes at every step, and the clients' history is checked in the
    end.  For a failing seed, one line is printed that replays it.

    Every 20th seed is run twice, in different processes; if the two runs differ in anything, the
    simulator has a bug.

    Exits with code 1 if any seed failed.
    """
    from sim.search.seed_search import SearchOptions, SeedSearch

    count = seeds or (100 if time_s is None else None)
    options = SearchOptions(first, count, plans, tier, time_s, jobs, pages)  # type: ignore[arg-type]
    search = SeedSearch(options, say_lines)
    try:
        search.run()
    except KeyboardInterrupt:
        raise interrupted(search.summary()) from None
    finally:
        write_numbers(json_file, search.numbers())
    say_lines(search.report())
    return ExitCode.FAILED if search.failed_count else ExitCode.OK
