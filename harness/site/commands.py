"""The reference of the command line, from the help of each command."""

from __future__ import annotations

from collections.abc import Iterator

import click

from octopi.cli.failures import PROGRAM
from octopi.cli.invocation import Invocation
from octopi.cli.main import cli
from octopi_node import find_search

_WIDTH = 90
"""Characters of a line of help."""


def commands_page() -> str:
    """A page with the help of every command."""
    here = Invocation(find_search=find_search)
    context = click.Context(
        cli, info_name=PROGRAM, obj=here, terminal_width=_WIDTH, max_content_width=_WIDTH
    )
    parts = [
        "# Commands",
        "What each command of `octopi-node` says with `--help`. "
        "[The command line](../docs/command-line.md) explains them.",
    ]
    for depth, path, help_text in _all(cli, context):
        parts.append(f"{'#' * (depth + 2)} {path}\n\n```text\n{help_text}\n```")
    return "\n\n".join(parts) + "\n"


def _all(command: click.Command, context: click.Context) -> Iterator[tuple[int, str, str]]:
    """Depth, name and help of *command* and of all commands below it that aren't hidden."""
    depth = context.command_path.count(" ")
    yield min(depth, 2), context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            part = command.get_command(context, name)
            if part is not None and not part.hidden:
                inner = click.Context(part, context, name)
                yield from _all(part, inner)
