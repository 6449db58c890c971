"""The workloads, which `workloads.toml` lists in the terms of the OpenMessaging benchmark.

This module knows no system.  Each system says which kinds of workload it can run.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final, Literal, get_args

import attrs

from benchmarks.goals import parse

Kind = Literal[
    "produce", "consume", "queue", "request", "latency", "fan-out", "topics", "producers"
]

_FILE: Final = Path(__file__).with_name("workloads.toml")


@attrs.frozen
class Workload:
    """One entry of the list.  In each round it runs once for each system in turn."""

    name: str
    kind: Kind
    message_bytes: int
    message_count: int
    """How many messages all producers produce together, or are consumed."""
    replicas: int = 1
    producers: int = 1
    """The number of producers, each with its own connection.  With the kind ``produce`` each one is
    a process."""
    topics: int = 1
    linger_s: float = 0.005
    """How long a batch waits for more messages, with the kind ``topics``."""
    rate: int = 0
    """Messages per second; 0: as fast as possible."""
    subscribers: int = 0
    flush_count: int = 1
    """How many messages the producer sends before it waits until they are acknowledged."""
    flush_before_ack: bool = False
    systems: tuple[str, ...] = ()
    """The systems that run it, and those that are served by them; empty: all that can."""
    quick: bool = False
    """Whether `make bench-quick` runs it."""
    goals: tuple[str, ...] = ()
    """The project's goals for this workload, as `benchmarks.goals` reads them."""

    def __attrs_post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"{self.name}: there is no kind {self.kind!r}")
        for goal in self.goals:
            parse(goal)


def load(path: Path = _FILE) -> list[Workload]:
    """The workloads of *path*, in their order.

    Raises:
      ValueError, TypeError: if an entry is no workload; the message says why.
    """
    document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    return [
        Workload(
            **{
                **one,
                "systems": tuple(one.get("systems", ())),
                "goals": tuple(one.get("goals", ())),
            }
        )
        for one in document["workload"]
    ]
