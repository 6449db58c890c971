"""The members of one subscription, and which of them has which log.

Runs at the leader of the topic's first partition.  Each log is free, assigned to one member, or
being reset; every change is an entry of the log ``~subscriptions``, and nobody is told of a change
before it is committed.  Each assignment and each reset takes the next *claim* of the log, so that
the log's leader knows who was replaced.

A log moves in two steps: its member is asked to release it, and only when it has done so, or was
silent for too long, another member gets it.  All others read on meanwhile.

A new leader begins with the members and assignments that are committed, and gives each member a
full session timeout: the leaders of the logs don't ask the coordinator, so reading and marking go
on without it.  A member that comes back says what it holds, and goes on with that.

Pure: calls are events, results are lists of effects (`octopi.subscriptions.effects`).  Times are
seconds on the monotonic clock of the leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from octopi.errors import Status
from octopi.identifiers import NO_CLAIM, Claim, MemberId, Offset, PartitionId, SubscriptionId
from octopi.limits import (
    CLAIM_STEP_MAX,
    COUNTED_MAX,
    MEMBERS_PER_SUBSCRIPTION_MAX,
    RESET_WAIT_S,
    TOLD_MAX,
)
from octopi.model import QUEUE_MODES, SubscriptionMode, SubscriptionOptions
from octopi.subscriptions.assignment import GroupMember, target
from octopi.subscriptions.effects import (
    AssignmentFacts,
    Effect,
    MemberFacts,
    Session,
    TellAssigned,
    TellDetached,
    TellDone,
    TellRefused,
    TellResetBegun,
    TellRevoked,
)
from octopi.subscriptions.entries import (
    NO_MEMBER,
    AssignmentEntry,
    AssignmentPhase,
    MemberEntry,
    assignment_key,
    member_key,
)
from octopi.subscriptions.pending_states import PendingStates


@attrs.define
class _JoinedMember:
    """A member, as its coordinator sees it."""

    entry: MemberEntry
    heard_at: float
    session: Session | None = None
    """Where it is told; None: its connection broke, or it has not come back yet."""


class Coordinator:
    """Members and assignments of one subscription.

    Invariants: each log has at most one member; claims never go back; an assigned log's member
    is a member.
    """

    def __init__(
        self,
        sid: SubscriptionId,
        logs: Iterable[PartitionId],
        members: Mapping[MemberId, MemberEntry],
        assignments: Mapping[PartitionId, AssignmentEntry],
        pending: PendingStates,
        now: float,
        *,
        options: SubscriptionOptions,
        mode: str,
    ) -> None:
        """Begin with what is committed.  *mode*: in ``exclusive`` there is one member at a time,
        and another one has to take over explicitly; in those of queues no log is assigned, since
        each member has all of them."""
        self.sid = sid
        self.members = {name: _JoinedMember(entry, now) for name, entry in members.items()}
        self.logs = {log: assignments.get(log, AssignmentEntry()) for log in sorted(logs)}
        self._pending = pending
        self._options = options
        self._session_timeout_s = options.session_timeout_ms / 1000
        self._is_exclusive = mode == SubscriptionMode.EXCLUSIVE
        self._is_queue = mode in QUEUE_MODES
        self._names: dict[Session, MemberId] = {}
        self._release_by: dict[PartitionId, float] = {}
        """Logs whose members were asked to release them, and until when."""
        self._reset_by = {
            log: now + RESET_WAIT_S
            for log, state in self.logs.items()
            if state.phase == AssignmentPhase.RESETTING
        }
        """Logs that are being reset, and when that is given up."""
        self._is_uneven = bool(self.members)
        """Whether logs are to be moved when what was appended is committed."""

    # --- members -----------------------------------------------------------------------

    def join(
        self,
        session: Session,
        member: MemberId,
        entry: MemberEntry,
        held: Iterable[tuple[PartitionId, Claim]],
        now: float,
        *,
        take_over: bool = False,
    ) -> list[Effect]:
        """*member* is there, for the first time or again.  *held*: the logs that it has, by what it
        was told before; of others that were assigned to it, it does not know, or it has released
        them.  It is told what it has beside them."""
        known = self.members.get(member)
        others = [name for name in self.members if name != member] if self._is_exclusive else []
        effects: list[Effect] = []
        if others:
            if not take_over:
                reason = f"the member {others[0]} has it, and the mode is exclusive"
                return [TellRefused(session, Status.SUBSCRIPTION_BUSY, reason)]
            for name in others:
                effects += self._remove(name, Status.MEMBER_FENCED, "another member took over")
        elif known is None and len(self.members) >= MEMBERS_PER_SUBSCRIPTION_MAX:
            reason = f"a subscription has at most {MEMBERS_PER_SUBSCRIPTION_MAX} members"
            return [TellRefused(session, Status.TOO_MANY, reason)]
        told = TellAssigned(session, member, self._options.session_timeout_ms)
        if known is None:
            self.members[member] = _JoinedMember(entry, now, session)
        else:
            effects += self._end_session(known, Status.MEMBER_FENCED, "the member joined again")
            known.session, known.heard_at = session, now
        self._names[session] = member
        key = member_key(self.sid, member)
        if known is None or known.entry != entry:
            self.members[member].entry = entry
            effects.append(self._pending.append(key, entry, told))
        else:
            effects += self._pending.when_committed(key, told)
        for log, claim in (there := dict(held)).items():
            effects += self._learn(log, claim)
        return effects + self._agree(member, there) + self._balance(now)

    def heard(self, session: Session, now: float) -> None:
        """The member behind *session* gave a sign of life."""
        if (name := self._names.get(session)) is not None:
            self.members[name].heard_at = now

    def released(
        self, session: Session, logs: Iterable[tuple[PartitionId, Claim]], now: float
    ) -> list[Effect]:
        """A member has stored its marks of *logs*, and reads them no more."""
        name = self._names.get(session)
        effects: list[Effect] = []
        for log, claim in logs:
            state = self.logs.get(log)
            if name is None or state is None:
                continue
            if self._is_held(state, name, claim):
                effects += self._free(log)
            effects += self._learn(log, claim)
        return effects + self._balance(now) if effects else []

    def leave(self, session: Session, answer: Session, now: float) -> list[Effect]:
        """A member ends, and *answer* is told so.  A static one keeps its logs until its session
        timeout."""
        name = self._names.get(session)
        self.session_ended(session)
        if name is None or self.members[name].entry.static:
            return [TellDone(answer)]
        return self._remove(name, then=TellDone(answer)) + self._balance(now)

    def session_ended(self, session: Session) -> None:
        """A member's connection broke; it may come back within its session timeout."""
        if (name := self._names.pop(session, None)) is not None:
            self.members[name].session = None

    def tick(self, now: float) -> list[Effect]:
        """Expire members that were silent for too long, free what was not released in time, and
        give up resets that nobody finished."""
        effects: list[Effect] = []
        oldest = now - self._session_timeout_s
        for name in [name for name, one in self.members.items() if one.heard_at <= oldest]:
            effects += self._remove(name, Status.UNKNOWN_MEMBER, "it was silent for too long")
        for waits in (self._release_by, self._reset_by):
            for log in [log for log, until in waits.items() if until <= now]:
                effects += self._free(log)
        return effects + self._balance(now) if effects or self._is_uneven else []

    @property
    def due_at(self) -> float | None:
        """When to call `tick`; None: there is nobody to wait for."""
        heard = min((one.heard_at for one in self.members.values()), default=None)
        times = [] if heard is None else [heard + self._session_timeout_s]
        return min([*times, *self._release_by.values(), *self._reset_by.values()], default=None)

    # --- resetting ---------------------------------------------------------------------

    def reset(
        self,
        session: Session,
        log: PartitionId,
        offset: Offset,
        now: float,
        *,
        force: bool,
        newest: Claim = NO_CLAIM,
    ) -> list[Effect]:
        """Begin to set the mark of *log* to *offset*: with the claim that *session* is told, its
        leader is to be asked for that, and then `reset_done` called.

        *newest*: the newest claim that the log's leader knows, as `describe_marks` says.  It can be
        greater than all that were given here if a member attached with a claim of its own making,
        or if an operator accepted the loss of what was stored here.  Counting goes on from the
        greater one, so the log's leader takes this reset, and the members after it."""
        state = self.logs.get(log)
        if state is None:
            reason = f"the subscription has no log in partition {log}"
            return [TellRefused(session, Status.UNKNOWN_PARTITION, reason)]
        if state.phase == AssignmentPhase.ASSIGNED and not force:
            reason = f"the member {state.member} has the log: stop it, or use `--force`"
            return [TellRefused(session, Status.SUBSCRIPTION_BUSY, reason)]
        if self._is_queue and self.members and not force:
            reason = f"it has {len(self.members)} members: stop them, or use `--force`"
            return [TellRefused(session, Status.SUBSCRIPTION_BUSY, reason)]
        if newest > COUNTED_MAX - CLAIM_STEP_MAX:
            reason = f"no claim comes far behind {newest}: delete the subscription"
            return [TellRefused(session, Status.INVALID_OPTION, reason)]
        effects: list[Effect] = []
        owner = self.members.get(state.member)
        if owner is not None and owner.session is not None:
            effects.append(self._revoked(state.member, [(log, state.claim)]))
        claim = Claim(max(state.claim, newest) + 1)
        begun = AssignmentEntry(AssignmentPhase.RESETTING, NO_MEMBER, claim, offset)
        effects += self._set(log, begun, TellResetBegun(session, log, claim))
        self._reset_by[log] = now + RESET_WAIT_S
        return effects

    def reset_done(
        self, session: Session, log: PartitionId, claim: Claim, now: float
    ) -> list[Effect]:
        """The log's leader has set the mark."""
        state = self.logs.get(log)
        if state is None or (state.phase, state.claim) != (AssignmentPhase.RESETTING, claim):
            return [TellDone(session)]
        return self._free(log, TellDone(session)) + self._balance(now)

    # --- more logs ---------------------------------------------------------------------

    def extend(self, logs: Iterable[PartitionId], now: float) -> list[Effect]:
        """The topic got *logs*, which members get as those that it has."""
        known = self.logs | {one: AssignmentEntry() for one in logs if one not in self.logs}
        self.logs = {log: known[log] for log in sorted(known)}
        return self._balance(now)

    # --- looking -----------------------------------------------------------------------

    def facts(self) -> tuple[tuple[MemberFacts, ...], tuple[AssignmentFacts, ...]]:
        """Members and assignments, for people to look at."""
        counts = dict.fromkeys(self.members, 0)
        for owner in self._owners().values():
            counts[owner] += 1
        members = (
            MemberFacts(name, known.static, known.agent, known.subject, counts[name], known.name)
            for name, known in sorted((name, one.entry) for name, one in self.members.items())
        )
        logs = (
            AssignmentFacts(log, state.phase, state.member, state.claim)
            for log, state in self.logs.items()
        )
        return tuple(members), tuple(logs)

    # --- assigning ---------------------------------------------------------------------

    def committed(self, now: float) -> list[Effect]:
        """An entry of this subscription is committed."""
        return self._balance(now) if self._is_uneven else []

    def end(self, status: Status, reason: str) -> tuple[list[Effect], list[Effect]]:
        """The subscription ends: what removes its members and assignments, and what its members
        are to be told when that is committed."""
        told = [TellDetached(session, status, reason) for session in self._names]
        keys = [member_key(self.sid, name) for name in self.members]
        keys += [assignment_key(self.sid, log) for log, one in self.logs.items() if one.claim]
        return [self._pending.append(key, None) for key in keys], list(told)

    def _balance(self, now: float) -> list[Effect]:
        """Assign what is free, and ask for the release of what belongs to others."""
        self._is_uneven = False
        if self._is_queue:
            return []
        members = [GroupMember(name, one.entry.static) for name, one in self.members.items()]
        resetting = AssignmentPhase.RESETTING
        logs = [log for log, state in self.logs.items() if state.phase != resetting]
        effects: list[Effect] = []
        for log, member in target(members, self._owners(), logs).items():
            state = self.logs[log]
            if state.phase == AssignmentPhase.FREE:
                effects += self._assign(log, member)
            elif state.member != member and log not in self._release_by:
                effects += self._ask_to_release(log, now)
        return effects

    def _owners(self) -> dict[PartitionId, MemberId]:
        assigned = AssignmentPhase.ASSIGNED
        return {log: one.member for log, one in self.logs.items() if one.phase == assigned}

    def _is_held(self, state: AssignmentEntry, member: MemberId, claim: Claim | None) -> bool:
        owned = (AssignmentPhase.ASSIGNED, member, claim)
        return (state.phase, state.member, state.claim) == owned

    def _agree(self, member: MemberId, held: Mapping[PartitionId, Claim]) -> list[Effect]:
        """Have what *member* holds and what is assigned to it be the same."""
        effects: list[Effect] = []
        wrong = []
        for log, claim in held.items():
            state = self.logs.get(log)
            if state is None or not self._is_held(state, member, claim) or log in self._release_by:
                wrong.append((log, claim))
        if wrong:
            effects.append(self._revoked(member, wrong))
        for log, owner in self._owners().items():
            if owner == member and held.get(log) != self.logs[log].claim:
                effects += self._free(log) if log in self._release_by else self._assign(log, member)
        return effects

    def _learn(self, log: PartitionId, claim: Claim) -> list[Effect]:
        """A member was given *log* with *claim*.  If that is newer than what is known, all replicas
        have lost the decision.  So count on from there: the log's leader, and members, refuse the
        claims up to it.  A claim that is too far ahead is none: the log's leader would refuse those
        behind it."""
        state = self.logs.get(log)
        if self._is_queue or state is None:
            return []
        if not state.claim < claim <= min(state.claim + CLAIM_STEP_MAX, TOLD_MAX):
            return []
        if state.phase == AssignmentPhase.RESETTING:
            return []  # it is given up, or done, in a moment
        effects: list[Effect] = []
        if state.member and self.members[state.member].session is not None:
            effects.append(self._revoked(state.member, [(log, state.claim)]))
        return effects + self._set(log, AssignmentEntry(AssignmentPhase.FREE, NO_MEMBER, claim))

    def _assign(self, log: PartitionId, member: MemberId) -> list[Effect]:
        one = self.members[member]
        if one.session is None:
            return []  # it would not hear of it; when it comes back, or expires, it is decided
        claim = Claim(self.logs[log].claim + 1)
        assigned = AssignmentEntry(AssignmentPhase.ASSIGNED, member, claim)
        timeout_ms = self._options.session_timeout_ms
        return self._set(
            log, assigned, TellAssigned(one.session, member, timeout_ms, ((log, claim),))
        )

    def _ask_to_release(self, log: PartitionId, now: float) -> list[Effect]:
        state = self.logs[log]
        if self._pending.has(assignment_key(self.sid, log)):
            self._is_uneven = True
            return []  # its member has not been told that it has it
        self._release_by[log] = now + self._options.release_timeout_ms / 1000
        if self.members[state.member].session is None:
            return []  # it is told when it comes back
        return [self._revoked(state.member, [(log, state.claim)])]

    def _revoked(self, member: MemberId, logs: Iterable[tuple[PartitionId, Claim]]) -> TellRevoked:
        session = self.members[member].session
        assert session is not None
        return TellRevoked(session, member, self._options.session_timeout_ms, tuple(logs))

    def _free(self, log: PartitionId, *then: Effect) -> list[Effect]:
        claim = self.logs[log].claim
        return self._set(log, AssignmentEntry(AssignmentPhase.FREE, NO_MEMBER, claim), *then)

    def _remove(
        self,
        member: MemberId,
        status: Status | None = None,
        reason: str = "",
        then: Effect | None = None,
    ) -> list[Effect]:
        """*member* is one no more; what it had is free."""
        gone = self.members[member]
        effects = [] if status is None else self._end_session(gone, status, reason)
        for log, owner in self._owners().items():
            if owner == member:
                effects += self._free(log)
        del self.members[member]
        self._is_uneven = True
        told = () if then is None else (then,)
        return [*effects, self._pending.append(member_key(self.sid, member), None, *told)]

    def _end_session(self, member: _JoinedMember, status: Status, reason: str) -> list[Effect]:
        session, member.session = member.session, None
        if session is None:
            return []
        del self._names[session]
        return [TellDetached(session, status, reason)]

    def _set(self, log: PartitionId, entry: AssignmentEntry, *then: Effect) -> list[Effect]:
        self.logs[log] = entry
        self._release_by.pop(log, None)
        self._reset_by.pop(log, None)
        return [self._pending.append(assignment_key(self.sid, log), entry, *then)]

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        for log, state in self.logs.items():
            is_assigned = state.phase == AssignmentPhase.ASSIGNED
            assert is_assigned == bool(state.member), log
            assert not is_assigned or state.member in self.members, log
            assert (state.reset_to is not None) == (state.phase == AssignmentPhase.RESETTING)
            assert (log in self._reset_by) == (state.phase == AssignmentPhase.RESETTING)
        assert self._release_by.keys() <= self._owners().keys()
        assert self._names == {
            one.session: name for name, one in self.members.items() if one.session is not None
        }
