"""The commands of the search: ``octopi-node sim ...`` and ``python -m sim ...``.

Modules of commands import little, so help is quick; the simulator is imported when a command runs.
"""

from __future__ import annotations

from typing import Final

import click

from octopi.cli.invocation import LazyGroup

_SECTIONS: Final = {
    "Commands": ("run", "replay", "show", "shrink"),
    "For developers of Octopi": ("exhaust", "seeds", "mutants", "meta", "bench"),
}

_PLACES: Final = {name: f"sim.commands.{name}" for names in _SECTIONS.values() for name in names}


class _Commands(LazyGroup):
    places = _PLACES
    sections = _SECTIONS


@click.group(cls=_Commands)
def commands() -> None:
    """Hold the commands.  `octopi.cli.commands.sim` has their help."""
