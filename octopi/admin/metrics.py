"""Metrics, in the Prometheus text format: collected from a node's state when it is scraped.

This module counts nothing, so a node is as fast whether or not its metrics are read.  Each node has
a registry of its own.  What only a broker has is in `octopi.admin.broker_metrics`, and what only a
register has in `octopi.admin.register_metrics`.  docs/metrics.md explains each metric.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from octopi.admin.collectors import LOGS_COUNT_MAX, SlowCollector
from octopi.admin.node_views import NodeView
from octopi.printable import printable
from octopi.transport.memory_budget import MemoryBudget
from octopi.transport.server_statistics import ServerStatistics
from octopi.wire.messages import TYPE_NAMES

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

SUBJECTS_COUNT: Final = 10
"""The number of subjects whose memory is shown: the ones that hold the most."""


class Metrics:
    """The registry of one node."""

    def __init__(self, node: NodeView, *, logs_max: int = LOGS_COUNT_MAX) -> None:
        """*logs_max*: the number of logs with series of their own."""
        self._registry = CollectorRegistry()
        of_role = node.collectors(logs_max)
        self._slow = [one for one in of_role if isinstance(one, SlowCollector)]
        for collector in (_Traffic(node), *of_role):
            self._registry.register(_Printable(collector))
        ProcessCollector(registry=self._registry)

    async def look(self) -> None:
        """Collect the metrics that take long, and let other tasks run meanwhile.  `text` shows the
        last result."""
        for one in self._slow:
            await one.look()

    def text(self) -> bytes:
        """All metrics, as they are now, except those that `look` has collected."""
        return generate_latest(self._registry)


class _Printable(Collector):
    """The metrics of another collector, with control characters removed from labels.  Names of
    agents and addresses come from other programs, and the text format escapes only line ends."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def describe(self) -> Iterable[Metric]:
        return []  # not needed at registration, when the node may not be ready

    def collect(self) -> Iterator[Metric]:
        for metric in self._collector.collect():
            metric.samples = [
                sample
                if all(map(str.isprintable, sample.labels.values()))
                else sample._replace(
                    labels={name: printable(value) for name, value in sample.labels.items()}
                )
                for sample in metric.samples
            ]
            yield metric


class _Traffic(Collector):
    """The metrics of every node: connections and answers."""

    def __init__(self, node: NodeView) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        facts, traffic = self._node.facts(), self._node.traffic
        info = {"role": facts.role, "agent": facts.agent, "cluster": facts.cluster}
        info["broker"] = "" if facts.broker is None else str(facts.broker)
        yield InfoMetricFamily("octopi_node", "Identity of the node.", info)
        ready = GaugeMetricFamily("octopi_ready", "1 if clients can use the node.")
        ready.add_metric([], not self._node.why_not_ready())
        yield ready
        yield from _connections(traffic)
        yield from _memory(traffic.memory)
        yield _latencies(traffic)


def _connections(traffic: ServerStatistics) -> Iterator[Metric]:
    now = GaugeMetricFamily("octopi_connections", "Open connections.", labels=["endpoint"])
    for path, count in Counter(one.path for one in traffic.connections.values()).items():
        now.add_metric([path], count)
    yield now
    yield _counted(
        "octopi_connections_accepted",
        "Connections that were welcomed.",
        "endpoint",
        traffic.accepted,
    )
    yield _counted(
        "octopi_connections_refused",
        "Connections that were refused, by status.",
        "status",
        traffic.refused,
    )


def _memory(memory: MemoryBudget) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "octopi_memory_budget_bytes",
        "Memory that all connections may hold.",
        value=memory.total_bytes,
    )
    held = GaugeMetricFamily(
        "octopi_memory_bytes", "Memory that connections hold.", labels=["kind"]
    )
    for usage in memory.usage():
        held.add_metric([usage.kind], usage.held_bytes)
    yield held
    yield GaugeMetricFamily(
        "octopi_memory_waiting", "Subjects that wait for memory.", value=memory.waiting_count
    )
    most = GaugeMetricFamily(
        "octopi_memory_subject_bytes",
        "Memory of the subjects that hold the most.",
        labels=["subject"],
    )
    most.add_metric([""], memory.used_bytes)
    for name, size_bytes in memory.largest(SUBJECTS_COUNT):
        most.add_metric([name], size_bytes)
    yield most


def _counted(name: str, meaning: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, meaning, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


def _latencies(traffic: ServerStatistics) -> Metric:
    family = HistogramMetricFamily(
        "octopi_request_seconds",
        "From receiving a request to posting its answer.",
        labels=["request"],
    )
    for request, histogram in list(traffic.latencies.by_request.items()):
        family.add_metric([TYPE_NAMES[request]], histogram.cumulative(), histogram.sum_s)
    return family
