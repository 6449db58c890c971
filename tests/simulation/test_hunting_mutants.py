"""Mutants are noticed, and the command that hunts them says by which check."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from octopi.cli.failures import CommandError
from sim.commands import commands
from sim.mutants import campaign
from sim.mutants.catalogue import MUTANTS
from sim.mutants.runner import Budget, Hunt, MutantKill
from tests.cli.conftest import Program

FAMILIES = (
    "commit-on-leader-alone",
    "flush-that-does-not-sync",
    "acknowledge-before-append",
    "promise-forgotten",
    "leader-from-outside-the-in-sync-set",
    "reads-to-the-end-of-the-log",
    "retries-get-new-sequences",
    "ordered-loss-not-told",
)
"""Bugs of committing, of flushing, of following, of leadership, of the register,
of reading, of clients, and of what a node writes to its log."""
FIRST_SEEDS = {"retries-get-new-sequences": 11, "ordered-loss-not-told": 22}
"""Where hunts begin that would need many runs from seed 1 on; any other seed only takes longer."""
RUNS_MAX = 200


def kill(rule: str = "receipt-wrong", runs: int = 3, faults_count: int = 1) -> MutantKill:
    return MutantKill(rule, "what was seen", "oc1-big", runs, 0.5, "oc1-small", faults_count)


FOUND = Hunt("commit-on-leader-alone", kill(), kill("history LOST", 9), 9, 2.0)
MISSED = Hunt("commit-on-one-follower", None, None, 400, 60.0)


@pytest.fixture
def hunted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the mutants that are hunted, without a hunt: all but one are found."""
    names: list[str] = []

    def hunt(name: str, options: list[str]) -> Hunt:
        names.append(name)
        return MISSED if name == MISSED.name else attrs.evolve(FOUND, name=name)

    monkeypatch.setattr(campaign, "_hunt", hunt)
    return names


@pytest.mark.timeout(300)  # a hunt has a budget of its own, of processor time
@pytest.mark.parametrize("name", FAMILIES)
def test_mutants_of_every_family_are_noticed_within_a_few_runs(name: str) -> None:
    assert name in MUTANTS
    options = [
        f"--first={FIRST_SEEDS.get(name, 1)}",
        f"--runs={RUNS_MAX}",
        "--black_s=0",
        "--shrink_s=0",
    ]
    found = campaign._hunt(name, options)
    assert found.white is not None


def test_a_hunt_reports_the_check_that_noticed_and_the_smallest_plan(
    program: Program, hunted: list[str], tmp_path: Path
) -> None:
    numbers, table = tmp_path / "made" / "mutants.json", tmp_path / "mutants.md"
    result = program(
        *("sim", "mutants", "--only", FOUND.name, "--jobs", "1"),
        *("--json", str(numbers), "--table", str(table)),
    )
    assert result.exit_code == 0, result.stdout
    headings, line, score = result.stdout.splitlines()
    assert headings.split()[:3] == ["mutant", "noticed", "by"]
    told = [FOUND.name, "receipt-wrong", "3", "0.5", "history", "LOST", "9", "0.5", "1"]
    assert line.split() == [*told, "oc1-small"]
    assert score.startswith("1 mutants; 1 noticed (100%), 1 by clients alone (100%, 100% of the 1 ")
    assert json.loads(numbers.read_text())["score"]["white"] == 1
    assert MUTANTS[FOUND.name].bug in table.read_text()
    assert hunted == [FOUND.name]


def test_an_unnoticed_mutant_fails_the_hunt(program: Program, hunted: list[str]) -> None:
    result = program("sim", "mutants", "--only", MISSED.name, "--only", FOUND.name, "--jobs", "1")
    assert result.exit_code == 1
    assert "SURVIVED" in result.stdout
    assert "2 mutants; 1 noticed (50%)" in result.stdout


