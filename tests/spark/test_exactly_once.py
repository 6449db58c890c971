"""Exactly once, by killing: a short version of `benchmarks/spark_kills.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.kills import run

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.mark.timeout(1200)
def test_killed_streams_leave_each_message_once(tmp_path: Path) -> None:
    outcome = run(tmp_path, driver_kills=1, broker_kills=1, seed=1, rate=300)
    assert outcome.produced > 1000
    assert outcome.batches > 4
