"""Relays of a static list lose and double nothing, whatever fails at whichever step: the rules that
the oracle has for relay sets of a register are checked at each step here, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from octopi.relay.buffer import BufferBounds
from octopi.testing import Cluster, run, simulated
from tests.kit.relay_loads import RelayLoad
from tests.kit.relays import RelaysOfHosts

_OF_A_MESSAGE: Final = (
    *("M1", "M2a", "M2b", "M3a", "M3b", "M4a", "M4b", "M5a", "M5b", "M6", "M7a", "M7b", "M8"),
)
_OF_A_CHANGE: Final = (
    *("M9", "M10a", "M10b", "M11a", "M11b", "M15a", "M15b", "M16a", "M16b", "M17a", "M17b"),
    *("M18a", "M18b"),
)
_OF_A_FOUNDING: Final = ("M10a", "M10b", "M11a", "M11b", "M12a", "M12b", "M14")


def _kill(cluster: Cluster, host: str) -> object:
    return cluster.kill(host, restart_s=0.3)


def _kill_at_once(cluster: Cluster, host: str) -> object:
    return cluster.kill(host, restart_s=0.0)


def _isolate(cluster: Cluster, host: str) -> object:
    return cluster.isolate(host, seconds=1.5)


def _pause(cluster: Cluster, host: str) -> object:
    return cluster.pause(host, seconds=0.8)


_ACTIONS: Final = (_kill, _isolate, _pause, _kill_at_once)
Act = Callable[[Cluster, str], object]


def actions(codes: tuple[str, ...]) -> list[tuple[str, Act]]:
    """Each step with one action, the next one for each step."""
    return [(code, _ACTIONS[number % len(_ACTIONS)]) for number, code in enumerate(codes)]


def named(case: object) -> str:
    return getattr(case, "__name__", str(case))


async def begun(cluster: Cluster, names: str = "abc") -> RelayLoad:
    relays = RelaysOfHosts(cluster, names, partitions=1)
    load = RelayLoad(relays)
    relays.start()
    await relays.alike()
    return load


def check(test: Callable[[Cluster], object]) -> None:
    run(test, brokers=1, oracle=False, shrink_s=0)


@pytest.mark.parametrize(("code", "act"), actions(_OF_A_MESSAGE), ids=named)
def test_a_relay_fails_at_a_step_of_a_message_and_nothing_is_lost_or_doubled(
    code: str, act: Act
) -> None:
    async def test(cluster: Cluster) -> None:
        load = await begun(cluster)
        async with load.running():
            await load.until_acknowledged(5)
            trigger = cluster.at(code, lambda host: act(cluster, host), occurrence=20)
            await cluster.eventually(lambda: trigger.happened, f"step {code}", within_s=20)
            await load.until_acknowledged(20)
        await load.check()

    check(test)


@pytest.mark.parametrize(("code", "act"), actions(_OF_A_CHANGE), ids=named)
def test_a_relay_fails_at_a_step_of_the_change_that_follows_the_death_of_the_sequencer(
    code: str, act: Act
) -> None:
    """The one that was the sequencer comes back empty, so two may be lost at once."""

    async def test(cluster: Cluster) -> None:
        load = await begun(cluster)
        async with load.running():
            await load.until_acknowledged(5)
            first = load.host(is_sequencer=True)
            trigger = cluster.at(code, lambda host: act(cluster, host))
            cluster.kill(first, restart_s=0.3)
            await cluster.eventually(lambda: trigger.happened, f"step {code}", within_s=20)
            await load.until_acknowledged(20)
        await load.check(may_lose=True)

    check(test)


@pytest.mark.parametrize(("code", "act"), actions(_OF_A_FOUNDING), ids=named)
def test_a_relay_fails_at_a_step_of_a_founding(code: str, act: Act) -> None:
    async def test(cluster: Cluster) -> None:
        load = await begun(cluster)
        async with load.running():
            await load.until_acknowledged(5)
            trigger = cluster.at(code, lambda host: act(cluster, host))
            cluster.kill("a", restart_s=0.2)
            cluster.kill("b", restart_s=0.2)
            await cluster.eventually(lambda: trigger.happened, f"step {code}", within_s=20)
            await load.until_acknowledged(20)
        await load.check(may_lose=True)

    check(test)


@simulated(seeds=3, brokers=1, oracle=False, shrink_s=0)
async def test_relays_of_a_static_list_keep_the_rules_whatever_fails(cluster: Cluster) -> None:
    names = cluster.random.choice(("abc", "abc", "abcde"))
    bounds = cluster.random.choice((None, BufferBounds(count=40)))
    relays = RelaysOfHosts(cluster, names, partitions=1, replicas=5, bounds=bounds)
    load = RelayLoad(relays)
    relays.start()
    await relays.alike()
    async with load.running(pause_s=0.05):
        for _ in range(5):
            host = cluster.random.choice(relays.names)
            cluster.random.choice(_ACTIONS)(cluster, host)
            await cluster.sleep(cluster.random.choice((0.05, 0.4, 1.0, 2.5)))
    await load.check(may_lose=True, is_bounded=bounds is not None)
