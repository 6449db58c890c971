"""Checks that brokers without a register decide together, as one.

======================= ================================================================
rule                    broken when
======================= ================================================================
record-forked           two chosen values are not one history; or a value is chosen that nobody
                        may decide after the one before: epochs go back, or have two leaders
ballot-unheld           an acceptor answers with a promise, or a value, that is not on its device;
                        or it accepts below a ballot that it has promised
unchosen-told           a broker is told that a value is chosen which is not
right-overlaps          an epoch is announced while the leader of an earlier one may still serve
                        clients, or such a leader commits later and may serve them again
ring-broken             everything is healed, and the brokers are not one ring, in the order of
                        their points
======================= ================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from octopi.identifiers import Epoch, InstanceId, PartitionId
from octopi.simulation.cluster import DATA_DIRECTORY, WIPE, Node, SimulatedCluster
from octopi.simulation.disk.acceptor_bytes import AcceptorBytes
from octopi.simulation.faults.actions import DriftClock, Refuse
from octopi.simulation.faults.injector import FAULT
from octopi.simulation.invariants.ring_order import fault_of_ring
from octopi.simulation.invariants.system import BreakRule, SystemInvariants
from octopi.simulation.kernel.world import Event, StepEvent
from octopi.tracing import steps
from octopi.wire.agreement import (
    AcceptorId,
    Ballot,
    BallotPromised,
    ValueAccepted,
)

_DRIFT_MAX: Final = 0.14
"""How much faster or slower than another one a clock may be for the right to lead
(`octopi.agreement.lease`)."""


class AgreementRules(SystemInvariants):
    """Compares what acceptors say with their devices, and what brokers believe with what is
    chosen."""

    promises: ClassVar[Mapping[str, str]] = {
        "record-forked": "the chosen values of an instance are one history, which goes forward",
        "ballot-unheld": (
            "an acceptor promises and accepts only what is on its device, and accepts nothing "
            "below what it promised"
        ),
        "unchosen-told": "brokers are told only of values that a quorum has accepted",
        "right-overlaps": (
            "from when an epoch is announced, no leader of an earlier one has the right to serve"
        ),
        "ring-broken": (
            "when everything is healed, the brokers are one ring, in the order of their points"
        ),
    }

    def __init__(self, cluster: SimulatedCluster, break_rule: BreakRule) -> None:
        super().__init__(cluster, break_rule)
        self._promised: dict[tuple[InstanceId, AcceptorId], Ballot] = {}
        """The highest ballot that an acceptor said it had promised."""
        self._accepted: set[tuple[InstanceId, AcceptorId, Ballot]] = set()
        self._may_overlap = False
        """Whether a clock was faster or slower than the right to lead allows, or connections to a
        process that runs were refused, so that others took it for ended."""
        if cluster.agreed is None:
            return
        self._agreed = cluster.agreed
        self._bytes = {
            one.name: AcceptorBytes(one.host.disk, DATA_DIRECTORY) for one in cluster.brokers
        }
        self.handlers.on(self._check_answer, steps.A2Answering)
        self.handlers.on(self._check_told, steps.A3Heard)
        self.handlers.on(self._check_commit, steps.P6Committed)
        self.handlers.on_word(self._note_fault, FAULT)
        self.handlers.on_word(self._forget, WIPE)

    def at_rest(self, event: Event) -> None:
        """Check that the brokers that run are one ring."""
        if self.cluster.agreed is not None and (why := fault_of_ring(self.cluster)):
            self.break_rule("ring-broken", why, event)

    def _note_fault(self, event: Event) -> None:
        action = event.facts["action"]
        drifts = isinstance(action, DriftClock) and abs(action.rate - 1.0) >= _DRIFT_MAX / 2
        self._may_overlap |= drifts or isinstance(action, Refuse)

    def _forget(self, event: Event) -> None:
        self._bytes[event.host].forget()

    # --- acceptors ---------------------------------------------------------------------------

    def _check_answer(self, event: StepEvent[steps.A2Answering]) -> None:
        if self._agreed.fork:
            self.break_rule("record-forked", self._agreed.fork, event)
            return
        match event.step.message:
            case BallotPromised() as message:
                self._check_promise(event, message)
            case ValueAccepted() as message:
                self._check_accepted(event, message)
        for before, now in self._agreed.news:
            if now.announced > before.announced:
                self._check_rights(event, now.record.partition, now.announced)

    def _check_promise(self, event: Event, message: BallotPromised) -> None:
        key = message.instance, message.acceptor
        held = self._bytes[event.host].state(message.instance)
        before = self._promised.get(key)
        if held.promised < message.ballot or held.accepted < message.accepted:
            text = f"{event.host} answers {message}; its device has {held}"
            self.break_rule("ballot-unheld", text, event)
        elif before is not None and message.ballot <= before:
            text = f"{event.host} promises {message.ballot} of value {message.instance}, and has "
            self.break_rule("ballot-unheld", f"{text}promised {before} before", event)
        self._promised[key] = message.ballot

    def _check_accepted(self, event: Event, message: ValueAccepted) -> None:
        key = message.instance, message.acceptor
        held = self._bytes[event.host].state(message.instance)
        before = self._promised.get(key)
        if held.accepted < message.ballot:
            text = f"{event.host} answers {message}; its device has {held}"
            self.break_rule("ballot-unheld", text, event)
        elif (
            before is not None
            and message.ballot < before
            and ((*key, message.ballot) not in self._accepted)
        ):
            text = f"{event.host} accepts {message.ballot} of value {message.instance}, and has "
            self.break_rule("ballot-unheld", f"{text}promised {before} before", event)
        self._accepted.add((*key, message.ballot))
        self._promised[key] = max(message.promised, before or message.promised)

    # --- brokers -----------------------------------------------------------------------------

    def _check_told(self, event: StepEvent[steps.A3Heard]) -> None:
        message = event.step.message
        known = self._agreed.values(message.instance)
        if known is None or not known.is_chosen(message.value):
            text = f"{event.host} is told that {message.value} is chosen as value "
            self.break_rule("unchosen-told", f"{text}{message.instance}, and it is not", event)

    def _check_commit(self, event: StepEvent[steps.P6Committed]) -> None:
        """Check that a leader which commits may not serve, if a later epoch is announced."""
        epoch = self._agreed.state.announced_epoch(event.step.partition)
        if event.step.epoch < epoch and not self._may_overlap:
            self._check_right_of(self.cluster.nodes[event.host], event, event.step.partition, epoch)

    def _check_rights(self, event: Event, partition: PartitionId, epoch: Epoch) -> None:
        """Check that no leader of an epoch before *epoch*, which is announced now, may serve."""
        if not self._may_overlap:
            for node in self.cluster.brokers:
                self._check_right_of(node, event, partition, epoch)

    def _check_right_of(self, node: Node, event: Event, partition: PartitionId, epoch: int) -> None:
        """Check that *node* does not lead in an epoch before *epoch*, which is announced, with the
        right to."""
        ring, member = node.ring, node.ring.member if node.ring is not None else None
        if not node.host.is_up or ring is None or member is None or not member.partitions:
            return
        machine = member.partitions.partition(partition)
        replica = ring.replicas.replica(partition)
        leads = None if replica is None else replica.machine.leader
        if machine is None or leads is None or leads.epoch >= epoch:
            return
        if member.partitions.pulses.fence(machine, leads.epoch) is None:
            text = f"epoch {epoch} of partition {partition} is announced, and {node.name} has "
            text += f"the right to lead in epoch {leads.epoch}"
            self.break_rule("right-overlaps", text, event)
