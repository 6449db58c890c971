"""How many connections a process may have that may open so many files."""

from __future__ import annotations

import resource

import pytest

from octopi.limits import CONNECTIONS_MAX, CONNECTIONS_MIN, OWN_DESCRIPTORS
from octopi.operating_system import connections_possible


@pytest.mark.parametrize(
    ("files", "connections"),
    [
        (resource.RLIM_INFINITY, CONNECTIONS_MAX),
        (10**9, CONNECTIONS_MAX),
        (2 * (CONNECTIONS_MAX + OWN_DESCRIPTORS), CONNECTIONS_MAX),
        (2 * (CONNECTIONS_MAX + OWN_DESCRIPTORS) - 2, CONNECTIONS_MAX - 1),
        (512, 256 - OWN_DESCRIPTORS),
        (2 * OWN_DESCRIPTORS, CONNECTIONS_MIN),
        (1, CONNECTIONS_MIN),
    ],
)
def test_half_of_the_files_are_for_connections_and_never_more_than_the_limit(
    files: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (files, files))
    assert connections_possible() == connections
