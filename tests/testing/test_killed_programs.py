"""A program that was killed takes no further step, also if it was about to run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

import octopi.testing
from octopi.testing import Cluster, Host

Program = Callable[[Host, trio.Event, list[str]], Awaitable[None]]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OCTOPI_TEST_SEED", "OCTOPI_TEST_PAGES"):
        monkeypatch.delenv(name, raising=False)


def seen_by(program: Program, *, is_paused: bool = False) -> list[str]:
    """What *program* notes if it is killed when the event for which it waits has just happened."""
    seen: list[str] = []

    async def test(cluster: Cluster) -> None:
        event = trio.Event()
        cluster.program("worker", lambda host: program(host, event, seen))
        await cluster.sleep(1)
        if is_paused:
            cluster.pause("worker")
        event.set()
        cluster.kill("worker")
        await cluster.sleep(5)
        assert not cluster.is_up("worker")

    octopi.testing.run(test, brokers=1)
    return seen


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_program_that_is_about_to_run_does_not_run_when_it_was_killed(is_paused: bool) -> None:
    async def program(host: Host, event: trio.Event, seen: list[str]) -> None:
        await event.wait()
        seen.append("ran on")

    assert seen_by(program, is_paused=is_paused) == []


def test_the_code_behind_a_nursery_does_not_run_when_its_last_task_was_about_to_end() -> None:
    async def program(host: Host, event: trio.Event, seen: list[str]) -> None:
        async with trio.open_nursery() as tasks:
            tasks.start_soon(event.wait)
        seen.append("left the nursery")

    assert seen_by(program) == []


def test_the_code_behind_a_nursery_does_not_run_when_its_tasks_had_ended() -> None:
    seen: list[str] = []

    async def test(cluster: Cluster) -> None:
        async def killer() -> None:
            cluster.kill("worker")  # and this task ends without another wait

        async def program(host: Host) -> None:
            async with trio.open_nursery() as tasks:
                tasks.start_soon(killer)
            seen.append("left the nursery")

        cluster.program("worker", program)
        await cluster.sleep(5)

    octopi.testing.run(test, brokers=1)
    assert seen == []


def test_a_task_that_has_not_begun_does_not_begin() -> None:
    async def begin(seen: list[str]) -> None:
        seen.append("began")

    seen: list[str] = []

    async def test(cluster: Cluster) -> None:
        async def program(host: Host) -> None:
            async with trio.open_nursery() as tasks:
                tasks.start_soon(begin, seen)
                cluster.kill("worker")

        cluster.program("worker", program)
        await cluster.sleep(5)

    octopi.testing.run(test, brokers=1)
    assert seen == []


def test_a_program_that_is_killed_at_once_does_not_begin() -> None:
    lives: list[int] = []

    async def test(cluster: Cluster) -> None:
        async def program(host: Host) -> None:
            lives.append(host.life)
            await trio.sleep_forever()

        cluster.program("worker", program)
        cluster.kill("worker", restart_s=1.0)
        await cluster.sleep(5)

    octopi.testing.run(test, brokers=1)
    assert lives == [2]


def test_a_time_out_that_was_over_is_not_handled() -> None:
    async def program(host: Host, event: trio.Event, seen: list[str]) -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as tasks:
                tasks.start_soon(cancel_then, event, scope)
                await trio.sleep_forever()
        seen.append("gave up")

    async def cancel_then(event: trio.Event, scope: trio.CancelScope) -> None:
        await event.wait()
        scope.cancel()

    assert seen_by(program) == []


def test_shielded_work_is_not_done() -> None:
    async def program(host: Host, event: trio.Event, seen: list[str]) -> None:
        with trio.CancelScope(shield=True):
            await event.wait()
            seen.append("woke")
            await trio.lowlevel.checkpoint()
            seen.append("went on")

    assert seen_by(program) == []


def test_an_error_that_was_about_to_be_raised_is_not_handled() -> None:
    seen: list[str] = []

    async def test(cluster: Cluster) -> None:
        sender, receiver = trio.open_memory_channel[str](0)

        async def program(host: Host) -> None:
            try:
                await receiver.receive()
            except trio.EndOfChannel:
                seen.append("handled it")

        cluster.program("worker", program)
        await cluster.sleep(1)
        sender.close()
        cluster.kill("worker")
        await cluster.sleep(5)

    octopi.testing.run(test, brokers=1)
    assert seen == []


def test_a_task_in_a_nursery_of_the_test_outlives_the_program_that_started_it() -> None:
    seen: list[str] = []

    async def test(cluster: Cluster) -> None:
        async with trio.open_nursery() as of_test:
            event = trio.Event()

            async def elsewhere() -> None:
                await event.wait()
                seen.append("ran")

            async def program(host: Host) -> None:
                of_test.start_soon(elsewhere)
                await trio.sleep_forever()

            cluster.program("worker", program)
            await cluster.sleep(1)
            event.set()
            cluster.kill("worker")
            await cluster.sleep(1)

    octopi.testing.run(test, brokers=1)
    assert seen == ["ran"]
