"""Properties that a program states in its own code are checked in a test, and cost nothing
elsewhere."""

from __future__ import annotations

import subprocess
import sys

import pytest
import trio

import octopi.testing
from octopi.properties import always, reachable, sometimes, unreachable
from octopi.testing import Cluster, Host, MisuseError, Violation, crash_points, simulated
from tests.testing import stock_planted


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("OCTOPI_TEST_SEED", "OCTOPI_TEST_PAGES"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_outside_of_a_test_nothing_is_checked() -> None:
    always(False, "it is day")
    sometimes(False, "it rains")
    reachable("the end")
    unreachable("the end")


def test_the_module_loads_nothing_else() -> None:
    program = (
        "import sys, octopi; known = set(sys.modules); import octopi.properties; "
        "print(sorted(one for one in set(sys.modules) - known if one.startswith('octopi')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.strip() == "['octopi.properties']"


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (lambda: always(0 > 1, "no debts"), "always: no debts is broken, at "),
        (lambda: unreachable("no way"), "unreachable: no way was reached, at "),
    ],
)
def test_a_broken_property_of_a_program_fails_the_test(state: object, text: str) -> None:
    async def scene(cluster: Cluster) -> None:
        async def program(host: Host) -> None:
            assert callable(state)
            state()

        cluster.program("bank", program)
        await cluster.sleep(5)

    with pytest.raises(Violation, match=text):
        octopi.testing.run(scene, brokers=1)


def test_what_never_happens_with_any_seed_fails_the_test(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seeds: list[int] = []

    @simulated(seeds=3, brokers=1)
    async def test(cluster: Cluster) -> None:
        seeds.append(cluster.seed)
        always(True, "it goes on")
        sometimes(cluster.seed == 3, "the third seed")
        sometimes(cluster.seed == 4, "the fourth seed")

    with pytest.raises(Violation, match="never happened with the seeds 1 to 3") as caught:
        test()
    assert seeds == [1, 2, 3]
    assert "sometimes: the fourth seed" in str(caught.value)
    assert "third" not in str(caught.value)
    assert capsys.readouterr().out.splitlines() == [
        "properties in 3 runs:",
        "always       it goes on       3 of 3 times",
        "sometimes    the fourth seed  never",
        "sometimes    the third seed   1 of 3 times",
    ]


def test_a_place_that_has_to_be_reached_is_named_by_the_test() -> None:
    @simulated(reaches=["the cache is full", "a restart"], brokers=1)
    async def test(cluster: Cluster) -> None:
        reachable("a restart")

    with pytest.raises(Violation, match="with the seed 1:\n  reachable: the cache is full\n"):
        test()


def test_a_function_that_the_test_names_has_to_do_all_that_it_states() -> None:
    @simulated(seeds=2, reaches=[stock_planted], brokers=1)
    async def test(cluster: Cluster) -> None:
        stock_planted.sell(cluster.seed)

    with pytest.raises(Violation, match="with the seeds 1 to 2:") as caught:
        test()
    assert str(caught.value).splitlines()[1:3] == [
        "  sometimes: the last one is sold",
        "  reachable: more is ordered",
    ]


def test_the_report_names_what_no_run_came_by(capsys: pytest.CaptureFixture[str]) -> None:
    @simulated(brokers=1)
    async def test(cluster: Cluster) -> None:
        stock_planted.sell(1)

    test()
    assert capsys.readouterr().out.splitlines() == [
        "properties in 1 run:",
        "always       the stock is no debt  1 of 1 times",
        "reachable    more is ordered       never: no run came by",
        "reachable    something is sold     1 of 1 times",
        "sometimes    the last one is sold  never: no run came by",
        "unreachable  a negative number     never",
    ]


def test_crash_points_ask_for_properties_over_all_their_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @crash_points("worker", reaches=["a third life"], brokers=1, occurrences=1)
    async def test(cluster: Cluster) -> None:
        async def program(host: Host) -> None:
            sometimes(host.life == 2, "a second life")
            if host.life > 2:
                reachable("a third life")
            await trio.sleep(0.1)

        cluster.program("worker", program)
        await cluster.sleep(5)

    with pytest.raises(Violation, match="never happened with these 3 runs:") as caught:
        test()
    assert "reachable: a third life" in str(caught.value)
    assert "sometimes    a second life  2 of 5 times" in capsys.readouterr().out


def test_a_place_that_states_nothing_is_refused() -> None:
    @simulated(reaches=[test_outside_of_a_test_nothing_is_checked.__class__])
    async def test(cluster: Cluster) -> None: ...

    with pytest.raises(MisuseError, match="reaches has <class 'function'>: name a property"):
        test()

    @simulated(reaches=[environment_free])
    async def other(cluster: Cluster) -> None: ...

    with pytest.raises(MisuseError, match="which states no sometimes or reachable"):
        other()


def environment_free() -> None: ...


def test_one_seed_that_is_run_again_needs_not_show_everything(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("OCTOPI_TEST_SEED", "2")

    @simulated(seeds=3, brokers=1)
    async def test(cluster: Cluster) -> None:
        sometimes(False, "the impossible")

    test()
