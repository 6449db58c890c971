"""Programs see their hosts' clocks, which may be wrong; the test itself sees the right time."""

from __future__ import annotations

import datetime
import itertools
import time
from datetime import UTC, date, datetime as Moment

import pytest
import trio

import octopi.testing
from octopi.simulation.kernel.sandbox import EPOCH_S
from octopi.testing import Cluster, Host, MisuseError, simulated

YEAR = datetime.datetime(2026, 1, 1, tzinfo=UTC)


async def told(cluster: Cluster, name: str = "clockwork") -> dict[str, float]:
    """What the clocks of a program on that host show, as seconds since the run began."""
    shown: dict[str, float] = {}

    async def look(host: Host) -> None:
        shown["time"] = time.time() - EPOCH_S
        shown["datetime"] = (datetime.datetime.now(UTC) - YEAR).total_seconds()
        shown["own name"] = (Moment.now(UTC) - YEAR).total_seconds()
        shown["monotonic"] = time.monotonic()
        shown["environment"] = host.environment.clock.now()
        shown["trio"] = cluster.now
        await trio.sleep_forever()

    if name in cluster.programs:
        cluster.kill(name)
        cluster.restart(name)
    else:
        cluster.program(name, look)
    await cluster.eventually(lambda: "trio" in shown or None, "the clocks are read")
    return shown


@simulated()
async def test_without_faults_all_clocks_show_the_time_of_the_run(cluster: Cluster) -> None:
    shown = await told(cluster)
    assert all(one == pytest.approx(shown["trio"], abs=1e-3) for one in shown.values())
    assert date.today() == date(2026, 1, 1) == Moment.today().date()
    assert isinstance(Moment.now(), datetime.datetime)
    assert type(Moment(2026, 1, 1)).__name__ == "datetime"
    assert datetime.datetime.fromisoformat("2026-01-01").year == 2026


def test_behind_a_run_dates_are_the_real_ones_again() -> None:
    async def scene(cluster: Cluster) -> None:
        assert Moment is not datetime.datetime or Moment.__module__ != "datetime"

    octopi.testing.run(scene, brokers=1)
    assert datetime.datetime.__module__ == "datetime"
    assert Moment is datetime.datetime
    assert abs(Moment.now(UTC).timestamp() - time.time()) < 60


@simulated()
async def test_a_wall_clock_that_is_set_jumps_and_nothing_else_does(cluster: Cluster) -> None:
    found: list[dict[str, float]] = []

    async def look(host: Host) -> None:
        while True:
            found.append(
                {
                    "wall": time.time() - EPOCH_S,
                    "date": (Moment.now(UTC) - YEAR).total_seconds(),
                    "monotonic": time.monotonic(),
                }
            )
            await trio.sleep(1.0)

    cluster.program("skewed", look)
    await cluster.sleep(0.5)
    cluster.skew("skewed", -3600)
    await cluster.sleep(1.0)
    before, after = found
    assert after["wall"] - before["wall"] == pytest.approx(-3599, abs=0.01)
    assert after["date"] == pytest.approx(after["wall"], abs=0.01)
    assert after["monotonic"] - before["monotonic"] == pytest.approx(1.0, abs=0.01)
    assert time.time() == pytest.approx(EPOCH_S + cluster.now), "the test is on no host"


@simulated()
async def test_a_clock_that_drifts_goes_right_again_and_stays_ahead(cluster: Cluster) -> None:
    read: list[float] = []

    async def look(host: Host) -> None:
        while True:
            read.append(time.monotonic())
            await trio.sleep(2.0)

    cluster.program("fast", look)
    cluster.drift("fast", 1.5, seconds=4.0)
    await cluster.sleep(9.0)
    steps = [later - earlier for earlier, later in itertools.pairwise(read)]
    assert steps == pytest.approx([3.0, 3.0, 2.0, 2.0], abs=0.05)
    with pytest.raises(MisuseError, match="above 0"):
        cluster.drift("fast", 0.0)


async def renewing(cluster: Cluster, lines: str = "") -> None:
    """A program that trusts its wall clock for how long a lease lasts."""
    lengths: list[float] = []

    async def tenant(host: Host) -> None:
        while True:
            ends, began = time.time() + 1.0, cluster.now
            while time.time() < ends:
                host.step("used")
                lengths.append(cluster.now - began)
                await trio.sleep(0.25)

    cluster.program("tenant", tenant)
    if lines:
        exec(lines, {"cluster": cluster})
        await cluster.sleep(8)
    else:
        with cluster.random_faults(["skew"], hosts=["tenant"]):
            await cluster.sleep(8)
    assert max(lengths) < 2.0, "the lease was used for too long"


def test_a_skew_is_drawn_made_smaller_and_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OCTOPI_TEST_SEED", "OCTOPI_TEST_PAGES"):
        monkeypatch.delenv(name, raising=False)
    for seed in range(1, 10):
        try:
            octopi.testing.run(renewing, brokers=1, seed=seed)
        except AssertionError as error:
            notes = error.__notes__
            break
    else:
        raise AssertionError("no seed has set the clock back")
    assert "the same run without this fault passes" in notes
    (line,) = [note.strip() for note in notes if note.startswith("    ")]
    assert line.startswith('cluster.skew("tenant", ')

    async def pasted(cluster: Cluster) -> None:
        await renewing(cluster, line)

    with pytest.raises(AssertionError, match="too long"):
        octopi.testing.run(pasted, brokers=1)
