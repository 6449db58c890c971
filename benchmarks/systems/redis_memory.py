"""Redis Streams without a file: one server, or one with two replicas, of which a majority has what
is acknowledged; the client is that of `benchmarks.systems.redis`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.client import Gate
from benchmarks.systems import Serving, redis
from benchmarks.workloads import Workload

TITLE: Final = "Redis Streams, in memory"
KINDS: Final = frozenset({"produce", "request"})
missing = redis.missing


def runs(workload: Workload) -> bool:
    """Whether it takes part: where it is named."""
    return "redis_memory" in workload.systems


@contextmanager
def serving(directory: Path, replicas: int, flush_before_ack: bool) -> Iterator[Serving]:
    """Run the servers within the block."""
    with redis.serving(directory, replicas, flush_before_ack, in_file=False) as found:
        waits = f"; WAIT {_majority(replicas) - 1} after each pipeline" if replicas > 1 else ""
        yield attrs.evolve(found, settings=found.settings + waits)


def run(role: str, access: Gate, parameters: dict[str, Any]) -> dict[str, float] | None:
    """Run a client process in *role*; return its figures, if it has any."""
    majority = _majority(parameters.get("replicas", 1))
    return redis.run(role, access, {**parameters, "replicas": majority})


def _majority(replicas: int) -> int:
    return replicas // 2 + 1
