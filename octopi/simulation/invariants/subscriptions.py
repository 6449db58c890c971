"""What has to hold of durable subscriptions, in the modes in which one member has a log.

What a leader stores, hears committed, tells and begins with is known by its steps
(`octopi.tracing.subscriptions`).  What members get and process, they have to say themselves: a
program that is a member notes `HANDED`, `PROCESSED` and `CONFIRMED`.  Of members that note nothing
it isn't judged whether a mark passed a message.

======================= ================================================================
rule                    broken when
======================= ================================================================
message-passed-over     a mark is stored that passes messages that no member processed with
                        the mark's claim
message-left-out        a member is handed messages with a gap between them, or behind its mark
mark-went-back          a committed mark falls behind an earlier one without a reset
claim-went-back         a claim is given a second time, or marks of an older one count
log-taken-unreleased    a log is assigned to a member while another one has it
attach-went-back        a member is told an older mark than another was told before
told-uncommitted        a member is told what is not committed
state-forgotten         a leader begins without something that was committed
mark-left-behind        another broker is to lead, in good order, and a mark isn't stored that
                        a member sent before
======================= ================================================================

What is lost is left out of account (`octopi.simulation.invariants.losses`).  Messages of queues are
judged by rules of their own (`octopi.simulation.invariants.queues`); of the rules above those hold
for queues, too, that are about what is stored.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeAlias

import attrs

from octopi.identifiers import PartitionId
from octopi.model import QUEUE_MODES
from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.invariants.losses import Losses
from octopi.simulation.invariants.refusing_leaders import RefusingLeaders
from octopi.simulation.invariants.system import BreakRule, SystemInvariants
from octopi.simulation.kernel.world import Event, StepEvent
from octopi.subscriptions.entries import NO_MEMBER, AssignmentPhase
from octopi.tracing import steps
from octopi.tracing.subscriptions import RemovedStateStep, StoredMarkStep, SubscriptionStep

HANDED: Final = "member got a message"
"""The event of a member that is handed a message: ``sid``, ``topic``, ``partition``, ``claim``,
``member``, ``offset``, ``next_offset``."""

PROCESSED: Final = "member processed a message"
"""The event of a member that is done with a message; the same facts."""

CONFIRMED: Final = "member's mark was confirmed"
"""The event of a member that knows a mark to be committed: ``sid``, ``partition``, ``claim``,
``offset``."""

_State: TypeAlias = Mapping[str, Any]
_Place: TypeAlias = tuple[str, PartitionId]
"""The id of a subscription, and the partition of one of its logs."""
_Claimed: TypeAlias = tuple[str, PartitionId, int]
"""The same, and a claim."""


@attrs.define
class _KnownPartition:
    """What is known of the log ``~subscriptions`` of a partition."""

    epoch: int = 0
    """Of the newest leadership that began with it."""
    committed: dict[str, _State] = attrs.field(factory=dict)
    """The newest committed value of each key."""
    open: Counter[str] = attrs.field(factory=Counter)
    """How many newer values of a key there are: they may be committed without anybody hearing of
    that."""
    stray: set[str] = attrs.field(factory=set)
    """Keys with newer values that the newest leader did not find: until it commits something, one
    that has them may lead next.  A former leader may go on to append such values."""
    has_committed: bool = False
    """Whether the newest leader has committed something."""
    taken: dict[str, int] = attrs.field(factory=dict)
    """The newest mark that a member of each subscription sent."""
    left: dict[str, int] = attrs.field(factory=dict)
    """Of these, what was not stored when a hand-over began."""


class SubscriptionRules(SystemInvariants):
    """Judges what leaders do for subscriptions by what they and members said before."""

    promises: ClassVar[Mapping[str, str]] = {
        "message-passed-over": "a subscription's mark passes a message only when the member that "
        "has the log has processed it",
        "message-left-out": "a member is handed the messages from its mark on, one behind the "
        "other",
        "mark-went-back": "a committed mark of a subscription goes back only by a reset, or where "
        "the cluster told that messages are lost",
        "claim-went-back": "the claims of a log only grow, and each one is of one member",
        "log-taken-unreleased": "a log gets another member only when its member has released it, "
        "left, or was silent for too long",
        "attach-went-back": "a member never goes on at an older mark than was told before it",
        "told-uncommitted": "what a member is told of its logs and marks is committed",
        "state-forgotten": "who begins to lead knows all that was committed of subscriptions",
        "mark-left-behind": "a leader that hands over in good order stores all marks before",
    }

    def __init__(self, cluster: SimulatedCluster, break_rule: BreakRule) -> None:
        super().__init__(cluster, break_rule)
        self._losses = Losses(cluster, self.handlers, self._forget)
        self._partitions: dict[PartitionId, _KnownPartition] = defaultdict(_KnownPartition)
        self._claims: dict[_Place, int] = defaultdict(int)
        """The greatest that the coordinator gave."""
        self._members: dict[_Claimed, str] = {}
        """To whom."""
        self._resets: dict[_Claimed, int] = {}
        """Where the mark is set to with the claim of a reset."""
        self._stored: dict[_Place, tuple[int, int]] = {}
        """The mark that was appended last, and its claim."""
        self._told: dict[_Place, int] = {}
        """The mark that a member was told last."""
        self._starts: dict[_Claimed, set[int]] = defaultdict(set)
        """Where a member with this claim may begin."""
        self._handed: dict[_Claimed, int] = {}
        """Behind the last message that a member was handed with this claim."""
        self._processed: dict[_Claimed, int] = {}
        """Behind the last message that a member processed with this claim."""
        self._reporting: set[str] = set()
        """Subscriptions whose members note what they do."""
        self._refusing = RefusingLeaders()
        on = self.handlers.on
        on(self._see_open, steps.S1Creating, steps.S3Joining, steps.S4Assigning)
        on(self._see_open, steps.S11Freeing)
        on(self._see_removal, steps.S12Removing)
        on(self._check_stored, steps.S2Opening, steps.S9Storing)
        on(self._check_committed, steps.S10Hearing)
        on(self._check_loaded, steps.S13Loaded)
        on(self._check_assigned, steps.S4Telling)
        on(self._check_attached, steps.S5Attaching)
        on(self._note_taken, steps.S8Taking)
        self.handlers.add(self._refusing.handlers)
        on(self._note_preparing, steps.E23Preparing)
        on(self._check_prepared, steps.E23Prepared)
        self.handlers.on_word(self._check_handed, HANDED)
        self.handlers.on_word(self._note_processed, PROCESSED)
        self.handlers.on_word(self._check_confirmed, CONFIRMED)

    # --- what is stored ----------------------------------------------------------------

    def _known(self, partition: PartitionId, epoch: int) -> _KnownPartition | None:
        """What is known of *partition*; None: *epoch* is over, and nothing of it counts."""
        known = self._partitions[partition]
        return known if epoch >= known.epoch else None

    def _see_open(self, event: StepEvent[SubscriptionStep]) -> None:
        step = event.step
        match step:
            case steps.S3Joining():
                key = f"m/{step.sid}/{step.member}"
            case steps.S4Assigning() | steps.S11Freeing():
                key = f"a/{step.sid}/{step.log}"
            case _:
                key = f"s/{step.sid}"
        self._open(step.partition, step.epoch, key)

    def _see_removal(self, event: StepEvent[RemovedStateStep]) -> None:
        self._open(event.step.partition, event.step.epoch, event.step.key)

    def _open(self, partition: PartitionId, epoch: int, key: str) -> None:
        known = self._partitions[partition]
        if epoch >= known.epoch:
            known.open[key] += 1
        elif not known.has_committed:
            known.stray.add(key)

    def _check_stored(self, event: StepEvent[StoredMarkStep]) -> None:
        step = event.step
        self._open(step.partition, step.epoch, f"k/{step.sid}/{step.topic_id}")
        if self._known(step.partition, step.epoch) is None:
            return
        place = step.sid, step.partition
        known = self._stored.get(place)
        self._stored[place] = step.mark, step.claim
        if known is None or step.sid not in self._reporting:
            return
        before, old = known
        # With a new claim what the member before it has processed is stored, too.
        claims = [(*place, one) for one in range(min(old, step.claim), step.claim + 1)]
        if old == step.claim:
            claims = claims[-1:]
        ends = [before, *(self._processed.get(one, 0) for one in claims)]
        ends += [self._resets.get(claims[-1], 0), *self._starts[claims[-1]]]
        processed = max(ends)
        if step.mark > processed and step.partition not in self._losses.lossy:
            text = f"{event.host} stores {step.mark} as the mark of {step.sid} in partition "
            text += f"{step.partition} with claim {step.claim}; what lies before {processed} is "
            text += f"processed with that claim, and the mark was {before} with claim {old}"
            self.break_rule("message-passed-over", text, event)

    def _check_committed(self, event: StepEvent[steps.S10Hearing]) -> None:
        step = event.step
        if (known := self._known(step.partition, step.epoch)) is None:
            return
        kind, sid, last = _parts(step.key)
        known.open[step.key] = max(0, known.open[step.key] - 1)
        known.stray.clear()
        known.has_committed = True
        if step.value is None:
            known.committed.pop(step.key, None)
            if kind == "k":
                known.taken.pop(sid, None)
            return
        before = known.committed.get(step.key)
        known.committed[step.key] = step.value
        if kind == "a":
            self._check_assignment(event, (sid, PartitionId(int(last))), before, step.value)
        elif kind == "k" and before is not None:
            self._check_mark(event, (sid, step.partition), before, step.value)

    def _check_assignment(
        self, event: Event, place: _Place, before: _State | None, now: _State
    ) -> None:
        phase, claim = now.get("phase", AssignmentPhase.FREE), now.get("claim", 0)
        greatest = self._claims[place]
        self._claims[place] = max(claim, greatest)
        name = f"the log of {place[0]} in partition {place[1]}"
        if claim < greatest or (claim == greatest and phase != AssignmentPhase.FREE):
            text = f"{name} is {phase} with claim {claim}, and claim {greatest} was given before"
            self.break_rule("claim-went-back", text, event)
        if phase == AssignmentPhase.RESETTING:
            self._resets[*place, claim] = now["reset_to"]
        if phase != AssignmentPhase.ASSIGNED:
            return
        self._members[*place, claim] = now["member"]
        other = {} if before is None else before
        if other.get("phase") == AssignmentPhase.ASSIGNED and other["member"] != now["member"]:
            text = (
                f"{name} is assigned to {now['member']} with claim {claim}, and {other['member']}"
            )
            text += f" has it with claim {other['claim']}"
            self.break_rule("log-taken-unreleased", text, event)

    def _check_mark(self, event: Event, place: _Place, before: _State, now: _State) -> None:
        claim, old = now.get("claim", 0), before.get("claim", 0)
        name = f"the mark of {place[0]} in partition {place[1]}"
        if claim < old:
            text = f"{name} is stored with claim {claim}, and was stored with claim {old} before"
            self.break_rule("claim-went-back", text, event)
        if now.get("lost") and self._losses.is_harmed:
            self._losses.lossy.add(place[1])  # the only replica has less, and says so
        reset_to = self._resets.get((*place, claim))
        if reset_to == now["mark"]:
            self._told.pop(place, None)
            self._partitions[place[1]].taken.pop(place[0], None)
        elif now["mark"] < before["mark"] and place[1] not in self._losses.lossy:
            text = f"{name} is committed at {now['mark']} with claim {claim}, and was committed at "
            text += f"{before['mark']} with claim {old}"
            self.break_rule("mark-went-back", text, event)

    def _check_loaded(self, event: StepEvent[steps.S13Loaded]) -> None:
        step = event.step
        if (known := self._known(step.partition, step.epoch)) is None:
            return
        if self._losses.leads_with_less(event.host, step.partition):
            self._losses.forget(step.partition)
            known = self._partitions[step.partition]
        for key, value in known.committed.items():
            may_differ = known.open[key] or key in known.stray
            if not may_differ and step.states.get(key) != value:
                text = f"{event.host} begins to lead partition {step.partition} with {key} = "
                text += f"{step.states.get(key)}, and {value} is committed"
                self.break_rule("state-forgotten", text, event)
                return
            self._check_newer(event, known, key, step.states.get(key))
        known.epoch = step.epoch
        known.committed = dict(step.states)
        known.stray |= {key for key, count in known.open.items() if count}
        known.open.clear()
        known.has_committed = False
        known.taken.clear()
        known.left.clear()
        for key, value in step.states.items():
            kind, sid, last = _parts(key)
            if kind == "k":
                self._stored[sid, step.partition] = value["mark"], value.get("claim", 0)
            elif kind == "a":
                place = sid, PartitionId(int(last))
                self._claims[place] = max(self._claims[place], value.get("claim", 0))
                if value.get("phase") == AssignmentPhase.RESETTING:
                    self._resets[*place, value["claim"]] = value["reset_to"]

    def _check_newer(
        self, event: Event, known: _KnownPartition, key: str, now: _State | None
    ) -> None:
        """What a leader found in place of an older value is no older."""
        before = known.committed[key]
        kind, sid, _ = _parts(key)
        if now is None or kind not in "ka" or now == before:
            return
        if now.get("claim", 0) < before.get("claim", 0):
            text = f"{event.host} begins to lead with {key} = {now}, and {before} is committed"
            self.break_rule("state-forgotten", text, event)
        elif kind == "k":
            self._check_mark(event, (sid, event.get("partition")), before, now)

    def _note_taken(self, event: StepEvent[steps.S8Taking]) -> None:
        step = event.step
        if (known := self._known(step.partition, step.epoch)) is not None:
            known.taken[step.sid] = max(step.offset, known.taken.get(step.sid, 0))

    def _note_preparing(self, event: StepEvent[steps.E23Preparing]) -> None:
        partition = event.step.partition
        known = self._partitions[partition]
        known.left = {} if any(known.open.values()) else self._unstored(partition)

    def _unstored(self, partition: PartitionId) -> dict[str, int]:
        taken = self._partitions[partition].taken
        return {
            sid: mark
            for sid, mark in taken.items()
            if self._stored.get((sid, partition), (mark, 0))[0] < mark
        }

    def _check_prepared(self, event: StepEvent[steps.E23Prepared]) -> None:
        partition = event.step.partition
        known = self._partitions[partition]
        still, known.left = known.left.items() & self._unstored(partition).items(), {}
        record = self.cluster.decided.state.partitions.get(partition)
        if record is None or record.epoch != known.epoch or partition in self._losses.lossy:
            return
        if self.cluster.host_of(record.leader) != event.host:
            return
        if self._refusing.has(event.host, partition, known.epoch):
            return  # its disk takes no mark either
        for sid, mark in sorted(still):
            text = f"{event.host} has prepared another leader of partition {partition}, and the "
            text += f"mark {mark} of {sid}, which a member sent before, is not stored"
            self.break_rule("mark-left-behind", text, event)

    # --- what is told --------------------------------------------------------------------

    def _check_assigned(self, event: StepEvent[steps.S4Telling]) -> None:
        step = event.step
        known = self._known(step.partition, step.epoch)
        if known is None or step.revoked:
            return
        for log, claim in step.logs:
            state = known.committed.get(f"a/{step.sid}/{log}", {})
            if (state.get("member"), state.get("claim")) != (step.member, claim):
                text = f"{event.host} tells {step.member} that it has the log of {step.sid} in "
                text += f"partition {log} with claim {claim}, and what is committed is {state}"
                self.break_rule("told-uncommitted", text, event)
        if f"m/{step.sid}/{step.member}" not in known.committed:
            text = f"{event.host} tells {step.member} that it is a member of {step.sid}, and that "
            text += "is not committed"
            self.break_rule("told-uncommitted", text, event)

    def _check_attached(self, event: StepEvent[steps.S5Attaching]) -> None:
        step = event.step
        if (known := self._known(step.partition, step.epoch)) is None:
            return
        place = step.sid, step.partition
        state = _mark_of(known, step.sid)
        if not step.claim or state.get("mode") in QUEUE_MODES:
            # A member of a queue doesn't begin where the mark is, and its claim is that of nobody:
            # it works on what it is dealt.  So the mark that it is told fixes nothing, and may be
            # ahead of what is committed.
            return
        owner = self._members.get((*place, step.claim), step.member)
        # The member is empty if it lost the mark, as by a deletion, while its answer waited.
        if step.member not in (owner, NO_MEMBER) and not self._losses.lossy:
            text = f"{event.host} tells {step.member} the mark of {step.sid} in partition "
            text += f"{step.partition} with claim {step.claim}, which is that of {owner}"
            self.break_rule("claim-went-back", text, event)
        told = f"{event.host} tells a member of {step.sid} with claim {step.claim} that its mark "
        told += f"in partition {step.partition} is {step.mark}"
        if state.get("claim", 0) < step.claim or state.get("mark", 0) < step.mark:
            text = f"{told}, and what is committed is {state}"
            self.break_rule("told-uncommitted", text, event)
        if step.mark < self._told.get(place, 0) and step.partition not in self._losses.lossy:
            text = f"{told}, and another was told {self._told[place]} before"
            self.break_rule("attach-went-back", text, event)
        self._told[place] = step.mark
        begins = self._starts[*place, step.claim]
        begins.add(step.mark)
        if step.lost_to is not None:
            begins.add(step.lost_to)

    # --- what members say ------------------------------------------------------------------

    def _check_handed(self, event: Event) -> None:
        facts = event.facts
        self._reporting.add(facts["sid"])
        claimed = (facts["sid"], facts["partition"], facts["claim"])
        owner = self._members.setdefault(claimed, facts["member"])
        what = f"the log of {claimed[0]} in partition {claimed[1]} with claim {claimed[2]}"
        if owner != facts["member"] and not self._losses.lossy:
            text = f"{facts['member']} reads {what}, which is that of {owner}"
            self.break_rule("claim-went-back", text, event)
        offset, end = facts["offset"], self._handed.get(claimed)
        self._handed[claimed] = facts["next_offset"]
        if facts["partition"] in self._losses.lossy or self._is_shortened(facts["topic"]):
            return
        # Where what it read is lost, a member begins again at the mark that it was told.
        expected = {one for one in self._starts[claimed] if end is None or one < end}
        expected |= set() if end is None else {end}
        if offset not in expected:
            text = f"{facts['member']} is handed the message at {offset} of {what}, and "
            text += f"{' or '.join(map(str, sorted(expected)))} comes next"
            self.break_rule("message-left-out", text, event)

    def _is_shortened(self, topic: str) -> bool:
        """Whether retention may remove what comes next."""
        record = self.cluster.decided.state.topic(topic)
        if record is None:
            return True
        options = record.options
        return options.retention_bytes is not None or options.retention_ms is not None

    def _note_processed(self, event: Event) -> None:
        facts = event.facts
        claimed = (facts["sid"], facts["partition"], facts["claim"])
        self._processed[claimed] = max(facts["next_offset"], self._processed.get(claimed, 0))

    def _check_confirmed(self, event: Event) -> None:
        facts = event.facts
        partition = facts["partition"]
        state = _mark_of(self._partitions[partition], facts["sid"])
        if partition in self._losses.lossy or not state or state.get("claim", 0) > facts["claim"]:
            return
        if state["mark"] < facts["offset"]:
            text = f"{event.host} was told that all before {facts['offset']} of {facts['sid']} in "
            text += f"partition {partition} is marked for good, and what is committed is {state}"
            self.break_rule("told-uncommitted", text, event)

    def _forget(self, partition: PartitionId) -> None:
        """Records may be lost, in the logs of that partition and in what it knew."""
        self._partitions[partition] = _KnownPartition()
        for place in [one for one in self._told if one[1] == partition]:
            del self._told[place]
        self._claims.clear()  # that partition may be where they are kept
        self._members.clear()


def _parts(key: str) -> tuple[str, str, str]:
    """Kind, subscription and the rest of a key."""
    kind, _, ids = key.partition("/")
    sid, _, last = ids.partition("/")
    return kind, sid, last


def _mark_of(known: _KnownPartition, sid: str) -> _State:
    """The committed mark of a subscription; empty: there is none."""
    prefix = f"k/{sid}/"
    return next((one for key, one in known.committed.items() if key.startswith(prefix)), {})
