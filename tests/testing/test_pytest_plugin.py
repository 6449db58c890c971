"""The plugin of pytest says how long tests search and how to repeat what failed, and costs other
projects nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from octopi.testing import MisuseError
from octopi.testing.run_limits import RunLimit, shrink_s_of

pytest_plugins = ["pytester"]

TESTS = """
import octopi.testing
import pytest


@octopi.testing.simulated(brokers=1, seeds=2)
async def test_passes(cluster):
    print("seed", cluster.seed)


@octopi.testing.simulated(brokers=1)
async def test_fails_with_the_third_seed(cluster):
    assert cluster.seed < 3


@octopi.testing.guided(brokers=1, runs=1)
async def test_is_searched(cluster):
    print("searched", cluster.seed)


@pytest.mark.parametrize("way", ["a b"])
@octopi.testing.simulated(brokers=1, seed=7)
async def test_fails_at_once(cluster, way):
    assert cluster.seed == 1


def test_knows_no_cluster():
    assert False
"""
PLUGIN = ("-p", "pytest_octopi", "-p", "no:cacheprovider", "-p", "no:randomly")
COMMANDS = (
    "OCTOPI_TEST_SEED=3 pytest test_shop.py::test_fails_with_the_third_seed",
    "OCTOPI_TEST_SEED=7 pytest 'test_shop.py::test_fails_at_once[a b]'",
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("SEED", "PAGES", "SEEDS", "MINUTES", "SHRINK_S"):
        monkeypatch.delenv(f"OCTOPI_TEST_{name}", raising=False)
    return monkeypatch


def commands(lines: list[str]) -> list[str]:
    """What is printed to repeat the failures."""
    (first,) = (
        number for number, line in enumerate(lines) if "to repeat what failed in simulated" in line
    )
    return [line for line in lines[first + 1 :] if line.startswith("OCTOPI_TEST_SEED")]


def test_each_test_runs_with_so_many_seeds_and_each_failure_has_its_command(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(test_shop=TESTS)
    result = pytester.runpytest_inprocess(*PLUGIN, "--octopi-seeds=3", "-rP")
    result.assert_outcomes(passed=2, failed=3)
    result.stdout.fnmatch_lines(["seed 1", "seed 2", "seed 3"], consecutive=True)
    result.stdout.no_fnmatch_line("seed 4")
    result.stdout.fnmatch_lines(["searched 1", "searched 2", "searched 3"], consecutive=True)
    assert tuple(commands(result.outlines)) == COMMANDS


def test_without_the_options_tests_run_as_they_ask_for_themselves(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(test_shop=TESTS)
    result = pytester.runpytest_inprocess(*PLUGIN, "-rP")
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(["seed 1", "seed 2", "*"], consecutive=True)
    result.stdout.no_fnmatch_line("seed 3")
    assert tuple(commands(result.outlines)) == COMMANDS[1:]


def test_it_works_with_workers_of_xdist(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_shop=TESTS)
    result = pytester.runpytest_subprocess(*PLUGIN, "-n", "2", "--octopi-seeds=3")
    result.assert_outcomes(passed=2, failed=3)
    assert sorted(commands(result.outlines)) == sorted(COMMANDS)


def test_a_test_runs_again_until_the_minutes_are_over(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_shop=TESTS)
    result = pytester.runpytest_inprocess(
        *PLUGIN, "--octopi-minutes=0.02", "-rP", "-k", "passes or third"
    )
    result.assert_outcomes(passed=1, failed=1, deselected=3)
    result.stdout.fnmatch_lines(["seed 1", "seed 2", "seed 3"], consecutive=True)
    assert commands(result.outlines) == [COMMANDS[0]]


def test_a_seed_in_the_environment_is_the_only_one(
    pytester: pytest.Pytester, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("OCTOPI_TEST_SEED", "5")
    pytester.makepyfile(test_shop=TESTS)
    result = pytester.runpytest_inprocess(*PLUGIN, "--octopi-seeds=3", "-rP", "-k", "passes")
    result.stdout.fnmatch_lines(["seed 5", "*"], consecutive=True)
    result.stdout.no_fnmatch_line("seed 6")


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--octopi-seeds=0", "*0 seeds are too few: give at least 1"),
        ("--octopi-minutes=-1", "*-1 minutes are too few: give more than 0"),
    ],
)
def test_too_little_is_refused(pytester: pytest.Pytester, option: str, text: str) -> None:
    result = pytester.runpytest_inprocess(*PLUGIN, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([text])


def test_a_variable_that_is_no_number_is_refused(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OCTOPI_TEST_SEEDS", "many")
    with pytest.raises(MisuseError, match="OCTOPI_TEST_SEEDS is 'many'; it has to be a whole num"):
        RunLimit.of(1)
    environment.delenv("OCTOPI_TEST_SEEDS")
    environment.setenv("OCTOPI_TEST_MINUTES", "-1")
    with pytest.raises(MisuseError, match="it has to be a number of minutes"):
        RunLimit.of(1)


def test_the_plugin_loads_nothing_of_octopi() -> None:
    program = (
        "import sys, pytest; known = set(sys.modules); import pytest_octopi; "
        "print(sorted(set(sys.modules) - known))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.strip() == "['pytest_octopi']"


FAULTY = """
import octopi.testing


@octopi.testing.simulated(brokers=1)
async def test_nothing_ever_fails(cluster):
    with cluster.random_faults(["kill"], every_s=0.1):
        await cluster.sleep(2)
        assert False
"""


@pytest.mark.parametrize(("seconds", "is_smaller"), [("0", False), ("5", True)])
def test_a_failure_is_made_smaller_for_so_many_seconds(
    pytester: pytest.Pytester, seconds: str, is_smaller: bool
) -> None:
    pytester.makepyfile(test_shop=FAULTY)
    result = pytester.runpytest_inprocess(*PLUGIN, f"--octopi-shrink={seconds}")
    result.assert_outcomes(failed=1)
    assert ("faults matter" in result.stdout.str()) is is_smaller


def test_the_environment_says_how_long_a_failure_is_made_smaller(
    environment: pytest.MonkeyPatch,
) -> None:
    assert shrink_s_of(20.0) == 20.0
    environment.setenv("OCTOPI_TEST_SHRINK_S", "0")
    assert shrink_s_of(20.0) == 0.0
    for wrong in ("-1", "nan", "long"):
        environment.setenv("OCTOPI_TEST_SHRINK_S", wrong)
        with pytest.raises(MisuseError, match="it has to be a number of seconds"):
            shrink_s_of(20.0)
