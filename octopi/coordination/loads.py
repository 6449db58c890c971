"""How much work each partition is for its leader, as the leaders report it to the register.

A load is a number without a unit: 1 is the work of 1 MiB/s, or of 1,000 open readings.  It is the
average over about `octopi.limits.LOAD_AVERAGE_S`, so a peak of some seconds hardly shows.  A
partition keeps its average when another broker leads it.

This module does no I/O.  What it knows is observed, like liveness, and begins anew with each start
of the register.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from octopi.identifiers import BrokerId, PartitionId
from octopi.limits import LOAD_AVERAGE_S, LOAD_UNKNOWN_S, MIB
from octopi.wire.messages import PartitionLoad

IDLE_LOAD: Final = 0.01
"""The load of a partition that is not used: leading it is a little work, so idle partitions are
spread, too."""

READINGS_OF_ONE: Final = 1_000
"""So many open readings are as much work as 1 MiB/s."""


def load_of(bytes_per_s: float, readings: int) -> float:
    """The load of a partition that takes from producers and gives to consumers *bytes_per_s*, and
    has so many open *readings*."""
    return bytes_per_s / MIB + readings / READINGS_OF_ONE + IDLE_LOAD


@attrs.define
class _Average:
    load: float
    reported_at: float
    topic: str


class Loads:
    """The average loads of the partitions of a cluster."""

    def __init__(
        self, average_s: float = LOAD_AVERAGE_S, unknown_s: float = LOAD_UNKNOWN_S
    ) -> None:
        """*average_s*: the time constant of the averages.  *unknown_s*: how long a report of a
        broker counts."""
        self._average_s = average_s
        self._unknown_s = unknown_s
        self._averages: dict[PartitionId, _Average] = {}
        self._reported_at: dict[BrokerId, float] = {}

    def reported(
        self,
        broker: BrokerId,
        now: float,
        loads: Iterable[PartitionLoad],
        leaders: Mapping[PartitionId, BrokerId],
    ) -> None:
        """*broker* reported at *now* (monotonic, s) the *loads* of partitions since its last
        report.  Those that it does not lead, as *leaders* says, do not count: it may have led them
        until just now."""
        self._reported_at[broker] = now
        for one in loads:
            if leaders.get(one.partition) == broker:
                self._count(one, now)

    def _count(self, one: PartitionLoad, now: float) -> None:
        load = load_of(one.bytes_per_s, one.readings)
        known = self._averages.get(one.partition)
        if known is None:
            self._averages[one.partition] = _Average(load, now, one.topic)
            return
        share = -math.expm1(-(now - known.reported_at) / self._average_s)
        known.load += (load - known.load) * share
        known.reported_at = now
        known.topic = one.topic or known.topic

    def are_known(self, brokers: Iterable[BrokerId], now: float) -> bool:
        """Whether all *brokers* have reported lately."""
        return all(
            now - self._reported_at.get(one, -math.inf) <= self._unknown_s for one in brokers
        )

    def of(self, partition: PartitionId) -> float:
        """The load of *partition*."""
        known = self._averages.get(partition)
        return IDLE_LOAD if known is None else known.load

    def busiest_topic(self, partition: PartitionId) -> str:
        """The topic that is the most work there, of those that clients use; empty: none was
        reported."""
        known = self._averages.get(partition)
        return "" if known is None else known.topic

    def of_brokers(
        self, leaders: Mapping[PartitionId, BrokerId], brokers: Iterable[BrokerId]
    ) -> dict[BrokerId, float]:
        """The load of each of *brokers*: that of the partitions that it leads."""
        found = dict.fromkeys(brokers, 0.0)
        for partition, leader in leaders.items():
            if leader in found:
                found[leader] += self.of(partition)
        return found
