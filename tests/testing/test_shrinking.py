"""A test that fails with random faults ends with the few that matter, as lines that can be pasted,
and a fault that is planned for a moment strikes there or fails the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import octopi.testing
from octopi.simulation.faults.actions import Cut, FillDisk, Kill, Pause, Slow
from octopi.simulation.kernel.world import Violation
from octopi.testing import Cluster, Host, MisuseError, simulated
from octopi.testing.planned_faults import PlannedFault
from octopi.testing.shrinking import signature


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("OCTOPI_TEST_SEED", "OCTOPI_TEST_PAGES"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


async def counting(cluster: Cluster, lines: str = "") -> None:
    """A program that forgets its count when it dies.  *lines* take the place of random faults."""
    counts: list[int] = []

    async def program(host: Host) -> None:
        for count in range(10):
            await cluster.sleep(0.5)
            host.step("counted")
            counts.append(count)

    cluster.program("counter", program)
    if lines:
        exec(lines, {"cluster": cluster})
        await cluster.sleep(6)
    else:
        with cluster.random_faults(["kill", "pause"], hosts=["counter", "broker-1"]):
            await cluster.sleep(6)
    await cluster.sleep(8)
    assert counts == list(range(10)), f"counted {len(counts)}"


def failed(test: Any, **options: Any) -> tuple[str, list[str]]:  # noqa: ANN401
    """The text and the notes of the failure of *test*."""
    with pytest.raises(AssertionError) as caught:
        octopi.testing.run(test, **options)
    return str(caught.value), caught.value.__notes__


def test_the_faults_that_matter_are_printed_as_code_that_reproduces_the_failure(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text, notes = failed(counting, seed=3, brokers=1)
    assert "1 of" in notes[0]
    assert "this, in the place of `with cluster.random_faults(...):`" in notes[0]
    (line,) = [note.strip() for note in notes if "cluster." in note and note.startswith("    ")]
    assert line.startswith('cluster.kill("counter", ')

    async def pasted(cluster: Cluster) -> None:
        await counting(cluster, line)

    again, more = failed(pasted, seed=3 if "seed=3" in notes[0] else 1, brokers=1)
    assert again == text
    assert len(more) == 1, "nothing is random any more"

    # Once more, with a page: it shows the small run, and the failure is the same.
    environment.setenv("OCTOPI_TEST_PAGES", str(tmp_path))
    repeated, noted = failed(counting, seed=3, brokers=1)
    (path,) = tmp_path.iterdir()
    assert repeated == text
    assert noted == [*notes[:-1], f"what happened: {path}", notes[-1]]
    assert path.name.endswith("seed-3.html")
    assert "<li>cluster.kill(" in path.read_text()
    assert "the same run without this fault passes" in notes


def test_a_test_that_fails_without_faults_says_that_none_matters() -> None:
    async def scene(cluster: Cluster) -> None:
        with cluster.random_faults(every_s=0.2):
            await cluster.sleep(5)
        raise AssertionError("it never works")

    _, notes = failed(scene)
    assert notes[0].startswith("none of the ")


def test_a_failure_by_pytest_is_made_smaller_and_a_skipped_test_is_not() -> None:
    async def scene(cluster: Cluster) -> None:
        with cluster.random_faults(["kill"], hosts=["broker-1"], every_s=0.2):
            await cluster.sleep(2)
        (pytest.fail if cluster.seed == 1 else pytest.skip)("no hats")

    with pytest.raises(pytest.fail.Exception) as failed_by_pytest:
        octopi.testing.run(scene)
    assert failed_by_pytest.value.__notes__[0].startswith("none of the ")
    with pytest.raises(pytest.skip.Exception) as skipped:
        octopi.testing.run(scene, seed=2)
    assert not any("faults" in note for note in skipped.value.__notes__)


def test_shrinking_can_be_turned_off() -> None:
    _, notes = failed(counting, seed=3, shrink_s=0.0)
    assert len(notes) == 1
    assert notes[0].startswith("again: ")
    with pytest.raises(MisuseError, match="shrink_s is -1"):
        octopi.testing.run(counting, shrink_s=-1.0)


def test_failures_are_the_same_if_kind_and_text_are_apart_from_numbers() -> None:
    first = signature(AssertionError("assert 160 == 200\n + where 160 = last()"))
    assert first == signature(AssertionError("assert 20 == 200"))
    assert first != signature(ValueError("assert 20 == 200"))
    assert first != signature(AssertionError("assert 20 <= 200"))
    lists = signature(AssertionError("assert [b'1', b'2', b'3'] == [b'1']"))
    assert lists == signature(AssertionError("assert [b'1', b'3'] == [b'1']"))
    assert signature(ExceptionGroup("", [KeyError("a")])) == signature(KeyError("b"))
    always = signature(Violation("always", "no debts, at   3.2 bank C1a"))
    assert always == signature(Violation("always", "no debts, at   9.9 shop C2"))
    assert always != signature(Violation("always", "no gifts, at   9.9 shop C2"))


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (PlannedFault(Kill(None), "a", after_s=1.5), 'cluster.kill("a", after_s=1.5)'),
        (
            PlannedFault(Kill(1.0), "a", "C1a producer sends a batch", 2),
            'cluster.kill("a", step="C1a", occurrence=2, restart_s=1.0)  # producer sends a batch',
        ),
        (
            PlannedFault(Pause(2.0), "a", "half done"),
            'cluster.pause("a", step="half done", seconds=2.0)',
        ),
        (
            PlannedFault(Kill(None), "a", 'before await send("b")'),
            """cluster.kill("a", step='before await send("b")')""",
        ),
        (
            PlannedFault(Cut("b", 1.0, "out"), "a", after_s=0.0),
            'cluster.cut("a", "b", after_s=0.0, seconds=1.0, one_way=True)',
        ),
        (
            PlannedFault(Cut("others", 1.0), "a", after_s=1.0),
            'cluster.isolate("a", after_s=1.0, seconds=1.0)',
        ),
        (
            PlannedFault(Slow("others", 1.0, 0.1), "a", after_s=1.0),
            'cluster.slow("a", after_s=1.0, latency_s=0.1, seconds=1.0)',
        ),
        (
            PlannedFault(FillDisk(1.0), "a", after_s=1.0),
            'cluster.fill_disk("a", after_s=1.0, seconds=1.0)',
        ),
    ],
)
def test_a_planned_fault_is_printed_as_the_call_that_plans_it(
    fault: PlannedFault, code: str
) -> None:
    assert fault.code() == code


@simulated()
async def test_a_fault_strikes_at_the_step_or_time_that_it_is_planned_for(cluster: Cluster) -> None:
    lives: list[tuple[int, float]] = []

    async def program(host: Host) -> None:
        while True:
            lives.append((host.life, cluster.now - began))
            await cluster.sleep(0.4)
            host.step("tick")

    began = cluster.now
    assert cluster.kill("ticker", step="tick", occurrence=2, restart_s=1.0)  # not yet there
    assert cluster.pause("ticker", after_s=2.9, seconds=5.0)
    cluster.program("ticker", program)
    await cluster.sleep(9)
    assert [life for life, _ in lives[:3]] == [1, 1, 2]
    assert not [at for _, at in lives if 3.3 < at < 7.9]


def test_a_planned_fault_that_does_not_strike_fails_the_test() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.kill("broker-1", step="P3a", restart_s=1.0)
        cluster.kill("acount", after_s=999.0)
        cluster.kill(cluster.register)
        cluster.kill(cluster.register, after_s=0.5)
        await cluster.sleep(1.0)

    with pytest.raises(MisuseError, match="not all of its planned faults have struck") as caught:
        octopi.testing.run(scene)
    text = str(caught.value)
    assert 'cluster.kill("broker-1", step="P3a", restart_s=1.0)' in text
    assert "its moment has not come" in text
    assert "there is no host 'acount'" in text
    assert "register could not be struck at that moment" in text


@simulated()
async def test_a_moment_that_is_none_is_refused(cluster: Cluster) -> None:
    with pytest.raises(MisuseError, match="give one of the two"):
        cluster.kill("broker-1", step="P3a", after_s=1.0)
    with pytest.raises(MisuseError, match="occurrence counts a step"):
        cluster.kill("broker-1", occurrence=2)
    with pytest.raises(MisuseError, match="after_s is -1"):
        cluster.kill("broker-1", after_s=-1.0)
    with pytest.raises(MisuseError, match="there is no step 'P33'"):
        cluster.kill("broker-1", step="P33")
