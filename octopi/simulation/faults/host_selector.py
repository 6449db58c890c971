"""Finds the hosts of a fault by the words of plans.

A word is the name of a host, a kind of node (``broker``, ``register``, ``client``), ``any``,
``here`` for the host where the fault strikes, a role in a partition: ``leader``, ``follower/3``, or
one of several registers: ``active``, ``standby``, or one in a set of relays, ``sequencer`` or
``relay``, which is a member that isn't the sequencer.
"""

from __future__ import annotations

from typing import Final

from octopi.identifiers import PartitionId
from octopi.simulation.cluster import Node, SimulatedCluster

_ROLES: Final = frozenset({"leader", "follower"})
_OF_REGISTERS: Final = frozenset({"active", "standby"})
_OF_RELAYS: Final = frozenset({"sequencer", "relay"})


class HostSelector:
    """Finds hosts of *cluster*; the decisions of its register say which host leads."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._world = cluster.world

    def may_fit(self, who: str, node: Node) -> bool:
        """Whether *who* can ever denote *node*."""
        word = who.partition("/")[0]
        return (
            word in {"any", node.kind, node.name}
            or (word in _ROLES | _OF_RELAYS and node.kind == "broker")
            or (word in _OF_REGISTERS and node.kind == "register")
        )

    def fits(self, who: str, host: str, partition: PartitionId | None) -> bool:
        """Whether *who* denotes *host*, for a step about *partition*."""
        node = self._cluster.nodes.get(host)
        if node is None or not self.may_fit(who, node):
            return False
        word, _, number = who.partition("/")
        if word in _OF_REGISTERS:
            return self._is_active(host) == (word == "active")
        if word in _OF_RELAYS:
            return host in self._of_relays(word)
        if word not in _ROLES:
            return True
        return host in self._in_role(word, PartitionId(int(number)) if number else partition)

    def target(self, who: str, here: str | None, partition: PartitionId | None) -> str:
        """One host that *who* denotes, drawn from those that are up; empty if there is none.

        *here* and *partition* are where the fault strikes.
        """
        word, _, number = who.partition("/")
        if word == "here":
            return here or ""
        if word in _ROLES:
            hosts = self._in_role(word, PartitionId(int(number)) if number else partition)
        elif word in _OF_RELAYS:
            hosts = self._of_relays(word)
        elif word in self._cluster.nodes:
            hosts = [word]
        elif word in _OF_REGISTERS:
            registers = [one.name for one in self._cluster.registers]
            hosts = [one for one in registers if self._is_active(one) == (word == "active")]
        else:
            hosts = [node.name for node in self._cluster.nodes.values() if self.may_fit(word, node)]
        up = [host for host in hosts if self._cluster.nodes[host].host.is_up]
        if not up:
            return hosts[0] if hosts else ""
        return up[0] if len(up) == 1 else self._world.random("target", who).choice(up)

    def peers(self, who: str, node: Node, partition: PartitionId | None) -> list[str]:
        """The other hosts that *who* denotes; ``others`` are all of them."""
        if who in {"others", "any"}:
            hosts = list(self._cluster.nodes)
        elif who.partition("/")[0] in _ROLES | _OF_REGISTERS | _OF_RELAYS:
            hosts = [host for host in self._cluster.nodes if self.fits(who, host, partition)]
        else:
            hosts = [one.name for one in self._cluster.nodes.values() if self.may_fit(who, one)]
        return [host for host in hosts if host != node.name]

    def _is_active(self, host: str) -> bool:
        """Whether the register on *host* is the one that decided last; before the first decision,
        whether it is the first of them."""
        return host == (self._cluster.decided.active or self._cluster.register.name)

    def _of_relays(self, word: str) -> list[str]:
        """The hosts of the sequencers of all relay partitions, or of the other members."""
        found: dict[str, None] = {}
        for one in self._cluster.relays.partitions.values():
            brokers = [broker for broker in one.members if broker != one.sequencer]
            if word == "sequencer":
                brokers = [] if one.sequencer is None else [one.sequencer]
            found.update(dict.fromkeys(map(self._cluster.host_of, brokers)))
        return list(found)

    def _in_role(self, word: str, partition: PartitionId | None) -> list[str]:
        """The hosts of the leaders or followers of *partition*; None: of any partition."""
        view = self._cluster.decided.state
        found: dict[str, None] = {}
        for record in view.partitions.values():
            if partition is None or record.partition == partition:
                brokers = [record.leader]
                if word == "follower":
                    brokers = [one for one in record.replicas if one != record.leader]
                found.update(dict.fromkeys(map(self._cluster.host_of, brokers)))
        return list(found)
