"""The steps by which the replica group of a partition follows the ring.

The target is the group that the ring gives (`octopi.ring.groups`).  Only the leader takes steps,
one at a time.  Each leads from one legal state to another one, so a leader that is replaced
meanwhile leaves nothing half done: the next one computes its step from the record as it is.

1. the acceptors become those of the target, by way of a joint value;
2. a broker of the target becomes a replica, in a new epoch; it follows, and joins the in-sync set
   when it has everything;
3. when all replicas of the target are in sync, one that is too many goes, in a new epoch.

So data moves before anybody counts on it, and what was committed is on as many replicas as before.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

import attrs

from octopi.coordination.agreed_partition import AgreedPartition
from octopi.identifiers import BrokerId
from octopi.ring.groups import replica_group
from octopi.wire.agreement import AcceptorId, AgreedValue
from octopi.wire.ring import RingNode


@attrs.frozen
class TakeAcceptors:
    """These brokers become the acceptors."""

    acceptors: tuple[AcceptorId, ...]


@attrs.frozen
class TakeReplicas:
    """These brokers become the replicas, in a new epoch."""

    replicas: tuple[BrokerId, ...]


@attrs.frozen
class RingBrokers:
    """The brokers that a leader counts on.  Those that are gone for good, or are about to be, are
    in neither list, and those that are drained in both."""

    deciding: tuple[RingNode, ...]
    """Those that may be acceptors: who was silent for a while is replaced, at the cost of nothing
    but messages."""
    with_replicas: tuple[RingNode, ...]
    """Those that may have replicas: whose silence was not so long that their data is copied
    elsewhere."""


GroupStep: TypeAlias = TakeAcceptors | TakeReplicas


def next_step(
    value: AgreedValue,
    agreed: AgreedPartition,
    replica_count: int,
    ring: RingBrokers,
    live: Collection[BrokerId],
    draining: Collection[BrokerId] = frozenset(),
) -> GroupStep | None:
    """The step that the leader of a partition takes next; None: it takes none now.

    *live*: the brokers that are not taken for dead.  While a broker of the group, or of the one
    that it becomes, is away, but not for long enough to be replaced, there is no step: a restart
    moves nothing.
    """
    record = agreed.record
    replicas, _ = replica_group(record.partition, replica_count, ring.with_replicas, draining)
    _, acceptors = replica_group(record.partition, replica_count, ring.deciding, draining)
    wanted = [one.broker for one in replicas]
    group = tuple(sorted(one.identity for one in acceptors))
    deciding = {one.broker for one in acceptors}.union(one.broker for one in value.members)
    if not group or not deciding.intersection(one.broker for one in ring.deciding) <= set(live):
        return None
    if value.is_joint:
        return TakeAcceptors(value.acceptors)  # whoever began the move did not complete it
    if set(value.acceptors) != set(group):
        return TakeAcceptors(group)
    holding = {*wanted, *record.replicas}
    if not holding.intersection(one.broker for one in ring.with_replicas) <= set(live):
        return None
    joining = [one for one in wanted if one not in record.replicas]
    if joining:
        return TakeReplicas((*record.replicas, joining[0]))
    leaving = [one for one in record.replicas if one not in wanted]
    if not leaving or not set(wanted) <= set(record.in_sync):
        return None
    if len(record.replicas) - 1 < agreed.min_insync:
        return None  # nothing would be committed any more
    # The leader goes last: until then it takes all steps itself.
    leaving.sort(key=lambda one: (one == record.leader, one))
    return TakeReplicas(tuple(one for one in record.replicas if one != leaving[0]))
