"""The commands of the search: ``octopi-node sim ...`` and ``python -m sim ...``.

What a command imports to explain itself is cheap; the simulator comes when it runs.
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
    """Only a place for the commands: `octopi.cli.commands.sim` has the help."""
