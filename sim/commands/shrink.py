"""``sim shrink``: makes a failing plan smaller."""

from __future__ import annotations

import click

from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import common_options
from octopi.cli.output import say, say_lines
from sim.commands.options import PLAN_HELP, plan_of, tier_option


@click.command(epilog=PLAN_HELP)
@click.argument("plan_text", metavar="PLAN")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="How long to try.",
)
@click.option(
    "--clients-only", is_flag=True, help="Check only what clients see, without the oracle."
)
@tier_option
@common_options
def shrink(plan_text: str, seconds: float, clients_only: bool, tier: str | None) -> int:
    """Find the smallest plan that breaks the same promise as PLAN does.

    \b
    For instance:
      octopi-node sim shrink 'oc1-Yp{...'
      octopi-node sim shrink 4711 --seconds 300

    Leaves faults out, makes them simpler, has fewer clients do less in a smaller cluster, and makes
    the network less random, as long as the same promise is broken.  Prints every improvement, and
    in the end the smallest plan with the line that replays it.  Ctrl-C ends the search with the
    smallest plan so far.

    Exits with code 1 if the plan fails, as is expected.
    """
    plan = plan_of(plan_text, tier)

    from octopi.simulation.invariants.oracle import Oracle
    from sim.generate.swarm import describe
    from sim.run.plan import to_token
    from sim.search.parallel_runs import replay_line
    from sim.search.shrink import NothingFailsError, shrink as shrink_plan

    try:
        small = shrink_plan(plan, seconds, say_lines, () if clients_only else (Oracle,))
    except NothingFailsError as error:
        raise CommandError(f"{plan_text[:60]}: {error}") from None
    say()
    say_lines(describe(small.plan))
    say_lines(f"{small.verdict.violation}")
    least = "" if small.is_minimal else "; there was no time to try everything (--seconds)"
    say_lines(f"{small.runs} runs in {small.seconds:.1f} s{least}")
    say_lines(replay_line(to_token(small.plan)))
    return ExitCode.FAILED
