"""``python -m sim``: the same as ``octopi-node sim``."""

import sys

from octopi.cli.main import main
from sim.handed_in import SEARCH

if __name__ == "__main__":
    main(lambda: SEARCH, ["sim", *sys.argv[1:]])
