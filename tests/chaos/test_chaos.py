"""Real processes and real clients under a minute of faults: nothing is lost, doubled,
reordered, or seen and then gone."""

import sys
from pathlib import Path

import pytest

from tests.chaos.runner import run_chaos


def say(line: str) -> None:
    """Progress, shown if the test fails or hangs."""
    sys.stderr.write(f"{line}\n")


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_minute_of_chaos_breaks_no_promise(tmp_path: Path) -> None:
    report = await run_chaos(tmp_path, brokers=3, seconds=60, seed=20, say=say)
    assert not report.faults, str(report)
    assert report.counts["Acknowledged"] > 1_000, str(report)
    assert report.counts["Delivered"] > 1_000, str(report)
