"""NATS with JetStream whose streams are in memory, on the servers of `benchmarks.systems.nats`."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.client import Gate
from benchmarks.systems import nats
from benchmarks.workloads import Workload

TITLE: Final = "NATS JetStream, in memory"
KINDS: Final = frozenset({"produce", "request"})
SERVED_BY: Final = "nats"
missing = nats.missing


def runs(workload: Workload) -> bool:
    """Whether it takes part: where it is named."""
    return "nats_memory" in workload.systems


def run(role: str, access: Gate, parameters: dict[str, Any]) -> dict[str, float] | None:
    """Run a client process in *role*; return its figures, if it has any."""
    return nats.run(role, access, {**parameters, "storage": "memory"})
