"""How many connections a process may have that may open so many files, and what it keeps of its
memory."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys

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


ROUNDS = """
import json, resource, sys

from octopi.operating_system import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()


def page_faults_of_a_round():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [bytes(512 * 1024) for _ in range(24)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


print(json.dumps([page_faults_of_a_round() for _ in range(20)]))
"""
"""Allocates 12 MiB in each round, and frees it at its end."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_memory_that_a_node_has_freed_is_used_again_without_page_faults() -> None:
    assert sum(_page_faults("kept")[10:]) < 10
    assert sum(_page_faults("given back")[10:]) > 1000


def _page_faults(freed: str) -> list[int]:
    """The page faults of each round in a process whose freed memory is *freed*."""
    without_tunables = {name: text for name, text in os.environ.items() if "MALLOC" not in name}
    done = subprocess.run(
        [sys.executable, "-c", ROUNDS, freed],
        env=without_tunables,
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[int] = json.loads(done.stdout)
    return found
