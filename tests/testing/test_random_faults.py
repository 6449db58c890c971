"""Faults that are drawn from the seed: the same each time, of the kinds and to the hosts that
were asked for, and over when the block is."""

from __future__ import annotations

import pytest

import octopi.testing
from octopi.simulation.faults.actions import FillDisk, Kill, Pause
from octopi.simulation.faults.injector import FAULT
from octopi.simulation.kernel.world import Event
from octopi.testing import KINDS, Cluster, Host, MisuseError, simulated


def watched(cluster: Cluster) -> list[Event]:
    """All that strikes from now on."""
    struck: list[Event] = []
    cluster._world.observers.append(
        lambda event: struck.append(event) if event.what == FAULT else None
    )
    return struck


def faults(seed: int) -> list[str]:
    async def scene(cluster: Cluster) -> list[str]:
        struck = watched(cluster)
        async with cluster.client() as client, client.producer() as producer:
            await client.create_topic("orders", 1)
            with cluster.random_faults():
                for _ in range(50):
                    await producer.submit("orders", b"a hat")
                    await cluster.sleep(0.1)
        await cluster.settle()
        return [f"{event.at} {event.host} {event.facts['action']}" for event in struck]

    return octopi.testing.run(scene, seed=seed)


def test_a_seed_always_draws_the_same_faults() -> None:
    first = faults(1)
    assert len(first) > 5
    assert faults(1) == first
    assert faults(2) != first


@pytest.mark.parametrize("kind", KINDS)
def test_a_cluster_survives_faults_of_each_kind(kind: str) -> None:
    async def scene(cluster: Cluster) -> None:
        struck = watched(cluster)
        async with cluster.client() as client, client.producer() as producer:
            await client.create_topic("orders", 1)
            with cluster.random_faults([kind]):
                for _ in range(50):
                    await producer.submit("orders", b"a hat")
                    await cluster.sleep(0.1)
        await cluster.settle()
        assert struck or kind == "stop"  # of which few are left, if only handovers take place

    octopi.testing.run(scene, record=True)


@simulated()
async def test_only_the_requested_kinds_of_faults_and_hosts_are_drawn(cluster: Cluster) -> None:
    struck = watched(cluster)
    with cluster.random_faults(["kill", "pause"], hosts=["broker-1", "register"], every_s=0.1):
        await cluster.sleep(20)
    assert {event.host for event in struck} == {"broker-1", "register"}
    assert {type(event.facts["action"]) for event in struck} == {Kill, Pause}


@simulated()
async def test_no_random_fault_strikes_after_its_block(cluster: Cluster) -> None:
    struck = watched(cluster)
    with cluster.random_faults(every_s=0.1):
        await cluster.sleep(5)
    count = len(struck)
    assert count
    await cluster.settle()
    await cluster.sleep(20)
    assert len(struck) == count


@simulated()
async def test_programs_started_later_are_killed_and_restarted_too(cluster: Cluster) -> None:
    async def program(host: Host) -> None:
        while True:
            await cluster.sleep(0.1)
            host.step("tick")

    with cluster.random_faults(["kill"], hosts=[], every_s=0.2):
        worker = cluster.program("worker", program)
        await cluster.sleep(30)
    await cluster.sleep(5)
    assert worker.life_count > 3
    assert worker.is_up


@simulated()
async def test_clients_of_the_test_lose_their_network_but_are_never_killed(
    cluster: Cluster,
) -> None:
    struck = watched(cluster)
    async with cluster.client("alice") as client:
        with cluster.random_faults(hosts=["alice"], every_s=0.2):
            await cluster.sleep(20)
            await client.topics()
    assert struck
    assert all(not isinstance(one.facts["action"], Kill | Pause) for one in struck)
    assert any(not isinstance(one.facts["action"], FillDisk) for one in struck)


@simulated()
async def test_the_error_for_an_unknown_kind_of_fault_names_the_existing_ones(
    cluster: Cluster,
) -> None:
    with (
        pytest.raises(MisuseError, match=r"no fault 'earthquake'; there are kill, lose power"),
        cluster.random_faults(["earthquake"]),
    ):
        pass
    with pytest.raises(MisuseError, match="name at least one"), cluster.random_faults([]):
        pass
    with (
        pytest.raises(MisuseError, match="there is no host 'broker-9'"),
        cluster.random_faults(hosts=["broker-9"]),
    ):
        pass
    with pytest.raises(MisuseError, match="every_s is 0"), cluster.random_faults(every_s=0):
        pass
