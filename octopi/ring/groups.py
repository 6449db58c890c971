"""The replica group of a partition: who keeps its log, and who decides about it.

Both are the first brokers from the partition's key on.  A broker on a machine that has one of them
already stands behind all others, and one that is drained behind these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from octopi.identifiers import BrokerId, PartitionId
from octopi.ring.nodes import key_place
from octopi.ring.points import partition_key
from octopi.wire.ring import RingNode


def acceptor_count(replicas: int, brokers: int) -> int:
    """The number of acceptors of a partition with so many *replicas*, in a ring of so many
    *brokers*.

    Twice the replicas less one: then as many replicas may fail at once as there are without the
    last one, and a majority can still decide.  Otherwise the largest odd number that there is: an
    even one more would survive no more failures.
    """
    wanted = 2 * replicas - 1
    return wanted if brokers >= wanted else brokers - (brokers + 1) % 2


def candidates(
    partition: PartitionId,
    nodes: Iterable[RingNode],
    draining: Collection[BrokerId] = frozenset(),
) -> list[RingNode]:
    """The brokers among *nodes* in the order in which *partition* takes them.  Those *draining*
    come last: where too few others are there, they keep what they have.

    Any broker that joins or leaves changes the first so many of them by one member at most.
    """
    start = key_place(partition_key(partition))
    there = sorted(nodes, key=lambda one: (one.place < start, one.place))
    hosts: set[str] = set()
    first: list[RingNode] = []
    others: list[RingNode] = []
    last: list[RingNode] = []
    for one in there:
        if one.broker in draining:
            last.append(one)
        elif one.host and one.host in hosts:
            others.append(one)
        else:
            hosts.add(one.host)
            first.append(one)
    return first + others + last


def replica_group(
    partition: PartitionId,
    replicas: int,
    nodes: Collection[RingNode],
    draining: Collection[BrokerId] = frozenset(),
) -> tuple[list[RingNode], list[RingNode]]:
    """The replicas of *partition*, at most so many, and its acceptors, of which they are a part
    unless their number is even."""
    order = candidates(partition, nodes, draining)
    return order[:replicas], order[: acceptor_count(replicas, len(order))]
