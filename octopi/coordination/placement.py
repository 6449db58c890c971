"""Which brokers hold which partitions: new ones, and plans that even out old ones.

Pure functions of counts.  No two replicas of a partition are placed on one machine.  Otherwise
replicas and leaders are spread as evenly as possible; ties go to the smallest id, so the same state
gives the same plan everywhere.  The protocol carries out each step of a plan, or rejects it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Final

import attrs

from octopi.coordination.machines import NO_LABELS, Machines
from octopi.identifiers import BrokerId, PartitionId
from octopi.wire.messages import PartitionRecord

NO_LOADS: Final[Mapping[BrokerId, float]] = {}
"""How much brokers have to do is not known, or does not count."""


@attrs.frozen
class LeaderMove:
    """Have another in-sync replica lead."""

    partition: PartitionId
    leader: BrokerId


@attrs.frozen
class ReplicaMove:
    """Move a replica to another broker, which joins before the old one leaves."""

    partition: PartitionId
    leaving: BrokerId
    joining: BrokerId


def place(
    partitions: Iterable[PartitionId],
    replica_count: int,
    brokers: Iterable[BrokerId],
    records: Iterable[PartitionRecord],
    machines: Machines = NO_LABELS,
    loads: Mapping[BrokerId, float] = NO_LOADS,
) -> dict[PartitionId, list[BrokerId]]:
    """Replicas for new *partitions*, leader first, on *brokers* that hold *records* already.

    Each partition gets *replica_count* replicas, or one on each machine if there are fewer.  With
    *loads* a broker that has less to do leads rather than one that leads fewer; then a new
    partition counts as much as the others do on average.
    """
    known = list(records)
    held = dict.fromkeys(sorted(set(brokers)), 0)
    led = dict(held)
    for record in known:
        for broker in record.replicas:
            if broker in held:
                held[broker] += 1
        if record.leader in led:
            led[record.leader] += 1
    work = {broker: loads.get(broker, max(loads.values(), default=0.0)) for broker in held}
    usual = sum(work.values()) / max(1, sum(led.values()))
    placed: dict[PartitionId, list[BrokerId]] = {}
    for partition in partitions:
        leader = min(held, key=lambda broker: (work[broker], led[broker], held[broker], broker))
        chosen = placed[partition] = [leader]
        for broker in sorted(held.keys() - {leader}, key=lambda broker: (held[broker], broker)):
            if len(chosen) < replica_count and machines.of(broker) not in machines.of_all(chosen):
                chosen.append(broker)
        led[leader] += 1
        work[leader] += usual
        for broker in placed[partition]:
            held[broker] += 1
    return placed


def balance_leaders(
    records: Iterable[PartitionRecord], live: Iterable[BrokerId], *, shifts_max: int | None = None
) -> list[LeaderMove]:
    """Moves that make the numbers of partitions led differ as little as possible, when only
    live in-sync replicas can lead.  They shift so many leaderships at most; None: all that it
    takes.

    A chain of moves shifts one leadership from the broker with the most to one with fewer, possibly
    through brokers between them; when there is no such chain, the spread is the best one.
    """
    alive = sorted(set(live))
    known = list(records)
    leaders = {one.partition: one.leader for one in known if one.leader in alive}
    in_sync = {one.partition: sorted(set(one.in_sync).intersection(alive)) for one in known}
    before = dict(leaders)
    for shifted in count():
        led = Counter(dict.fromkeys(alive, 0))
        led.update(leaders.values())
        chain: list[LeaderMove] = []
        for start in sorted(alive, key=lambda broker: (-led[broker], broker)):
            chain = _chain(start, leaders, in_sync, led)
            if chain:
                break
        if not chain or shifted == shifts_max:
            moved = sorted(one for one in leaders if leaders[one] != before[one])
            return [LeaderMove(partition, leaders[partition]) for partition in moved]
        for move in chain:
            leaders[move.partition] = move.leader
    raise AssertionError("it counts for ever")


def _chain(
    start: BrokerId,
    leaders: dict[PartitionId, BrokerId],
    in_sync: dict[PartitionId, list[BrokerId]],
    led: Counter[BrokerId],
) -> list[LeaderMove]:
    """The shortest chain from *start* to a broker that leads at least two fewer."""
    arrived: dict[BrokerId, LeaderMove | None] = {start: None}
    queue = deque([start])
    while queue:
        broker = queue.popleft()
        if led[broker] <= led[start] - 2:
            chain: list[LeaderMove] = []
            move = arrived[broker]
            while move is not None:
                chain.append(move)
                move = arrived[leaders[move.partition]]
            return chain
        for partition in sorted(one for one, leader in leaders.items() if leader == broker):
            for successor in in_sync[partition]:
                if successor not in arrived:
                    arrived[successor] = LeaderMove(partition, successor)
                    queue.append(successor)
    return []


def next_replica(
    record: PartitionRecord,
    brokers: Iterable[BrokerId],
    records: Iterable[PartitionRecord],
    machines: Machines = NO_LABELS,
) -> BrokerId | None:
    """Which of *brokers* gets one more replica of the partition of *record*: one on a machine that
    has none, and that holds the fewest of *records*; None: there is no such machine."""
    known = list(records)
    taken = machines.of_all(record.replicas)
    held = {one: sum(one in each.replicas for each in known) for one in brokers}
    candidates = [one for one in held if machines.of(one) not in taken]
    return min(candidates, key=lambda one: (held[one], one), default=None)


def spread_replicas(
    records: Iterable[PartitionRecord],
    brokers: Iterable[BrokerId],
    machines: Machines = NO_LABELS,
) -> list[ReplicaMove]:
    """Moves after which no machine has two replicas of a partition, and no broker of *brokers*
    holds two replicas more than another, as far as partitions and machines allow; followers move
    rather than leaders."""
    known = sorted(records, key=lambda one: one.partition)
    replicas = {one.partition: set(one.replicas) for one in known}
    leaders = {one.partition: one.leader for one in known}
    targets = sorted(set(brokers))
    moves: list[ReplicaMove] = []
    moved: set[PartitionId] = set()
    for record in known:
        sharing = [one for one in machines.shared(record.replicas) if one != record.leader]
        joining = next_replica(record, targets, known, machines) if sharing else None
        if joining is not None:
            moves.append(ReplicaMove(record.partition, sharing[0], joining))
            moved.add(record.partition)
            replicas[record.partition] ^= {sharing[0], joining}
    while True:
        held = {broker: sum(broker in one for one in replicas.values()) for broker in targets}
        step = next(
            (
                ReplicaMove(partition, giver, taker)
                for giver in sorted(held, key=lambda broker: (-held[broker], broker))
                for taker in sorted(held, key=lambda broker: (held[broker], broker))
                if held[giver] - held[taker] > 1
                for partition in sorted(replicas, key=lambda one: (leaders[one] == giver, one))
                if partition not in moved
                and giver in replicas[partition]
                and taker not in replicas[partition]
                and machines.of(taker) not in machines.of_all(replicas[partition] - {giver})
            ),
            None,
        )
        if step is None:
            return moves
        moves.append(step)
        moved.add(step.partition)  # one replica of a partition at a time
        replicas[step.partition] ^= {step.leaving, step.joining}
