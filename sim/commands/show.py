"""``sim show``: the page of a run, whether it failed or not."""

from __future__ import annotations

from pathlib import Path

import click

from octopi.cli.invocation import common_options
from octopi.cli.output import say_lines
from sim.commands.options import PLAN_HELP, name_of, plan_of, tier_option


@click.command(epilog=PLAN_HELP)
@click.argument("plan_text", metavar="PLAN")
@click.option(
    "-o",
    "--page",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("octopi-run.html"),
    show_default=True,
    metavar="FILE",
    help="Where the page goes.",
)
@click.option(
    "--shiviz",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a log for ShiViz there, too.",
)
@tier_option
@common_options
def show(plan_text: str, page: Path, shiviz: Path | None, tier: str | None) -> None:
    """Write a run as a page: which node told which what, step by step, and what failed.

    \b
    For instance:
      octopi-node sim show 7
      octopi-node sim show 7 -o seed-7.html --shiviz seed-7.log

    The page needs nothing but a browser, now and in ten years.
    """
    plan = plan_of(plan_text, tier)

    from octopi.simulation.report.shiviz import shiviz_log
    from sim.search.pages import record, write

    verdict, recording = record(plan, name_of(plan_text))
    write(recording, page)
    if shiviz is not None:
        shiviz.write_text(shiviz_log(recording), encoding="utf-8")
    say_lines(f"{page}: {verdict.violation or 'all is well'}")
