"""``sim shrink``: a failing plan, made small."""

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
    help="Try for so long.",
)
@click.option("--clients-only", is_flag=True, help="Go by what clients see, without the oracle.")
@tier_option
@common_options
def shrink(plan_text: str, seconds: float, clients_only: bool, tier: str | None) -> int:
    """Find the smallest plan that fails as this one does.

    \b
    For instance:
      octopi-node sim shrink 'oc1-Yp{...'
      octopi-node sim shrink 4711 --seconds 300

    Leaves faults out, makes them simpler, has fewer clients do less in a smaller cluster, and
    takes chance out of the network; keeps what breaks the same promise.  Prints every
    improvement, and last the smallest plan with the line that replays it.  Ctrl-C ends it with
    what was found by then.

    Ends with code 1 if the plan fails, which it should.
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
