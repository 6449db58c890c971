"""The oracle's rules about elections and in-sync sets where brokers decide together.

They are those of `octopi.simulation.invariants.elections`, checked when a value about a partition
is chosen instead of when a register decides.
"""

from __future__ import annotations

from octopi.coordination.agreed_partition import AgreedPartition
from octopi.simulation.invariants.elections import ElectionRules
from octopi.simulation.kernel.world import Event, StepEvent
from octopi.simulation.step_handlers import StepHandlers
from octopi.tracing import steps
from octopi.wire.messages import PartitionRecord


class AgreedElections(ElectionRules):
    """The rules about the leaders of a cluster without a register."""

    def _agreed_handlers(self) -> StepHandlers:
        """Those of a cluster without a register; none, if it has one."""
        handlers = StepHandlers()
        if self._cluster.is_ring:
            handlers.on(self._check_agreed, steps.A2Answering)
            handlers.on(self._note_agreed_deletions, steps.P6Committed)
            handlers.on(self._check_appointed, steps.E11Leading)
        return handlers

    def _check_agreed(self, event: Event) -> None:
        """Check what was chosen because of *event*."""
        agreed = self._cluster.agreed
        assert agreed is not None
        for before, now in agreed.news:
            # An epoch that a replica promised in a former try is spent when it is registered.
            if now.announced > before.announced and now.incarnations == before.incarnations:
                self._check_new_epoch(event, before.record, now.announced)
            if now.record != before.record:
                self._check_acceptances(event, now.record)
                self._check_record(event, now.record)
            if now.incarnations != before.incarnations:
                self._check_registered(event, before, now)

    def _check_registered(
        self, event: Event, before: AgreedPartition, now: AgreedPartition
    ) -> None:
        """Check that a broker which is registered anew and stays in sync has everything, also if
        what it lost was never on its device: it knows that it was lost."""
        record = now.record
        for one in set(now.incarnations).difference(before.incarnations):
            host = self._cluster.host_of(one.broker)
            if one.broker not in record.in_sync or not self._has_its_disk(one.broker):
                continue
            node = self._cluster.nodes[host]
            member = node.ring.member if node.ring is not None else None
            partitions = None if member is None else member.partitions
            runs = node.host.is_up and partitions is not None and partitions.me == one
            if runs and not node.has_lost_files:
                for log in self._live_logs(record.partition):
                    self._require_held(event, log, host)

    def _check_new_epoch(self, event: Event, record: PartitionRecord, epoch: int) -> None:
        for broker in record.in_sync:
            host = self._cluster.host_of(broker)
            promised = self._promised.get((host, record.partition), 0)
            if self._has_its_disk(broker) and promised >= epoch:
                text = f"epoch {epoch} of partition {record.partition} is announced as new; {host} "
                self._break("epoch-used-again", f"{text}has promised epoch {promised}", event)

    def _check_appointed(self, event: StepEvent[steps.E11Leading]) -> None:
        record = self._view.state.partitions.get(event.step.partition)
        if record is not None and record.epoch < event.step.epoch:
            text = f"{event.host} leads partition {record.partition} in epoch {event.step.epoch}; "
            self._break("two-leaders", f"{text}only epoch {record.epoch} is decided", event)

    def _note_agreed_deletions(self, event: Event) -> None:  # the view knows
        agreed = self._cluster.agreed
        assert agreed is not None
        for topic in agreed.deleted:
            self._forget_topic(topic.topic, topic.topic_id)
