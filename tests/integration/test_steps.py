"""Producing has eight steps; whatever dies behind one of them, each message is there once.

A node is stopped at the moment at which the step has happened and nothing that follows
from it has left the node.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import trio

from octopi import steps
from octopi.environment import Trace
from tests.fakes.disk import MemoryDisk
from tests.integration.clusters import LocalCluster, local_cluster
from tests.integration.traffic import traffic

Victim = Literal["leader", "follower"]

OF_THE_LEADER = (
    steps.P1_RECEIVED,
    steps.P2_APPENDED,
    steps.P5_IN_SYNC,
    steps.P6_COMMITTED,
    steps.P7_ACKNOWLEDGED,
)


class Trap:
    """Ends a broker when a step has happened, anywhere, so many times."""

    def __init__(self, cluster: LocalCluster, step: str, count: int) -> None:
        self._cluster = cluster
        self._step = step
        self._left = count
        self.victim = ""
        """Who is ended; nobody while it is empty."""
        self.sprung = trio.Event()

    def trace(self, step: str, **facts: Any) -> None:  # noqa: ANN401
        """Observe one step."""
        if step != self._step or not self.victim or self.sprung.is_set():
            return
        self._left -= 1
        if not self._left:
            self._cluster.node(self.victim).scope.cancel()
            self.sprung.set()


async def end_at(
    cluster: LocalCluster, step: str, victim: Victim, disks: dict[str, MemoryDisk] | None = None
) -> None:
    """Produce; end *victim* behind *step*; go on; restart it; compare."""
    trap = Trap(cluster, step, count=5)
    trace: Trace = trap.trace
    for number in (1, 2, 3):
        name = f"broker-{number}"
        cluster.traces[name] = trace
        await cluster.add(disks[name] if disks else None)
    await cluster.create("orders")
    leader = await cluster.leader("orders")
    async with traffic(cluster.url, "orders", producers=2) as flow:
        await flow.progress(30)
        followers = [name for name in cluster.names if name != leader]
        trap.victim = leader if victim == "leader" else followers[0]
        with trio.fail_after(20):
            await trap.sprung.wait()
        await cluster.kill(trap.victim)
        if disks:
            disks[trap.victim].crash(keep_page_cache=False)
        await flow.progress(50)
        await cluster.restart(trap.victim)
        await cluster.in_sync("orders", 3)
        await flow.progress(30)
    await flow.check_replicas(cluster.data_dirs, replica_count=3)


@pytest.mark.parametrize("victim", ["leader", "follower"])
@pytest.mark.parametrize("step", steps.PRODUCING, ids=lambda step: step.split()[0])
async def test_a_broker_that_dies_behind_any_step_costs_no_message_and_no_repeat(
    tmp_path: Path, step: str, victim: Victim
) -> None:
    async with local_cluster(tmp_path, brokers=0) as cluster:
        await end_at(cluster, step, victim)


@pytest.mark.parametrize("step", OF_THE_LEADER, ids=lambda step: step.split()[0])
async def test_a_leader_that_loses_power_behind_any_step_costs_no_message_and_no_repeat(
    tmp_path: Path, step: str
) -> None:
    disks = {f"broker-{number}": MemoryDisk() for number in (1, 2, 3)}
    async with local_cluster(tmp_path, brokers=0) as cluster:
        await end_at(cluster, step, "leader", disks)
