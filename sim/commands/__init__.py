"""The commands of the search: ``octopi-node sim ...`` and ``python -m sim ...``.

Modules of commands import little, so help is quick; the simulator is imported when a command runs.
"""

from __future__ import annotations

from typing import Final

import click

from octopi.cli.invocation import LazyGroup

_PLACES: Final = {
    name: f"sim.commands.{name}"
    for name in (
        *("run", "replay", "show", "shrink", "exhaust", "seeds", "mutants"),
        *("meta", "bench"),
    )
}


class _Commands(LazyGroup):
    places = _PLACES


@click.group(cls=_Commands)
def commands() -> None:
    """Hold the commands.  `octopi.cli.commands.sim` has their help."""
