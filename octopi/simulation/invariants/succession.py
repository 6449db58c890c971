"""The oracle's rules about leaders that begin with what they have.

Such a leader is chosen if no in-sync replica is whole, so committed records may be lost.  The
register decides by itself if all in-sync replicas lost only what was in their memories; in every
other case an operator orders it (docs/protocol.md, "When all that were in sync lost data").  If no
replica remains, the operator orders that the partition begins again empty.

In each case the best of the allowed replicas must lead, and the known loss must be reported.  From
then on the committed records are those that the leader has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from octopi.identifiers import BrokerId, Offset
from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.invariants.cluster_facts import ClusterFacts
from octopi.simulation.invariants.committed_log import CommittedLog
from octopi.simulation.invariants.recoveries import Accepted, best_by_order, better_than
from octopi.simulation.kernel.world import Event, StepEvent, Violation
from octopi.tracing import steps
from octopi.tracing.election import DecisionStep
from octopi.wire.messages import PartitionRecord

LOST: Final = "lost"
"""The name of the event in which the committed records of a log from ``end`` on are given up."""


class Succession(ClusterFacts):
    """Observes which leaders begin with what they have, and what is lost by that."""

    def __init__(
        self, cluster: SimulatedCluster, report: Callable[[Violation], None] | None = None
    ) -> None:
        super().__init__(cluster, report)
        self._orders: set[int] = set()
        """Partitions for which an operator ordered that the best replica leads."""
        self._empty_on: dict[int, int] = {}
        """Those of them that begin again empty -> the broker that the operator named."""

    def _note_order(self, event: Event) -> None:
        partition = event.facts["partition"]
        self._orders.add(partition)
        self._empty_on.pop(partition, None)
        if (broker := event.facts.get("empty_on")) is not None:
            self._empty_on[partition] = broker

    def _note_set_aside(self, event: StepEvent[steps.D6SetAside]) -> None:
        step = event.step
        self._cut_to_be.discard((event.host, step.topic, step.partition))

    def _note_recovery(self, event: Event) -> None:
        for record in self._recoveries.found(event):
            self._check_recovery(event, record)

    def _check_recovery(self, event: Event, record: PartitionRecord) -> None:
        """Check that the leader of *record*, which begins with what it has, is the best of the
        allowed replicas, and that the known loss is reported."""
        before = self._record_before(record)
        accepted = self._recoveries.accepted(record)
        logs = self._live_logs(record.partition)
        is_said = record.recovered_epoch == record.epoch
        rule, wrong = "lost-too-much", ""
        if record.partition in self._empty_on:
            wrong = self._fault_of_empty_start(record, before)
        elif record.partition in self._orders:
            wrong = self._fault_of_order(record, before, accepted, logs)
        else:
            if is_said and (wrong := self._fault_of_deciding_alone(record, before, accepted, logs)):
                rule = "lost-unasked"
            wrong = wrong or self._fault_of_choice(record, before, accepted, logs)
        if is_said and not wrong:
            rule, wrong = "lost-untold", self._fault_of_report(event, record, accepted, logs)
        if wrong:
            self._break(rule, wrong, event)
        else:
            self._give_up(event, record, accepted, logs)

    def _give_up(
        self,
        event: Event,
        record: PartitionRecord,
        accepted: Mapping[BrokerId, Accepted],
        logs: Sequence[CommittedLog],
    ) -> None:
        """Give up the committed records that the leader of *record* lacks."""
        is_ordered = record.partition in self._orders
        self._orders.discard(record.partition)
        is_empty = self._empty_on.pop(record.partition, None) is not None
        host = self._cluster.host_of(record.leader)
        said = accepted.get(record.leader) if is_ordered else None
        if is_ordered:
            self._accepted_at[record.leader, record.partition] = self._view.version
            self._serving_less.discard((host, record.partition))
        for log in logs:
            if is_empty:
                log.removed_end = 0  # offsets begin at 0 again
            elif is_ordered:
                # The order also gives up a first segment that the leader lacks.
                log.removed_end = max(log.removed_end, self._replica(host, log).start)
            end = self._agreed(host, log)
            topic_id = self._topic_id(log)
            if said is not None and topic_id in said.damaged:
                # The leader removes the records behind the damage from its log.
                end = min(end, said.ends[topic_id])
                if self._replica(host, log).end > said.ends[topic_id]:
                    self._cut_to_be.add((host, log.topic, log.partition))
            if (
                end < log.end
                and not is_ordered
                and not self._counts_cache(log)
                and self._has_its_disk(record.leader)
            ):
                text = f"{log.name} is flushed before records are acknowledged, and its committed "
                text += f"records from {end} to {log.end} are given up"
                self._break("lost-too-much", text, event, *log.committed_by(Offset(end)))
                return
            if end < log.end:
                self._world.note(LOST, topic=log.topic, partition=log.partition, end=end)
                log.cut(end)
            for key, had in self._had_on_device.items():
                if key[1:] == (log.topic, log.partition):
                    self._had_on_device[key] = min(had, end)

    # --- why a decision is wrong, in words; empty if it is right --------------------------

    def _fault_of_choice(
        self,
        record: PartitionRecord,
        before: PartitionRecord,
        accepted: Mapping[BrokerId, Accepted],
        logs: Sequence[CommittedLog],
    ) -> str:
        """Why the register chose the wrong leader: if all in-sync replicas lost what was in their
        memories, the best of them must lead."""
        members = {*before.in_sync, *before.lost} or set(before.replicas)
        if record.leader not in members:
            text = f"broker {record.leader} leads partition {record.partition} with what it has; "
            return f"{text}brokers {sorted(members)} were in sync last"
        sound = [
            one
            for one in members
            if self._has_its_disk(one) and not (one in accepted and accepted[one].damaged)
        ]
        newest = max((self._log_epoch(one, record) for one in sound), default=0)
        sound = [one for one in sound if self._log_epoch(one, record) == newest]
        if more := self._who_has_more(record, sound, logs):
            return more
        ends = {
            one: [self._replica(self._cluster.host_of(one), log).end for log in logs]
            for one in sound
            if one not in self._data_lost_at
        }
        return better_than(record.leader, ends)

    def _fault_of_deciding_alone(
        self,
        record: PartitionRecord,
        before: PartitionRecord,
        accepted: Mapping[BrokerId, Accepted],
        logs: Sequence[CommittedLog],
    ) -> str:
        """Why the register may not decide *record* without an operator's order."""
        text = f"no operator ordered that broker {record.leader} leads partition "
        text += f"{record.partition} with what it has; "
        if before.in_sync:
            return f"{text}brokers {before.in_sync} were in sync last, and may come back"
        if missing := set(before.lost) - accepted.keys():
            text += f"brokers {sorted(missing)} were in sync until they lost data, "
            return f"{text}and may have more"
        said = accepted.get(record.leader)
        host = self._cluster.host_of(record.leader)
        for log in logs:
            had = self._had_on_device.get((host, log.topic, log.partition), 0)
            if said is None or said.damaged or self._agreed(host, log) < min(had, log.end):
                return f"{text}it lacks records of {log.name} that were on its device"
        return ""

    def _fault_of_order(
        self,
        record: PartitionRecord,
        before: PartitionRecord,
        accepted: Mapping[BrokerId, Accepted],
        logs: Sequence[CommittedLog],
    ) -> str:
        """Why an operator's order led to the wrong leader: the best of all remaining replicas must
        lead, whether it was in sync last or not."""
        there = {one: said for one, said in accepted.items() if self._is_there(one)}
        topics = [self._topic_id(log) for log in logs]
        best, ends = best_by_order(before, there, topics)
        if record.leader not in best:
            text = f"by an operator's order broker {record.leader} leads partition "
            return f"{text}{record.partition}; one of brokers {sorted(best)} must lead"
        whole = [one for one in best if not accepted[one].damaged]
        return self._who_has_more(record, whole, logs) or better_than(record.leader, ends)

    def _fault_of_empty_start(self, record: PartitionRecord, before: PartitionRecord) -> str:
        """Why a partition may not begin again empty like this by an operator's order: no replica
        may remain, and the partition must be on the named broker, and on no other."""
        named = self._empty_on[record.partition]
        text = f"partition {record.partition} begins again empty on broker {record.leader}"
        if left := [one for one in before.replicas if self._is_there(one)]:
            return f"{text}; brokers {left} run, and have replicas of it"
        if record.leader != named or not record.replicas == record.in_sync == [named]:
            return f"{text}; the operator named broker {named}, and the decision is {record}"
        return ""

    def _who_has_more(
        self, record: PartitionRecord, brokers: Sequence[BrokerId], logs: Sequence[CommittedLog]
    ) -> str:
        """Which of *brokers* has more committed records than the leader in one of *logs*, and fewer
        in none."""
        held = {
            one: [self._agreed(self._cluster.host_of(one), log) for log in logs]
            for one in {*brokers, record.leader}
        }
        kept = held[record.leader]
        for one in brokers:
            more = [ours < theirs for ours, theirs in zip(kept, held[one], strict=True)]
            less = [ours > theirs for ours, theirs in zip(kept, held[one], strict=True)]
            if any(more) and not any(less):
                text = f"broker {record.leader} leads partition {record.partition} with what it"
                return f"{text} has; broker {one} has more of {logs[more.index(True)].name}"
        return ""

    def _fault_of_report(
        self,
        event: Event,
        record: PartitionRecord,
        accepted: Mapping[BrokerId, Accepted],
        logs: Sequence[CommittedLog],
    ) -> str:
        """What the report of the loss lacks: it must name everything that the leader lacks and
        another replica has or had."""
        step = event.about
        losses = step.losses if isinstance(step, DecisionStep) else []
        told = {one.topic_id: (one.kept_end, one.known_end) for each in losses for one in each}
        for log in logs:
            topic_id = self._topic_id(log)
            said = accepted.get(record.leader)  # None if the partition begins again empty
            kept_end = said.ends.get(topic_id, 0) if said is not None else 0
            known = (one.known_ends.get(topic_id, 0) for one in accepted.values())
            known_end = max(known, default=0)
            if known_end > kept_end and told.get(topic_id) != (kept_end, known_end):
                text = f"broker {record.leader} leads {log.name}, and has it up to {kept_end}; a "
                text += f"replica has it, or had it, up to {known_end}; the reported loss is "
                return text + str(told.get(topic_id, "nothing"))
        return ""

    # --- the state of the cluster --------------------------------------------------------

    def _record_before(self, record: PartitionRecord) -> PartitionRecord:
        """The record that *record* replaces."""
        known = self._view.state.partitions.get(record.partition)
        if known is not None and known.epoch < record.epoch:
            return known
        return self._view.before.get(record.partition, record)

    def _is_there(self, broker: BrokerId) -> bool:
        """Whether *broker* runs, with the disk that it began with."""
        node = self._cluster.nodes[self._cluster.host_of(broker)]
        return self._has_its_disk(broker) and node.host.is_up and not node.stop.is_set()
