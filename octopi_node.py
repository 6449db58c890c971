"""The entry point: what the ``octopi-node`` command and ``python -m octopi_node`` run.

Everything that the command line knows is in `octopi.cli`, but for the search for faults: the
package `sim` stands above `octopi` and comes with the source alone.  This file stands above both,
so it looks for the search beside itself and hands it in.
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
    """Import the search for faults; None: this is an installation, which has none.

    Raises:
      CommandError: if Python finds another package `sim` first.
    """
    if not _SEARCH.exists():
        return None
    spec = find_spec("sim")
    found = (spec.origin if spec else None) or "a folder sim"
    if Path(found).resolve().parent != _SEARCH.parent:
        raise CommandError(
            f"Python finds another package sim first, {found}: run this elsewhere, or without "
            "its directory in PYTHONPATH"
        )
    from sim.handed_in import SEARCH

    return SEARCH


def main() -> NoReturn:
    """Run the program."""
    run(find_search)


if __name__ == "__main__":
    main()
