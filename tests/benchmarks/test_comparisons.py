"""Medians of paired ratios, and goals that are met or missed."""

from __future__ import annotations

import attrs
import pytest

from benchmarks.comparisons import busy_rounds, compared, comparisons, verdicts
from benchmarks.goals import parse
from benchmarks.systems import NAMES, takes_part
from benchmarks.workloads import load
from tests.benchmarks.runs import BUSY, measured, one_by_one, produce, run_of, timed


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds() -> None:
    workload = produce()
    run = run_of(
        measured(workload, "octopi", [100, 400, 90]),
        measured(workload, "redis", [50, 100, 90]),
        workloads=[workload],
    )
    found = compared(run, workload.name, "rate", "redis")
    assert found is not None
    # 2, 4 and 1; the ratio of the medians would be 100 to 90.
    assert (found.median, found.count) == (2.0, 3)


def test_of_times_the_smaller_one_is_ahead() -> None:
    workload = one_by_one("p50 <= 0.5x nats", "p99 <= 1x nats")
    run = run_of(
        timed(workload, "octopi", [60, 80]),
        timed(workload, "nats", [100, 100]),
        workloads=[workload],
    )
    median, tail = verdicts(run, workload)
    assert median.words == "missed: 0.69x"
    assert tail.words == "met: 0.69x"
    assert median.goal.ahead == 2.0


def test_the_best_peer_is_that_of_each_round() -> None:
    workload = produce("rate >= 2x best")
    run = run_of(
        measured(workload, "octopi", [200, 200, 200]),
        measured(workload, "redis", [50, 100, 80]),
        measured(workload, "nats", [100, 50, 80]),
        measured(workload, "bare", [900, 900, 900]),
        workloads=[workload],
    )
    [verdict] = verdicts(run, workload)
    assert (verdict.is_met, verdict.words) == (True, "met: 2.00x")


def test_a_goal_can_be_that_of_another_client_or_beside_another_workload() -> None:
    one, many = produce(name="to 1 topic"), produce('cpu <= 1.3x "to 1 topic"', name="to many")
    waiting = one_by_one("octopi_blocking p50 <= 0.65x nats")
    run = run_of(
        measured(one, "octopi", [10]),
        [attrs.evolve(measured(many, "octopi", [10])[0], server_cpu_us=16.0)],
        timed(waiting, "octopi_blocking", [60]),
        timed(waiting, "nats", [100]),
        workloads=[one, many, waiting],
    )
    assert [one.words for one in verdicts(run, many)] == ["missed: 2.00x"]
    assert [one.words for one in verdicts(run, waiting)] == ["met: 0.60x"]
    [beside] = comparisons(run, many)
    assert beside.label == "beside the workload \u201cto 1 topic\u201d"


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    workload = produce("rate >= 2x kafka")
    run = run_of(measured(workload, "octopi", [10]), workloads=[workload])
    [verdict] = verdicts(run, workload)
    assert (verdict.is_met, verdict.words) == (None, "not measured")
    assert comparisons(run, workload) == []


def test_a_round_that_failed_has_no_figures() -> None:
    workload = produce()
    failed = attrs.evolve(measured(workload, "redis", [1, 1])[1], problem="it ended", rate=None)
    run = run_of(
        measured(workload, "octopi", [10, 10]),
        [measured(workload, "redis", [5])[0], failed],
        workloads=[workload],
    )
    found = compared(run, workload.name, "rate", "redis")
    assert found is not None
    assert (found.median, found.count) == (2.0, 1)


def test_a_comparison_is_busy_where_one_side_is() -> None:
    workload = produce()
    theirs = measured(workload, "redis", [1, 1, 1])
    theirs[1] = attrs.evolve(theirs[1], load=BUSY, busy=("other programs",))
    run = run_of(measured(workload, "octopi", [2, 2, 2]), theirs, workloads=[workload])
    assert busy_rounds(run, workload.name, "redis") == {1}
    [beside] = comparisons(run, workload)
    assert beside.busy == {1}


@pytest.mark.parametrize(
    "text",
    ["rate >= 7 best", "speed >= 7x best", "rate <= 7x best", "p50 >= 2x nats", "", "rate >= 7x"],
)
def test_what_is_no_goal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no goal"):
        parse(text)


def test_the_goals_of_the_workloads_can_be_measured() -> None:
    workloads = {one.name: one for one in load()}
    goals = [(one, parse(text)) for one in workloads.values() for text in one.goals]
    assert len(goals) > 10
    for workload, goal in goals:
        assert takes_part(goal.system, workload), goal.text
        if goal.workload:
            assert takes_part(goal.system, workloads[goal.workload]), goal.text
        elif goal.other != "best":
            assert goal.other in NAMES, goal.text
            assert takes_part(goal.other, workload), goal.text
