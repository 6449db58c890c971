"""A search whose runs are chosen by what the runs before them have shown: the same for a seed, and
with failures that are made smaller like others."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest

from octopi.properties import sometimes
from octopi.simulation.kernel.world import Event, Violation
from octopi.testing import Cluster, Host, MisuseError, guided
from octopi.testing.guided import Search
from octopi.testing.property_log import PropertyLog
from octopi.testing.setup import Setup


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("OCTOPI_TEST_SEED", "OCTOPI_TEST_PAGES"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


async def paying(cluster: Cluster) -> None:
    """A program that pays twice if it dies between paying and noting that, which is one of many
    moments."""
    paid: list[int] = []
    noted: set[int] = set()

    async def program(host: Host) -> None:
        for number in range(10):
            if number in noted:
                continue
            await cluster.sleep(0.1)
            host.step("asks")
            await cluster.sleep(0.1)
            host.step("sees")
            paid.append(number)
            await cluster.sleep(0.001)
            noted.add(number)
            await cluster.sleep(0.1)

    cluster.program("till", program)
    with cluster.random_faults(["kill"], hosts=["till"], every_s=1.0):
        await cluster.sleep(4)
    await cluster.sleep(6)
    assert paid == list(range(10)), "paid otherwise"


async def idle(cluster: Cluster) -> None:
    async def program(host: Host) -> None:
        while True:
            await cluster.sleep(0.2)
            host.step("looks")

    cluster.program("watcher", program)
    with cluster.random_faults(["kill", "pause"], hosts=["watcher"]):
        await cluster.sleep(3)


async def busy(cluster: Cluster) -> None:
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("orders", 1)
        with cluster.random_faults(["kill", "pause", "slow"], every_s=1.0):
            for _ in range(30):
                await producer.submit("orders", b"a hat")
                await cluster.sleep(0.2)


def search(test: Any, seed: int = 1, **options: Any) -> Search:  # noqa: ANN401
    return Search(test, Setup(brokers=1, shrink_s=0, **options), seed, PropertyLog())


def runs_to_failure(seed: int) -> tuple[int, str]:
    made = search(paying, seed)
    while made.run_count < 60:
        error = made.run_next()
        if error is not None:
            return made.run_count, str(error)
    pytest.fail("nothing was found")


def test_a_seed_finds_the_same_failure_in_the_same_run() -> None:
    assert runs_to_failure(1) == runs_to_failure(1)


def test_the_failure_is_made_smaller_and_says_how_it_was_found(
    environment: pytest.MonkeyPatch,
) -> None:
    @guided(runs=60, brokers=1)
    async def test(cluster: Cluster) -> None:
        await paying(cluster)

    with pytest.raises(AssertionError) as caught:
        test()
    notes = caught.value.__notes__
    assert notes[0].startswith("1 of ")
    assert notes[1].strip().startswith('cluster.kill("till", step=')
    assert any(note.startswith("again: OCTOPI_TEST_SEED=1 ") for note in notes)
    (found,) = [note for note in notes if note.startswith("found in run ")]
    assert found.endswith(" of a guided search with the seed 1")

    environment.setenv("OCTOPI_TEST_SEED", "1")
    with pytest.raises(AssertionError) as repeated:
        test()
    assert repeated.value.__notes__ == notes


def test_a_run_that_repeats_a_beginning_is_the_same_up_to_there_and_then_another() -> None:
    runs: list[list[str]] = []
    seeds: list[int] = []

    async def watched(cluster: Cluster) -> None:
        events: list[str] = []
        cluster._world.observers.append(lambda event: events.append(told(event)))
        runs.append(events)
        seeds.append(cluster.seed)
        await busy(cluster)

    def told(event: Event) -> str:
        return f"{event.number} {event.at} {event.host} {event.what}"

    made = search(watched)
    others = 0
    for _ in range(8):
        assert made.run_next() is None
        if len(made.way.turns) != 1:
            continue
        first, again = runs[seeds.index(made.way.seed)], runs[-1]
        ((turn, _salt),) = made.way.turns
        pairs = zip(first, again, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if same < min(len(first), len(again)):
            others += 1
            assert int(again[same].split()[0]) >= turn - 1
    assert others >= 1


def test_faults_strike_where_they_were_tried_least() -> None:
    made = search(idle)
    for _ in range(8):
        assert made.run_next() is None
    counts = {
        step: made._tried.struck["kill", "watcher", step] for step in made._tried.steps("watcher")
    }
    assert counts["looks"] >= 1
    assert counts["after await cluster.sleep(0.2)"] >= 1
    assert counts["before await cluster.sleep(0.2)"] >= 1


def test_what_never_happens_in_all_runs_fails_the_test(capsys: pytest.CaptureFixture[str]) -> None:
    @guided(runs=2, brokers=1)
    async def test(cluster: Cluster) -> None:
        sometimes(False, "the impossible")
        await idle(cluster)

    with pytest.raises(Violation, match="this never happened with these 2 runs:"):
        test()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("guided search: 2 runs; faults struck at ")
    assert "sometimes    the impossible  never" in lines


def test_a_search_for_a_time_makes_at_least_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    @guided(minutes=1e-9, brokers=1)
    async def test(cluster: Cluster) -> None:
        await idle(cluster)

    test()
    assert capsys.readouterr().out.startswith("guided search: 1 run;")


def test_what_cannot_be_searched_is_refused() -> None:
    with pytest.raises(MisuseError, match="runs is 0; it has to be at least 1"):
        guided(runs=0)
    with pytest.raises(MisuseError, match="minutes is 0; it has to be more than 0"):
        guided(minutes=0)
