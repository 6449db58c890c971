"""Real processes and real clients under half a minute of faults: nothing is lost, doubled,
reordered, or seen and then gone."""

import sys
from pathlib import Path

import pytest

from tests.chaos import schedule
from tests.chaos.runner import run_chaos

KINDS = [kind for kind in schedule.KINDS if kind != "full"]
"""All but the one that has to mount disks."""


def say(line: str) -> None:
    """Progress, shown if the test fails or hangs."""
    sys.stderr.write(f"{line}\n")


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_half_a_minute_of_chaos_breaks_no_promise(tmp_path: Path) -> None:
    report = await run_chaos(tmp_path, brokers=3, seconds=30, seed=20, kinds=KINDS, say=say)
    assert not report.faults, str(report)
    assert report.counts["acknowledged"] > 500, str(report)
    assert report.counts["delivered"] > 500, str(report)
