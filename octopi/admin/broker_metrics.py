"""The metrics of a broker: logs, replicas and consumers."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from heapq import nlargest
from operator import attrgetter
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from octopi.replication.partition_replica import Role
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.readers import Readers
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.streams.reading import ReaderCounts

CONSUMERS_COUNT_MAX: Final = 1_000
"""The number of consumers with series of their own: the ones with the most lag."""

_LOG: Final = ["topic", "partition"]
_CONSUMER: Final = [*_LOG, "consumer", "reading", "agent"]


class BrokerMetrics(Collector):
    """Collects them from the state of a broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        readers: Readers,
        streams: ReaderCounts,
        logs_max: int,
    ) -> None:
        """*streams*: those who read over HTTP."""
        self._logs = replicas.store
        self._manager = replicas
        self._readers = readers
        self._streams = streams
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
