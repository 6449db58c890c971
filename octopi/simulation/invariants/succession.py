"""The oracle's rules about leaders that begin with what they have.

No replica in sync is left whole then, so records may be lost that were committed.  The register
decides by itself where all that were in sync lost no more than what was in their memories; in
every other case an operator orders it (docs/protocol.md, "When all that were in sync lost data").
If no replica is left at all, the operator orders that the partition begins again empty.
Either way the best of those that may lead does, and what is known to be lost is told.  From then
on what was committed is what that leader has.
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
"""What the event is called when committed records are given up, and that is told."""


class Succession(ClusterFacts):
    """Observes who leads with what it has, and what was lost by that."""

    def __init__(
        self, cluster: SimulatedCluster, report: Callable[[Violation], None] | None = None
    ) -> None:
        super().__init__(cluster, report)
        self._orders: set[int] = set()
        """Partitions of which an operator ordered that the best replica leads."""
        self._empty_on: dict[int, int] = {}
        """Those of them that are to begin again empty -> the broker that the operator named."""

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
        """A leader begins with what it has: it is the best of those that may, and the rest is
        told to be lost."""
        before = self._record_before(record)
        accepted = self._recoveries.accepted(record)
        logs = self._live_logs(record.partition)
        is_said = record.recovered_epoch == record.epoch
        rule, wrong = "lost-too-much", ""
        if record.partition in self._empty_on:
            wrong = self._fault_of_emptiness(record, before)
        elif record.partition in self._orders:
            wrong = self._fault_of_order(record, before, accepted, logs)
        else:
            if is_said and (wrong := self._fault_of_haste(record, before, accepted, logs)):
                rule = "lost-unasked"
            wrong = wrong or self._fault_of_choice(record, before, accepted, logs)
        if is_said and not wrong:
            rule, wrong = "lost-untold", self._fault_of_silence(event, record, accepted, logs)
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
        """What the leader of *record* lacks was committed no more."""
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
                log.removed_end = 0  # offsets begin again
            elif is_ordered:
                # A first segment that is missing there is given up, too.
                log.removed_end = max(log.removed_end, self._replica(host, log).start)
            end = self._agreed(host, log)
            topic_id = self._topic_id(log)
            if said is not None and topic_id in said.damaged:
                # What lies behind the damage is taken out of the log.
                end = min(end, said.ends[topic_id])
                if self._replica(host, log).end > said.ends[topic_id]:
                    self._cut_to_be.add((host, log.topic, log.partition))
            if (
                end < log.end
                and not is_ordered
                and not self._counts_cache(log)
                and self._has_its_disk(record.leader)
            ):
                text = f"{log.name} is flushed before it is acknowledged, and what is committed "
                text += f"from {end} to {log.end} is given up"
                self._break("lost-too-much", text, event, *log.committed_by(Offset(end)))
                return
            if end < log.end:
                self._world.note(LOST, topic=log.topic, partition=log.partition, end=end)
                log.cut(end)
            for key, had in self._had_on_device.items():
                if key[1:] == (log.topic, log.partition):
                    self._had_on_device[key] = min(had, end)

    # --- what is wrong with it, in words; empty: nothing ---------------------------------

    def _fault_of_choice(
        self,
        record: PartitionRecord,
        before: PartitionRecord,
        accepted: Mapping[BrokerId, Accepted],
        logs: Sequence[CommittedLog],
    ) -> str:
        """All that were in sync lost what was in their memories: the best of them leads."""
        members = {*before.in_sync, *before.lost} or set(before.replicas)
        if record.leader not in members:
            text = f"broker {record.leader} leads partition {record.partition} with what it has; "
            return f"{text}in sync last were brokers {sorted(members)}"
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

    def _fault_of_order(
        self,
        record: PartitionRecord,
        before: PartitionRecord,
        accepted: Mapping[BrokerId, Accepted],
        logs: Sequence[CommittedLog],
    ) -> str:
        """An operator ordered it: the best of all that are left leads, in sync last or not."""
        there = {one: said for one, said in accepted.items() if self._is_there(one)}
        topics = [self._topic_id(log) for log in logs]
        best, ends = best_by_order(before, there, topics)
        if record.leader not in best:
            text = f"by an operator's order broker {record.leader} leads partition "
            return f"{text}{record.partition}; brokers {sorted(best)} are to be preferred"
        whole = [one for one in best if not accepted[one].damaged]
        return self._who_has_more(record, whole, logs) or better_than(record.leader, ends)

    def _fault_of_emptiness(self, record: PartitionRecord, before: PartitionRecord) -> str:
        """An operator ordered that a partition begins again empty: no replica is left, and it lies
        on the broker that was named, and nowhere else."""
        named = self._empty_on[record.partition]
        text = f"partition {record.partition} begins again empty on broker {record.leader}"
        if left := [one for one in before.replicas if self._is_there(one)]:
            return f"{text}; brokers {left} run, and hold replicas of it"
        if record.leader != named or not record.replicas == record.in_sync == [named]:
            return f"{text}; the operator named broker {named}, and it is {record}"
        return ""

    def _who_has_more(
        self, record: PartitionRecord, brokers: Sequence[BrokerId], logs: Sequence[CommittedLog]
    ) -> str:
        """Who of *brokers* has more of what was committed than the leader."""
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

    def _fault_of_silence(
        self,
        event: Event,
        record: PartitionRecord,
        accepted: Mapping[BrokerId, Accepted],
        logs: Sequence[CommittedLog],
    ) -> str:
        """Whether all is told that the leader lacks, and another replica has or had."""
        step = event.about
        losses = step.losses if isinstance(step, DecisionStep) else []
        told = {one.topic_id: (one.kept_end, one.known_end) for each in losses for one in each}
        for log in logs:
            topic_id = self._topic_id(log)
            said = accepted.get(record.leader)  # nothing, if it begins again empty
            kept_end = said.ends.get(topic_id, 0) if said is not None else 0
            known = (one.known_ends.get(topic_id, 0) for one in accepted.values())
            known_end = max(known, default=0)
            if known_end > kept_end and told.get(topic_id) != (kept_end, known_end):
                text = f"broker {record.leader} leads {log.name}, which it has to {kept_end}; a "
                text += f"replica has it, or had, to {known_end}; what is told to be lost is "
                return text + str(told.get(topic_id, "nothing"))
        return ""

    # --- what there is -------------------------------------------------------------------

    def _record_before(self, record: PartitionRecord) -> PartitionRecord:
        """What *record* took the place of."""
        known = self._view.state.partitions.get(record.partition)
        if known is not None and known.epoch < record.epoch:
            return known
        return self._view.before.get(record.partition, record)

    def _is_there(self, broker: BrokerId) -> bool:
        """Whether *broker* runs, on the disk that it always had."""
        node = self._cluster.nodes[self._cluster.host_of(broker)]
        return self._has_its_disk(broker) and node.host.is_up and not node.stop.is_set()

    def _fault_of_haste(
        self,
        record: PartitionRecord,
        before: PartitionRecord,
        accepted: Mapping[BrokerId, Accepted],
        logs: Sequence[CommittedLog],
    ) -> str:
        """Why the register may not decide *record* by itself."""
        text = (
            f"nobody ordered that broker {record.leader} leads partition {record.partition} with "
        )
        text += "what it has; "
        if before.in_sync:
            return f"{text}brokers {before.in_sync} were in sync last, and may come back"
        if missing := set(before.lost) - accepted.keys():
            return f"{text}brokers {sorted(missing)}, in sync until they lost data, may have more"
        said = accepted.get(record.leader)
        host = self._cluster.host_of(record.leader)
        for log in logs:
            had = self._had_on_device.get((host, log.topic, log.partition), 0)
            if said is None or said.damaged or self._agreed(host, log) < min(had, log.end):
                return f"{text}of {log.name} it lacks something that was on its device"
        return ""
