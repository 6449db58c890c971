"""The metrics of a register: members, topics and decisions."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from octopi.roles.register.node import RegisterNode


class RegisterMetrics(Collector):
    """Collects them from the state of a register."""

    def __init__(self, node: RegisterNode) -> None:
        self._node = node

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
        shedding = self._node.shedding
        loads = GaugeMetricFamily(
            "octopi_shed_load", "Load of the partitions that a broker leads.", labels=["broker"]
        )
        for broker, load in sorted(shedding.of_brokers().items()):
            if load is not None:
                loads.add_metric([str(broker)], load)
        yield loads
        yield GaugeMetricFamily(
            "octopi_shed_hot_partitions",
            "Partitions that are too much for one broker.",
            value=shedding.hot_count,
        )
        yield CounterMetricFamily(
            "octopi_shed_moves", "Leaderships moved by load.", value=shedding.moved_count
        )
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
