"""One cluster of real processes for all tests of a module; each test has topics of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.processes import node_processes


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a register with one broker."""
    with node_processes(tmp_path_factory.mktemp("cluster")) as nodes:
        register = nodes.register()
        nodes.broker(register)
        yield register.url
