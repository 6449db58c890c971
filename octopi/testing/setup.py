"""The options of a cluster under test, and the time that a test may take."""

from __future__ import annotations

from typing import TypedDict

import attrs

from octopi.limits import PARTITION_COUNT_DEFAULT, REPLICA_COUNT_DEFAULT
from octopi.testing.errors import MisuseError

TIMEOUT_S = 300.0
"""An idle cluster takes less than a second of real time for this virtual time."""
SHRINK_S = 20.0


class Options(TypedDict, total=False):
    """The keyword arguments of `octopi.testing.cluster`, `run` and `simulated`: see `Setup`."""

    brokers: int
    registers: int
    ring: bool
    partitions: int
    replicas: int
    latency_s: float
    jitter_s: float
    websocket: bool
    record: bool
    oracle: bool
    timeout_s: float
    shrink_s: float


@attrs.frozen
class Setup:
    """Options of a cluster, with their defaults."""

    brokers: int = 3
    registers: int = 1
    """The number of registers that keep one journal: 1 or 3."""
    ring: bool = False
    """Whether the cluster has no register: its brokers decide together."""
    partitions: int = PARTITION_COUNT_DEFAULT
    """The number of partitions of the cluster."""
    replicas: int = REPLICA_COUNT_DEFAULT
    """The number of replicas of each partition, if there are as many brokers."""
    latency_s: float = 0.0005
    """The time that a packet takes (s)."""
    jitter_s: float = 0.0005
    """The largest additional time of a packet (s), drawn from the seed."""
    websocket: bool = False
    """Whether connections carry the bytes of WebSockets instead of whole messages: slower, and
    useful only to developers of Octopi."""
    record: bool = False
    """Whether the operations and results of all clients are recorded in `Cluster.history`, and
    checked."""
    oracle: bool = True
    """Whether the invariants of the cluster are checked at each step of its protocols."""
    timeout_s: float = TIMEOUT_S
    """A test fails if it takes more than this virtual time (s)."""
    shrink_s: float = SHRINK_S
    """How long a test that failed with random faults is made smaller (s of processor time); 0: not
    at all.  Only `run` and `simulated` can do that."""

    def __attrs_post_init__(self) -> None:
        for name in ("brokers", "registers", "partitions", "replicas"):
            count = getattr(self, name)
            if count < 1:
                raise MisuseError(f"{name} is {count}; it has to be at least 1")
        if self.registers != 1 and self.ring:
            raise MisuseError("a ring has no register: leave registers out")
        for name in ("latency_s", "jitter_s"):
            if getattr(self, name) < 0:
                raise MisuseError(f"{name} is {getattr(self, name)}; it can't be negative")
        if self.shrink_s < 0:
            raise MisuseError(f"shrink_s is {self.shrink_s}; it can't be negative")
        if self.timeout_s <= 0:
            raise MisuseError(f"timeout_s is {self.timeout_s}; it has to be more than 0")
