"""Determines which hosts a cluster can do without, from what was decided."""

from __future__ import annotations

from octopi.identifiers import BrokerId
from octopi.simulation.cluster import SimulatedCluster


def is_needed(cluster: SimulatedCluster, host: str) -> bool:
    """Whether topics need more in-sync replicas than there are without this host, or may need them
    as soon as they are created; or, without a register, no majority would be left that agrees."""
    if not can_agree_without(cluster, host):
        return True
    state, broker = cluster.decided.state, cluster.broker_of(host)
    return not state.partitions or any(
        len(record.replicas) - 1 < topic.options.min_insync
        for record in state.partitions.values()
        if broker in record.replicas
        for topic in state.topics_on({record.partition})
    )


def can_agree_without(cluster: SimulatedCluster, *hosts: str) -> bool:
    """Whether the brokers of a cluster without a register can agree on everything without *hosts*,
    if all others run; with a register, they need not."""
    agreed, away = cluster.agreed, [cluster.broker_of(one) for one in hosts]
    if agreed is None:
        return True
    if agreed.record is None:
        return False  # all founders are needed until there is a cluster
    return all(
        value.is_quorum([one for one in value.members if one.broker not in away])
        for value in agreed.newest_values()
    )


def can_be_replaced(cluster: SimulatedCluster, host: str, cut_off: str) -> bool:
    """Whether, wherever *host* is in sync, another host that is up and not *cut_off* is in sync,
    too."""
    broker = cluster.broker_of(host)

    def is_there(other: BrokerId) -> bool:
        found = cluster.host_of(other)
        is_it = other != broker and cluster.broker_of(found) == other
        return is_it and cluster.nodes[found].host.is_up and found != cut_off

    in_sync = [one.in_sync for one in cluster.decided.state.partitions.values()]
    return all(any(map(is_there, one)) for one in in_sync if broker in one)
