"""Planted bugs fit the code that they are planted in, and are found."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from itertools import islice

import pytest

from sim.generate.scenario_plans import draw, draw_scenario
from sim.generate.scenarios import SCENARIOS, SCENARIOS_BY_NAME
from sim.generate.scenarios_of_groups import GROUP_SCENARIOS
from sim.generate.scenarios_of_pipes import PIPE_SCENARIOS
from sim.generate.scenarios_of_relays import RELAY_SCENARIOS
from sim.generate.scenarios_of_rings import RING_SCENARIOS
from sim.mutants.catalogue import MUTANTS
from sim.mutants.mutant import HISTORY, LIVENESS, Mutant, StaleMutantError
from sim.mutants.runner import plans

COUNT_MIN = 50


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda mutant: mutant.name)
def test_a_mutant_changes_its_module_at_one_place_and_still_compiles(mutant: Mutant) -> None:
    source = mutant.source()
    changed = mutant.apply(source)
    assert changed != source
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))


def test_there_are_enough_mutants_and_no_two_are_equal() -> None:
    assert len(MUTANTS) >= COUNT_MIN
    assert list(MUTANTS) == [mutant.name for mutant in MUTANTS.values()]
    changes = Counter((one.module, one.old, one.new) for one in MUTANTS.values())
    assert set(changes.values()) == {1}


def test_a_patch_removes_adds_and_keeps_lines() -> None:
    mutant = Mutant("one", "octopi.limits", "\n a\n-b\n+c\n\n d\n", "a bug", LIVENESS)
    assert mutant.old == "a\nb\n\nd\n"
    assert mutant.new == "a\nc\n\nd\n"
    assert mutant.apply("0\na\nb\n\nd\n1\n") == "0\na\nc\n\nd\n1\n"


@pytest.mark.parametrize("source", ["0\na\nc\n", "0\na\nb\n1\na\nb\n", "0\n  a\nb\n"])
def test_a_mutant_whose_source_does_not_occur_exactly_once_is_refused(source: str) -> None:
    mutant = Mutant("one", "octopi.limits", "\n a\n-b\n", "a bug", HISTORY)
    with pytest.raises(StaleMutantError, match="adapt it"):
        mutant.apply(source)


def in_a_process(program: str) -> str:
    """What *program* prints."""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout


def test_planting_changes_the_module_in_this_process_and_in_no_other() -> None:
    mutant = MUTANTS["commit-on-leader-alone"]
    show = f"import inspect, {mutant.module} as module; print(inspect.getsource(module))"
    plant = "from sim.mutants.catalogue import MUTANTS; from sim.mutants.mutant import plant\n"
    plant += f"plant(MUTANTS[{mutant.name!r}])\n"
    compiled = "print(sorted(module.LogLeader._commit.__code__.co_names))"
    planted = in_a_process(f"{plant}{show}\n{compiled}")
    untouched = in_a_process(f"{show}\n{compiled}")
    assert "'_others'" in untouched.splitlines()[-1]
    assert "'_others'" not in planted.splitlines()[-1]


def test_a_module_that_is_imported_already_can_not_be_changed() -> None:
    program = "import octopi.replication.log_leader\n"
    program += "from sim.mutants.catalogue import MUTANTS; from sim.mutants.mutant import plant\n"
    program += "plant(MUTANTS['commit-on-leader-alone'])\n"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        in_a_process(program)
    assert "was imported before" in caught.value.stderr


def test_bugs_of_subscriptions_are_hunted_with_plans_that_have_members() -> None:
    some = list(islice(plans(1, "octopi.subscriptions.log_queue"), 20))
    assert all(plan.workload.members > 0 for plan in some)
    assert not all(plan.workload.members > 0 for plan in islice(plans(1, "octopi.record"), 20))


def test_every_second_plan_of_a_hunt_is_of_a_scenario_that_concerns_the_mutant() -> None:
    drawn = list(islice(plans(3, scenarios=("too_few", "ghost")), 6))
    assert drawn[::2] == [
        draw_scenario("too_few", 3),
        draw_scenario("ghost", 4),
        draw_scenario("too_few", 5),
    ]
    assert drawn[1::2] == [draw(3), draw(4), draw(5)]


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda mutant: mutant.name)
def test_the_scenarios_that_concern_a_mutant_are_drawn_and_run_its_code(mutant: Mutant) -> None:
    for name in mutant.scenarios:
        assert list(islice(plans(1, mutant.module, (name,)), 1))


def test_each_scenario_has_a_name_of_its_own() -> None:
    assert set(SCENARIOS_BY_NAME.values()) == {
        *SCENARIOS,
        *GROUP_SCENARIOS,
        *RING_SCENARIOS,
        *RELAY_SCENARIOS,
        *PIPE_SCENARIOS,
    }
