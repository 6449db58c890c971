"""Vetoes faults that would destroy the last intact copy of committed data; without that copy a
violation would prove nothing.

An acknowledgement holds as long as one in-sync replica of each log has all of it (docs/protocol.md,
"What an acknowledgement promises").  The guard knows whose data was destroyed, and refuses an
action that would destroy the last intact copy.  It uses the register's decisions and the brokers'
sync flags, never a log, and in doubt it spares data.
"""

from __future__ import annotations

from typing import Final

import attrs

from octopi.coordination.cluster_state import Removal
from octopi.identifiers import BrokerId, PartitionId
from octopi.model import TopicRecord
from octopi.simulation.cluster import DATA_DIRECTORY, WIPE, SimulatedCluster
from octopi.simulation.disk.group_bytes import GroupJournalBytes
from octopi.simulation.faults.actions import (
    BitFlip,
    Destroying,
    LosePower,
    RollBack,
    Wipe,
    goes_unnoticed,
)
from octopi.simulation.faults.damage import Damage
from octopi.simulation.kernel.world import Event
from octopi.tracing import steps
from octopi.wire.messages import PartitionRecord


class LastCopyGuard:
    """Protects the last intact copies of data in one cluster."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        *,
        may_lose_all: bool = False,
        may_lose_last: bool = False,
        may_lose_every_disk: bool = False,
    ) -> None:
        """*may_lose_all*: power may fail although no other replica has what is in the memory of
        one.  *may_lose_last*: files may be damaged, and disks lost, although no other in-sync
        replica is whole.  *may_lose_every_disk*: even the last disk with a replica of a partition
        may be lost then."""
        self.may_lose_last: Final = may_lose_last
        self._may_lose_every_disk = may_lose_every_disk
        self._cluster = cluster
        self._may_lose_all = may_lose_all
        self._destroyed_at: dict[tuple[int, int], int] = {}
        """Partition and broker -> the version of the register's decisions when its data was
        destroyed last."""
        registers = {one.name: one.host.disk for one in cluster.registers}
        self._group = (
            GroupJournalBytes(registers, DATA_DIRECTORY, lambda: cluster.decided.active)
            if len(registers) > 1
            else None
        )
        """The journal of several registers; None: there is one register."""
        self._unsure: set[str] = set()
        """Hosts whose device may lack names that they believe to be durable, because a sync of a
        directory failed."""
        self._partitions_before_wipe: set[PartitionId] = set()
        """The partitions that a register with an empty disk has to learn of again."""
        self._register_is_lost = False
        """Whether the register's journal is damaged, and it has no new disk yet."""
        self._flagged: dict[tuple[str, int], bool] = {}
        """Host and partition -> whether the sync flag is on the device."""
        self._proposed: dict[int, steps.E16Proposed] = {}
        """Partition -> the in-sync set that its leader proposed last."""
        self._made: set[tuple[str, int, str]] = set()
        """Host, partition and topic id of logs that are on the device."""
        cluster.world.observe(
            self._see,
            {
                steps.D2Promised.text,
                steps.E16Proposed.text,
                steps.T3Made.text,
                steps.T7Removing.text,
                WIPE,
            },
        )

    def _see(self, event: Event) -> None:
        match event.about:
            case steps.D2Promised() as step:
                self._flagged[event.host, step.partition] = step.sync_flag
            case steps.E16Proposed() as step:
                self._proposed[step.partition] = step
            case steps.T3Made() as step:
                self._made.add((event.host, step.partition, step.topic_id))
            case steps.T7Removing() as step:
                self._made.discard((event.host, step.partition, step.topic_id))
            case _ if event.what == WIPE:
                self._register_is_lost &= self._cluster.nodes[event.host].kind != "register"

    def objection(self, host: str, action: Destroying) -> str:
        """Why *action* must not happen to *host* now; empty if it may."""
        node = self._cluster.nodes[host]
        view = self._cluster.decided.state
        if node.kind == "client":
            return ""
        if self._cluster.is_ring and (why := _objection_in_ring(action)):
            return why
        if self._register_is_lost:
            return "the register has no journal until it gets another disk"
        missing = self._partitions_before_wipe - view.partitions.keys()
        # A broker that lost power can still report what it was told, and that it lost something.
        tells = isinstance(action, LosePower) and node.kind == "broker" and not self._may_lose_all
        if missing and not tells:
            return f"the register has yet to learn of partitions {sorted(missing)}"
        if node.kind == "register" and self._group is not None:
            return self._group_objection(self._group, host, action)
        if node.kind == "register":
            return self._register_objection(host, action)
        broker = self._cluster.broker_of(host)
        if broker is None:
            return ""  # it has no part in anything so far
        if self._may_lose_all and isinstance(action, LosePower):
            return "" if host not in self._unsure else "its device may lack what it believes in"
        if self.may_lose_last and not isinstance(action, LosePower):
            return self._objection_to_the_last(broker, action)
        for record in self._cluster.decided.records.values():
            if broker in record.lost and not isinstance(action, LosePower):
                return f"what is left of partition {record.partition} may be there alone"
            if (
                self._may_lose_all
                and not isinstance(action, LosePower)
                and broker in record.in_sync
                and all(self._is_destroyed(one, record) for one in record.in_sync)
            ):
                return f"nobody in sync in partition {record.partition} has all of it"
            if record.in_sync == [broker] and not isinstance(action, LosePower):
                # Without this broker no replica may lead, whatever happened to its data before.
                return f"nobody else is in sync in partition {record.partition}"
            if (
                goes_unnoticed(action)
                and broker in record.replicas
                and broker not in record.in_sync
                and len(record.in_sync) == 1
            ):
                # A move may be in progress: the damage to this replica could go unnoticed, and the
                # whole one be removed.
                return f"it may take the place of the only one in sync in {record.partition}"
            if any(self._is_last(broker, one) for one in self._sets_to_be(record)):
                if not self._is_durable(host, record, action):
                    return f"it has the last intact copy of partition {record.partition}"
            elif (
                broker in record.in_sync
                and not isinstance(action, LosePower)  # a broker that accepts has flushed before
                and view.announced_epoch(record.partition) > record.epoch
            ):
                return f"it may be the only one to accept a new leader of {record.partition}"
        return ""

    def _objection_to_the_last(self, broker: BrokerId, action: Destroying) -> str:
        """Like `objection`, where an operator orders who leads if no in-sync replica is whole any
        more."""
        if isinstance(action, Damage) and action.is_noticed:
            return ""
        if not isinstance(action, Wipe):
            return "an operator could not tell that it isn't whole"
        if self._may_lose_every_disk:
            return ""
        for record in self._cluster.decided.state.partitions.values():
            others = [one for one in record.replicas if one != broker]
            if broker in record.replicas and not any(map(self._has_its_disk, others)):
                return f"no replica of partition {record.partition} would be left"
        return ""

    def _has_its_disk(self, broker: BrokerId) -> bool:
        return self._cluster.broker_of(self._cluster.host_of(broker)) == broker

    @property
    def flushes_before_ack(self) -> bool:
        """Whether the logs of some topic count as intact after a power failure of their broker."""
        view = self._cluster.decided.state
        return any(one.options.flush_before_ack for one in view.topics_on({*view.partitions}))

    def _sets_to_be(self, record: PartitionRecord) -> list[PartitionRecord]:
        """The record of a partition, and the records that may follow without further word of the
        in-sync replicas: those that the register is about to make durable, and the one that the
        leader proposed."""
        records = [record, *self._cluster.decided.to_be(record.partition)]
        asked = self._proposed.get(record.partition)
        if asked is not None and (asked.epoch, asked.version) == (record.epoch, record.version):
            records.append(attrs.evolve(record, in_sync=asked.in_sync))
        return records

    def _is_last(self, broker: BrokerId, record: PartitionRecord) -> bool:
        """Whether no other in-sync replica of *record* has intact data."""
        intact = [one for one in record.in_sync if not self._is_destroyed(one, record)]
        return intact == [broker]

    def _group_objection(self, group: GroupJournalBytes, host: str, action: Destroying) -> str:
        """Why *action* must not happen to one of several registers."""
        match action:
            case LosePower() if host not in self._unsure:
                return ""
            case Wipe() if group.is_whole:
                return ""
            case Wipe():
                return "too few registers would be left that know what was decided"
        return "it would forget its vote, or what it acknowledged, and not know that"

    def _register_objection(self, host: str, action: Destroying) -> str:
        match action:
            case LosePower() if host not in self._unsure:
                return ""
            case Wipe() | Damage():
                view = self._cluster.decided.state
                if not all(self._is_replaced(*one) for one in view.removals.items()):
                    return "brokers have yet to remove a topic, and nobody else knows"
                if not all(map(self._is_made, view.topics_on({*view.partitions}))):
                    return "no broker has a log of a topic yet, and nobody else knows"
                gone = {one for record in view.partitions.values() for one in record.replicas}
                gone -= {self._cluster.broker_of(node.name) for node in self._cluster.brokers}
                if gone:
                    return f"what brokers {sorted(gone)} could tell it is lost"
                hurt = [
                    record.partition
                    for record in view.partitions.values()
                    if any(self._is_destroyed(one, record) for one in record.in_sync)
                ]
                if hurt:
                    return f"not all that are in sync can tell it of partitions {hurt}"
                return ""
        return "nobody else has its journal"

    def _is_replaced(self, topic_id: str, removal: Removal) -> bool:
        """Whether all brokers that have the topic of that name know that the older one was
        deleted."""
        view = self._cluster.decided.state
        topic = view.topic(removal.topic)
        return (
            topic is not None
            and topic_id in topic.replaces
            and all(
                (self._cluster.host_of(broker), partition, topic.topic_id) in self._made
                for partition in topic.partitions
                for broker in view.partitions[partition].in_sync
            )
        )

    def _is_made(self, topic: TopicRecord) -> bool:
        """Whether some in-sync replica has a log of *topic*, so that its broker can tell of it."""
        partitions = self._cluster.decided.state.partitions
        return any(
            (self._cluster.host_of(broker), number, topic.topic_id) in self._made
            for number in topic.partitions
            for broker in partitions[PartitionId(number)].in_sync
        )

    def _is_durable(self, host: str, record: PartitionRecord, action: Destroying) -> bool:
        """Whether the committed records are on the device of *host*."""
        if not isinstance(action, LosePower) or host in self._unsure:
            return False
        topics = self._cluster.decided.state.topics_on({record.partition})
        flushed = all(map(self._cluster.decided.has_always_flushed, topics))
        # A broker without logs doesn't know that what it had was flushed.
        flushed &= any((host, record.partition, one.topic_id) in self._made for one in topics)
        led_alone = len(record.in_sync) == 1 and len(record.replicas) > 1
        # A replica that is alone because the register removed the others may not know that yet.
        return flushed or (led_alone and self._flagged.get((host, record.partition), False))

    def _is_destroyed(self, broker: BrokerId, record: PartitionRecord) -> bool:
        """Whether the in-sync set still relies on data that was destroyed."""
        at = self._destroyed_at.get((record.partition, broker))
        if at is None:
            return False
        return self._cluster.decided.was_out_of_sync(record.partition, broker) <= at

    # --- events --------------------------------------------------------------------------

    def destroyed(self, host: str, action: Destroying) -> None:
        """Note that *action* happened to *host*."""
        node = self._cluster.nodes[host]
        view = self._cluster.decided
        if node.kind == "register" and self._group is None and isinstance(action, Wipe | Damage):
            self._partitions_before_wipe |= view.state.partitions.keys()
            self._register_is_lost |= isinstance(action, Damage)
        broker = self._cluster.broker_of(host)
        at = _FOR_GOOD if goes_unnoticed(action) else view.version_to_be
        for record in view.records.values():
            if broker is not None and not self._is_durable(host, record, action):
                self._destroyed_at[record.partition, broker] = at
        if isinstance(action, Wipe):
            self._unsure.discard(host)
            self._made = {one for one in self._made if one[0] != host}

    def names_unsynced(self, host: str) -> None:
        """Note that a sync of a directory of *host* fails, or may fail."""
        self._unsure.add(host)


def _objection_in_ring(action: Destroying) -> str:
    """Why *action* must not happen to a broker of a cluster without a register, whoever else has
    its data."""
    match action:
        case Damage() if not action.is_noticed:
            return "no operator can give a broker without a register another disk yet"
        case BitFlip() | RollBack():
            return "it might forget what its acceptor promised, and not know that"
    return ""


_FOR_GOOD: Final = 1 << 62
"""Only a new disk repairs a flipped bit or an older copy; its broker has a new id then."""
