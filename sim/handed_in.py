"""The search for faults, as `octopi_node` and ``python -m sim`` pass it to the command line.

The command line is a lower layer, so it doesn't import the search.
"""

from __future__ import annotations

from typing import Final

from octopi.cli.search import FaultSearch
from sim.commands import commands
from sim.search.spark_seeds import run_seed

SEARCH: Final = FaultSearch(commands, run_seed)
