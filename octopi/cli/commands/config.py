"""`octopi-node config show`: every setting in force, and its source."""

from __future__ import annotations

import click

from octopi.cli.invocation import (
    Invocation,
    common_options,
    context_option,
    json_option,
    pass_invocation,
)
from octopi.cli.output import print_json
from octopi.cli.rendering import print_table


@click.group()
def config() -> None:
    """Show settings.

    Settings come from a context (`octopi-node context`), a TOML file (--config, or ./octopi.toml),
    environment variables and flags; each overrides those before it.
    """


@config.command()
@json_option
@context_option
@common_options
@pass_invocation
def show(invocation: Invocation, as_json: bool) -> None:
    """Print every setting in force, with its source and meaning.

    \b
    For instance:
      OCTOPI_SERVER=ws://10.0.0.1:7000 octopi-node config show
    """
    settings = invocation.configuration().settings()
    if as_json:
        print_json(
            {
                f"{one.section}.{one.key}": {"value": one.value, "source": one.source}
                for one in settings
            }
        )
    else:
        print_table(
            ["SETTING", "VALUE", "SOURCE", "MEANING"],
            [[f"{s.section}.{s.key}", s.value, s.source, s.meaning] for s in settings],
        )
