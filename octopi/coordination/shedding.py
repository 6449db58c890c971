"""Which leadership moves to another broker because its leader has much more to do than others.

Every few seconds the register looks at the loads of partitions (`octopi.coordination.loads`).  If
the most loaded broker has had more than `SHED_RATIO` times the average for `SHED_LOOKS` looks, one
of its leaderships moves to a broker that is in sync there: the one after which the greater load of
the two is least, if that is a gain of `SHED_GAIN`.  A partition that was moved rests.

These delays keep the loads quiet: without them partitions go back and forth for ever.

A partition that alone is more than `SHED_RATIO` times the average is hot.  It would overload any
broker, so it stays, and others move away from its leader.

No move of a partition gains more than its load.  So partitions with less than `SHED_GAIN` of the
average, or with next to none, are light: they are not moved by load, and their leaderships are
evened out by number (`octopi.coordination.placement.balance_leaders`).  While even the busiest
broker has next to nothing to do, all partitions are light.

This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs

from octopi.identifiers import BrokerId, PartitionId
from octopi.limits import (
    LOAD_AVERAGE_S,
    LOAD_INTERVAL_S,
    SHED_GAIN,
    SHED_LIGHT_LOAD,
    SHED_LOAD_MIN,
    SHED_LOOKS,
    SHED_RATIO,
    SHED_RATIO_OVER,
    SHED_REST_S,
)


@attrs.frozen
class SheddingRules:
    """The numbers of shedding; the defaults are those of the program."""

    interval_s: float = LOAD_INTERVAL_S
    """The time between two looks."""
    average_s: float = LOAD_AVERAGE_S
    """The time constant of the averages of loads."""
    rest_s: float = SHED_REST_S
    """How long a partition rests that was moved."""
    load_min: float = SHED_LOAD_MIN
    """The load of the busiest broker from which on loads count."""
    light: float = SHED_LIGHT_LOAD
    """A partition with less load is light in any case."""


@attrs.frozen
class WeighedPartition:
    """A partition, as a look finds it."""

    partition: PartitionId
    leader: BrokerId
    others: Collection[BrokerId]
    """The brokers that could lead it as well."""
    load: float


@attrs.frozen
class Move:
    """Have another broker lead a partition."""

    partition: PartitionId
    leader: BrokerId
    """The one that leads it."""
    successor: BrokerId


@attrs.frozen
class Look:
    """What one look found."""

    move: Move | None = None
    """The move to make now; from now on the partition rests."""
    hot: Sequence[PartitionId] = ()
    """The partitions that have become hot."""


class Shedding:
    """The looks of one register.

    Invariants: a partition that rests is not moved; a hot partition is not moved.
    """

    def __init__(self, rules: SheddingRules) -> None:
        self._rules = rules
        self._over_count = 0
        """How many looks in a row have found `SHED_RATIO` exceeded."""
        self._rests_until: dict[PartitionId, float] = {}
        self.hot: set[PartitionId] = set()
        """The partitions that are hot."""
        self._heavy: set[PartitionId] = set()
        """The partitions that are not light."""
        self.goes_by_load = False
        """Whether leaderships are moved by load, and not by their number.  It begins at the least
        load of the rules, and ends at half of it, so it does not change all the time."""

    def unknown(self) -> None:
        """Not all brokers have reported their loads: nothing is moved by load."""
        self._over_count = 0
        self.hot.clear()
        self._heavy.clear()
        self.goes_by_load = False

    def is_light(self, partition: PartitionId) -> bool:
        """Whether the leadership of *partition* counts by number, and not by load."""
        return partition not in self._heavy

    def look(
        self, now: float, led: Sequence[WeighedPartition], brokers: Collection[BrokerId]
    ) -> Look:
        """Look at *now* (monotonic, s) at the partitions that *brokers* lead, which are all those
        that may lead."""
        loads = dict.fromkeys(brokers, 0.0)
        known = [one for one in led if one.leader in loads]
        for one in known:
            loads[one.leader] += one.load
        greatest = max(loads.values(), default=0.0)
        load_min = self._rules.load_min / (2 if self.goes_by_load else 1)
        if len(loads) < 2 or not greatest or greatest < load_min:
            self.unknown()
            return Look()
        self.goes_by_load = True
        average = sum(loads.values()) / len(loads)
        self._over_count = self._over_count + 1 if greatest > SHED_RATIO * average else 0
        light = max(SHED_GAIN * average, self._rules.light)
        self._heavy = {
            one.partition
            for one in led
            if one.load >= light * (0.75 if one.partition in self._heavy else 1)
        }
        hot = self._hot(known, average)
        if self._over_count < SHED_LOOKS:
            return Look(hot=hot)
        move = self._best(now, known, loads, average)
        if move is not None:
            self._rests_until[move.partition] = now + self._rules.rest_s
        return Look(move, hot)

    def _hot(self, led: Sequence[WeighedPartition], average: float) -> list[PartitionId]:
        """The partitions that have become hot."""
        self.hot = {one.partition for one in led if one.load > SHED_RATIO_OVER * average} & self.hot
        if self._over_count < SHED_LOOKS:
            return []
        found = {one.partition for one in led if one.load > SHED_RATIO * average} - self.hot
        self.hot |= found
        return sorted(found)

    def _best(
        self,
        now: float,
        led: Sequence[WeighedPartition],
        loads: dict[BrokerId, float],
        average: float,
    ) -> Move | None:
        """The move that relieves the most loaded broker best; None: none is worth it."""
        self._rests_until = {one: end for one, end in self._rests_until.items() if end > now}
        busiest = max(loads, key=lambda one: (loads[one], -one))
        stay = self._rests_until.keys() | self.hot
        best: tuple[float, PartitionId, BrokerId] | None = None
        for one in led:
            if one.leader != busiest or one.partition in stay or self.is_light(one.partition):
                continue
            for other in one.others:
                if other == busiest or other not in loads:
                    continue
                after = max(loads[busiest] - one.load, loads[other] + one.load)
                if loads[busiest] - after < SHED_GAIN * average:
                    continue
                best = min(best or (after, one.partition, other), (after, one.partition, other))
        return None if best is None else Move(best[1], busiest, best[2])
