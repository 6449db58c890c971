"""Measures the speed of the simulator: medians of processor time, which other processes hardly
change.

The goals of the searches refer to the standard plan: a register, three brokers, four producers that
together send 200 messages in small bursts, two consumers, five faults.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from random import Random
from statistics import median
from time import process_time
from typing import Any, Final

import attrs
import trio

from octopi.simulation.cluster import ClusterOptions
from octopi.simulation.faults.actions import (
    Action,
    AtTime,
    Cut,
    InjectedFault,
    Kill,
    LosePower,
    Pause,
    Reset,
)
from octopi.simulation.invariants.oracle import Oracle
from octopi.simulation.kernel import driver, schedule
from octopi.simulation.kernel.world import World
from octopi.simulation.network.network import Network
from octopi.simulation.report.recorder import Recorder
from octopi.simulation.report.recording import Sent
from octopi.simulation.run import TIERS, running_cluster
from sim.run.plan import Plan, Tier, WorkloadOptions
from sim.run.simulation import simulate

_LOAD: Final = WorkloadOptions(
    producers=4, records=50, consumers=2, burst_count=5, value_bytes_max=100
)
_LEAST: Final = WorkloadOptions(producers=1, records=1, consumers=1, topic_partitions=1)
_ACTIONS: Final[tuple[Action, ...]] = (
    Kill(0.1),
    LosePower(0.1),
    Pause(0.5),
    Cut("others", 0.5),
    Reset(),
)
_TARGETS: Final = ("leader", "follower", "register", "broker")
_FAULTS_S: Final = 0.5
"""All faults are injected within this time."""

IDLE_S: Final = 60.0
"""How long an idle cluster is observed, in virtual time."""
FEW: Final = 5
"""The largest number of runs of a measurement that takes long."""


@attrs.frozen
class Figure:
    """The result of one measurement."""

    name: str
    value: float
    unit: str
    goal: str = ""


@attrs.frozen
class _Goals:
    seeds: str
    messages: str
    empty: str
    idle: str


_GOALS: Final[dict[Tier, _Goals]] = {
    "message": _Goals(">= 900", ">= 20,000", "<= 2.5", ">= 200"),
    "websocket": _Goals(">= 250", ">= 7,000", "<= 6", ">= 70"),
}


def standard_plan(seed: int, tier: Tier) -> Plan:
    """The standard plan of a seed, which decides when faults are injected, and into which nodes."""
    randomness = Random(seed)
    faults = tuple(
        InjectedFault(
            AtTime(round(randomness.uniform(0.1, _FAULTS_S), 3)),
            action,
            randomness.choice(_TARGETS),
        )
        for action in _ACTIONS
    )
    return Plan(seed, tier=tier, workload=_LOAD, faults=faults)


def empty_plan(seed: int, tier: Tier) -> Plan:
    """A plan in which a cluster boots, takes one message, and comes to rest."""
    return Plan(seed, tier=tier, partitions=1, workload=_LEAST)


def figures(runs: int) -> Iterator[Figure]:
    """Measure everything, *runs* times each."""
    for tier, goals in _GOALS.items():
        plans = [standard_plan(seed, tier) for seed in range(1, runs + 1)]
        with_oracle_s = _cpu_s([partial(simulate, one, [Oracle], events_kept=0) for one in plans])
        alone_s = _cpu_s([partial(simulate, one, events_kept=0) for one in plans])
        sent = median(_sent_count(plan) for plan in plans[:FEW])
        least = [partial(simulate, empty_plan(one, tier), events_kept=0) for one in range(runs)]
        idle_s = _cpu_s([partial(_idle, tier)] * min(runs, FEW))
        yield Figure(f"{tier}: standard seeds", 60 / with_oracle_s, "/min/core", goals.seeds)
        yield Figure(f"{tier}: without the oracle", 60 / alone_s, "/min/core")
        yield Figure(f"{tier}: messages", sent / alone_s, "/s", goals.messages)
        yield Figure(f"{tier}: empty run", _cpu_s(least) * 1000, "ms", goals.empty)
        yield Figure(f"{tier}: idle cluster", IDLE_S / idle_s, "virtual s/CPU s", goals.idle)


def _cpu_s(runs: Sequence[Callable[[], object]]) -> float:
    """The processor time of a run, the median of *runs*; one run before them warms up caches."""
    runs[0]()
    taken = []
    for run in runs:
        began = process_time()
        run()
        taken.append(process_time() - began)
    return median(taken)


def _sent_count(plan: Plan) -> int:
    """How many messages hosts send each other in a run."""
    recorder = Recorder()
    simulate(plan, [recorder.watch], events_kept=0)
    return sum(isinstance(one, Sent) for one in recorder.recording("").happenings)


def _idle(tier: Tier) -> None:
    """Run a cluster to which nothing happens."""
    world = World(1, events_kept=0)
    network = Network(world, TIERS[tier])

    async def main() -> None:
        async with running_cluster(world, network, ClusterOptions(gather_s=0.05)):
            await trio.sleep(IDLE_S)

    driver.run(world, main, schedule.Random(world.random("schedule")))


def machine() -> dict[str, Any]:
    """The machine of the measurement; the load is that of all processes, this one included."""
    return {
        "cpus": os.cpu_count(),
        "load": [round(one, 2) for one in os.getloadavg()],
        "machine": platform.machine(),
        "python": platform.python_version(),
        "trio": version("trio"),
    }
