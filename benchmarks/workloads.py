"""What is measured: `workloads.toml`, in the terms of the OpenMessaging benchmark.

Knows no system; a system says itself which kinds of workload it can run.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final, Literal, get_args

import attrs

Kind = Literal[
    "produce", "consume", "queue", "request", "latency", "fan-out", "topics", "producers"
]

_FILE: Final = Path(__file__).with_name("workloads.toml")


@attrs.frozen
class Workload:
    """One line of the table; for each system in turn it runs once a round."""

    name: str
    kind: Kind
    message_bytes: int
    message_count: int
    """In all; by all producers together, or consumed."""
    replicas: int = 1
    producers: int = 1
    """Processes, each with its own connection."""
    topics: int = 1
    rate: int = 0
    """Messages a second; 0: as fast as it goes."""
    subscribers: int = 0
    flush_count: int = 1
    """Messages that the producer hands over at a time."""
    flush_before_ack: bool = False
    systems: tuple[str, ...] = ()
    """Who runs it; none named: all that can."""
    quick: bool = False
    """Part of `make bench-quick`."""
    goal: str = ""
    """What the project wants here, for people to read."""

    def __attrs_post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"{self.name}: there is no kind {self.kind!r}")


def load(path: Path = _FILE) -> list[Workload]:
    """The workloads of *path*, in their order.

    Raises:
      ValueError, TypeError: if one of them is none; the text says what.
    """
    document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    return [
        Workload(**{**one, "systems": tuple(one.get("systems", ()))})
        for one in document["workload"]
    ]
