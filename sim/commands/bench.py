"""``sim bench``: the speed of the simulator."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from octopi.cli.invocation import common_options
from octopi.cli.output import say_lines
from octopi.cli.rendering import print_table
from sim.commands.options import json_file_option, write_numbers


@click.command()
@click.option("--runs", type=click.IntRange(min=1), default=20, show_default=True, metavar="N")
@json_file_option
@common_options
def bench(runs: int, json_file: Path | None) -> None:
    """Measure the speed of the simulator, and what its hooks cost in production.

    \b
    For instance:
      octopi-node sim bench
      octopi-node sim bench --runs 100 --json bench.json

    All times are processor time of this process: the median of N runs, or of 5 where a run takes
    long.  Other programs make a machine slower even so; the load of the machine is printed, too.
    """
    import attrs

    from sim.run.log_errors import listening
    from sim.search import bench_hooks
    from sim.search.bench import figures, machine

    found = [*figures(runs)]
    # Nodes that are stopped all at once miss each other, and warn of it.
    with listening(lambda *about: True, partial(say_lines, err=True)):
        found += bench_hooks.figures(runs)
    rows = [(one.name, f"{one.value:,.4g}", one.unit, one.goal) for one in found]
    print_table(["WHAT", "VALUE", "UNIT", "GOAL"], rows)
    here = machine()
    say_lines(f"Python {here['python']}, {here['cpus']} CPUs, load {here['load'][0]}", err=True)
    numbers = [attrs.asdict(one) for one in found]
    write_numbers(json_file, {"machine": here, "runs": runs, "figures": numbers})
