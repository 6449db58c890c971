"""The search's commands: what they run, say and end with."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from octopi.cli.failures import CommandError
from octopi_node import find_search
from sim.run.plan import Plan, WorkloadOptions, from_json, to_json, to_token
from sim.search.parallel_runs import Outcome, run_plan, spread
from sim.search.seed_search import DIFFERS, SearchOptions, SeedSearch
from tests.cli.conftest import Program

SMALL = Plan(
    1,
    partitions=1,
    workload=WorkloadOptions(producers=1, records=3, consumers=1, topic_partitions=1),
)


def outcome(seed: int, digest: str = "d", rule: str = "") -> tuple[int, Outcome]:
    token = to_token(SMALL) if rule else ""
    return seed, Outcome(f"seed {seed}", rule, "what was seen", token, digest, 0.1, 1.0, (), ())


# --- run -----------------------------------------------------------------------------------


def test_a_search_sums_up_its_runs(program: Program, tmp_path: Path) -> None:
    numbers = tmp_path / "made" / "run.json"
    result = program("sim", "run", "--seeds", "2", "--jobs", "1", "--json", str(numbers))
    assert result.exit_code == 0, result.stdout
    assert result.stdout.startswith("2 seeds, 0 failed, in ")
    assert "never seen: " in result.stdout
    written = json.loads(numbers.read_text())
    assert (written["seeds"], written["failed"], written["source"]) == (2, 0, "swarm")


def test_a_twentieth_of_the_seeds_is_run_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def run_seed(source: str, tier: object, seed: int) -> tuple[int, Outcome]:
        ran.append(seed)
        return outcome(seed)

    monkeypatch.setattr("sim.search.seed_search.run_seed", run_seed)
    search = SeedSearch(SearchOptions(first=1, count=60), pytest.fail)
    search.run()
    assert sorted(ran) == sorted([*range(1, 61), 20, 40, 60])
    assert (search.numbers()["seeds"], search.numbers()["run_twice"]) == (60, 3)


def test_two_runs_of_a_seed_that_differ_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = iter(["one", "other"])
    monkeypatch.setattr(
        "sim.search.seed_search.run_seed", lambda source, tier, seed: outcome(seed, next(digests))
    )
    told: list[str] = []
    search = SeedSearch(SearchOptions(first=20, count=1), told.append)
    search.run()
    assert search.failed_count == 1
    assert told[0].startswith(f"seed 20 broke {DIFFERS}: its two runs have the digests one and oth")


def test_a_failing_seed_ends_with_the_line_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sim.search.seed_search.run_seed", lambda source, tier, seed: outcome(seed, rule="liveness")
    )
    told: list[str] = []
    search = SeedSearch(SearchOptions(first=7, count=1), told.append)
    search.run()
    assert told == [
        f"seed 7 broke liveness: what was seen\n  octopi-node sim replay '{to_token(SMALL)}'"
    ]
    assert "broken: liveness (1)" in search.report()


def test_a_failing_seed_gets_a_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        "sim.search.seed_search.run_seed", lambda source, tier, seed: outcome(seed, rule="liveness")
    )
    search = SeedSearch(
        SearchOptions(first=7, count=1, pages=tmp_path / "pages"), lambda line: None
    )
    search.run()
    assert "<html" in (tmp_path / "pages" / "seed-7.html").read_text(encoding="utf-8")


def test_no_run_begins_after_the_time_limit() -> None:
    search = SeedSearch(SearchOptions(first=1, count=None, time_s=-1.0), pytest.fail)
    search.run()
    assert search.numbers()["seeds"] == 0


def test_an_error_of_the_simulator_is_reported_with_its_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("sim.search.parallel_runs.simulate", fail)
    broken = run_plan("seed 1", SMALL)
    assert (broken.rule, broken.token) == ("simulator", to_token(SMALL))
    assert broken.text.endswith("ZeroDivisionError: oh\n")


@pytest.mark.slow
def test_processes_share_the_work() -> None:
    assert sorted(spread(abs, range(-20, 0), 2)) == list(range(1, 21))


def test_ctrl_c_ends_a_search_with_its_results_so_far(
    monkeypatch: pytest.MonkeyPatch, program: Program, tmp_path: Path
) -> None:
    def run_seed(source: str, tier: object, seed: int) -> tuple[int, Outcome]:
        if seed == 3:
            raise KeyboardInterrupt
        return outcome(seed)

    monkeypatch.setattr("sim.search.seed_search.run_seed", run_seed)
    numbers = tmp_path / "run.json"
    result = program("sim", "run", "--jobs", "1", "--json", str(numbers))
    assert result.exit_code == 130
    assert result.stderr.startswith("octopi-node: interrupted: 2 seeds, 0 failed, in ")
    assert json.loads(numbers.read_text())["seeds"] == 2


# --- replay, show, seeds --------------------------------------------------------------------


def test_a_replay_prints_the_plan_and_the_verdict(program: Program) -> None:
    result = program("sim", "replay", to_token(SMALL), "--events", "3")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "producers = 1" in lines
    assert "no promise was broken" in lines
    assert lines[-1] == to_token(SMALL)
    assert f"digest {run_plan('', SMALL).digest}" in result.stdout


def test_a_plan_can_be_changed_by_hand(program: Program, tmp_path: Path) -> None:
    told = program("sim", "replay", to_token(SMALL), "--json").stdout
    assert from_json(told) == SMALL
    path = tmp_path / "plan.json"
    path.write_text(told.replace('"records": 3', '"records": 2'))
    result = program("sim", "replay", str(path), "--events", "0")
    assert result.exit_code == 0
    assert "records = 2" in result.stdout.splitlines()


def test_a_run_that_went_well_has_a_page_and_a_shiviz_log(program: Program, tmp_path: Path) -> None:
    page, log = tmp_path / "run.html", tmp_path / "run.log"
    result = program("sim", "show", to_token(SMALL), "-o", str(page), "--shiviz", str(log))
    assert result.exit_code == 0
    assert "octopi-node sim replay" in page.read_text(encoding="utf-8")
    assert log.read_text(encoding="utf-8").startswith(("register {", "(world) {"))


@pytest.mark.parametrize("text", ["oc1-nonsense", "oc1-'", "no-such-file.json"])
def test_an_invalid_plan_is_a_usage_error(program: Program, text: str) -> None:
    result = program("sim", "replay", text)
    assert result.exit_code == 2
    assert "is not a valid plan: " in result.stderr
    assert result.stderr.count("\n") == 1


def test_plans_that_failed_once_are_run_again(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "seeds.txt"
    file.write_text(f"# ours\n\n{to_token(SMALL)} a message was lost\n")
    result = program("sim", "seeds", "-f", str(file), "--jobs", "1")
    assert result.exit_code == 0
    assert result.stdout == "1 plans that failed once, 0 fail\n"


def test_a_damaged_line_among_failed_plans_is_a_usage_error(
    program: Program, tmp_path: Path
) -> None:
    file = tmp_path / "seeds.txt"
    file.write_text("oc2-what is this\n")
    result = program("sim", "seeds", "-f", str(file), "--jobs", "1")
    assert result.exit_code == 2


# --- the package ------------------------------------------------------------------------------


def test_another_package_named_sim_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "sim"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(CommandError, match="Python finds another package sim first"):
        find_search()


def test_plans_survive_json() -> None:
    assert from_json(to_json(SMALL)) == SMALL
