"""Metrics of relays: how this one takes part in each relay partition, and what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from octopi.environment import Clock
from octopi.identifiers import BrokerId, PartitionId
from octopi.relay.member import RelayMember
from octopi.relay.memory import RelayMemory
from octopi.relay.messages import RelayStatus
from octopi.roles.broker.relay.partition import RelayPartition
from octopi.roles.broker.relay.view_service import described

_OF_PARTITION: Final = ("partition",)


class RelayMetrics(Collector):
    """The metrics of a broker's relay partitions."""

    def __init__(
        self,
        clock: Clock,
        partitions: Mapping[PartitionId, RelayPartition],
        clocks: Callable[[], Mapping[BrokerId, float]],
        memory: RelayMemory,
    ) -> None:
        """*clocks*: by how much the clocks of other relays are ahead (s).  *memory*: the bound for
        all streams."""
        self._clock = clock
        self._partitions = partitions
        self._clocks = clocks
        self._memory = memory

    def collect(self) -> Iterator[Metric]:
        now = self._clock.now()
        partitions = self._partitions.values()
        if not partitions:
            return  # a broker with logs alone has none of these metrics
        held = [(one, one.member) for one in partitions if one.member is not None]
        found = [(one.counts, described(member, now)) for one, member in held]
        status = GaugeMetricFamily(
            "octopi_relay_status", "1 for the present one.", labels=("partition", "status")
        )
        for _, one in found:
            for known in RelayStatus:
                is_present = one.state == known.name.lower()
                status.add_metric([str(one.partition), known.name.lower()], is_present)
        yield status
        gauges: list[tuple[str, str, Sequence[float]]] = [
            ("generation", "Of the timeline.", [one.generation for _, one in found]),
            ("epoch", "Of the timeline.", [one.epoch for _, one in found]),
            ("sequencer", "1 if it orders here.", [member.is_sequencer for _, member in held]),
            ("heard", "Members heard, itself included.", [len(one.heard) for _, one in found]),
            ("streams", "Streams held.", [one.streams for _, one in found]),
            ("repairing", "Streams under repair.", [one.repairs for _, one in found]),
            ("buffer_bytes", "Held in memory.", [one.held_bytes for _, one in found]),
            ("uncommitted_bytes", "Not by a quorum.", [one.uncommitted_bytes for _, one in found]),
        ]
        for name, meaning, values in gauges:
            gauge = GaugeMetricFamily(f"octopi_relay_{name}", meaning, labels=_OF_PARTITION)
            for (_, one), value in zip(found, values, strict=True):
                gauge.add_metric([str(one.partition)], value)
            yield gauge
        counters: list[tuple[str, str, Sequence[float]]] = [
            ("timelines", "It became part of so many.", [one.timelines for one, _ in found]),
            ("emptied", "It gave up what it held.", [one.emptied for _, one in found]),
            ("overwritten", "Gaps of readers.", [one.gaps for one, _ in found]),
            ("digest_conflicts", "No digest had a quorum.", [one.conflicts for one, _ in found]),
            ("fenced_seconds", "Without a quorum.", [one.fenced_s(now) for one, _ in found]),
        ]
        for name, meaning, values in counters:
            counter = CounterMetricFamily(f"octopi_relay_{name}", meaning, labels=_OF_PARTITION)
            for (_, one), value in zip(found, values, strict=True):
                counter.add_metric([str(one.partition)], value)
            yield counter
        yield from self._repairs([member for _, member in held])
        received = [one for one in partitions if any(one.counts.quorum.counts)]
        yield _quorum([one for one in partitions if one.member is not None or one in received])
        skew = GaugeMetricFamily(
            "octopi_relay_clock_skew_seconds", "Of another relay.", labels=("broker",)
        )
        for broker, ahead_s in self._clocks().items():
            skew.add_metric([str(broker)], ahead_s)
        yield skew
        yield GaugeMetricFamily(
            "octopi_relay_memory_bytes", "For all streams together.", self._memory.bytes_max
        )
        yield CounterMetricFamily(
            "octopi_relay_evicted_bytes", "For want of memory.", self._memory.evicted_bytes
        )

    def _repairs(self, members: Sequence[RelayMember]) -> Iterator[Metric]:
        labels = ("partition", "phase")
        entered = CounterMetricFamily("octopi_relay_repairs", "They entered it.", labels=labels)
        seconds = CounterMetricFamily("octopi_relay_repair_seconds", "In it.", labels=labels)
        failed = CounterMetricFamily(
            "octopi_relay_repairs_failed", "Nobody could help.", labels=_OF_PARTITION
        )
        for member in members:
            partition, repaired = str(member.relay_set.partition), member.repaired
            for phase, count in repaired.entered.items():
                entered.add_metric([partition, phase.value], count)
                seconds.add_metric([partition, phase.value], repaired.seconds[phase])
            failed.add_metric([partition], repaired.failed)
        yield from (entered, seconds, failed)


def _quorum(partitions: Sequence[RelayPartition]) -> Metric:
    family = HistogramMetricFamily(
        "octopi_relay_quorum_seconds", "Until a quorum has written it.", labels=_OF_PARTITION
    )
    for one in partitions:
        family.add_metric(
            [str(one.number)], one.counts.quorum.cumulative(), one.counts.quorum.sum_s
        )
    return family
