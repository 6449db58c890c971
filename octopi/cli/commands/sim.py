"""`octopi-node sim`: the search for faults, a package of its own beside this one.

Nothing of it is imported before one of its commands is asked for.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click

from octopi.cli.failures import PROGRAM, CommandError


class _Search(click.Group):
    """What `sim.commands` has."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return _found().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _found().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return _found().resolve_command(ctx, args)


@click.group(cls=_Search)
def sim() -> None:
    """Search for faults in simulated clusters; replay and shrink what was found.

    \b
    For instance:
      octopi-node sim run --seeds 200
      octopi-node sim replay 7

    Real nodes and clients run in one process on virtual time, with a virtual network and
    virtual disks, while faults strike.  A run depends on nothing but its plan, and a plan is a
    seed, or a token of one line: what failed once can be looked at as often as you like.

    Without an installation `python -m sim` does the same in a checkout.
    """


def _found() -> click.Group:
    """The package `sim` that belongs to this program.

    Raises:
      CommandError: if there is none, or Python finds another one first.
    """
    spec = find_spec("sim")
    ours = Path(__file__).resolve().parents[3] / "sim"
    if spec is None or spec.origin is None:
        raise CommandError(f"the package sim is missing: install {PROGRAM} again")
    if Path(spec.origin).resolve().parent != ours:
        raise CommandError(
            f"Python finds another package sim first, {spec.origin}: run this elsewhere, or "
            "without its directory in PYTHONPATH"
        )
    group = import_module("sim.commands").commands
    assert isinstance(group, click.Group)
    return group
