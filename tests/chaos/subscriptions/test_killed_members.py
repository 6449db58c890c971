"""Real members and brokers are killed: no message is passed over, and each one that comes again
does so because of a failure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.chaos.subscriptions.runner import MODES, run_chaos


def say(line: str) -> None:
    """Progress, shown if the test fails or hangs."""
    sys.stderr.write(f"{line}\n")


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_killed_members_and_brokers_pass_nothing_over(tmp_path: Path) -> None:
    report = await run_chaos(tmp_path, modes=list(MODES), seconds=20, seed=5, say=say)
    assert not report.faults, str(report)
