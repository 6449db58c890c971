"""The command line's interface to the search for faults.

The search is the package `sim`, which imports this one and comes with the source and with the
executables, not with the wheel.  So the command line doesn't import it: the program (`octopi_node`,
or ``python -m sim``) passes it, and `octopi.cli.invocation.Invocation.search` returns it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
import click

if TYPE_CHECKING:
    from octopi.spark.jobs.simulate import SeedVerdict


@attrs.frozen
class FaultSearch:
    """The search, as it registers itself."""

    commands: click.Group
    """The commands of ``octopi-node sim``; they import the simulator when they run."""
    run_seed: Callable[[str, int], SeedVerdict]
    """Runs the plan that a source (``swarm`` or ``stories``) draws from a seed.  A function of a
    module, which a worker of Spark imports by its name."""


FindSearch = Callable[[], FaultSearch | None]
"""Imports the search; returns None if there is none.

Raises:
  CommandError: if Python finds something else under its name.
"""
