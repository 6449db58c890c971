"""What a cluster under test is made of, and how long a test may take."""

from __future__ import annotations

from typing import TypedDict

import attrs

from octopi.limits import PARTITION_COUNT_DEFAULT, REPLICA_COUNT_DEFAULT
from octopi.testing.errors import MisuseError

TIMEOUT_S = 300.0
"""An idle cluster passes so much virtual time in less than a second."""


class Options(TypedDict, total=False):
    """What `octopi.testing.cluster` and its relatives take by name: see `Setup`."""

    brokers: int
    partitions: int
    replicas: int
    latency_s: float
    jitter_s: float
    websocket: bool
    record: bool
    oracle: bool
    timeout_s: float


@attrs.frozen
class Setup:
    """Options of a cluster, with their defaults."""

    brokers: int = 3
    partitions: int = PARTITION_COUNT_DEFAULT
    """How many partitions topics are spread over."""
    replicas: int = REPLICA_COUNT_DEFAULT
    """How many brokers hold each partition, if there are as many."""
    latency_s: float = 0.0005
    """A packet's way takes so many seconds, and"""
    jitter_s: float = 0.0005
    """up to so many more, drawn from the seed."""
    websocket: bool = False
    """Whether connections carry the bytes of WebSockets, instead of whole messages: slower,
    and only of interest to developers of Octopi."""
    record: bool = False
    """Whether what all clients do and see is recorded in `Cluster.history`, and judged."""
    oracle: bool = True
    """Whether the cluster itself is watched at each step of its protocols."""
    timeout_s: float = TIMEOUT_S
    """A test fails if it takes longer than so many seconds of virtual time."""

    def __attrs_post_init__(self) -> None:
        for name in ("brokers", "partitions", "replicas"):
            count = getattr(self, name)
            if count < 1:
                raise MisuseError(f"{name} is {count}; it has to be at least 1")
        for name in ("latency_s", "jitter_s"):
            if getattr(self, name) < 0:
                raise MisuseError(f"{name} is {getattr(self, name)}; it can't be negative")
        if self.timeout_s <= 0:
            raise MisuseError(f"timeout_s is {self.timeout_s}; it has to be more than 0")
