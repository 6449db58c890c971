"""The exhaustive search: what its cells are, what it does at them, and what its table says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octopi.environment import Disk, File
from octopi.tracing import steps
from sim.run.plan import to_token
from sim.search.exhaust import CellResult, Exhaustion, FailedCell, Task, look, perform
from sim.search.exhaust_cells import Cell, actions, cells, impossible
from sim.search.exhaust_runs import SCENARIOS
from sim.search.exhaust_table import report
from tests.cli.conftest import Program

APPENDING = Cell("P2a", "leader")
HEARD = Cell("E4", "leader")


def restrict(monkeypatch: pytest.MonkeyPatch, *chosen: Cell) -> None:
    for module in ("exhaust", "exhaust_table"):
        monkeypatch.setattr(f"sim.search.{module}.cells", lambda: list(chosen))
    monkeypatch.setattr("sim.search.exhaust.SCENARIOS", {"produce": SCENARIOS["produce"]})


def done(cell: Cell, action: str, executed: int, *failures: FailedCell) -> CellResult:
    return CellResult(cell, action, executed, () if executed else ("it is down",), failures, 2, 0.1)


# --- cells ---------------------------------------------------------------------------------


def test_every_step_has_a_cell_and_every_such_cell_ten_actions_at_least() -> None:
    found = [cell for cell in cells() if cell.is_step]
    assert {cell.place for cell in found} == {step.code for step in steps.ALL}
    assert all(len(actions(cell)) >= 10 for cell in found)


def test_every_call_to_a_disk_has_cells() -> None:
    found = {cell.place.split()[0] for cell in cells() if not cell.is_step}
    calls = {name for each in (Disk, File) for name in vars(each) if not name.startswith("_")}
    only_after_a_kill = {"rewrite"}  # `tests/storage/test_disk_failures.py` fails it
    others = {"path", "size_bytes", "close", "page_cache_id", "room", "is_link"}
    assert calls - found == others | only_after_a_kill, "no I/O of theirs"


def test_few_actions_are_listed_as_impossible() -> None:
    never = [
        (cell, action)
        for cell in cells()
        if steps.BY_CODE.get(cell.place) not in steps.OF_GENERATIONS
        for action in actions(cell)
    ]
    assert 0 < sum(bool(impossible(*one)) for one in never) < 0.02 * len(never)


# --- doing it ------------------------------------------------------------------------------


def test_an_action_is_done_at_two_moments_of_a_cell() -> None:
    spots = look("produce").spots[APPENDING]
    found = perform(Task(APPENDING, "kill", spots))
    assert (found.executed, found.runs, found.skipped, found.failures) == (2, 2, (), ())


def test_an_action_is_done_at_one_moment_if_no_more_are_wanted() -> None:
    spots = look("produce").spots[APPENDING]
    found = perform(Task(APPENDING, "kill", spots, moments=1))
    assert (found.executed, found.runs, found.skipped, found.failures) == (1, 1, (), ())


@pytest.mark.parametrize("place", ["D6a", "D6b"])
@pytest.mark.parametrize("action", ["kill", "lose power", "full disk"])
def test_a_broker_that_takes_damage_out_of_its_log_is_failed_there(place: str, action: str) -> None:
    cell = Cell(place, "follower")
    found = perform(Task(cell, action, look("damage").spots[cell]))
    assert (found.executed, found.skipped, found.failures) == (1, (), ())


def test_an_action_that_can_not_be_done_at_one_moment_is_tried_at_all_others() -> None:
    spots = look("straggler").spots[Cell("E4", "follower")]
    hosts = [one.host for one in spots]
    assert sorted(hosts) == ["broker-2", "broker-3"]
    in_sync_first = sorted(spots, key=lambda one: one.host)
    found = perform(Task(Cell("E4", "follower"), "wipe", (*in_sync_first[:1] * 9, *in_sync_first)))
    assert (found.executed, found.runs) == (1, 11)
    assert set(found.skipped) == {"it may be the only one to accept a new leader of 0"}


def test_a_run_that_breaks_a_rule_is_reported_with_its_cell_and_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spots = look("produce").spots[APPENDING]
    monkeypatch.setattr("sim.run.simulation.LIVENESS_S", -1.0)
    found = perform(Task(APPENDING, "reset", spots))
    assert [(one.cell, one.action, one.rule) for one in found.failures] == [
        (APPENDING, "reset", "liveness")
    ] * 2
    assert found.failures[0].token.startswith("oc1-")


# --- the table -----------------------------------------------------------------------------


def test_the_table_of_the_search_lists_done_failed_and_missing_actions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restrict(monkeypatch, APPENDING)
    search = Exhaustion(1)
    failure = FailedCell(APPENDING, "pause", "liveness", "stuck", to_token(SCENARIOS["produce"]))
    for action in actions(APPENDING):
        search.done[APPENDING, action] = done(APPENDING, action, 2)
    search.done[APPENDING, "pause"] = done(APPENDING, "pause", 1, failure)
    search.done[APPENDING, "stop"] = done(APPENDING, "stop", 0)
    del search.done[APPENDING, "wipe"]
    table = report(search).splitlines()
    row = next(line for line in table if line.startswith(steps.P2Appending.text))
    assert row.split()[-15:] == ["2", "2", "0", "!1", *["2"] * 8, "0", "2", "2"]
    assert f"  {steps.P2Appending.text} (leader), stop: it is down" in table
    assert f"  {steps.P2Appending.text} (leader), wipe: never reached" in table
    assert table[-1].startswith("13 of 15 cells (86.7%), 0 can't happen; ")


def test_an_action_listed_as_impossible_must_not_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    restrict(monkeypatch, HEARD)
    search = Exhaustion(1)
    for action in actions(HEARD):
        search.done[HEARD, action] = done(HEARD, action, 2)
    assert search.gaps() == [
        f"{steps.E4Heard.text} (leader), wipe: was done, but is listed as impossible"
    ]
    search.done[HEARD, "wipe"] = done(HEARD, "wipe", 0)
    assert search.gaps() == []


def test_parts_of_the_search_do_every_action_once(monkeypatch: pytest.MonkeyPatch) -> None:
    restrict(monkeypatch, APPENDING)
    parts = [Exhaustion(1, 1, (number, 2)) for number in (1, 2)]
    assert [one.look_around() for one in parts] == [8, 7]
    assert parts[0].left_out | parts[1].left_out == {(APPENDING, one) for one in actions(APPENDING)}
    assert not parts[0].left_out & parts[1].left_out
    one = parts[0]
    for action in actions(APPENDING):
        if (APPENDING, action) not in one.left_out:
            one.done[APPENDING, action] = done(APPENDING, action, 1)
    assert one.gaps() == []
    row = next(line for line in report(one).splitlines() if line.startswith(steps.P2Appending.text))
    assert row.split()[-15:] == [*["1", "."] * 7, "1"]


def test_a_part_that_is_none_is_refused(program: Program) -> None:
    refused = program("sim", "exhaust", "--part", "3", "2")
    assert (refused.exit_code, refused.stderr) == (2, "octopi-node: --part 3 2: there are 2\n")


def test_the_command_prints_the_table_and_keeps_it(
    monkeypatch: pytest.MonkeyPatch, program: Program, tmp_path: Path
) -> None:
    restrict(monkeypatch, Cell("sync during", "leader"))
    table, numbers = tmp_path / "made" / "table.txt", tmp_path / "made" / "numbers.json"
    result = program("sim", "exhaust", "--jobs", "1", "--table", str(table), "--json", str(numbers))
    assert result.exit_code == 0, result.output
    assert table.read_text() == result.stdout
    assert "3 of 3 cells (100.0%), 0 can't happen; 7 runs, 0 failed, " in result.stdout
    written = json.loads(numbers.read_text())["cells"]
    assert [(one["action"], one["executed"]) for one in written] == [
        ("kill", 2),
        ("lose power", 2),
        ("EIO", 2),
    ]


def test_the_command_fails_if_a_cell_was_left_out(
    monkeypatch: pytest.MonkeyPatch, program: Program
) -> None:
    restrict(monkeypatch, Cell("E20", "register"))
    result = program("sim", "exhaust", "--jobs", "1")
    assert result.exit_code == 1
    assert f"  {steps.E20GivenUp.text} (register), kill: never reached" in result.stdout
