"""One cluster of real processes for all tests of a module; each test has topics of its own.

No test leaves a thread or a socket behind.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.processes import node_processes


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a register with one broker."""
    with node_processes(tmp_path_factory.mktemp("cluster")) as nodes:
        register = nodes.register()
        nodes.broker(register)
        yield register.url


def sockets() -> set[str]:
    """The sockets that this process has open."""
    found = set()
    for one in Path("/proc/self/fd").iterdir():
        try:
            found.add(os.readlink(one))
        except FileNotFoundError:
            continue
    return {one for one in found if one.startswith("socket:")}


def threads() -> set[str]:
    """The threads of this process, but for pytest's, and those that Trio keeps for a while for its
    next work."""
    others = ("Trio thread", "pytest")
    return {one.name for one in threading.enumerate() if not one.name.startswith(others)}


@pytest.fixture(autouse=True)
def nothing_is_left_behind(url: str) -> Iterator[None]:
    """Check that a test has closed what it opened.  The cluster is there before, and with it what
    starts the processes of this and other clusters."""
    del url
    before = threads(), sockets()
    yield
    assert (threads(), sockets()) == before
