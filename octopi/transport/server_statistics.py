"""Who is connected to a node, and how long its answers take: for people to look at."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from octopi.metrics.latencies import Latencies
from octopi.transport.memory_budget import MemoryBudget

if TYPE_CHECKING:
    from octopi.transport.connection import Connection
    from octopi.wire.endpoints import Endpoint


class ServerStatistics:
    """What `octopi.transport.server.serve` knows of its connections."""

    def __init__(self, memory: MemoryBudget | None = None) -> None:
        """*memory*: what is kept for all connections; None: as much as is usual."""
        self.memory = memory or MemoryBudget()
        self.connections: dict[Connection, Endpoint] = {}
        """Those that were welcomed."""
        self.accepted: Counter[str] = Counter()
        """How many ever were, by path."""
        self.refused: Counter[str] = Counter()
        """How many were not, by status."""
        self.latencies = Latencies()
