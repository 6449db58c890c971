"""`octopi-node completion`: scripts that make shells complete the program's commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from octopi.cli.failures import PROGRAM
from octopi.cli.output import say_lines


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a completion script for a shell.

    \b
    For this session:
      eval "$(octopi-node completion bash)"
    For good:
      octopi-node completion bash >> ~/.bashrc
      octopi-node completion zsh >> ~/.zshrc
      octopi-node completion fish > ~/.config/fish/completions/octopi-node.fish
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None, "the choices are click's own"
    variable = f"_{PROGRAM}_COMPLETE".replace("-", "_").upper()
    script = completion_class(context.find_root().command, {}, PROGRAM, variable)
    say_lines(script.source())
