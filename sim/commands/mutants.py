"""``sim mutants``: planted bugs, which the search has to notice."""

from __future__ import annotations

from pathlib import Path

import click

from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import common_options
from octopi.cli.output import say_lines
from sim.commands.options import (
    interrupted,
    jobs_option,
    json_file_option,
    need_python,
    write_numbers,
)


@click.command()
@click.option(
    "--only", "names", multiple=True, metavar="NAME", help="Hunt this mutant; may be repeated."
)
@click.option("--list", "lists", is_flag=True, help="List all mutants, and run nothing.")
@click.option("--first", type=click.IntRange(min=0), default=1, show_default=True, metavar="SEED")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=180.0,
    show_default=True,
    help="How much processor time to spend on each mutant.",
)
@click.option(
    "--clients-seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How much of it the search may take that sees only what clients see.  [default: all]",
)
@click.option(
    "--shrink",
    "shrink_s",
    type=click.FloatRange(min=0),
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to shrink a plan that shows a mutant.",
)
@click.option("--plan", default="", metavar="TOKEN", help="Run only this plan.")
@jobs_option
@json_file_option
@click.option("--resume", is_flag=True, help="Skip mutants with a result in the --json file.")
@click.option(
    "--again", is_flag=True, help="With --resume: hunt again what one of the searches missed."
)
@click.option(
    "--table",
    "table_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the table to FILE, too, as Markdown.",
)
@common_options
def mutants(
    names: tuple[str, ...],
    lists: bool,
    first: int,
    seconds: float,
    clients_seconds: float | None,
    shrink_s: float,
    plan: str,
    jobs: int,
    json_file: Path | None,
    resume: bool,
    again: bool,
    table_file: Path | None,
) -> int:
    """Plant known bugs, one after the other, and check that runs notice them.

    \b
    For instance, all of them, one, or one with the plan that showed it:
      octopi-node sim mutants --json mutants.json --resume
      octopi-node sim mutants --only commit-on-leader-alone
      octopi-node sim mutants --only commit-on-leader-alone --plan 'oc1-Yp{...'

    A mutant is a small change of the code that makes it wrong, like a real bug.  Plans are run
    against it until one breaks a promise that it keeps with the unchanged code.  Prints for each
    mutant the broken rule, and after how many runs and how much processor time it was noticed;
    the same for a search that sees only what clients see; and the faults of the smallest plan
    that shows it, with its token.

    Exits with code 1 if a mutant was not noticed.
    """
    from sim.mutants import campaign
    from sim.mutants.catalogue import MUTANTS
    from sim.mutants.runner import Budget
    from sim.search.progress_bar import ProgressBar

    chosen = list(names or MUTANTS)
    unknown = [name for name in chosen if name not in MUTANTS]
    if unknown:
        raise CommandError(f"there is no mutant {unknown[0]}; --list has all", ExitCode.USAGE)
    if plan and len(chosen) > 1:
        raise CommandError("--plan is for one mutant: name it with --only", ExitCode.USAGE)
    if resume and json_file is None:
        raise CommandError("--resume needs --json FILE, with earlier results", ExitCode.USAGE)
    if again and not resume:
        raise CommandError("--again needs --resume: it goes by earlier results", ExitCode.USAGE)
    if lists:
        for name in chosen:
            say_lines(f"{name}: {MUTANTS[name].bug}")
        return ExitCode.OK
    need_python()
    known = campaign.load(json_file) if resume and json_file else []
    known = [one for one in known if one.name in MUTANTS]  # others have been removed since
    hunts = [
        one for one in known if one.name in chosen and (not again or campaign.is_finished(one))
    ]
    left = [name for name in chosen if name not in {one.name for one in hunts}]
    earlier = {one.name: one for one in known}

    say_lines(campaign.line(campaign.HEADINGS))
    for one in hunts:
        say_lines(campaign.line(campaign.row(one)))
    black_s = seconds if clients_seconds is None else min(seconds, clients_seconds)
    budget = Budget(white_s=seconds, black_s=black_s, shrink_s=shrink_s)
    try:
        with ProgressBar("mutant", len(left)) as progress:
            for one in campaign.run(left, jobs=jobs, budget=budget, first=first, plan=plan):
                hunts.append(one)
                survivors = [one for one in hunts if one.white is None]
                say_lines(campaign.line(campaign.row(one)))
                progress.set(progress.count + 1, len(survivors))
                earlier |= {one.name: one}
                write_numbers(json_file, campaign.numbers(list(earlier.values())))
                if plan and one.white is not None:
                    say_lines(one.white.text)
    except KeyboardInterrupt:
        told = str(campaign.score(hunts)) if hunts else "no mutant has a result yet"
        raise interrupted(told) from None
    if table_file is not None:
        table_file.parent.mkdir(parents=True, exist_ok=True)
        table_file.write_text(campaign.table(hunts) + "\n", encoding="utf-8")
    result = campaign.score(hunts)
    say_lines(str(result))
    return ExitCode.OK if result.white == result.count else ExitCode.FAILED
