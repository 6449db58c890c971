"""Random faults that never take more than so many hosts down at once."""

from __future__ import annotations

import pytest

import octopi.testing
from octopi.simulation.faults.actions import Cut, Kill, Slow
from octopi.simulation.kernel.world import World
from octopi.testing import Cluster, MisuseError, PlannedFault, Setup, simulated
from octopi.testing.down_limit import DownLimit
from octopi.testing.random_faults import FaultPlan, FaultsOfRun
from octopi.testing.replaying import RunOfTest
from octopi.testing.running import attempt

TAKING_DOWN = ["kill", "lose power", "stop", "pause", "cut", "isolate", "fill disk"]


async def most_down(cluster: Cluster, at_most: int | None, hosts: list[str]) -> int:
    """How many hosts are down at once at most, while random faults strike for 5 s."""
    judge, most = DownLimit(cluster._simulated, 1, hosts), 0
    async with cluster.client() as client:
        await client.create_topic("orders", 1)
        with cluster.random_faults(TAKING_DOWN, every_s=0.1, hosts=hosts, at_most_down=at_most):
            for _ in range(250):  # each of these faults lasts longer than a step of this
                await cluster.sleep(0.02)
                most = max(most, len(judge.down()))
    return most


@simulated()
async def test_never_more_than_one_broker_is_down_where_one_may_be(cluster: Cluster) -> None:
    assert await most_down(cluster, 1, []) == 1


@simulated()
async def test_without_the_limit_more_brokers_are_down_at_once(cluster: Cluster) -> None:
    assert await most_down(cluster, None, []) > 1


@simulated()
async def test_the_limit_is_for_the_hosts_that_are_named(cluster: Cluster) -> None:
    hosts = ["register", "broker-1", "broker-2"]
    assert await most_down(cluster, 2, hosts) == 2


@octopi.testing.guided(runs=2)
async def test_a_guided_search_keeps_the_limit(cluster: Cluster) -> None:
    assert await most_down(cluster, 1, []) <= 1


@simulated()
async def test_a_fault_that_takes_nobody_down_is_always_allowed(cluster: Cluster) -> None:
    limit = DownLimit(cluster._simulated, 1, ())
    assert limit.allows(Kill(), "broker-1")
    cluster.pause("broker-1")
    assert limit.down() == {"broker-1"}
    assert not limit.allows(Kill(), "broker-2")
    assert not limit.allows(Cut(), "broker-2")
    assert limit.allows(Kill(), "broker-1")
    assert limit.allows(Kill(), "register")
    assert limit.allows(Slow(), "broker-2")
    cluster.resume("broker-1")
    assert limit.allows(Kill(), "broker-2")


@simulated()
async def test_cuts_between_two_hosts_count_when_the_last_one_leaves_a_host_alone(
    cluster: Cluster,
) -> None:
    limit = DownLimit(cluster._simulated, 1, ())
    cluster.kill("broker-1")
    for other in ("register", "broker-1"):
        assert limit.allows(Cut(other), "broker-2")
        cluster.cut("broker-2", other)
    assert not limit.allows(Cut("broker-3"), "broker-2")
    assert not limit.allows(Cut("broker-2"), "broker-3")


@simulated()
async def test_a_limit_of_no_host_is_refused(cluster: Cluster) -> None:
    with (
        pytest.raises(MisuseError, match="at_most_down is 0; it has to be at least 1"),
        cluster.random_faults(at_most_down=0),
    ):
        pass


def test_faults_that_are_planned_in_the_place_of_random_ones_keep_the_limit() -> None:
    kills = [(0, PlannedFault(Kill(5.0), f"broker-{one}", after_s=one)) for one in (1, 2)]
    run = RunOfTest(World(1), "the test", FaultsOfRun(FaultPlan(1, faults=tuple(kills))))

    async def scene(cluster: Cluster) -> None:
        with cluster.random_faults(at_most_down=1):
            await cluster.sleep(3)
        assert cluster.is_up("broker-2")

    with pytest.raises(MisuseError, match="broker-2 could not be struck at that moment"):
        attempt(scene, Setup(), run)
    assert [one.fault.host for one in run.faults.struck] == ["broker-1"]
