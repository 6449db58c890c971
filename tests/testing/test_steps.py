"""Actions at a step happen at that step, and nowhere else."""

from __future__ import annotations

from functools import partial

import pytest

import octopi.testing
from octopi.testing import Cluster, Host, MisuseError, simulated
from octopi.tracing import steps


async def send(cluster: Cluster, count: int = 1) -> None:
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("orders", 1, exist_ok=True)
        for _ in range(count):
            await producer.send("orders", b"a hat")


@pytest.mark.parametrize("step", [steps.P3Replicated.text, "P3b"])
def test_a_step_is_named_by_its_constant_or_its_code(step: str) -> None:
    async def scene(cluster: Cluster) -> list[str]:
        hosts: list[str] = []
        cluster.at(step, hosts.append)
        await send(cluster)
        assert hosts[0] in cluster.followers("orders")
        return hosts

    assert len(octopi.testing.run(scene)) == 1


@simulated()
async def test_an_action_at_a_step_happens_at_that_step(cluster: Cluster) -> None:
    """The follower dies in the middle of a produce: it appended, and never says so."""
    killed = cluster.at("P3b", cluster.kill, who="follower")
    acknowledged: list[str] = []

    def note(host: str) -> None:
        if killed.happened:  # before that, followers say where they begin
            acknowledged.append(host)

    cluster.at("P4a", note)
    await send(cluster)
    assert killed.happened
    (dead,) = [host for host in cluster.brokers if not cluster.is_up(host)]
    assert dead not in acknowledged


@simulated()
async def test_an_action_happens_at_the_nth_occurrence_of_its_step(cluster: Cluster) -> None:
    await send(cluster, 3)
    times: list[float] = []
    trigger = cluster.at("P7b", lambda host: times.append(cluster.now), occurrence=2)
    await send(cluster)
    assert not trigger.happened
    await send(cluster)
    assert trigger.happened
    assert len(times) == 1


@simulated()
async def test_the_role_in_a_step_condition_is_the_role_at_that_moment(cluster: Cluster) -> None:
    for who in ("leader", "follower", "broker-1", "register", "client"):
        step = {"leader": "P2b", "follower": "P3b", "register": "E8b", "client": "C3"}.get(
            who, "J6"
        )
        hosts: list[str] = []
        cluster.at(step, hosts.append, who=who)
        await send(cluster)
        if who == "leader":
            assert hosts == [cluster.leader("orders")]
        elif who == "follower":
            assert hosts[0] in cluster.followers("orders")
        elif who == "client":
            assert hosts[0].startswith("client-")


@simulated()
async def test_a_test_can_wait_until_an_action_has_happened(cluster: Cluster) -> None:
    began = cluster.at("P1", lambda host: None)

    async def program(_: Host) -> None:
        await cluster.sleep(5)
        await send(cluster)

    cluster.program("sender", program)
    await began.wait()
    assert began.happened


@simulated()
async def test_a_program_names_steps_of_its_own(cluster: Cluster) -> None:
    lives: list[int] = []

    async def program(host: Host) -> None:
        lives.append(host.life)
        host.step("half done", part=1)
        host.step("done")

    kill = partial(cluster.kill, restart_s=1.0)
    worker = cluster.program("worker", program)
    trigger = cluster.at("half done", kill, who="worker")
    done = cluster.at("done", lambda host: None)
    await worker.wait()
    assert trigger.happened
    assert done.happened
    assert lives == [1, 2]


@simulated()
async def test_the_error_for_an_unknown_step_names_similar_ones(cluster: Cluster) -> None:
    with pytest.raises(MisuseError, match="did you mean P3a, P3b"):
        cluster.at("P3", cluster.kill)
    with pytest.raises(MisuseError, match=r"octopi\.tracing\.steps has them all"):
        cluster.at("X77", cluster.kill)


@simulated()
async def test_an_action_that_can_not_be_called_is_refused_at_once(cluster: Cluster) -> None:
    async def slow(host: str) -> None: ...

    with pytest.raises(MisuseError, match="can't wait"):
        cluster.at("P3a", slow)
    with pytest.raises(MisuseError, match="with the name of the host"):
        cluster.at("P3a", lambda: None)  # type: ignore[arg-type, misc]
    with pytest.raises(MisuseError, match="counts from 1"):
        cluster.at("P3a", cluster.kill, occurrence=0)


def test_an_action_that_fails_fails_the_test_and_not_the_node() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.at("P3b", lambda host: cluster.kill("nobody"))
        await send(cluster)
        await cluster.sleep(1)

    with pytest.raises(MisuseError, match="there is no host 'nobody'"):
        octopi.testing.run(scene)
