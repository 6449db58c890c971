"""What the brokers of a cluster without a register agree on about the whole cluster, and the bytes
of it.

The most important part are the first acceptors of each partition.  The first value of an agreed
value counts as chosen, so every broker has to know the same first acceptors, whatever it sees of
the ring.  So they are computed from the *growth* that made the partition, which names its brokers:
from what each side of a split network sees, two groups would be made.

The record is a CBOR map (RFC 8949).  The keys and their order are the format, which golden tests
check (``tests/ring/test_cluster_record.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum, unique
from typing import Any

import attrs
import cbor2

from octopi.identifiers import (
    BrokerId,
    ClusterId,
    DirectoryId,
    Incarnation,
    PartitionId,
    RingPoint,
    address_fault,
    id_fault,
)
from octopi.limits import (
    AGREED_BYTES_MAX,
    BOOK_COUNT,
    BROKER_ID_MAX,
    GONE_BROKERS_MAX,
    GROWTH_MEMBERS_MAX,
    GROWTH_ROWS_MAX,
    HOMES_MAX,
    HOST_LABEL_BYTES_MAX,
    RING_BITS,
)
from octopi.ring.ending import Ending, EndingStage, ending_of
from octopi.ring.groups import replica_group
from octopi.ring.points import RING_SIZE
from octopi.wire.agreement import AcceptorId
from octopi.wire.ring import RingNode


@unique
class PartitionKind(StrEnum):
    """What a partition has.  Each kind has numbers of its own."""

    LOG = "log"
    RELAY = "relay"


@attrs.frozen
class Growth:
    """Partitions that were made together, and the brokers that are their first ones."""

    kind: PartitionKind
    first: PartitionId
    count: int
    replicas: int
    """The number of replicas of each, if there are so many brokers."""
    members: tuple[RingNode, ...]

    @property
    def end(self) -> int:
        """The first number behind its partitions."""
        return self.first + self.count

    def fault(self) -> str:
        """Why no cluster grows so; empty if one can."""
        if not 0 < len(self.members) <= GROWTH_MEMBERS_MAX:
            return f"a growth names 1 to {GROWTH_MEMBERS_MAX} brokers, not {len(self.members)}"
        if len({one.broker for one in self.members}) < len(self.members):
            return "a growth names a broker twice"
        if self.first < 0 or self.count < 1 or self.replicas < 1:
            return "a growth makes at least one partition with one replica"
        return next((why for one in self.members if (why := _node_fault(one))), "")


@attrs.frozen
class ClusterRecord:
    """The content of the agreed value about the cluster."""

    cluster: ClusterId
    home_count: int
    """The partitions, from 0, in which records of topics lie.  It never changes, so no topic's
    record ever moves."""
    growths: tuple[Growth, ...]
    """In the order in which they were made."""
    ids: int = 0
    """The highest id of a broker that was given.  No id is given twice."""
    drained: tuple[BrokerId, ...] = ()
    """Brokers that are to lead nothing until they are started again, in the order of their ids."""
    leaving: tuple[BrokerId, ...] = ()
    """Brokers that are to be removed for good as soon as nothing counts on them, likewise."""
    gone: tuple[BrokerId, ...] = ()
    """Brokers that were removed for good, likewise."""
    taken_over: int = 0
    """How many partitions, from 0, the cluster had when a register handed it over; 0: it never had
    a register."""
    ending: Ending | None = None
    """How far it is that registers are to decide from now on; None: nobody has ordered that."""

    def partition_count(self, kind: PartitionKind) -> int:
        """The number of partitions of *kind*."""
        return max((one.end for one in self.growths if one.kind is kind), default=0)

    def growth_of(self, kind: PartitionKind, partition: PartitionId) -> Growth | None:
        """The growth that made a partition; None: there is no such partition."""
        found = (one for one in self.growths if one.kind is kind)
        return next((one for one in found if one.first <= partition < one.end), None)

    def first_acceptors(
        self, kind: PartitionKind, partition: PartitionId
    ) -> tuple[AcceptorId, ...] | None:
        """The first acceptors of a partition; None: there is no such partition.

        They are the same for ever, so brokers that are drained or gone are not left out: the group
        moves on from them, as any group does.
        """
        if (growth := self.growth_of(kind, partition)) is None:
            return None
        _, acceptors = replica_group(partition, growth.replicas, growth.members)
        return tuple(one.identity for one in acceptors)

    def first_replicas(
        self, kind: PartitionKind, partition: PartitionId
    ) -> tuple[BrokerId, ...] | None:
        """The first replicas of a partition, likewise."""
        if (growth := self.growth_of(kind, partition)) is None:
            return None
        replicas, _ = replica_group(partition, growth.replicas, growth.members)
        return tuple(one.broker for one in replicas)

    def grown(
        self, kind: PartitionKind, count: int, replicas: int, members: tuple[RingNode, ...]
    ) -> ClusterRecord:
        """The record after so many partitions were added, in which *members* come first."""
        first = PartitionId(self.partition_count(kind))
        growth = Growth(kind, first, count, replicas, members)
        ids = max(self.ids, *(one.broker for one in members))
        return attrs.evolve(self, growths=(*self.growths, growth), ids=ids)

    def with_next_id(self) -> ClusterRecord:
        """The record after another id was given to a broker: `ids`."""
        return attrs.evolve(self, ids=self.ids + 1)

    def with_drained(self, broker: BrokerId) -> ClusterRecord:
        """The record after it was ordered to drain *broker*."""
        if broker in self.gone:
            return self
        return attrs.evolve(self, drained=tuple(sorted({*self.drained, broker})))

    def undrained(self, broker: BrokerId) -> ClusterRecord:
        """The record after *broker*, if it was drained, was started again."""
        return attrs.evolve(self, drained=tuple(one for one in self.drained if one != broker))

    @property
    def unwilling(self) -> frozenset[BrokerId]:
        """The brokers that are to lead only what no other broker can lead."""
        return frozenset({*self.drained, *self.leaving})

    def with_leaving(self, broker: BrokerId) -> ClusterRecord:
        """The record after it was ordered to remove *broker* for good."""
        if broker in self.gone:
            return self
        return attrs.evolve(self, leaving=tuple(sorted({*self.leaving, broker})))

    def staying(self, broker: BrokerId) -> ClusterRecord:
        """The record after that order was taken back, unless it was carried out."""
        return attrs.evolve(self, leaving=tuple(one for one in self.leaving if one != broker))

    def without(self, broker: BrokerId) -> ClusterRecord:
        """The record after *broker* was removed for good, if that is still ordered."""
        if broker not in self.leaving:
            return self
        gone = tuple(sorted({*self.gone, broker}))
        return attrs.evolve(self.undrained(broker).staying(broker), gone=gone)

    # --- handing over to registers ---------------------------------------------------------

    @property
    def is_frozen(self) -> bool:
        """Whether nothing but `ending` may change."""
        return self.ending is not None and self.ending.stage is not EndingStage.GIVEN_UP

    def with_ending(self, registers: Iterable[str], brokers: Iterable[BrokerId]) -> ClusterRecord:
        """The record after it was ordered that *brokers*, which are all, hand over to
        *registers*."""
        if self.is_frozen:
            return self
        attempt = 1 if self.ending is None else self.ending.attempt + 1
        return attrs.evolve(self, ending=Ending(attempt, tuple(registers), tuple(sorted(brokers))))

    def with_statement(self, broker: BrokerId, attempt: int, stage: EndingStage) -> ClusterRecord:
        """The record after *broker* has stated what *stage* of that *attempt* asks for."""
        if self.ending is None:
            return self
        return attrs.evolve(self, ending=self.ending.after(broker, attempt, stage))

    def without_ending(self, attempt: int) -> ClusterRecord:
        """The record after that *attempt* was given up, unless it is over."""
        if self.ending is None:
            return self
        return attrs.evolve(self, ending=self.ending.given_up(attempt))

    def fault(self) -> str:
        """Why no cluster has this record; empty if one can."""
        if why := id_fault(self.cluster):
            return f"the id of the cluster: {why}"
        if len(self.growths) > GROWTH_ROWS_MAX:
            return f"a cluster grows {GROWTH_ROWS_MAX} times at most, not {len(self.growths)}"
        if why := next((why for one in self.growths if (why := one.fault())), ""):
            return why
        ends = dict.fromkeys(PartitionKind, 0)
        for one in self.growths:
            if one.first != ends[one.kind]:
                return "its partitions don't follow each other"
            ends[one.kind] = one.end
        if not 0 < self.home_count <= min(HOMES_MAX, ends[PartitionKind.LOG]):
            return f"a cluster has 1 to {HOMES_MAX} homes, each in a partition"
        if not _is_list(self.gone, GONE_BROKERS_MAX):
            return f"at most {GONE_BROKERS_MAX} brokers are gone, in the order of their ids"
        if not _is_list(self.drained, BOOK_COUNT):
            return f"at most {BOOK_COUNT} brokers are drained, in the order of their ids"
        if not _is_list(self.leaving, BOOK_COUNT) or set(self.leaving) & set(self.gone):
            return (
                f"at most {BOOK_COUNT} brokers leave that are not gone, in the order of their ids"
            )
        named = [node.broker for one in self.growths for node in one.members]
        if not max(named) <= self.ids <= BROKER_ID_MAX:
            return f"it gives ids up to {BROKER_ID_MAX}, among them those that it names"
        if not 0 <= self.taken_over <= ends[PartitionKind.LOG]:
            return "no more partitions were taken over than there are"
        if self.ending is not None and (why := self.ending.fault()):
            return why
        size = len(encode_cluster(self))
        if size > AGREED_BYTES_MAX:
            return f"it has at most {AGREED_BYTES_MAX} bytes, not {size}"
        return ""


def formed(
    cluster: ClusterId, partitions: int, replicas: int, founders: tuple[RingNode, ...]
) -> ClusterRecord:
    """The record of a cluster that *founders* form."""
    growth = Growth(PartitionKind.LOG, PartitionId(0), partitions, replicas, founders)
    ids = max(one.broker for one in founders)
    return ClusterRecord(cluster, min(partitions, HOMES_MAX), (growth,), ids)


def first_members(
    nodes: Iterable[RingNode], unwilling: Collection[BrokerId]
) -> tuple[RingNode, ...]:
    """The brokers that a growth names, if *nodes* are there: as many as it can name, evenly spread
    on the ring.  Those *unwilling* are named only if there are no others."""
    there = sorted(nodes, key=lambda one: one.place)
    named = [one for one in there if one.broker not in unwilling] or there
    count = min(len(named), GROWTH_MEMBERS_MAX)
    return tuple(named[at * len(named) // count] for at in range(count))


def _is_list(brokers: tuple[BrokerId, ...], count_max: int) -> bool:
    """Whether *brokers* are at most so many, each named once, in the order of their ids."""
    return list(brokers) == sorted(set(brokers)) and len(brokers) <= count_max


def _node_fault(node: RingNode) -> str:
    if why := address_fault(node.address):
        return f"the address of a broker: {why}"
    if not 0 < node.broker <= BROKER_ID_MAX or not 0 <= node.point < RING_SIZE:
        return f"ids of brokers go up to {BROKER_ID_MAX}, and points have {RING_BITS} bits"
    if node.incarnation < 1 or len(node.host.encode()) > HOST_LABEL_BYTES_MAX:
        return "a broker has an incarnation, and a host label that is not too long"
    return ""


# --- the bytes ---------------------------------------------------------------------------


def encode_cluster(record: ClusterRecord) -> bytes:
    """The bytes of *record*."""
    taken_over = {"taken_over": record.taken_over} if record.taken_over else {}
    ending = {} if record.ending is None else {"ending": record.ending.fields}
    return cbor2.dumps(
        {
            "cluster": record.cluster,
            "homes": record.home_count,
            "growths": [
                {
                    "kind": one.kind.value,
                    "first": one.first,
                    "count": one.count,
                    "replicas": one.replicas,
                    "members": [list(attrs.astuple(node)) for node in one.members],
                }
                for one in record.growths
            ],
            "ids": record.ids,
            "drained": list(record.drained),
            "leaving": list(record.leaving),
            "gone": list(record.gone),
            **taken_over,
            **ending,
        }
    )


def decode_cluster(data: bytes) -> ClusterRecord:
    """The record with the bytes *data*.

    Raises:
      ValueError: if there is none, or one that no cluster has.
    """
    try:
        fields = cbor2.loads(data)
    except Exception as error:  # cbor2 lets several classes through
        raise ValueError("it is no CBOR") from error
    match fields:
        case {
            "cluster": str(cluster),
            "homes": int(homes),
            "growths": [*growths],
            "ids": int(ids),
            "drained": [*drained],
            "leaving": [*leaving],
            "gone": [*gone],
            **others,
        } if others.keys() <= {"taken_over", "ending"}:
            record = ClusterRecord(
                ClusterId(cluster),
                homes,
                tuple(_growth(one) for one in growths),
                ids,
                tuple(_ids(drained)),
                tuple(_ids(leaving)),
                tuple(_ids(gone)),
                _number(others.get("taken_over", 0)),
                ending_of(others["ending"]) if "ending" in others else None,
            )
            if why := record.fault():
                raise ValueError(why)
            return record
    raise ValueError("it is no record of a cluster")


def _number(field: object) -> int:
    if type(field) is not int:
        raise ValueError("a count is no number")
    return field


def _growth(fields: Any) -> Growth:  # noqa: ANN401
    match fields:
        case {
            "kind": "log" | "relay" as kind,
            "first": int(first),
            "count": int(count),
            "replicas": int(replicas),
            "members": [*members],
        } if len(fields) == 5:
            nodes = tuple(_node(one) for one in members)
            return Growth(PartitionKind(kind), PartitionId(first), count, replicas, nodes)
    raise ValueError("it is no record of a cluster")


def _node(fields: object) -> RingNode:
    match fields:
        case [int(broker), str(directory), int(point), str(host), str(address), int(incarnation)]:
            return RingNode(
                BrokerId(broker),
                DirectoryId(directory),
                RingPoint(point),
                host,
                address,
                Incarnation(incarnation),
            )
    raise ValueError("it is no record of a cluster")


def _ids(fields: list[object]) -> Iterator[BrokerId]:
    for one in fields:
        if not isinstance(one, int):
            raise ValueError("it is no record of a cluster")
        yield BrokerId(one)
