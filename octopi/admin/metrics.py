"""Metrics, in the Prometheus text format: collected from a node's state when it is scraped.

This module counts nothing, so a node is as fast whether or not its metrics are read.  Each node has
a registry of its own.  docs/metrics.md explains each metric.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from heapq import nlargest
from operator import attrgetter
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

from octopi.admin.node_views import BrokerNodeView, NodeView, RegisterNodeView
from octopi.admin.subscription_metrics import SubscriptionMetrics
from octopi.metrics.latencies import BOUNDS_S
from octopi.printable import printable
from octopi.replication.partition_replica import Role
from octopi.roles.broker.local_log import LocalLog
from octopi.transport.memory_budget import MemoryBudget
from octopi.transport.server_statistics import ServerStatistics
from octopi.wire.messages import TYPE_NAMES

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

LOGS_COUNT_MAX: Final = 2_000
"""The number of logs with series of their own: the ones with the most traffic.  More would occupy
the node for longer than a tenth of a second."""

CONSUMERS_COUNT_MAX: Final = 1_000
"""The number of consumers with series of their own: the ones with the most lag."""

SUBJECTS_COUNT: Final = 10
"""The number of subjects whose memory is shown: the ones that hold the most."""

_LOG: Final = ["topic", "partition"]
_CONSUMER: Final = [*_LOG, "consumer", "reading", "agent"]


class Metrics:
    """The registry of one node."""

    def __init__(self, node: NodeView, *, logs_max: int = LOGS_COUNT_MAX) -> None:
        """*logs_max*: the number of logs with series of their own."""
        self._registry = CollectorRegistry()
        self._subscriptions: SubscriptionMetrics | None = None
        self._registry.register(_Printable(_Traffic(node)))
        if isinstance(node, BrokerNodeView):
            self._registry.register(_Printable(_Broker(node, logs_max)))
            self._subscriptions = SubscriptionMetrics(node.node)
            self._registry.register(_Printable(self._subscriptions))
        elif isinstance(node, RegisterNodeView):
            self._registry.register(_Printable(_Register(node)))
        ProcessCollector(registry=self._registry)

    async def look(self) -> None:
        """Collect the metrics that take long, and let other tasks run meanwhile.  `text` shows the
        last result."""
        if self._subscriptions is not None:
            await self._subscriptions.look()

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
        total, buckets = 0, []
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), histogram.counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        family.add_metric([TYPE_NAMES[request]], buckets, histogram.sum_s)
    return family


class _Broker(Collector):
    """The metrics of a broker: logs, replicas and consumers."""

    def __init__(self, view: BrokerNodeView, logs_max: int) -> None:
        self._logs = view.node.replicas.store
        self._manager = view.node.replicas
        self._readers = view.node.parts.readers
        self._streams = view.node.streams.readers
        self._logs_max = logs_max

    def collect(self) -> Iterator[Metric]:
        logs = nlargest(
            self._logs_max, self._logs, key=lambda one: one.appended_bytes + one.delivered_bytes
        )
        yield GaugeMetricFamily("octopi_logs", "Logs on this broker.", value=len(self._logs))
        yield from self._of_disk()
        yield from self._of_logs(logs)
        yield from self._of_replicas({(one.topic.topic_id, one.partition) for one in logs})
        yield from self._of_consumers()

    def _of_disk(self) -> Iterator[Metric]:
        status = self._manager.status
        if (room := status.disk.room()) is not None:
            yield GaugeMetricFamily(
                "octopi_disk_free_bytes", "Free space on the broker's disk.", value=room.free_bytes
            )
            yield GaugeMetricFamily(
                "octopi_disk_total_bytes", "Size of the broker's disk.", value=room.total_bytes
            )
        full = bool(status.disk.trouble)
        yield GaugeMetricFamily("octopi_disk_full", "1 if the disk is full.", value=full)
        replicas = list(self._manager.replicas)
        troubled = len(replicas) if full else len(status.troubles(replicas))
        yield GaugeMetricFamily(
            "octopi_replicas_troubled",
            "Replicas of this broker that take no records.",
            value=troubled,
        )
        retired = self._logs.retired
        yield GaugeMetricFamily(
            "octopi_retired_replicas",
            "Replicas that were given up and are kept for a while.",
            value=retired.count,
        )
        yield GaugeMetricFamily(
            "octopi_retired_bytes", "Size of retired replicas.", value=retired.size_bytes
        )

    def _of_logs(self, logs: Iterable[LocalLog]) -> Iterator[Metric]:
        start = GaugeMetricFamily(
            "octopi_log_start_bytes", "Offset of the oldest record.", labels=_LOG
        )
        end = GaugeMetricFamily("octopi_log_end_bytes", "Log end.", labels=_LOG)
        kept = GaugeMetricFamily(
            "octopi_log_held_bytes", "Kept for subscriptions alone.", labels=_LOG
        )
        mark = GaugeMetricFamily("octopi_highwater_bytes", "Committed below this.", labels=_LOG)
        failed = GaugeMetricFamily("octopi_log_failed", "1 if the log has a fault.", labels=_LOG)
        refused = CounterMetricFamily(
            "octopi_refused_cuts", "Refusals to cut committed records.", labels=_LOG
        )
        messages = CounterMetricFamily("octopi_appended_messages", "Records appended.", labels=_LOG)
        taken = CounterMetricFamily("octopi_appended_bytes", "Bytes appended.", labels=_LOG)
        given = CounterMetricFamily("octopi_delivered_bytes", "Bytes to consumers.", labels=_LOG)
        for log in logs:
            labels = [log.topic.topic, str(log.partition)]
            start.add_metric(labels, log.start)
            end.add_metric(labels, log.end)
            kept.add_metric(labels, log.held_bytes)
            mark.add_metric(labels, log.highwater)
            failed.add_metric(labels, bool(log.fault_text))
            refused.add_metric(labels, log.refused_cuts)
            messages.add_metric(labels, log.appended_count)
            taken.add_metric(labels, log.appended_bytes)
            given.add_metric(labels, log.delivered_bytes)
        yield from (start, end, kept, mark, failed, refused, messages, taken, given)

    def _of_replicas(self, shown: Container[tuple[str, int]]) -> Iterator[Metric]:
        one = ["partition"]
        leads = GaugeMetricFamily(
            "octopi_partition_leads", "1 if this broker leads the partition.", labels=one
        )
        epoch = GaugeMetricFamily("octopi_partition_epoch", "Epoch that was promised.", labels=one)
        in_sync = GaugeMetricFamily(
            "octopi_partition_in_sync_replicas",
            "In-sync replicas, the leader included.",
            labels=one,
        )
        wanted = GaugeMetricFamily(
            "octopi_partition_replicas", "Replicas it should have.", labels=one
        )
        lag = GaugeMetricFamily(
            "octopi_replica_lag_bytes",
            "Bytes that this leader has and a follower has not acknowledged.",
            labels=[*_LOG, "follower"],
        )
        for replica in self._manager.replicas:
            machine, labels = replica.machine, [str(replica.partition)]
            leads.add_metric(labels, machine.role == Role.LEADER)
            epoch.add_metric(labels, machine.state.promised)
            leader = machine.leader
            if leader is None:
                continue
            in_sync.add_metric(labels, len(leader.in_sync))
            wanted.add_metric(labels, len(leader.replicas))
            for topic_id, led in leader.logs.items():
                if (topic_id, replica.partition) not in shown:
                    continue
                log = replica.logs.get(topic_id)
                for follower in sorted(leader.replicas - {leader.broker}) if log else ():
                    held = led.acknowledged_end(follower)
                    missing = led.log.end - (led.log.start if held is None else held)
                    if log is not None:
                        lag.add_metric([log.topic.topic, *labels, str(follower)], max(0, missing))
        yield from (leads, epoch, in_sync, wanted, lag)

    def _of_consumers(self) -> Iterator[Metric]:
        readings = [one.describe() for one in self._readers.readings]
        count = GaugeMetricFamily("octopi_readings", "Open readings.", labels=_LOG)
        most = GaugeMetricFamily(
            "octopi_consumer_lag_bytes_max", "Lag of the slowest consumer.", labels=_LOG
        )
        each = GaugeMetricFamily(
            "octopi_consumer_lag_bytes",
            "Committed and not yet dealt with by the consumer's program.",
            labels=_CONSUMER,
        )
        sent = GaugeMetricFamily(
            "octopi_consumer_sent_lag_bytes",
            "Bytes that are committed and not yet sent to the consumer.",
            labels=_CONSUMER,
        )
        by_log: dict[tuple[str, int], list[int]] = {}
        for one in readings:
            by_log.setdefault((one.topic, one.partition), []).append(one.least_lag_bytes)
        for (topic, partition), found in nlargest(
            self._logs_max, by_log.items(), key=lambda pair: max(pair[1])
        ):
            count.add_metric([topic, str(partition)], len(found))
            most.add_metric([topic, str(partition)], max(found))
        for one in nlargest(CONSUMERS_COUNT_MAX, readings, key=attrgetter("least_lag_bytes")):
            labels = [one.topic, str(one.partition), one.peer, str(one.request), one.agent]
            sent.add_metric(labels, one.sent_lag_bytes)
            if one.lag_bytes is not None:
                each.add_metric(labels, one.lag_bytes)
        waiting = GaugeMetricFamily(
            "octopi_stream_readers", "Readers over HTTP that wait for content.", labels=["mode"]
        )
        waiting.add_metric(["long-poll"], self._streams.long_poll)
        waiting.add_metric(["sse"], self._streams.sse)
        yield from (count, most, each, sent, waiting)


class _Register(Collector):
    """The metrics of a register: members, topics and decisions."""

    def __init__(self, view: RegisterNodeView) -> None:
        self._node = view.node

    def collect(self) -> Iterator[Metric]:
        controller = self._node.controller
        state = controller.state
        brokers = GaugeMetricFamily(
            "octopi_brokers", "Brokers by state, as the register sees them.", labels=["state"]
        )
        live = sum(controller.is_live(one) for one in state.brokers)
        brokers.add_metric(["live"], live)
        brokers.add_metric(["away"], len(state.brokers) - live)
        yield brokers
        records = list(state.partitions.values())
        led = [controller.view.partition(one).leader is not None for one in records]
        behind = [set(one.in_sync) != set(one.replicas) for one in records]
        for name, meaning, value in (
            ("octopi_topics", "Topics.", state.topic_count),
            (
                "octopi_unserved_topics",
                "Topics that a broker has and clients can't use.",
                len(controller.unserved.found()),
            ),
            ("octopi_partitions", "Partitions that are placed on brokers.", len(records)),
            ("octopi_partitions_without_leader", "Partitions without a leader.", led.count(False)),
            (
                "octopi_partitions_under_replicated",
                "Partitions with a replica that is not in sync.",
                sum(behind),
            ),
            ("octopi_journal_bytes", "Length of the journal.", self._node.journal_bytes),
        ):
            yield GaugeMetricFamily(name, meaning, value=value)
        counts = self._node.events.counts
        for name, meaning, kind in (
            ("octopi_elections", "Leaders appointed.", "leader"),
            ("octopi_in_sync_changes", "Changes of in-sync sets or replicas.", "in_sync"),
            (
                "octopi_partitions_recovered",
                "Leaders appointed although acknowledged messages may be lost.",
                "recovered",
            ),
            ("octopi_brokers_joined", "Joins of brokers.", "broker_joined"),
            ("octopi_brokers_lost", "Ends of brokers' membership connections.", "broker_left"),
        ):
            yield CounterMetricFamily(name, meaning, value=counts[kind])
