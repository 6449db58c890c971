"""``sim meta``: the same seeds in many processes have the same digests."""

from __future__ import annotations

from pathlib import Path

import click

from octopi.cli.failures import ExitCode
from octopi.cli.invocation import common_options
from octopi.cli.output import say_lines
from octopi.cli.rendering import counted
from sim.commands.options import (
    interrupted,
    jobs_option,
    json_file_option,
    need_python,
    tier_option,
    write_numbers,
)


@click.command()
@click.option("--seeds", type=click.IntRange(min=1), default=100, show_default=True, metavar="N")
@click.option("--first", type=click.IntRange(min=0), default=1, show_default=True, metavar="SEED")
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="PATH",
    help="Another Python to run them with.  [python3.11 and so on, where they are found]",
)
@tier_option
@jobs_option
@json_file_option
@common_options
def meta(
    seeds: int,
    first: int,
    pythons: tuple[str, ...],
    tier: str | None,
    jobs: int,
    json_file: Path | None,
) -> int:
    """Check that runs depend on nothing but their plans.

    \b
    For instance:
      octopi-node sim meta --seeds 1000
      octopi-node sim meta --python ~/venvs/3.13/bin/python

    Every seed is run by two processes with different hash seeds, and by every other Python with
    the same versions of Trio, the WebSocket stack and CBOR.  The digests of all events have to be
    the same.  Prints which Pythons were left out, and why.

    Exits with code 1 if any digests differ.
    """
    need_python()
    from sim.search.determinism import Comparison, compare, interpreters, shares
    from sim.search.progress_bar import ProgressBar

    found, skipped = interpreters(pythons)
    for why in skipped:
        say_lines(f"left out: {why}", err=True)
    work = list(shares(first, seeds, found))
    comparison = Comparison()

    def summary() -> str:
        return (
            f"{counted(comparison.seed_count, 'seed')} in {counted(comparison.runs, 'run')} by "
            f"Python {', '.join(one.version for one in found)}: "
            f"{counted(len(comparison.mismatches()), 'mismatch')}"
        ).replace("mismatchs", "mismatches")

    try:
        with ProgressBar("run", sum(one.count for one in work)) as progress:
            for _ in compare(work, tier, jobs, comparison):
                progress.set(comparison.runs, len(comparison.mismatches()))
    except KeyboardInterrupt:
        raise interrupted(summary()) from None
    mismatches = comparison.mismatches()
    for one in mismatches:
        say_lines(f"{one}")
    write_numbers(
        json_file,
        {
            "seeds": comparison.seed_count,
            "runs": comparison.runs,
            "pythons": [one.version for one in found],
            "left_out": skipped,
            "mismatches": [str(one) for one in mismatches],
        },
    )
    say_lines(summary())
    return ExitCode.FAILED if mismatches else ExitCode.OK
