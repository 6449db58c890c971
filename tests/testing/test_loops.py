"""A simulated cluster runs in every loop with virtual time, and in no other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock, wait_all_tasks_blocked

import octopi
import octopi.testing
from octopi.simulation.kernel import driver
from octopi.simulation.kernel.sandbox import OutsideReachedError
from octopi.testing import Cluster, MisuseError, StuckError


async def story(cluster: Cluster) -> None:
    """A leader dies, and all that was sent is there."""
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("orders", 1)
        await producer.send("orders", b"three umbrellas")
        cluster.kill(cluster.leader("orders"))
        await producer.send("orders", b"a hat")
        await cluster.settle()
        async with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
            values = [message.value async for message in consumer]
    assert values == [b"three umbrellas", b"a hat"]


async def digest(cluster: Cluster) -> str:
    """What happens in a story with faults: the same digest, the same run."""
    with cluster.random_faults(["kill", "cut", "slow"]):
        await story(cluster)
    return cluster._world.digest


@pytest.fixture
async def cluster(autojump_clock: MockClock) -> AsyncIterator[Cluster]:
    async with octopi.testing.cluster(seed=7) as cluster:
        yield cluster


# --- plain functions ---------------------------------------------------------------------


def test_run_returns_the_result_of_the_async_test() -> None:
    assert octopi.testing.run(digest, seed=7) == octopi.testing.run(digest, seed=7)
    assert octopi.testing.run(digest, seed=7) != octopi.testing.run(digest, seed=8)


@octopi.testing.simulated(seeds=3, brokers=2, replicas=2, partitions=1)
async def test_a_decorated_test_is_given_its_cluster_and_fixtures(
    cluster: Cluster, tmp_path: Path
) -> None:
    assert tmp_path.name
    assert len(cluster.brokers) == 2
    await story(cluster)


class TestOfAClass:
    @octopi.testing.simulated()
    async def test_may_be_a_method_too(self, cluster: Cluster) -> None:
        assert isinstance(self, TestOfAClass)
        assert len(cluster.brokers) == 3


def test_a_decorated_test_is_run_with_each_seed_until_it_fails() -> None:
    seeds: list[int] = []

    @octopi.testing.simulated(seed=5, seeds=10)
    async def test(cluster: Cluster) -> None:
        seeds.append(cluster.seed)
        assert cluster.seed < 8

    with pytest.raises(AssertionError):
        test()
    assert seeds == [5, 6, 7, 8]


def test_a_simulation_can_include_the_websockets_of_production() -> None:
    octopi.testing.run(story, websocket=True)


def test_virtual_time_passes_without_waiting() -> None:
    async def scene(cluster: Cluster) -> float:
        await trio.sleep(200)
        return trio.current_time()

    assert octopi.testing.run(scene, brokers=1) > 200


# --- loops that run already --------------------------------------------------------------


def test_a_loop_of_trio_with_a_clock_that_jumps_holds_a_cluster() -> None:
    async def main() -> str:
        await trio.sleep(100)
        async with octopi.testing.cluster(brokers=3, seed=7) as cluster:
            assert cluster.seed == 7
            assert cluster.now >= 100
            found = await digest(cluster)
        await trio.sleep(100)
        return found

    digests = {trio.run(main, clock=MockClock(autojump_threshold=0)) for _ in range(2)}
    assert len(digests) == 1  # not promised, but there is nobody here whom no seed rules


async def test_a_test_of_pytest_trio_holds_a_cluster(autojump_clock: MockClock) -> None:
    async with octopi.testing.cluster(seed=7) as cluster:
        await story(cluster)
    async with octopi.testing.cluster(seed=8) as cluster:
        await story(cluster)


async def test_a_cluster_may_be_a_fixture(autojump_clock: MockClock, cluster: Cluster) -> None:
    await story(cluster)


async def test_other_tasks_in_the_loop_see_the_same_time(
    autojump_clock: MockClock, cluster: Cluster
) -> None:
    await trio.sleep(30 - trio.current_time())
    assert cluster.now == pytest.approx(trio.current_time(), abs=1e-9)
    with trio.move_on_after(5) as scope:
        async with cluster.client() as client:
            await client.create_topic("orders", 1)
            async with client.consumer("orders") as consumer:
                await anext(consumer)
    assert scope.cancelled_caught
    assert 35 <= cluster.now < 36


async def test_the_test_may_move_the_clock_itself(
    autojump_clock: MockClock, cluster: Cluster
) -> None:
    before = cluster.now
    autojump_clock.jump(10)
    await cluster.sleep(1)
    assert cluster.now == pytest.approx(before + 11)
    await story(cluster)


async def test_waiting_until_all_tasks_are_blocked_takes_no_time(
    autojump_clock: MockClock, cluster: Cluster
) -> None:
    before = cluster.now
    await wait_all_tasks_blocked()
    assert cluster.now == before


async def test_hosts_are_not_paused_in_a_loop_that_trio_turns(
    autojump_clock: MockClock, cluster: Cluster
) -> None:
    with pytest.raises(MisuseError, match=r"use octopi\.testing\.run, simulated or runner"):
        cluster.pause("broker-1")
    with cluster.random_faults():  # which leave pauses out
        await cluster.sleep(10)
    await cluster.settle()


def in_mock_time(main: Callable[[], Awaitable[None]], **clock: float) -> None:
    trio.run(main, clock=MockClock(**(clock or {"autojump_threshold": 0})))


def test_an_error_in_a_loop_of_trio_comes_out_of_the_block() -> None:
    async def wrong() -> None:
        async with octopi.testing.cluster(seed=7):
            raise AssertionError("too few")

    async def stuck() -> None:
        async with octopi.testing.cluster(seed=7, timeout_s=10.0):
            await trio.sleep_forever()

    async def program(host: octopi.testing.Host) -> None:
        raise KeyError("no such account")

    async def broken() -> None:
        async with octopi.testing.cluster(seed=7) as cluster:
            cluster.program("worker", program)
            await trio.sleep_forever()

    errors = (wrong, AssertionError), (stuck, StuckError), (broken, KeyError)
    for main, kind in errors:
        with pytest.raises(kind) as caught:
            in_mock_time(main)
        assert "OCTOPI_TEST_SEED=7" in caught.value.__notes__[-1]


def test_a_cancelled_block_raises_no_error() -> None:
    async def main() -> None:
        with trio.move_on_after(50) as scope:
            async with octopi.testing.cluster():
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert trio.current_time() == 50

    in_mock_time(main)


async def test_a_real_clock_is_refused() -> None:
    with pytest.raises(MisuseError, match=r"@octopi\.testing\.simulated.*autojump_clock"):
        async with octopi.testing.cluster():
            pass


@pytest.mark.parametrize("clock", [{"rate": 0.0}, {"rate": 1.0, "autojump_threshold": 0.0}])
def test_a_clock_that_does_not_jump_is_refused(clock: dict[str, float]) -> None:
    async def main() -> None:
        with pytest.raises(MisuseError, match="autojump_threshold=0 and no rate"):
            async with octopi.testing.cluster():
                pass

    in_mock_time(main, **clock)


# --- pytest-trio, turned by the simulator --------------------------------------------------


@pytest.mark.trio(run=octopi.testing.runner(seed=7))
async def test_a_runner_runs_the_loop_of_an_async_test(tmp_path: Path) -> None:
    async with octopi.testing.cluster() as cluster:
        assert cluster.seed == 7
        cluster.pause("broker-1", seconds=2.0)
        await story(cluster)


@pytest.fixture
async def turned() -> AsyncIterator[Cluster]:
    async with octopi.testing.cluster() as cluster:
        yield cluster


@pytest.mark.trio(run=octopi.testing.runner(seed=7))
async def test_a_runner_runs_the_loop_of_async_fixtures(turned: Cluster) -> None:
    assert turned.seed == 7
    await story(turned)


def test_a_runner_replaces_trio_run() -> None:
    async def main() -> str:
        async with octopi.testing.cluster() as cluster:
            return await digest(cluster)

    run = octopi.testing.runner(seed=7)
    assert run(main) == run(main)
    with pytest.raises(MisuseError, match="a clock of its own"):
        run(main, clock=MockClock())


# --- a Trio that isn't known ---------------------------------------------------------------


def test_an_unknown_version_of_trio_works_except_for_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(cluster: Cluster) -> None:
        with pytest.raises(MisuseError, match="hosts can be paused only where"):
            cluster.pause("broker-1")
        await digest(cluster)

    async def main() -> None:
        async with octopi.testing.cluster() as cluster:
            await digest(cluster)

    monkeypatch.setattr(driver, "private_problem", lambda: "everything has other names")
    octopi.testing.run(scene)
    in_mock_time(main)


# --- mistakes ----------------------------------------------------------------------------


@octopi.testing.simulated()
async def test_there_is_one_cluster_at_a_time(cluster: Cluster) -> None:
    with pytest.raises(MisuseError, match="there is a cluster in this loop already"):
        async with octopi.testing.cluster():
            pass


async def test_there_is_one_cluster_at_a_time_in_loops_of_trio_too(
    autojump_clock: MockClock, cluster: Cluster
) -> None:
    with pytest.raises(MisuseError, match="there is a cluster in this loop already"):
        async with octopi.testing.cluster():
            pass


async def test_a_simulation_can_not_be_run_within_a_loop() -> None:
    with pytest.raises(MisuseError, match="a Trio loop runs here already"):
        octopi.testing.run(story)


@octopi.testing.simulated()
async def test_a_block_can_not_have_another_seed_than_its_run(cluster: Cluster) -> None:
    with pytest.raises(MisuseError, match="the seed is that of the run"):
        async with octopi.testing.cluster(seed=8):
            pass


def test_a_test_has_to_be_async_and_to_take_a_cluster() -> None:
    with pytest.raises(MisuseError, match="async function"):

        @octopi.testing.simulated()  # type: ignore[arg-type]
        def plain(cluster: Cluster) -> None: ...

    with pytest.raises(MisuseError, match="a parameter that is called cluster"):

        @octopi.testing.simulated()
        async def lonely() -> None: ...

    with pytest.raises(MisuseError, match="at least 1"):
        octopi.testing.simulated(seeds=0)


@pytest.mark.parametrize(
    "options", [{"brokers": 0}, {"latency_s": -1.0}, {"timeout_s": 0.0}, {"replicas": 0}]
)
def test_an_option_out_of_its_range_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(MisuseError, match=next(iter(options))):
        octopi.testing.run(story, **options)  # type: ignore[arg-type]


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="broker"):
        octopi.testing.run(story, broker=3)  # type: ignore[call-arg]


def test_a_test_that_uses_the_real_world_fails_with_the_place() -> None:
    async def scene(cluster: Cluster) -> None:
        await trio.socket.socket().connect(("127.0.0.1", 7000))

    with pytest.raises(OutsideReachedError, match="socket"):
        octopi.testing.run(scene)


def test_a_test_that_spins_without_passing_time_fails() -> None:
    async def scene(cluster: Cluster) -> None:
        while cluster.now < 100:
            await trio.lowlevel.checkpoint()

    with pytest.raises(driver.SpinningError, match="time stands still"):
        octopi.testing.run(scene)
