"""`octopi-node sim`: the commands of the search for faults, which the program passes to the command
line.

The search is imported only when one of its commands is used.
"""

from __future__ import annotations

import click

from octopi.cli.failures import CommandError
from octopi.cli.invocation import Invocation


class _SearchGroup(click.Group):
    """A group with the commands of the search."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return _commands(ctx).list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _commands(ctx).get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return _commands(ctx).resolve_command(ctx, args)


@click.group(cls=_SearchGroup)
def sim() -> None:
    """Search for faults in simulated clusters; replay and shrink what was found.

    \b
    For instance:
      octopi-node sim run --seeds 200
      octopi-node sim replay 7

    Real nodes and clients run in one process on virtual time, with a virtual network and
    virtual disks, while faults strike.  A run depends on nothing but its plan, and a plan is a
    seed, or a token of one line: what failed once can be looked at as often as you like.

    The search comes with the source and with the executables: run it in a checkout, as here or with
    `python -m sim`.
    """


def _commands(ctx: click.Context) -> click.Group:
    """The commands of the search.

    Raises:
      CommandError: as `Invocation.search`; but a shell that completes is told that there are none.
    """
    try:
        return ctx.ensure_object(Invocation).search().commands
    except CommandError:
        if ctx.resilient_parsing:
            return click.Group()
        raise
