"""Programs that are started again after errors that the test named."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

import octopi
import octopi.testing
from octopi.testing import Cluster, Host, MisuseError, simulated
from octopi.testing.errors import alone


@simulated()
async def test_a_program_that_ends_with_a_named_error_is_started_again(cluster: Cluster) -> None:
    async def program(host: Host) -> None:
        if host.life < 3:
            with trio.fail_after(0.1):
                await trio.sleep_forever()

    started = cluster.program("worker", program, restart_s=0.5, restart_on=(trio.TooSlowError,))
    await started.wait()
    assert started.life_count == 3
    assert [type(alone(error)) for error in started.errors] == [trio.TooSlowError] * 2


@simulated()
async def test_it_is_started_again_if_all_errors_of_a_group_are_named_or_of_the_cluster(
    cluster: Cluster,
) -> None:
    async def program(host: Host) -> None:
        if host.life == 1:
            errors = [trio.TooSlowError(), octopi.OctopiError("no leader")]
            raise ExceptionGroup("two tasks", errors)

    started = cluster.program("worker", program, restart_on=(trio.TooSlowError,))
    await started.wait()
    assert started.life_count == 2


def failure(program: Callable[[Host], Awaitable[object]], **options: Any) -> BaseException:  # noqa: ANN401
    """How a test fails in which *program* runs."""

    async def scene(cluster: Cluster) -> None:
        cluster.program("worker", program, **options)
        await cluster.sleep(100)

    with pytest.raises(Exception) as caught:  # noqa: PT011  # what it is, is asked for
        octopi.testing.run(scene)
    return caught.value


def test_a_group_with_one_other_error_fails_the_test() -> None:
    async def program(host: Host) -> None:
        raise ExceptionGroup("two tasks", [trio.TooSlowError(), ValueError("no number")])

    error = failure(program, restart_on=(trio.TooSlowError,))
    assert "no number" in repr(error)


def test_an_assertion_of_the_program_fails_the_test_whatever_is_named() -> None:
    async def program(host: Host) -> None:
        raise AssertionError("two hats were sold")

    error = failure(program, restart_on=(Exception,))
    assert "two hats were sold" in repr(error)


def test_a_program_that_never_comes_further_fails_the_test_in_the_end() -> None:
    lives: list[int] = []

    async def program(host: Host) -> None:
        lives.append(host.life)
        raise trio.TooSlowError("the bank doesn't answer")

    error = failure(program, restart_s=0.1, restart_on=(trio.TooSlowError,))
    assert isinstance(error, trio.TooSlowError)
    assert "started again 100 times because of errors of restart_on" in str(error.__notes__)
    assert lives == list(range(1, 102))


async def idle(host: Host) -> None:
    """A program that does nothing."""


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"restart_on": (trio.Cancelled,)}, "give classes of exceptions"),
        ({"restart_on": ("TooSlowError",)}, "give classes of exceptions"),
        ({"restart_on": (AssertionError,)}, "always fails the test"),
        ({"restart_on": (OSError,), "restart_s": None}, "is not started again"),
    ],
    ids=["no Exception", "a name", "a verdict", "no restart"],
)
def test_named_errors_that_make_no_sense_are_refused(options: dict[str, Any], text: str) -> None:
    error = failure(idle, **options)
    assert isinstance(error, MisuseError)
    assert text in str(error)


@simulated()
async def test_what_always_holds_is_not_asked_for_when_the_test_ends_all_processes(
    cluster: Cluster,
) -> None:
    cluster.always(lambda: cluster.is_up("broker-1"), "the broker is up")
    await cluster.sleep(1)
