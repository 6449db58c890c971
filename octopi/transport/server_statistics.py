"""Statistics of a node's connections and of how long its answers take, for metrics and the
console."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from octopi.metrics.latencies import Latencies
from octopi.transport.memory_budget import MemoryBudget

if TYPE_CHECKING:
    from octopi.transport.connection import Connection
    from octopi.wire.endpoints import Endpoint


class ServerStatistics:
    """What `octopi.transport.server.serve` notes of its connections."""

    def __init__(self, memory: MemoryBudget | None = None) -> None:
        """*memory*: the memory budget of all connections; None: one of the usual size."""
        self.memory = memory or MemoryBudget()
        self.connections: dict[Connection, Endpoint] = {}
        """The open connections whose handshake is done."""
        self.accepted: Counter[str] = Counter()
        """How many handshakes succeeded since the node started, by path of the endpoint."""
        self.refused: Counter[str] = Counter()
        """How many handshakes were refused, by name of the status."""
        self.latencies = Latencies()
