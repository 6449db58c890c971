"""``sim replay``: runs one plan again, and prints what happens."""

from __future__ import annotations

from pathlib import Path

import click

from octopi.cli.failures import ExitCode
from octopi.cli.invocation import common_options
from octopi.cli.output import say, say_lines
from sim.commands.options import PLAN_HELP, name_of, plan_of, tier_option


@click.command(epilog=PLAN_HELP)
@click.argument("plan_text", metavar="PLAN")
@click.option(
    "--events",
    type=click.IntRange(min=0),
    default=40,
    show_default=True,
    metavar="N",
    help="How many of the last events to print.",
)
@click.option(
    "--page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the run as an HTML page, too.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON, and run nothing.")
@tier_option
@common_options
def replay(plan_text: str, events: int, page: Path | None, as_json: bool, tier: str | None) -> int:
    """Run one plan again; print the plan, the last events, and the broken promise.

    \b
    For instance, with the line that a failing seed ended with, or a seed:
      octopi-node sim replay 'oc1-Yp{...'
      octopi-node sim replay 17 --events 200 --page seed-17.html
    To change a plan by hand, and run that:
      octopi-node sim replay 17 --json > plan.json
      octopi-node sim replay plan.json

    The same plan goes the same way, to the last byte, with the same versions of Octopi, Trio and
    the WebSocket stack: compare the digests.

    Exits with code 1 if a promise is broken.
    """
    plan = plan_of(plan_text, tier)

    from octopi.simulation.report.html import timeline
    from sim.generate.swarm import describe
    from sim.run.plan import to_json, to_token
    from sim.search.pages import record, write

    if as_json:
        say_lines(to_json(plan))
        return ExitCode.OK
    say_lines(describe(plan))
    verdict, recording = record(plan, name_of(plan_text))
    lines = list(timeline(recording))
    say()
    for line in lines[len(lines) - events :] if events else ():
        say_lines(line)
    say()
    if verdict.violation is None:
        say_lines("no promise was broken")
    else:
        say_lines(f"broken: {verdict.violation}\n{verdict.details}".rstrip())
    say_lines(f"{verdict.seconds:.3f} s of virtual time, digest {verdict.digest}")
    say_lines(to_token(plan))
    if page is not None:
        write(recording, page)
        say_lines(f"page: {page}", err=True)
    return ExitCode.FAILED if verdict.violation else ExitCode.OK
