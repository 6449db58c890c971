"""The search as it is handed to the command line, which stands below it and imports nothing of it.

`octopi_node`, the program of a checkout, finds it here; ``python -m sim`` is another way in.
"""

from __future__ import annotations

from typing import Final

from octopi.cli.search import FaultSearch
from sim.commands import commands
from sim.search.spark_seeds import run_seed

SEARCH: Final = FaultSearch(commands, run_seed)
