"""The metrics of a broker without a register: its place on the ring, what it leads and decides, and
what it knows of the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from octopi.coordination.in_sync_changes import newest_set
from octopi.ring.chord import Chord
from octopi.roles.broker.ring.member import RingMember
from octopi.roles.broker.ring.node import RingBroker
from octopi.roles.broker.ring.partitions import RingPartitions

_NOTED: Final = (
    ("octopi_elections", "How often this broker became a leader.", "leader"),
    ("octopi_elections_begun", "Elections that this broker began.", "epoch_announced"),
    ("octopi_in_sync_changes", "Changes of in-sync sets by this broker.", "in_sync"),
    (
        "octopi_partitions_recovered",
        "Leaders appointed although acknowledged messages may be lost.",
        "recovered",
    ),
    ("octopi_brokers_joined", "How often this broker joined.", "broker_joined"),
    ("octopi_brokers_lost", "Brokers behind this one on the ring that were lost.", "broker_left"),
)


class RingMetrics(Collector):
    """Collects them from the state of a broker."""

    def __init__(self, node: RingBroker) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        member = self._node.member
        if member is None:
            return
        yield from _of_ring(member)
        if member.partitions is not None:
            yield from self._of_partitions(member, member.partitions)
        counts = member.events.counts
        for name, meaning, kind in _NOTED:
            yield CounterMetricFamily(name, meaning, value=counts[kind])

    def _of_partitions(self, member: RingMember, partitions: RingPartitions) -> Iterator[Metric]:
        is_there = partitions.pulses.is_there
        known = member.routes.brokers(())
        states = Counter("live" if is_there(one.broker) else "away" for one in known)
        brokers = GaugeMetricFamily("octopi_brokers", "Known brokers.", labels=["state"])
        for state in ("live", "away"):
            brokers.add_metric([state], states[state])
        yield brokers
        records = [one.agreed.record for one in partitions]
        led = partitions.pulses.led()
        decides = sum(
            any(one.broker == partitions.me.broker for one in machine.value.members)
            for machine in partitions
        )
        decider = self._node.decider
        topics = 0 if decider is None else decider.topics.topic_count
        for name, meaning, value in (
            ("octopi_topics", "Topics whose record this broker keeps.", topics),
            ("octopi_partitions", "Partitions of the cluster.", len(records)),
            (
                "octopi_partitions_without_leader",
                "Partitions whose leader is not there, as far as this broker knows.",
                sum(not (one.in_sync and is_there(one.leader)) for one in records),
            ),
            (
                "octopi_partitions_under_replicated",
                "Partitions with a replica that is not in sync, as far as this broker knows.",
                sum(set(one.replicas) != newest_set(one) for one in records),
            ),
            ("octopi_partitions_led", "Partitions that this broker leads.", len(led)),
            (
                "octopi_partitions_fenced",
                "Partitions that this broker leads without the right to.",
                sum(not may_act for _, may_act in led),
            ),
            ("octopi_agreements", "Partitions that this broker's acceptor decides about.", decides),
        ):
            yield GaugeMetricFamily(name, meaning, value=value)
        refusals = CounterMetricFamily(
            "octopi_agreement_refusals", "Proposals that were refused here.", labels=["reason"]
        )
        for reason in ("ballot", "leader"):
            refusals.add_metric([reason], partitions.refusals[reason])
        yield refusals


def _of_ring(member: RingMember) -> Iterator[Metric]:
    chord, chosen = member.chord, member.keeper.chosen
    yield GaugeMetricFamily(
        "octopi_ring_member", "1 if this broker is in the ring.", value=member.is_member
    )
    yield GaugeMetricFamily(
        "octopi_ring_record_version",
        "Changes of the cluster's record, as far as this broker knows.",
        value=0 if chosen is None else chosen.value.change,
    )
    yield from _neighbours(chord)
    yield CounterMetricFamily(
        "octopi_ring_joins_refused",
        "How often this broker let another one not in.",
        value=member.place.refused_joins,
    )


def _neighbours(chord: Chord | None) -> Iterator[Metric]:
    neighbours = GaugeMetricFamily(
        "octopi_ring_neighbours", "Known neighbours on the ring.", labels=["side"]
    )
    book = GaugeMetricFamily(
        "octopi_ring_book_brokers", "Brokers in the address book.", labels=["state"]
    )
    if chord is not None:
        known = chord.neighbours
        neighbours.add_metric(["before"], known.predecessor is not None)
        neighbours.add_metric(["behind"], len(known.successors))
        silent = sum(one.is_silent for one in chord.book)
        book.add_metric(["answering"], len(chord.book) - silent)
        book.add_metric(["silent"], silent)
    yield from (neighbours, book)
