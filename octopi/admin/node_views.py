"""The parts of a node that its pages show, whatever its role is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

from octopi.roles.streams.exchange import StreamService
from octopi.transport.server_statistics import ServerStatistics

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


@attrs.frozen
class NodeFacts:
    """The identity of a node."""

    role: str
    agent: str
    cluster: str
    """Empty until the node belongs to a cluster."""
    broker: int | None
    incarnation: int | None
    registers: list[str]
    """The addresses of the registers; empty if this node is the only one."""
    active_register: str = ""
    """The address of the active one of several registers; empty: this node knows of none."""
    in_ring: bool = False
    """Whether its cluster has no register, but a ring of brokers."""


class NodeView(Protocol):
    """A running node, as its pages see it."""

    @property
    def traffic(self) -> ServerStatistics:
        """The statistics of the node's connections."""

    @property
    def streams(self) -> StreamService:
        """Answers the requests for streams."""

    def facts(self) -> NodeFacts:
        """The node's identity."""

    def why_not_ready(self) -> str:
        """Why clients can't use the node; empty if they can."""

    def members(self) -> Iterable[str]:
        """The addresses of nodes of the node's cluster."""

    def collectors(self, logs_max: int) -> Sequence[Collector]:
        """The metrics that only nodes of this role have; of at most *logs_max* logs each by
        itself.  They are imported here: that is slow, and not every node is scraped."""
