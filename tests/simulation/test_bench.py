"""What the benchmark measures, in few and small runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.run.simulation import simulate
from sim.search.bench import standard_plan
from tests.cli.conftest import Program


def test_the_standard_plan_sends_two_hundred_messages_while_five_faults_strike() -> None:
    for seed in (1, 2):
        plan = standard_plan(seed, "message")
        assert plan.workload.producers * plan.workload.records == 200
        verdict = simulate(plan, events_kept=0)
        assert verdict.violation is None
        assert verdict.counts["Invoked"] >= 200
        struck = {kind: count for kind, count in verdict.counts.items() if kind[:5] == "fault"}
        assert sum(struck.values()) == 5
        assert len(set(struck) - {"fault skipped"}) >= 4


@pytest.mark.slow
def test_the_benchmark_prints_each_figure_with_its_goal(
    monkeypatch: pytest.MonkeyPatch, program: Program, tmp_path: Path
) -> None:
    monkeypatch.setattr("sim.search.bench.IDLE_S", 1.0)
    monkeypatch.setattr("sim.search.bench_hooks._COUNT", 5)
    monkeypatch.setattr("sim.search.bench_hooks._WARM_COUNT", 1)
    monkeypatch.setattr("sim.search.bench_hooks._LOOPS", 10_000)
    numbers = tmp_path / "bench.json"
    result = program("sim", "bench", "--runs", "1", "--json", str(numbers))
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("Python 3.")
    figures = {one["name"]: one for one in json.loads(numbers.read_text())["figures"]}
    assert figures["message: standard seeds"]["goal"] == ">= 900"
    assert figures["hooks: share of the cost of a produce"]["goal"] == "<= 1"
    assert all(one["value"] > 0 and one["name"] in result.stdout for one in figures.values())
    # A batch goes through 19 edges at the least, most of them once for each follower.
    assert 19 < figures["hooks: in a produce of one message"]["value"] < 100
