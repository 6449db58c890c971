"""Draws a plan whose faults belong together: a scenario of `sim.generate.scenarios`.

`sim.generate.swarm` draws each option independently; this module draws a scenario.  The cluster is
small, and the load light and steady, so that there is always something to lose and runs are cheap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

import attrs

from sim.generate.members import group_chores, members
from sim.generate.scenario import Scenario
from sim.generate.scenarios import SCENARIOS, SCENARIOS_BY_NAME
from sim.generate.scenarios_of_groups import GROUP_SCENARIOS
from sim.generate.scenarios_of_pipes import PIPE_SCENARIOS
from sim.generate.scenarios_of_relays import RELAY_SCENARIOS
from sim.generate.scenarios_of_rings import RING_SCENARIOS
from sim.generate.swarm import KILLS_EACH, NAMED_PRODUCERS
from sim.run.plan import Plan, Tier, WorkloadOptions

T = TypeVar("T")


def draw(seed: int, tier: Tier = "message") -> Plan:
    """The plan of *seed*."""
    drawing = _ScenarioDrawing(seed)
    return drawing.plan(tier, drawing.teller())


def draw_scenario(name: str, seed: int, tier: Tier = "message") -> Plan:
    """A plan of the scenario of that *name*, as *seed* draws it.

    Raises:
      KeyError: if no scenario of that name is drawn.
    """
    return _ScenarioDrawing(seed).plan(tier, SCENARIOS_BY_NAME[name])


def _randomness(key: str, number: int) -> Random:
    state = hashlib.blake2b(f"directed|{number}|{key}".encode(), digest_size=8).digest()
    return Random(int.from_bytes(state, "big"))


def draw_of_groups(seed: int, tier: Tier = "message") -> Plan:
    """The plan of *seed* of a cluster with several registers."""
    tell = GROUP_SCENARIOS[_randomness("group scenario", seed).randrange(len(GROUP_SCENARIOS))]
    return _ScenarioDrawing(seed).plan(tier, tell)


def draw_of_rings(seed: int, tier: Tier = "message") -> Plan:
    """The plan of *seed* of a cluster without a register."""
    tell = RING_SCENARIOS[_randomness("ring scenario", seed).randrange(len(RING_SCENARIOS))]
    return _ScenarioDrawing(seed).plan(tier, tell)


def draw_of_relays(seed: int, tier: Tier = "message") -> Plan:
    """The plan of *seed* of a cluster with topics in memory."""
    tell = RELAY_SCENARIOS[_randomness("relay scenario", seed).randrange(len(RELAY_SCENARIOS))]
    return _ScenarioDrawing(seed).plan(tier, tell)


def draw_of_pipes(seed: int, tier: Tier = "message") -> Plan:
    """The plan of *seed* of a pipe."""
    tell = PIPE_SCENARIOS[_randomness("pipe scenario", seed).randrange(len(PIPE_SCENARIOS))]
    return _ScenarioDrawing(seed).plan(tier, tell)


class _ScenarioDrawing:
    def __init__(self, seed: int) -> None:
        self._seed = seed

    def _randomness(self, key: str) -> Random:
        return _randomness(key, self._seed)

    def _pick(self, option: str, choices: Sequence[T]) -> T:
        return self._randomness(option).choice(choices)

    def plan(self, tier: Tier, teller: Callable[[Random], Scenario]) -> Plan:
        partitions = self._pick("partitions", (1, 1, 1, 2))
        latency_s, jitter_s = self._pick(
            "latency", ((0.0005, 0.0005), (0.0005, 0.0005), (0.001, 0.02), (0.02, 0.005))
        )
        plan = Plan(
            seed=self._seed,
            tier=tier,
            partitions=partitions,
            replicas=self._pick("replicas", (3, 3, 2)),
            min_insync=self._pick("min_insync", (1, 1, 1, 1, 2)),
            flush_before_ack=self._pick("flush_before_ack", (False, False, True)),
            flush_interval_s=self._pick("flush_interval", (1.0, 0.05)),
            segment_bytes=self._pick("segment", (None, None, 4096)),
            latency_s=latency_s,
            jitter_s=jitter_s,
            kills_each=self._randomness("kills_each").random() < KILLS_EACH,
            workload=self._workload(partitions),
        )
        scenario = teller(self._randomness("faults"))
        workload = attrs.evolve(plan.workload, **scenario.load)
        return attrs.evolve(plan, faults=scenario.faults, workload=workload, **scenario.options)

    def teller(self) -> Callable[[Random], Scenario]:
        """The function that draws this seed's scenario.  Each scenario comes once in a round of
        seeds, so that none is left out by chance."""
        number, place = divmod(self._seed, len(SCENARIOS))
        order = _randomness("round", number).sample(SCENARIOS, len(SCENARIOS))
        return order[place]

    def _workload(self, partitions: int) -> WorkloadOptions:
        group = members(self._randomness)
        return WorkloadOptions(
            producers=self._pick("producers", (1, 2, 2)),
            records=self._pick("records", (15, 30, 30)),
            consumers=self._pick("consumers", (1, 1, 2)),
            topic_partitions=partitions,
            value_bytes_max=self._pick("value_bytes", (40, 400, 3_000)),
            burst_count=self._pick("burst", (1, 1, 4, 12)),
            pause_s=self._pick("pause", (0.02, 0.05, 0.1)),
            reopen_count=self._pick("reopen", (0, 0, 0, 8)),
            delivery_timeout_s=self._pick("delivery_timeout", (30.0, 30.0, 1.0)),
            consumer_pause_s=self._pick("consumer_pause", (0.0, 0.0, 0.02)),
            chores=group_chores(self._randomness) if group else (),
            **group,
            named_producers=self._pick("named_producers", NAMED_PRODUCERS),
        )
