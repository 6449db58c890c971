"""A program is ended at each of its waits and steps, and what goes wrong is said as a table and as
a line that can be pasted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

import octopi.testing
from octopi.testing import Cluster, Host, MisuseError
from octopi.testing.crash_points import crash_points

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OCTOPI_TEST_SEED", "OCTOPI_TEST_PAGES"):
        monkeypatch.delenv(name, raising=False)


async def pay(notes: list[str]) -> None:
    """A call to somewhere else: it is done in the middle of the call."""
    await trio.sleep(0.1)
    notes.append("paid")
    await trio.sleep(0.1)


async def scene(cluster: Cluster) -> None:
    """A program that pays twice if it dies between paying and noting that."""
    notes: list[str] = []

    async def program(host: Host) -> None:
        if "noted" not in notes:
            await pay(notes)
            host.step("paid")
            notes.append("noted")
            await trio.sleep(0.1)

    cluster.program("till", program)
    await cluster.sleep(5)
    assert notes == ["paid", "noted"]


def table_of(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The outcome of each point."""
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("crash points of ")
    cells = [row.rsplit("  ", 1) for row in rows if not row.startswith((" ", "1 ", "2 ", "3 "))]
    return {cell[0].strip(): cell[1].strip() for cell in cells if len(cell) == 2}


def failed(test: Any) -> AssertionError:  # noqa: ANN401
    with pytest.raises(AssertionError) as caught:
        test()
    return caught.value


def test_a_program_is_ended_before_and_after_each_wait_and_at_each_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = failed(crash_points("till", brokers=1)(scene))
    assert table_of(capsys) == {
        "before await trio.sleep(0.1)": "FAILS 1 of 3",
        "after await trio.sleep(0.1)": "FAILS 1 of 3",
        "paid": "FAILS 1 of 1",
    }
    notes = error.__notes__
    assert notes[0] == "at 3 points; this, at the beginning of the test, fails at one of them:"
    assert notes[1].strip().startswith('cluster.kill("till", step="before await trio.sleep(0.1)"')
    assert "crash points of till: 3 points, 7 runs" in notes


def test_the_line_for_a_point_reproduces_the_failure() -> None:
    error = failed(crash_points("till", brokers=1)(scene))
    line = error.__notes__[1].strip()

    async def pasted(cluster: Cluster) -> None:
        exec(line, {"cluster": cluster})
        await scene(cluster)

    with pytest.raises(AssertionError) as caught:
        octopi.testing.run(pasted, brokers=1)
    assert str(caught.value) == str(error)


def test_a_program_does_not_run_on_where_it_was_ended_after_a_wait() -> None:
    seen: list[tuple[int, str]] = []

    async def test(cluster: Cluster) -> None:
        async def program(host: Host) -> None:
            async with trio.open_nursery() as nursery:  # one that is unwound, too
                nursery.start_soon(trio.sleep, 0.05)
                await trio.sleep(0.1)
                seen.append((host.life, "slept"))
            seen.append((host.life, "left"))

        cluster.kill("sleeper", step="after await trio.sleep(0.1)", restart_s=1.0)
        cluster.program("sleeper", program)
        await cluster.sleep(3)

    octopi.testing.run(test, brokers=1)
    assert seen == [(2, "slept"), (2, "left")]


def test_a_right_program_passes_at_each_point(capsys: pytest.CaptureFixture[str]) -> None:
    @crash_points("worker", brokers=1, occurrences=1, deep=2, pairs_max=4)
    async def test(cluster: Cluster) -> None:
        done: set[int] = set()

        async def program(host: Host) -> None:
            for part in range(3):
                if part not in done:
                    await trio.sleep(0.1)
                    done.add(part)

        cluster.program("worker", program)
        await cluster.sleep(5)
        assert done == {0, 1, 2}

    test()
    text = capsys.readouterr().out
    assert "1 passed" in text
    assert "killed twice, at 4 of 4 pairs of points: 4 passed" in text


def test_a_bug_that_needs_two_crashes_is_found_two_deep() -> None:
    async def test(cluster: Cluster) -> None:
        crashes: list[int] = []

        async def program(host: Host) -> None:
            if host.life > 1:
                crashes.append(host.life)
            await trio.sleep(0.1)

        cluster.program("worker", program)
        await cluster.sleep(5)
        assert len(crashes) < 2

    crash_points("worker", brokers=1)(test)()
    error = failed(crash_points("worker", brokers=1, deep=2)(test))
    assert error.__notes__[1].strip().startswith("cluster.kill(")
    assert error.__notes__[2].strip().startswith("cluster.kill(")


def test_other_faults_strike_at_the_steps_of_messages_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @crash_points("worker", faults=["kill", "isolate"], brokers=1, occurrences=1)
    async def test(cluster: Cluster) -> None:
        async def program(host: Host) -> None:
            async with host.connect() as client, client.producer() as producer:
                await producer.send("orders", b"a hat")

        await cluster.program("worker", program).wait()

    test()
    rows = capsys.readouterr().out.splitlines()
    assert rows[1].split() == ["point", "kill", "isolate"]
    (step,) = [row for row in rows if row.startswith("C1a ")]
    assert step.count("1 passed") == 2
    (wait,) = [row for row in rows if row.startswith("before await producer.send")]
    assert wait.rstrip().endswith("-")


def test_the_points_and_outcomes_are_the_same_in_each_process() -> None:
    program = (
        "import octopi.testing\n"
        "from tests.testing.test_crash_points import scene\n"
        "try:\n    octopi.testing.crash_points('till', brokers=1)(scene)()\n"
        "except AssertionError:\n    pass\n"
    )

    def output(seed: str) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", program]
        return subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True
        ).stdout

    first = output("1")
    assert b"FAILS 1 of 1" in first
    assert output("2") == first


def test_a_test_that_fails_without_faults_is_reported_as_always() -> None:
    async def test(cluster: Cluster) -> None:
        raise KeyError("hats")

    with pytest.raises(KeyError) as caught:
        crash_points("worker")(test)()
    assert caught.value.__notes__[0].startswith("again: ")


def test_what_cannot_be_explored_is_refused() -> None:
    async def idle(cluster: Cluster) -> None:
        await cluster.sleep(1)

    with pytest.raises(MisuseError, match="worker takes no step in this test"):
        crash_points("worker")(idle)()
    with pytest.raises(MisuseError, match="there is no fault 'cut'; there are kill, lose power"):
        crash_points("worker", faults=["cut"])
    with pytest.raises(MisuseError, match="name at least one host"):
        crash_points()
    with pytest.raises(MisuseError, match="deep is 1 or 2"):
        crash_points("worker", deep=3)


def test_watching_the_waits_does_not_change_what_happens() -> None:
    async def lives(cluster: Cluster) -> str:
        await scene(cluster)
        return f"{cluster.now} {cluster.random.random()}"

    async def watched(cluster: Cluster) -> str:
        cluster.watch_waits()
        return await lives(cluster)

    assert octopi.testing.run(lives, brokers=1) == octopi.testing.run(watched, brokers=1)
