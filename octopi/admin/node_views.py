"""The parts of a node that its pages show, for both roles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import attrs

from octopi.identifiers import PartitionId
from octopi.replication.partition_replica import Role
from octopi.roles.broker.node import BrokerNode
from octopi.roles.register.group.standby import StandbyRegister
from octopi.roles.register.node import RegisterNode
from octopi.roles.register.streams import RegisterStreams
from octopi.roles.streams.exchange import StreamService
from octopi.transport.server_statistics import ServerStatistics


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


class RegisterNodeView:
    """A register, as its pages see it."""

    def __init__(self, node: RegisterNode) -> None:
        self.node = node
        self.streams: StreamService = RegisterStreams(node.environment, node)

    @property
    def traffic(self) -> ServerStatistics:
        return self.node.traffic

    def facts(self) -> NodeFacts:
        options, cluster = self.node.options, self.node.controller.state.cluster
        active = options.address if options.peers else ""
        return NodeFacts("register", options.agent, cluster, None, None, [*options.peers], active)

    def why_not_ready(self) -> str:
        if self.node.failure is not None:
            return f"the register has stopped deciding: {self.node.failure}"
        return (
            "the register is starting: it waits for brokers to report"
            if self.node.is_gathering
            else ""
        )

    def members(self) -> Iterable[str]:
        return [one.address for one in self.node.controller.state.brokers.values()]


class StandbyNodeView:
    """A register that isn't active, as its pages see it."""

    def __init__(self, standby: StandbyRegister) -> None:
        self._standby = standby
        self.streams: StreamService = standby

    @property
    def traffic(self) -> ServerStatistics:
        return self._standby.traffic

    def facts(self) -> NodeFacts:
        standby, options = self._standby, self._standby.options
        return NodeFacts(
            "register",
            options.agent,
            standby.cluster,
            None,
            None,
            [*options.peers],
            standby.active_address,
        )

    def why_not_ready(self) -> str:
        return "" if self._standby.active_address else "no register is active"

    def members(self) -> Iterable[str]:
        return self._standby.options.peers


class BrokerNodeView:
    """A broker, as its pages see it."""

    def __init__(self, node: BrokerNode) -> None:
        self.node = node
        self.streams: StreamService = node.streams

    @property
    def traffic(self) -> ServerStatistics:
        return self.node.traffic

    def facts(self) -> NodeFacts:
        options, link = self.node.options, self.node.link
        identity = None if link is None else link.identity
        return NodeFacts(
            "broker",
            options.agent,
            identity.cluster if identity else "",
            identity.broker if identity else None,
            identity.incarnation if identity else None,
            options.registers,
        )

    def why_not_ready(self) -> str:
        link, manager = self.node.link, self.node.replicas
        if link is None or not link.is_joined:
            return "the broker is not connected to the register yet"
        led = [one.partition for one in manager.replicas if one.machine.role == Role.LEADER]
        if led and manager.status.disk.trouble:
            return f"{manager.status.disk.trouble}; it leads {_some(led)}"
        troubled = manager.status.troubles(manager.replicas)
        hurt = [one for one in led if one in troubled]
        return f"it leads {_some(hurt)}: {troubled[hurt[0]]}" if hurt else ""

    def members(self) -> Iterable[str]:
        return [*self.node.options.registers, *self.node.replicas.metadata.addresses.values()]


def _some(partitions: list[PartitionId]) -> str:
    """The first ten numbers of *partitions*, as a text."""
    numbers = " ".join(str(one) for one in sorted(partitions)[:10])
    more = " ..." if len(partitions) > 10 else ""
    return f"partition{'s' * (len(partitions) > 1)} {numbers}{more}"
