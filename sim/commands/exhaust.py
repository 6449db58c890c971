"""``sim exhaust``: every node fails at every step and every I/O, in each possible way."""

from __future__ import annotations

from pathlib import Path

import click

from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import common_options
from octopi.cli.output import say_lines
from sim.commands.options import interrupted, jobs_option, json_file_option, write_numbers


@click.command()
@jobs_option
@json_file_option
@click.option(
    "--table",
    "table_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the table to FILE, too.",
)
@click.option(
    "--moments",
    type=click.IntRange(1, 2),
    default=2,
    show_default=True,
    metavar="N",
    help="At how many moments each action of each cell is done: 1 takes half as long.",
)
@click.option(
    "--part",
    type=(click.IntRange(min=1), click.IntRange(min=1)),
    default=(1, 1),
    metavar="I N",
    help="Do only every N-th action, from the I-th on: N runs with different I do all.",
)
@common_options
def exhaust(
    jobs: int,
    json_file: Path | None,
    table_file: Path | None,
    moments: int,
    part: tuple[int, int],
) -> int:
    """Fail every node at every step and at every I/O, in each possible way.

    \b
    For instance:
      octopi-node sim exhaust
      octopi-node sim exhaust --jobs 1 --table exhaust.txt --json exhaust.json

    Nothing is drawn by chance.  A few small scenarios together reach every step that a role
    performs, and every kind of I/O.  At each of these places (cells) a host is killed, loses its
    power, is paused, cut off and so on.  Prints a table of what was done, and lists what is
    impossible with the reason.

    Exits with code 1 if a promise is broken, or if a possible cell of this part was left out.
    """
    from sim.search.exhaust import Exhaustion
    from sim.search.exhaust_table import numbers, report, summary
    from sim.search.parallel_runs import replay_line
    from sim.search.progress_bar import ProgressBar

    if part[0] > part[1]:
        raise CommandError(f"--part {part[0]} {part[1]}: there are {part[1]}", ExitCode.USAGE)
    search = Exhaustion(jobs, moments, part)
    try:
        with ProgressBar("cell", search.look_around()) as progress:
            for done in search.perform_all():
                progress.set(len(search.done), len(search.failures))
                for one in done.failures:
                    text = " ".join(one.text.split())
                    say_lines(f"{one.cell}, {one.action}: broke {one.rule}: {text}")
                    say_lines(f"  {replay_line(one.token)}")
    except KeyboardInterrupt:
        raise interrupted(summary(search)) from None
    text = report(search)
    if table_file is not None:
        table_file.parent.mkdir(parents=True, exist_ok=True)
        table_file.write_text(text + "\n", encoding="utf-8")
    write_numbers(json_file, numbers(search))
    say_lines(text)
    return ExitCode.FAILED if search.failures or search.gaps() else ExitCode.OK
