"""Small realistic programs with a planted bug: chance finds each, the right version beside it
holds, and at most three faults are left."""

from __future__ import annotations

import re

import pytest

import octopi.testing
from octopi.testing import Cluster
from tests.testing.programs import BUGS
from tests.testing.programs.planted import Planted

NAMES = [bug.name for bug in BUGS]
FAULTS_MAX = 3


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OCTOPI_TEST_SEED", "OCTOPI_TEST_PAGES"):
        monkeypatch.delenv(name, raising=False)


def failure(bug: Planted, shrink_s: float) -> AssertionError:
    async def test(cluster: Cluster) -> None:
        await bug.scene(cluster, False)

    with pytest.raises(AssertionError) as caught:
        octopi.testing.run(test, seed=bug.seed, shrink_s=shrink_s)
    return caught.value


@pytest.mark.parametrize("bug", BUGS, ids=NAMES)
def test_random_faults_find_the_bug_and_spare_the_right_version(bug: Planted) -> None:
    async def right(cluster: Cluster) -> None:
        await bug.scene(cluster, True)

    failure(bug, 0.0)
    octopi.testing.run(right, seed=bug.seed)


QUICK = [bug for bug in BUGS if bug.name in {"lost update", "double charge", "lost timer"}]
"""Those that are soon made smaller; ``python -m tests.testing.programs`` does it with all."""


@pytest.mark.slow
@pytest.mark.parametrize("bug", QUICK, ids=[bug.name for bug in QUICK])
def test_at_most_three_faults_are_left(bug: Planted) -> None:
    notes = "\n".join(failure(bug, 20.0).__notes__)
    left = re.search(r"(\d+) of \d+ faults?", notes)
    assert left is not None, notes
    assert 1 <= int(left[1]) <= FAULTS_MAX
    assert notes.count("    cluster.") == int(left[1])
