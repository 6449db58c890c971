"""Octopi's relay topics: in the memory of three brokers, acknowledged by a majority of them; on the
nodes of `benchmarks.systems.octopi`, with the same client."""

from __future__ import annotations

from typing import Any, Final

import trio

import octopi
from benchmarks.client import Gate
from benchmarks.systems import octopi as logs
from benchmarks.workloads import Workload
from octopi.model import TopicKind

TITLE: Final = "Octopi, relay topic"
KINDS: Final = frozenset({"produce", "request", "latency", "fan-out"})
SERVED_BY: Final = "octopi"
missing = logs.missing


def runs(workload: Workload) -> bool:
    """Whether it takes part: where it is named."""
    return "octopi_relay" in workload.systems


def run(role: str, access: Gate, parameters: dict[str, Any]) -> dict[str, float] | None:
    """Run a client process in *role*; return its figures, if it has any."""
    trio.run(_create, parameters["address"], parameters["topic"])
    return logs.run(role, access, parameters)


async def _create(address: str, topic: str) -> None:
    async with octopi.connect(address) as client:
        await client.create_topic(topic, kind=TopicKind.RELAY, exist_ok=True)
