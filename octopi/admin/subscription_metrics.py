"""Metrics of durable subscriptions, as the leaders of logs and the coordinators on a broker know
them.

Lags and members are looked at when metrics are asked for, with turns for other tasks; nothing is
read from a disk for them.  At most so many series of each metric have labels: those with the
greatest values.  One more, whose labels are empty, stands for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappush, heappushpop
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from octopi.admin.collectors import SlowCollector
from octopi.admin.page_writer import InSlices
from octopi.errors import RefusedError
from octopi.identifiers import PartitionId, TopicId
from octopi.metrics.highwater_times import HighwaterTimes
from octopi.metrics.labelled_counter import SERIES_COUNT_MAX, LabelledCounter, Labels
from octopi.roles.broker.client_parts import ClientParts
from octopi.roles.broker.subscriptions.led_partition import LedPartition
from octopi.subscriptions.log_mark import LogMark
from octopi.subscriptions.log_queue import LogQueue

_TURN_COUNT: Final = 500
"""Marks that are looked at before other tasks have their turn: about a millisecond."""

_OF_LOG: Final = ("topic", "subscription", "partition")
_OF_GROUP: Final = ("topic", "subscription")


class _Series:
    """The greatest values with their labels, and what becomes of the others."""

    def __init__(self, count_max: int, of_others: Callable[[float, float], float]) -> None:
        """*of_others* adds a value to that of the others."""
        self._count_max = count_max
        self._of_others = of_others
        self._greatest: list[tuple[float, Labels]] = []
        self._others: float | None = None

    def add(self, labels: Labels, value: float) -> None:
        entry = value, labels
        if len(self._greatest) < self._count_max:
            heappush(self._greatest, entry)
            return
        left, _ = heappushpop(self._greatest, entry)
        self._others = left if self._others is None else self._of_others(self._others, left)

    def fill(self, family: GaugeMetricFamily, names: tuple[str, ...]) -> GaugeMetricFamily:
        for value, labels in self._greatest:
            family.add_metric(labels, value)
        if self._others is not None:
            family.add_metric([""] * len(names), self._others)
        return family


def _sum(one: float, other: float) -> float:
    return one + other


class _Look:
    """What one look found."""

    def __init__(self, series_max: int) -> None:
        self.lag_bytes = _Series(series_max, _sum)
        self.lag_s = _Series(series_max, max)
        self.held = _Series(series_max, _sum)
        self.missing = _Series(series_max, _sum)
        self.members = _Series(series_max, _sum)
        self.open = _Series(series_max, _sum)
        self.waiting = _Series(series_max, _sum)
        self.dead = _Series(series_max, _sum)
        self.logs: set[tuple[TopicId, PartitionId]] = set()
        """Those with marks."""


class SubscriptionMetrics(SlowCollector):
    """Those of one broker.  `look` comes before `collect`, which is quick."""

    def __init__(self, parts: ClientParts, series_max: int = SERIES_COUNT_MAX) -> None:
        """*series_max*: series of each gauge that have labels."""
        self._subscriptions = parts.subscriptions
        self._clock = parts.environment.clock
        self._series_max = series_max
        self._times: HighwaterTimes[tuple[TopicId, PartitionId]] = HighwaterTimes()
        self._last = _Look(series_max)

    async def look(self) -> None:
        """Find out how far all subscriptions are."""
        look = _Look(self._series_max)
        for led in self._subscriptions.all_led():
            try:
                machine = led.machine
            except RefusedError:
                continue  # its leadership ends, or has yet to begin
            async for mark in InSlices(machine.all_marks(), _TURN_COUNT):
                self._see(look, led, mark)
            async for definition, count in InSlices(machine.member_counts(), _TURN_COUNT):
                look.members.add((definition.topic, definition.name), count)
        self._times.keep(look.logs)
        self._last = look

    def _see(self, look: _Look, led: LedPartition, mark: LogMark) -> None:
        if (log := led.leadership.log(mark.topic_id)) is None:
            return  # the topic is just being removed
        place, now = (mark.topic_id, led.partition), self._clock.now()
        if place not in look.logs:
            look.logs.add(place)
            self._times.note(place, log.highwater, now)
        offset = max(mark.processed_end, log.start)
        labels = mark.entry.topic, mark.entry.name, str(led.partition)
        look.held.add(labels, log.kept.held_bytes(offset))
        look.missing.add(labels, offset - mark.processed_end)
        look.lag_bytes.add(labels, max(0, log.highwater - offset))
        look.lag_s.add(labels, self._times.age_s(place, offset, now))
        if isinstance(mark, LogQueue):
            look.open.add(labels, mark.queue.open_count)
            look.waiting.add(labels, mark.queue.waiting_count)
            look.dead.add(labels, mark.queue.letters.committed_count)

    def collect(self) -> Iterator[Metric]:
        look = self._last
        for series, name, meaning, labels in (
            (look.lag_bytes, "lag_bytes", "Committed and not known to be processed.", _OF_LOG),
            (look.lag_s, "lag_seconds", "So long the oldest of it waits at least.", _OF_LOG),
            (look.held, "held_bytes", "Kept by retention for it.", _OF_LOG),
            (look.missing, "missing_bytes", "Removed, and yet to be processed.", _OF_LOG),
            (look.members, "members", "Members, at the coordinator.", _OF_GROUP),
            (look.open, "open", "Messages of a queue that members have.", _OF_LOG),
            (look.waiting, "waiting", "Those that are to be dealt again.", _OF_LOG),
            (look.dead, "dead_letters", "Dead letters of a queue so far.", _OF_LOG),
        ):
            family = GaugeMetricFamily(f"octopi_subscription_{name}", meaning, labels=labels)
            yield series.fill(family, labels)
        counts = self._subscriptions.counts
        for counter, name, meaning, labels in (
            (counts.marks_stored, "marks_stored", "Marks committed.", _OF_LOG),
            (counts.fenced, "fenced", "Members refused or ended by a newer claim.", _OF_LOG),
            (counts.lost_bytes, "lost_bytes", "What members found the log to lack.", _OF_LOG),
            (counts.redelivered, "redelivered", "Messages dealt again.", _OF_LOG),
            (counts.rebalances, "rebalance", "Logs given to members.", _OF_GROUP),
        ):
            yield _counted(f"octopi_subscription_{name}", meaning, labels, counter)


def _counted(
    name: str, meaning: str, labels: tuple[str, ...], counter: LabelledCounter
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, meaning, labels=labels)
    for values, count in counter.series():
        family.add_metric(values, count)
    if counter.others:
        family.add_metric([""] * len(labels), counter.others)
    return family
