"""``sim show``: writes a page about a run, whether it failed or not."""

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
    help="The file for the page.",
)
@click.option(
    "--shiviz",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a log for ShiViz to FILE, too.",
)
@tier_option
@common_options
def show(plan_text: str, page: Path, shiviz: Path | None, tier: str | None) -> None:
    """Write a page about a run: the messages between nodes, the steps, and the faults.

    \b
    For instance:
      octopi-node sim show 7
      octopi-node sim show 7 -o seed-7.html --shiviz seed-7.log

    The page is one HTML file that loads nothing else.
    """
    plan = plan_of(plan_text, tier)

    from octopi.simulation.report.shiviz import shiviz_log
    from sim.search.pages import record, write

    verdict, recording = record(plan, name_of(plan_text))
    write(recording, page)
    if shiviz is not None:
        shiviz.write_text(shiviz_log(recording), encoding="utf-8")
    say_lines(f"{page}: {verdict.violation or 'all is well'}")
