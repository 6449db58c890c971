"""``sim replay``: runs one plan again, and prints what happens."""

from __future__ import annotations

from pathlib import Path

import click

from octopi.cli.failures import CommandError, ExitCode
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
@click.option(
    "--real",
    is_flag=True,
    help="Run the plan with nodes that are processes of this machine, in real time.",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="With --real: an empty directory that keeps the files and logs of the nodes.",
)
@tier_option
@common_options
def replay(
    plan_text: str,
    events: int,
    page: Path | None,
    as_json: bool,
    real: bool,
    keep: Path | None,
    tier: str | None,
) -> int:
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

    With --real the nodes are processes: faults kill, stop, pause and start them, cut and reset
    links between them, and damage files of brokers that are down, in real time.  The command says
    first what can't happen to processes, such as faults at a step inside of one.  Which moment of a
    process a fault hits is up to the machine, so two such runs differ.

    Exits with code 1 if a promise is broken.
    """
    if real and (page is not None or as_json):
        raise CommandError("--real goes with neither --page nor --json", ExitCode.USAGE)
    if keep is not None and not real:
        raise CommandError("--keep goes with --real only", ExitCode.USAGE)
    plan = plan_of(plan_text, tier)
    if real:
        from sim.real.replaying import replay_real

        return replay_real(plan, keep)

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
