"""``sim seeds``: runs every plan again that has failed before."""

from __future__ import annotations

from pathlib import Path

import click

from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import common_options
from octopi.cli.output import say_lines
from sim.commands.options import interrupted, jobs_option

_FILE = Path(__file__).parents[1] / "seeds.txt"


@click.command()
@click.option(
    "-f",
    "--file",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=_FILE,
    metavar="FILE",
    help="A file with a token in each line, and what it found.  [default: that of the project]",
)
@jobs_option
@common_options
def seeds(file: Path, jobs: int) -> int:
    """Run every plan again that has failed before; none may fail now.

    \b
    For instance:
      octopi-node sim seeds
      octopi-node sim seeds -f ours.txt

    Exits with code 1 if any fails.
    """
    from sim.run.plan import PlanError, is_stale
    from sim.search.parallel_runs import replay_line, run_line, spread
    from sim.search.progress_bar import ProgressBar

    lines = [one for one in file.read_text(encoding="utf-8").splitlines() if one.strip()]
    lines = [one for one in lines if not one.startswith("#")]
    failed = count = 0
    try:
        stale = sum(is_stale(one.split()[0]) for one in lines)
        with ProgressBar("plan", len(lines)) as progress:
            for outcome in spread(run_line, lines, jobs):
                count += 1
                if outcome.rule:
                    failed += 1
                    text = " ".join(outcome.text.split())
                    say_lines(f"{outcome.name}: broke {outcome.rule}: {text}")
                    say_lines(f"  {replay_line(outcome.token)}")
                progress.set(count, failed)
    except PlanError as error:
        raise CommandError(f"{file}: {error}", ExitCode.USAGE) from error
    except KeyboardInterrupt:
        raise interrupted(f"{count} of {len(lines)} plans, {failed} failed") from None
    old = f"; {stale} are from other versions and may take another course" if stale else ""
    say_lines(f"{count} plans that failed once, {failed} fail{old}")
    return ExitCode.FAILED if failed else ExitCode.OK
