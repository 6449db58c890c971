"""The results of a run are one document, which an interruption doesn't harm."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from benchmarks import __main__ as program, results
from benchmarks.results import Measurement, Run
from benchmarks.runner import Plan, Runner
from benchmarks.systems import Serving
from benchmarks.workloads import Workload
from tests.benchmarks.runs import BUSY, measured, one_by_one, produce, run_of, timed

ROOT = Path(__file__).parents[2]


def example() -> Run:
    first, second = produce("rate >= 7x best"), one_by_one()
    rounds = measured(first, "octopi", [10.5, 11])
    rounds[1] = attrs.evolve(rounds[1], load=BUSY, busy=("other programs take 40%",))
    rounds.append(attrs.evolve(rounds[0], round=2, problem="it ended", rate=None))
    return run_of(rounds, timed(second, "nats", [100]), workloads=[first, second])


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "run.json"
    results.save(example(), path)
    assert results.load(path) == example()
    assert json.loads(path.read_text())["format"] == results.FORMAT
    assert [one.name for one in path.parent.iterdir()] == ["run.json"]


def test_the_document_and_a_measurement_have_the_names_that_are_documented() -> None:
    text = (ROOT / "docs/performance.md").read_text().partition("The file is one object:")[2]
    sentence, _, rest = text.partition("\n")
    top = {one.name for one in attrs.fields(Run)} | {"format"}
    assert top <= set(re.findall(r"`(\w+)`", sentence))
    table = re.findall(r"^\| (`.*?) \|", rest.partition("\n## ")[0], re.MULTILINE)
    named = [name for cell in table for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(one.name for one in attrs.fields(Measurement))


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", '{"format": 1', '{"a": 1}'])
def test_a_file_without_results_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"other\.json has no results of `python -m benchmarks`"):
        results.load(path)


def test_results_of_another_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    results.save(example(), path)
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "format": 99}))
    with pytest.raises(ValueError, match="of another version of this program"):
        results.load(path)
    del document["measurements"][0]["load"]
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="incomplete results"):
        results.load(path)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], dict[str, Any]]], None]:
    """Lets no process run: the given function makes the figures of a system."""

    def serve(runner: Runner, name: str, workload: Workload) -> Serving:
        if name == "nats":
            raise RuntimeError("nothing listened")
        return Serving("address", {}, "1.0", "defaults")

    def replace(made: Callable[[str], dict[str, Any]]) -> None:
        monkeypatch.setattr(Runner, "_serve", serve)
        monkeypatch.setattr(Runner, "_figures", lambda runner, workload, name: made(name))

    return replace


def empty_run(workload: Workload) -> Run:
    return attrs.evolve(run_of(workloads=[workload]), ended="", left_out=[])


def test_a_system_that_fails_ends_no_round_of_the_others(
    tmp_path: Path, figures: Callable[[Callable[[str], dict[str, Any]]], None]
) -> None:
    def made(name: str) -> dict[str, Any]:
        if name == "redis":
            raise RuntimeError("redis produce failed: connection refused")
        return {"rate": 5.0, "wall_s": 1.0}

    figures(made)
    workload, seen = produce(), []
    run = empty_run(workload)
    plan = Plan(("octopi", "redis", "nats"), rounds=3, seed=1)
    with Runner(tmp_path, plan, run, lambda: seen.append(len(run.measurements))) as runner:
        runner.measure(workload, lambda: None)
    assert [one.round for one in run.of(workload.name, "octopi")] == [0, 1, 2]
    [failed] = [one for one in run.measurements if one.problem]
    assert (failed.system, failed.round) == ("redis", 0)
    assert [(one.system, one.reason) for one in run.left_out] == [("nats", "nothing listened")]
    assert seen[-1] == len(run.measurements) == 4


def test_a_file_that_can_not_be_written_is_named_before_anything_is_measured(
    tmp_path: Path,
    figures: Callable[[Callable[[str], dict[str, Any]]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def made(name: str) -> dict[str, Any]:
        raise AssertionError(f"{name} was measured")

    figures(made)
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    arguments = Namespace(quick=False, busy="mark", page=tmp_path / "report.html")
    plan = Plan(("octopi",), rounds=1, seed=1)
    output = in_the_way / "run.json"
    assert program._measure_and_report(empty_run(produce()), plan, output, arguments) == 2
    assert "run.json can't be written" in capsys.readouterr().err


def test_ctrl_c_keeps_what_was_measured(
    tmp_path: Path,
    figures: Callable[[Callable[[str], dict[str, Any]]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    rounds = iter([{"rate": 5.0}, {"rate": 6.0}])

    def made(name: str) -> dict[str, Any]:
        for one in rounds:
            costs = ("client_cpu_us", "server_cpu_us", "client_faults", "server_faults")
            return {**one, **dict.fromkeys(costs, 1.0)}
        raise KeyboardInterrupt

    figures(made)
    workload, output, page = produce(), tmp_path / "run.json", tmp_path / "report.html"
    arguments = Namespace(quick=False, busy="mark", page=page)
    code = program._measure_and_report(
        empty_run(workload), Plan(("octopi",), rounds=5, seed=1), output, arguments
    )
    assert code == 130
    kept = results.load(output)
    assert kept.ended == "interrupted"
    assert [one.rate for one in kept.measurements] == [5.0, 6.0]
    assert ", interrupted" in page.read_text()
    printed = capsys.readouterr()
    assert "stopped; what was measured until then" in printed.err
    assert workload.name in printed.out
