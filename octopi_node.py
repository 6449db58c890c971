"""The entry point of the ``octopi-node`` command and of ``python -m octopi_node``.

The command line is in `octopi.cli`, except for the search for faults.  That is the package `sim`,
which imports `octopi` and comes with the source only.  This file looks for `sim` beside itself and
passes the search to the command line.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from octopi.cli.failures import CommandError
from octopi.cli.main import main as run
from octopi.cli.search import FaultSearch

__all__ = ["find_search", "main"]

_SEARCH = Path(__file__).resolve().parent / "sim" / "handed_in.py"


def find_search() -> FaultSearch | None:
    """Import the search for faults.  None: Octopi is installed without its source, so there is no
    search.

    Raises:
      CommandError: if Python finds another package `sim` first.
    """
    if not _SEARCH.exists():
        return None
    spec = find_spec("sim")
    found = (spec.origin if spec else None) or "a folder sim"
    if Path(found).resolve().parent != _SEARCH.parent:
        raise CommandError(
            f"Python finds another package sim first, {found}: run this command in another "
            "directory, or without that package's directory in PYTHONPATH"
        )
    from sim.handed_in import SEARCH

    return SEARCH


def main() -> NoReturn:
    """Run the program."""
    run(find_search)


if __name__ == "__main__":
    main()