def test_a_resumed_hunt_leaves_out_known_results(
    program: Program, hunted: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "mutants.json"
    path.write_text(json.dumps(campaign.numbers([FOUND])))
    assert campaign.load(path) == [FOUND]
    names = ["--only", FOUND.name, "--only", "answer-before-commit"]
    result = program("sim", "mutants", *names, "--jobs", "1", "--resume", "--json", str(path))
    assert result.stdout.splitlines()[-1].startswith("2 mutants; 2 noticed")
    assert hunted == ["answer-before-commit"]
    assert [one.name for one in campaign.load(path)] == [FOUND.name, "answer-before-commit"]


def test_a_hunt_goes_on_with_what_was_missed_and_keeps_all_other_results(
    program: Program, hunted: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "mutants.json"
    other = "answer-before-commit"
    by_one_search = attrs.evolve(FOUND, name=other, black=None)
    path.write_text(json.dumps(campaign.numbers([MISSED, FOUND, by_one_search])))
    names = ["--only", FOUND.name, "--only", other]
    options = ["--jobs", "1", "--resume", "--again", "--json", str(path)]
    result = program("sim", "mutants", *names, *options)
    assert hunted == [other]
    assert result.stdout.splitlines()[-1].startswith("2 mutants; 2 noticed (100%), 2 by clients")
    assert campaign.load(path)[:2] == [MISSED, FOUND]
    assert [(one.name, one.black) for one in campaign.load(path)[2:]] == [(other, FOUND.black)]


def test_what_no_client_can_notice_is_not_hunted_again() -> None:
    unseen = next(name for name, one in MUTANTS.items() if one.unseen)
    assert campaign.is_finished(Hunt(unseen, kill(), None, 9, 2.0))
    assert not campaign.is_finished(Hunt(unseen, None, None, 9, 2.0))
    assert not campaign.is_finished(attrs.evolve(FOUND, black=None))


def test_the_search_by_clients_may_take_a_part_of_the_time(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []

    def hunt(name: str, options: list[str]) -> Hunt:
        given.extend(options)
        return FOUND

    monkeypatch.setattr(campaign, "_hunt", hunt)
    only = ["--only", FOUND.name, "--jobs", "1"]
    program("sim", "mutants", *only, "--seconds", "40", "--clients-seconds", "12")
    assert {"--white_s=40", "--black_s=12"} <= set(given)


def test_a_result_says_which_code_was_hunted(tmp_path: Path) -> None:
    path = tmp_path / "mutants.json"
    (found,) = campaign.run([FOUND.name], budget=Budget(0.0, 0.0, 0.0))
    path.write_text(json.dumps(campaign.numbers([found])))
    assert campaign.load(path)[0].code == campaign._commit() != ""


def test_ctrl_c_ends_a_hunt_with_its_results_so_far(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hunt(name: str, options: list[str]) -> Hunt:
        if name == FOUND.name:
            return FOUND
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "_hunt", hunt)
    names = ["--only", FOUND.name, "--only", MISSED.name]
    result = program("sim", "mutants", *names, "--jobs", "1")
    assert result.exit_code == 130
    assert "interrupted: 1 mutants; 1 noticed" in result.stderr


def test_all_mutants_are_listed_with_their_descriptions(program: Program) -> None:
    lines = program("sim", "mutants", "--list").stdout.splitlines()
    assert lines == [f"{one.name}: {one.bug}" for one in MUTANTS.values()]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--only", "no-such-bug"], "there is no mutant no-such-bug"),
        (["--plan", "oc1-x"], "--plan is for one mutant"),
        (["--resume"], "--resume needs --json FILE"),
        (["--again"], "--again needs --resume"),
    ],
)
def test_a_hunt_for_no_mutant_is_refused(options: list[str], text: str) -> None:
    with pytest.raises(CommandError, match=text):
        commands.main(["mutants", *options], standalone_mode=False)


def test_a_file_that_is_no_result_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}")
    with pytest.raises(campaign.HuntError, match="has no results of a hunt"):
        campaign.load(path)
    assert campaign.load(tmp_path / "none.json") == []


def test_a_score_is_met_only_if_nothing_survives_and_little_is_needed() -> None:
    assert campaign.score([FOUND]).is_met
    assert not campaign.score([FOUND, MISSED]).is_met
    assert not campaign.score([attrs.evolve(FOUND, black=None)]).is_met
    assert not campaign.score([attrs.evolve(FOUND, white=kill(faults_count=3))]).is_met
    assert not campaign.score([attrs.evolve(FOUND, white=kill(runs=51))]).is_met


def test_what_no_client_can_notice_counts_only_for_the_search_that_sees_all() -> None:
    unseen = next(name for name, one in MUTANTS.items() if one.unseen)
    score = campaign.score([FOUND, Hunt(unseen, kill(), None, 9, 2.0)])
    assert (score.count, score.white, score.visible, score.black) == (2, 2, 1, 1)
    assert score.is_met
    assert "1 by clients alone (50%, 100% of the 1 that a client can notice)" in str(score)


def test_no_hunt_looks_for_what_no_client_can_notice() -> None:
    unseen = next(name for name, one in MUTANTS.items() if one.unseen)
    found = campaign._hunt(unseen, ["--white_s=0", "--black_s=9", "--shrink_s=0"])
    assert found.runs == 0


def test_a_hunt_with_an_empty_budget_runs_nothing() -> None:
    (found,) = campaign.run([FOUND.name], budget=Budget(0.0, 0.0, 0.0))
    assert (found.white, found.black, found.runs) == (None, None, 0)
