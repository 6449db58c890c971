"""For all tests: how Hypothesis looks for examples, and how node processes start."""

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from harness.processes import forked_nodes

# The same examples every time in CI, fresh ones on a desk.
# Shared machines are slow at times, and a deadline per example would measure only that.
settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(scope="session", autouse=True)
def _nodes_are_forked() -> Iterator[None]:
    with forked_nodes():
        yield


def pytest_runtest_teardown() -> None:
    """A command that a test runs in this process may have set up the log."""
    logging.getLogger("octopi").setLevel(logging.NOTSET)
