"""The entry point of the ``octopi-node`` command and of ``python -m octopi_node``.

The command line is in `octopi.cli`, except for the search for faults.  That is the package `sim`,
which imports `octopi` and comes with the source and with the executables, not with the wheel.  This
file looks for `sim` beside itself and passes the search to the command line.
"""

from __future__ import annotations

import atexit
import gc
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from octopi.cli.search import FaultSearch

__all__ = ["find_search", "main"]

_YOUNG_COUNT: Final = 100_000
"""New objects between two collections of cyclic garbage: more than importing a command makes, as
none of these is garbage.  A node sets its own (`octopi.cli.garbage`)."""

_SEARCH = Path(__file__).resolve().parent / "sim" / "handed_in.py"


def find_search() -> FaultSearch | None:
    """Import the search for faults.  None: Octopi is installed without its source, so there is no
    search.

    Raises:
      CommandError: if Python finds another package `sim` first.
    """
    if not _is_executable():
        if not _SEARCH.exists():
            return None
        spec = find_spec("sim")
        found = (spec.origin if spec else None) or "a folder sim"
        if Path(found).resolve().parent != _SEARCH.parent:
            from octopi.cli.failures import CommandError

            raise CommandError(
                f"Python finds another package sim first, {found}: run this command in another "
                "directory, or without that package's directory in PYTHONPATH"
            )
    from sim.handed_in import SEARCH

    return SEARCH


def _is_executable() -> bool:
    """Whether this program is an executable of PyInstaller, which has all its modules in itself."""
    return bool(getattr(sys, "frozen", False))


def main() -> NoReturn:
    """Run the program."""
    gc.set_threshold(_YOUNG_COUNT)
    # The interpreter's end would look for garbage in all that was imported, and free it; the system
    # takes the memory back anyway.  That was a quarter of the time of a short command.
    atexit.register(gc.freeze)
    try:
        from octopi.cli.main import main as run
    except ImportError as error:
        if sys.platform == "win32":
            sys.exit(f"octopi-node: {error}")
        raise
    if _is_executable():
        # A worker process of the search is this executable with other arguments: then this call
        # does the work, and does not return.
        from multiprocessing import freeze_support

        freeze_support()
    run(find_search)


if __name__ == "__main__":
    main()
