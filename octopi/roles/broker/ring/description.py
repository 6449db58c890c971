"""What a broker tells people about the ring, and why it ends."""

from __future__ import annotations

from math import inf
from typing import Protocol

from octopi.errors import RefusedError, Status
from octopi.identifiers import BrokerId
from octopi.limits import FOUNDERS_MAX
from octopi.ring.address_book import BookEntry
from octopi.ring.chord import Chord
from octopi.ring.cluster_record import PartitionKind
from octopi.roles.broker.ring.cluster_keeper import ClusterKeeper
from octopi.roles.broker.ring.partitions import RingPartitions
from octopi.wire import messages as m


class DescribedMember(Protocol):
    """The broker that is described."""

    partitions: RingPartitions | None

    @property
    def chord(self) -> Chord | None:
        """Its place on the ring; None: it has none yet."""

    @property
    def cluster(self) -> str:
        """The id of its cluster."""

    @property
    def waits_for(self) -> str:
        """Why it is no member of the ring."""

    def now(self) -> float:
        """The time by its clock."""


def described(request: int, member: DescribedMember, keeper: ClusterKeeper) -> m.RingDescription:
    """The answer to a question about *member* and the cluster."""
    chord, chosen, record = member.chord, keeper.chosen, keeper.record
    led = [] if member.partitions is None else member.partitions.pulses.led()
    acceptors: tuple[BrokerId, ...] = ()
    if chosen is not None:
        acceptors = tuple(one.broker for one in chosen.value.acceptors)[:FOUNDERS_MAX]
    ending = None if record is None else record.ending
    entries: list[BookEntry] = [] if chord is None else list(chord.book)
    entries.sort(key=lambda one: one.node.place)
    return m.RingDescription(
        request,
        member.cluster,
        0 if record is None else record.partition_count(PartitionKind.LOG),
        0 if chosen is None else chosen.value.change,
        acceptors,
        None if chord is None else chord.me,
        chord is not None and chord.is_member,
        None if chord is None else chord.neighbours.predecessor,
        () if chord is None else chord.neighbours.successors,
        tuple(_shown(one, member.now()) for one in entries),
        member.waits_for,
        len(led),
        sum(not may_act for _, may_act in led),
        () if record is None else record.drained,
        () if record is None else record.leaving,
        "" if ending is None else ending.stage,
        () if ending is None else ending.registers,
        ending.missing if ending is not None and ending.is_under_way else (),
    )


def _shown(entry: BookEntry, now: float) -> m.ShownNode:
    heard_ms = None if entry.heard_at == -inf else round(1000 * max(0.0, now - entry.heard_at))
    return m.ShownNode(entry.node, heard_ms, entry.is_silent)


def refusal_of(why: m.RingRefusal) -> RefusedError:
    """The error with which a broker ends that the others refuse for good."""
    if why is m.RingRefusal.BROKER_REMOVED:
        return RefusedError("this broker was removed from the cluster", Status.BROKER_FENCED)
    return RefusedError(
        "another broker with this one's id, and another data directory, is alive",
        Status.DUPLICATE_BROKER,
    )
