"""What tests of the search share: the program, run in their process."""

from tests.cli.conftest import program

__all__ = ["program"]
