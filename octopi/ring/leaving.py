"""A broker leaves the cluster for good, or is removed: when nothing counts on it any more.

The cluster record names the brokers that leave.  They lead only what nobody else can lead, and
groups leave them out (`octopi.ring.group_steps`), as does the group that agrees on the record
itself (`octopi.ring.steering`).  When a broker is in no group any more, the record says that it is
gone.  Each of these is agreed on, so it does not matter who dies meanwhile, or who ordered it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs

from octopi.identifiers import BrokerId, PartitionId
from octopi.ring.partition import RingPartition
from octopi.wire.agreement import AgreedValue


@attrs.frozen
class BrokerParts:
    """What counts on a broker, as far as it is known here."""

    leads: int
    """The partitions that it leads."""
    replicas: int
    """Those of which it has a replica."""
    decides: int
    """The agreed values of which it is an acceptor, that of the cluster among them."""

    @property
    def is_free(self) -> bool:
        """Whether nothing does."""
        return not (self.leads or self.replicas or self.decides)


def parts_of(
    broker: BrokerId, partitions: Sequence[RingPartition], cluster: AgreedValue
) -> BrokerParts:
    """What counts on *broker*.  *cluster*: the agreed value about the cluster."""
    records = [one.agreed.record for one in partitions]
    values = [cluster, *(one.value for one in partitions)]
    return BrokerParts(
        sum(one.leader == broker for one in records),
        sum(broker in one.replicas for one in records),
        sum(any(member.broker == broker for member in one.members) for one in values),
    )


def what_it_waits_for(
    broker: BrokerId,
    partitions: Sequence[RingPartition],
    staying: Collection[BrokerId],
    live: Collection[BrokerId],
) -> str:
    """What keeps *broker* from leaving until somebody does something about it; empty: nothing.

    *staying*: the other brokers that stay in the cluster.  *live*: those of all that are there.
    """
    for one in partitions:
        record = one.agreed.record
        if broker not in record.replicas:
            continue
        if record.in_sync and not set(record.in_sync) & set(live):
            missing = " ".join(map(str, record.in_sync))
            return (
                f"partition {one.partition} has no leader: start broker {missing}, which has what "
                "was acknowledged there, or give that up (`octopi-node partitions recover "
                f"{one.partition}`)"
            )
        if len(staying) < one.agreed.min_insync:
            return (
                f"a topic in partition {one.partition} needs {one.agreed.min_insync} replicas in "
                f"sync (--min-insync), and {len(staying)} other brokers stay: start another one"
            )
    away = sorted({*staying}.difference(live))
    return f"broker {away[0]} is away: groups that it is in wait for it" if away else ""


class RemovalCheck:
    """Finds out whether a broker that leaves may be removed.

    What is known here may be old, so all values are read anew: removed too early, a broker would
    take the only copy of something with it.
    """

    def __init__(self) -> None:
        self._reads: dict[PartitionId, int] = {}
        """The read of each partition that has to end."""

    def pending(
        self, parts: BrokerParts, partitions: Sequence[RingPartition]
    ) -> list[RingPartition] | None:
        """The partitions to read now.  Empty: all were read since nothing was known to count on
        the broker, and nothing does.  None: something does."""
        if not parts.is_free:
            self._reads.clear()
            return None
        for one in partitions:
            self._reads.setdefault(one.partition, one.next_read)
        return [one for one in partitions if not one.has_read(self._reads[one.partition])]
