"""The entry point: what the ``octopi-node`` command and ``python -m octopi_node`` run.

Everything the command line knows is in ``octopi.cli``.
"""

from octopi.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
