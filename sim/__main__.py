"""``python -m sim``: the same as ``octopi-node sim``."""

import sys

from octopi.cli.main import cli

if __name__ == "__main__":
    cli.main(["sim", *sys.argv[1:]])
