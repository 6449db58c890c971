"""Which brokers hold which relay partitions: new sets, and the next change of an old one.

Pure functions.  No two members of a set are placed on one machine.  A set changes by one member at
a time, and the next change waits until the members have brought the last one into force.

Sets are spread by number, as their sequencers are (`octopi.coordination.relay_balance`): a broker
that is in two sets more than another one gives one up (`balancing_set`).  Each such change makes
the sum of the squares of these numbers smaller, so changes end, and no member goes to and fro.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import attrs

from octopi.coordination.machines import Machines
from octopi.errors import RefusedError, Status
from octopi.identifiers import BrokerId, PartitionId
from octopi.limits import RELAYS_MAX, RELAYS_MIN
from octopi.model import RelaySetRecord


@attrs.frozen
class RelayBrokers:
    """The brokers, as far as relay sets are concerned."""

    willing: Collection[BrokerId]
    """Those that may become members: live, and neither draining nor stopping."""
    gone: Collection[BrokerId]
    """Those that were removed, or have been away for long."""
    leaving: Collection[BrokerId]
    """Those that are drained, and are to leave their sets while they are still there."""
    machines: Machines


def new_set(
    partition: PartitionId,
    size: int,
    brokers: RelayBrokers,
    sets: Mapping[PartitionId, RelaySetRecord],
) -> RelaySetRecord:
    """The members of a new relay partition: up to *size* of them, those that are in the fewest
    *sets*.

    Raises:
      RefusedError: INVALID_OPTION, if there are too few brokers on different machines.
    """
    size = max(RELAYS_MIN, min(size, RELAYS_MAX))
    members: list[BrokerId] = []
    while len(members) < size and (one := _spare(members, brokers, sets.values())) is not None:
        members.append(one)
    if len(members) < RELAYS_MIN:
        raise RefusedError(
            f"a topic in memory lies on {RELAYS_MIN} brokers at least, on different hosts, so that "
            f"none is missed alone; {len(members)} can take it now",
            Status.INVALID_OPTION,
        )
    return RelaySetRecord(partition, 1, sorted(members), size=len(members))


def next_set(
    record: RelaySetRecord, brokers: RelayBrokers, sets: Iterable[RelaySetRecord]
) -> RelaySetRecord | None:
    """The set that is to follow *record*; None: none, or *record* is not in force yet.

    A member that is gone is removed before another one takes its place: it can't be of the majority
    that a larger set needs.  One that is leaving is there, so its successor joins first.
    """
    if not record.in_force:
        return None
    members, known = record.members, list(sets)
    gone = [one for one in members if one in brokers.gone]
    leaving = [one for one in members if one in brokers.leaving]
    spare = _spare(members, brokers, known, leaving=leaving)
    if len(members) > record.size:
        shared = brokers.machines.shared(members)
        first = sorted(
            _most_loaded(members, known),
            key=lambda one: (one not in gone, one not in shared, one not in leaving),
        )
        return _without(record, first[0])
    if gone and len(members) > RELAYS_MIN - 1:
        return _without(record, gone[0])
    if spare is not None and (len(members) < record.size or leaving):
        return _changed(record, [*members, spare])
    return None


def balancing_set(brokers: RelayBrokers, sets: Iterable[RelaySetRecord]) -> RelaySetRecord | None:
    """The set that is to get a member more, so that the broker that is in the most *sets* can leave
    it then; None: they are spread, or a set changes anyway.

    Sets whose members an operator has named stay as they are.
    """
    known = list(sets)
    unfit = {*brokers.gone, *brokers.leaving}
    if not all(one.in_force and len(one.members) == one.size for one in known):
        return None
    if any(one in unfit for record in known for one in record.members):
        return None
    held = _held(known)
    best: tuple[int, PartitionId, RelaySetRecord] | None = None
    for record in known:
        if record.pinned or len(record.members) >= RELAYS_MAX:
            continue
        for number, one in enumerate(_most_loaded(record.members, known)):
            spare = _spare(record.members, brokers, known, leaving=[one])
            if spare is None or held[one] - held[spare] < 2:
                continue
            if number and brokers.machines.of(one) != brokers.machines.of(spare):
                continue  # the first of them would leave, and not this one
            wanted = _changed(record, [*record.members, spare])
            step = held[spare] - held[one], record.partition, wanted
            best = step if best is None else min(best, step, key=lambda step: step[:2])
    return None if best is None else best[2]


def may_follow(before: RelaySetRecord, after: RelaySetRecord) -> bool:
    """Whether *after* may be decided when *before* was: it is newer, or has the same members, and
    other wishes for them."""
    same = attrs.evolve(after, size=before.size, pinned=before.pinned)
    return before.number < after.number or same == before


def step_towards(record: RelaySetRecord, wanted: Collection[BrokerId]) -> RelaySetRecord | None:
    """The next set on the way from *record* to the members *wanted*; None: it has them."""
    missing = [one for one in wanted if one not in record.members]
    surplus = [one for one in record.members if one not in wanted]
    if missing and len(record.members) < RELAYS_MAX:
        return _changed(record, [*record.members, missing[0]])
    return _without(record, surplus[0]) if surplus else None


def _spare(
    members: Collection[BrokerId],
    brokers: RelayBrokers,
    sets: Iterable[RelaySetRecord],
    leaving: Collection[BrokerId] = (),
) -> BrokerId | None:
    """A broker that may become a member beside *members*, of whom some are *leaving*."""
    taken = brokers.machines.of_all(one for one in members if one not in leaving)
    held = _held(sets)
    free = [
        one
        for one in brokers.willing
        if one not in members and brokers.machines.of(one) not in taken
    ]
    return min(free, key=lambda one: (held[one], one), default=None)


def _most_loaded(members: Collection[BrokerId], sets: Iterable[RelaySetRecord]) -> list[BrokerId]:
    held = _held(sets)
    return sorted(members, key=lambda one: (-held[one], one))


def _held(sets: Iterable[RelaySetRecord]) -> Counter[BrokerId]:
    """In how many *sets* each broker is."""
    return Counter(one for record in sets for one in record.members)


def _without(record: RelaySetRecord, member: BrokerId) -> RelaySetRecord:
    return _changed(record, [one for one in record.members if one != member])


def _changed(record: RelaySetRecord, members: list[BrokerId]) -> RelaySetRecord:
    return attrs.evolve(record, version=record.version + 1, members=sorted(members), in_force=False)
