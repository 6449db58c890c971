"""The subscriptions whose coordinator is the leader of one partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

import attrs

from octopi.errors import Status
from octopi.identifiers import (
    Claim,
    MemberId,
    Offset,
    PartitionId,
    SubscriptionId,
    SubscriptionName,
    TopicId,
    consumer_name_fault,
)
from octopi.limits import (
    OFFSET_MAX,
)
from octopi.model import QUEUE_MODES, SubscriptionDefinition, SubscriptionState
from octopi.subscriptions.coordinator import Coordinator
from octopi.subscriptions.definition_fault import definition_fault
from octopi.subscriptions.effects import (
    Effect,
    Session,
    TellDescription,
    TellDone,
    TellRefused,
    TellSubscriptions,
)
from octopi.subscriptions.entries import (
    NO_MEMBER,
    MemberEntry,
    StoredSubscriptions,
    assignment_key,
    definition_key,
    member_key,
)
from octopi.subscriptions.log_marks import TURN_COUNT
from octopi.subscriptions.pending_states import PendingStates
from octopi.subscriptions.queue import AT_ONCE
from octopi.subscriptions.times import Timetable, WallTimes
from octopi.wire.codec import fault_in

Name: TypeAlias = tuple[TopicId, SubscriptionName]

TURN_SIZE: Final = 1_000
"""Members and logs of subscriptions that a call of `tick`, or a part of `restore`, looks at,
about."""

_NEVER: Final = float("inf")


class CoordinatedSubscriptions:
    """Definitions, and for each one that has all its marks the coordinator of its members."""

    def __init__(
        self,
        partition: PartitionId,
        pending: PendingStates,
        times: WallTimes,
        new_id: Callable[[], str],
    ) -> None:
        self._partition = partition
        self._pending = pending
        self._times = times
        self._new_id = new_id
        self._definitions: dict[SubscriptionId, SubscriptionDefinition] = {}
        self._by_name: dict[Name, SubscriptionId] = {}
        self._coordinators: dict[SubscriptionId, Coordinator] = {}
        self._left_over: dict[SubscriptionId, list[str]] = {}
        """Keys of members and assignments of subscriptions that are being deleted."""
        self._gone: dict[SubscriptionId, str] = {}
        """Subscriptions whose topics are gone, and that are to be removed, with the reason."""
        self._joined: dict[Session, SubscriptionId] = {}
        self._due = Timetable()

    def restore(self, stored: StoredSubscriptions, now: float) -> Iterator[None]:
        """Begin with what is committed; yields after each part of the work."""
        work = 0
        for sid, definition in stored.definitions.items():
            members, logs = stored.members.get(sid, {}), stored.assignments.get(sid, {})
            self._add(definition)
            if definition.state == SubscriptionState.DELETING:
                keys = [member_key(sid, one) for one in members]
                self._left_over[sid] = keys + [assignment_key(sid, log) for log in logs]
            else:
                self._coordinators[sid] = Coordinator(
                    sid,
                    definition.partitions,
                    members,
                    logs,
                    self._pending,
                    now,
                    options=definition.options,
                    mode=definition.mode,
                )
            self._plan(sid)
            work += 1 + len(members) + len(definition.partitions)
            if work >= TURN_SIZE:
                work = 0
                yield

    # --- life --------------------------------------------------------------------------

    def create(
        self,
        session: Session,
        wanted: SubscriptionDefinition,
        create: str,
        now: float,
    ) -> list[Effect]:
        """Have the subscription *wanted*, of which neither the id nor the state counts.  *create*:
        ``create`` (there is none yet), ``attach`` (there is one) or ``create_or_attach``."""
        sid = self._by_name.get((TopicId(wanted.topic_id), wanted.name))
        if sid is not None:
            return self._existing(session, self._definitions[sid], wanted, create, now)
        if create == "attach":
            return [_unknown(session, wanted.name)]
        if fault := definition_fault(wanted, create, self._partition, len(self._definitions)):
            return [TellRefused(session, *fault)]
        definition = attrs.evolve(
            wanted,
            sid=SubscriptionId(self._new_id()),
            state=SubscriptionState.CREATING,
            created_ms=self._times.of(now),
            used_ms=self._times.of(now),
        )
        self._add(definition)
        self._coordinators[definition.sid] = Coordinator(
            definition.sid,
            definition.partitions,
            {},
            {},
            self._pending,
            now,
            options=definition.options,
            mode=definition.mode,
        )
        return self._store(definition, self._description(session, definition))

    def _existing(
        self,
        session: Session,
        found: SubscriptionDefinition,
        wanted: SubscriptionDefinition,
        create: str,
        now: float,
    ) -> list[Effect]:
        name = found.name
        if found.state == SubscriptionState.DELETING:
            if create == "attach":
                return [_unknown(session, name)]
            reason = f"{name} is being deleted: run `octopi-node subscriptions delete {name}` again"
            return [TellRefused(session, Status.SUBSCRIPTION_BUSY, reason)]
        if found.mode != wanted.mode:
            reason = f"the mode of {name} is {found.mode}, not {wanted.mode}"
            status = Status.WRONG_MODE if create == "attach" else Status.SUBSCRIPTION_EXISTS
            return [TellRefused(session, status, reason)]
        if create != "attach" and found.options != wanted.options:
            has, given = attrs.asdict(found.options), attrs.asdict(wanted.options)
            other = [f"{key} {has[key]}, not {given[key]}" for key in has if has[key] != given[key]]
            reason = f"{name} exists with {', '.join(other)}"
            return [TellRefused(session, Status.SUBSCRIPTION_EXISTS, reason)]
        if create == "create" and found.state == SubscriptionState.READY:
            reason = f"{name} exists already"
            return [TellRefused(session, Status.SUBSCRIPTION_EXISTS, reason)]
        if further := [one for one in wanted.partitions if one not in found.partitions]:
            return self._extend(session, found, further, now)
        return self._told(found, self._description(session, found))

    def _extend(
        self,
        session: Session,
        found: SubscriptionDefinition,
        further: list[PartitionId],
        now: float,
    ) -> list[Effect]:
        """The topic got other partitions: the subscription has their logs, too."""
        if found.mode in QUEUE_MODES:
            reason = f"the topic got other partitions, and {found.name} of mode {found.mode} can't"
            return [TellRefused(session, Status.INVALID_OPTION, f"{reason} have their messages")]
        extended = attrs.evolve(found, partitions=[*found.partitions, *further])
        stored = self._store(extended)
        told = self._told(extended, self._description(session, extended))
        return self._planned(
            found.sid, [*stored, *told, *self._coordinators[found.sid].extend(further, now)]
        )

    def finish(self, session: Session, sid: SubscriptionId) -> list[Effect]:
        """Every log has its mark."""
        if (found := self._definitions.get(sid)) is None:
            return [_unknown(session)]
        if found.state == SubscriptionState.DELETING:
            return [_unknown(session, found.name)]
        if found.state == SubscriptionState.CREATING:
            ready = attrs.evolve(found, state=SubscriptionState.READY)
            return self._store(ready, TellDone(session))
        return self._told(found, TellDone(session))

    def begin_deletion(self, session: Session, sid: SubscriptionId) -> list[Effect]:
        """Take no members any more; the marks are to be deleted next."""
        if (found := self._definitions.get(sid)) is None:
            return [TellDone(session)]
        if found.state == SubscriptionState.DELETING:
            return self._told(found, TellDone(session))
        reason = f"the subscription {found.name} was deleted"
        removed, told = self._end_group(sid, Status.UNKNOWN_SUBSCRIPTION, reason)
        deleting = attrs.evolve(found, state=SubscriptionState.DELETING)
        return [*self._store(deleting, *told, TellDone(session)), *removed]

    def end_deletion(self, session: Session, sid: SubscriptionId) -> list[Effect]:
        """No log has its mark any more."""
        if (found := self._definitions.get(sid)) is None:
            return [TellDone(session)]
        if found.state != SubscriptionState.DELETING:
            reason = f"the deletion of {found.name} has not begun"
            return [TellRefused(session, Status.INVALID_OPTION, reason)]
        return self._remove(found, TellDone(session))

    def topic_removed(self, topic_id: TopicId, reason: str) -> list[Effect]:
        """The topic is gone, and with it all its subscriptions: the first part of them; `tick`
        removes the others."""
        found = [one for one in self._definitions.values() if one.topic_id == topic_id]
        self._gone.update((one.sid, reason) for one in found)
        return self._remove_gone()

    def _remove_gone(self) -> list[Effect]:
        """Remove a part of the subscriptions whose topics are gone."""
        effects: list[Effect] = []
        while self._gone and len(effects) < TURN_COUNT:
            sid = next(iter(self._gone))
            reason = self._gone.pop(sid)
            if (found := self._definitions.get(sid)) is not None:
                removed, told = self._end_group(sid, Status.UNKNOWN_TOPIC, reason)
                effects += [*removed, *self._remove(found, *told)]
        return effects

    # --- looking -----------------------------------------------------------------------

    def get(self, sid: SubscriptionId) -> SubscriptionDefinition | None:
        """What was decided about a subscription."""
        return self._definitions.get(sid)

    def subscription_of(self, session: Session) -> SubscriptionId | None:
        """Whose member joined with *session*."""
        return self._joined.get(session)

    def describe(self, session: Session, topic_id: TopicId, name: SubscriptionName) -> list[Effect]:
        """Tell all that is known of a subscription."""
        if (sid := self._by_name.get((topic_id, name))) is None:
            return [_unknown(session, name)]
        found = self._definitions[sid]
        return self._told(found, self._description(session, found))

    def list_names(
        self, session: Session, topic_id: TopicId, after: str, count_max: int
    ) -> list[Effect]:
        """Tell the first *count_max* subscriptions of a topic whose names come behind *after*."""
        creating = SubscriptionState.CREATING
        found = [
            one
            for one in self._definitions.values()
            if one.topic_id == topic_id and one.name > after
            if not (one.state == creating and self._pending.has(definition_key(one.sid)))
        ]
        found.sort(key=lambda one: one.name)
        return [TellSubscriptions(session, tuple(found[:count_max]))]

    def member_counts(self) -> list[tuple[SubscriptionDefinition, int]]:
        """The subscriptions that can have members, and how many each has."""
        groups = self._coordinators.items()
        return [(self._definitions[sid], len(group.members)) for sid, group in groups]

    @property
    def topic_ids(self) -> set[TopicId]:
        """Topics that have subscriptions here."""
        return {TopicId(one.topic_id) for one in self._definitions.values()}

    # --- members -----------------------------------------------------------------------

    def join(
        self,
        session: Session,
        sid: SubscriptionId,
        member: MemberId,
        entry: MemberEntry,
        held: Iterable[tuple[PartitionId, Claim]],
        now: float,
        *,
        take_over: bool,
    ) -> list[Effect]:
        """A member is there, for the first time (*member* is empty, or it is static) or again."""
        found, group = self._definitions.get(sid), self._coordinators.get(sid)
        if found is None or group is None:
            return [_unknown(session)]
        if found.state == SubscriptionState.CREATING:
            reason = f"the subscription {found.name} is being created: not every log has its mark"
            return [TellRefused(session, Status.NOT_READY, reason)]
        if entry.static and (fault := consumer_name_fault(member)):
            return [TellRefused(session, Status.INVALID_OPTION, f"a static member's name: {fault}")]
        if fault := fault_in(entry):
            return [TellRefused(session, Status.INVALID_OPTION, fault)]
        if member == NO_MEMBER:
            member = MemberId(self._new_id())
        elif not entry.static and member not in group.members:
            reason = f"{found.name} has no member {member[:200]!r}: it was silent for too long"
            return [TellRefused(session, Status.UNKNOWN_MEMBER, reason)]
        effects = group.join(session, member, entry, held, now, take_over=take_over)
        if member in group.members and group.members[member].session == session:
            self._joined[session] = sid
            effects += self._used(found, now)
        return self._planned(sid, effects)

    def holding(
        self, session: Session, released: Iterable[tuple[PartitionId, Claim]], now: float
    ) -> list[Effect]:
        """A member gives a sign of life, and says which logs it has released."""
        if (group := self._group(session)) is None:
            return []  # it has been told
        group.heard(session, now)
        effects = group.released(session, released, now)
        return self._planned(group.sid, effects) if effects else []

    def leave(self, session: Session, answer: Session, now: float) -> list[Effect]:
        """A member ends; *answer*: the session that asks for that."""
        group = self._group(session)
        self._joined.pop(session, None)
        if group is None:
            return [TellDone(answer)]
        effects = group.leave(session, answer, now)
        return self._planned(group.sid, effects + self._used(self._definitions[group.sid], now))

    def session_ended(self, session: Session) -> None:
        """A member's connection broke."""
        if (group := self._group(session)) is not None:
            group.session_ended(session)
        self._joined.pop(session, None)

    # --- resetting ---------------------------------------------------------------------

    def reset(
        self,
        session: Session,
        sid: SubscriptionId,
        log: PartitionId,
        offset: Offset,
        now: float,
        *,
        force: bool,
        newest: Claim,
    ) -> list[Effect]:
        """Begin to set the mark of a log."""
        if (group := self._coordinators.get(sid)) is None:
            return [_unknown(session)]
        if offset > OFFSET_MAX:
            reason = f"there is no offset {offset}"
            return [TellRefused(session, Status.OFFSET_OUT_OF_RANGE, reason)]
        begun = group.reset(session, log, offset, now, force=force, newest=newest)
        return self._planned(sid, begun)

    def reset_done(
        self, session: Session, sid: SubscriptionId, log: PartitionId, claim: Claim, now: float
    ) -> list[Effect]:
        """The mark of a log was set."""
        if (group := self._coordinators.get(sid)) is None:
            return [_unknown(session)]
        return self._planned(sid, group.reset_done(session, log, claim, now))

    # --- what happens ------------------------------------------------------------------

    def committed(self, sid: SubscriptionId, now: float) -> list[Effect]:
        """An entry of a subscription is committed."""
        group = self._coordinators.get(sid)
        return [] if group is None else self._planned(sid, group.committed(now))

    @property
    def due_at(self) -> float | None:
        """When to call `tick`; None: there is nothing to wait for."""
        return AT_ONCE if self._gone else self._due.next_at

    def tick(self, now: float) -> list[Effect]:
        """Expire members, and subscriptions that had none for long, and remove those whose topics
        are gone; a part of each."""
        effects = self._remove_gone()
        work = 0
        while work < TURN_SIZE and (due := self._due.due(now, 1)):
            sid = SubscriptionId(due[0])
            found, group = self._definitions.get(sid), self._coordinators.get(sid)
            if found is None or group is None:
                continue
            work += 1 + len(group.members) + len(group.logs)
            had_members = bool(group.members)
            effects += group.tick(now)
            if had_members:
                effects += self._used(found, now)
            elif self._life_at(found) <= now and not self._pending.has(definition_key(sid)):
                reason = f"the subscription {found.name} expired: nobody used it"
                removed, told = self._end_group(sid, Status.UNKNOWN_SUBSCRIPTION, reason)
                effects += [*removed, *self._remove(found, *told)]
                continue
            self._plan(sid, at_least=now)
        return effects

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert self._by_name.keys() == {
            (one.topic_id, one.name) for one in self._definitions.values()
        }
        for group in self._coordinators.values():
            group.check_invariants()

    # --- helpers -----------------------------------------------------------------------

    def _add(self, definition: SubscriptionDefinition) -> None:
        self._definitions[definition.sid] = definition
        self._by_name[TopicId(definition.topic_id), definition.name] = definition.sid

    def _store(self, definition: SubscriptionDefinition, *then: Effect) -> list[Effect]:
        self._definitions[definition.sid] = definition
        self._plan(definition.sid)
        return [self._pending.append(definition_key(definition.sid), definition, *then)]

    def _told(self, definition: SubscriptionDefinition, answer: Effect) -> list[Effect]:
        return self._pending.when_committed(definition_key(definition.sid), answer)

    def _used(self, definition: SubscriptionDefinition, now: float) -> list[Effect]:
        """Note that there are members, if that was not noted for a while."""
        expires_ms, now_ms = definition.options.expires_ms, self._times.of(now)
        if expires_ms is None or now_ms < definition.used_ms + expires_ms / 4:
            return []
        return self._store(attrs.evolve(definition, used_ms=now_ms))

    def _remove(self, definition: SubscriptionDefinition, *then: Effect) -> list[Effect]:
        sid = definition.sid
        del self._definitions[sid], self._by_name[TopicId(definition.topic_id), definition.name]
        keys = [*self._left_over.pop(sid, []), definition_key(sid)]
        removed = [self._pending.append(key, None) for key in keys[:-1]]
        return [*removed, self._pending.append(keys[-1], None, *then)]

    def _end_group(
        self, sid: SubscriptionId, status: Status, reason: str
    ) -> tuple[list[Effect], list[Effect]]:
        group = self._coordinators.pop(sid, None)
        return ([], []) if group is None else group.end(status, reason)

    def _group(self, session: Session) -> Coordinator | None:
        sid = self._joined.get(session)
        return None if sid is None else self._coordinators.get(sid)

    def _description(self, session: Session, definition: SubscriptionDefinition) -> TellDescription:
        group = self._coordinators.get(definition.sid)
        members, logs = ((), ()) if group is None else group.facts()
        return TellDescription(session, definition, members, logs)

    def _life_at(self, definition: SubscriptionDefinition) -> float:
        """When a subscription without members expires."""
        if definition.options.expires_ms is None:
            return _NEVER
        return self._times.monotonic(definition.used_ms + definition.options.expires_ms)

    def _plan(self, sid: SubscriptionId, at_least: float = -_NEVER) -> None:
        group = self._coordinators.get(sid)
        if group is None:
            return
        at = group.due_at
        if at is None:
            at = self._life_at(self._definitions[sid])
        self._due.set(sid, None if at == _NEVER else max(at, at_least))

    def _planned(self, sid: SubscriptionId, effects: list[Effect]) -> list[Effect]:
        self._plan(sid)
        return effects


def _unknown(session: Session, name: str = "") -> TellRefused:
    which = f"subscription {name}" if name else "such subscription: it was deleted, or it expired"
    return TellRefused(session, Status.UNKNOWN_SUBSCRIPTION, f"the topic has no {which}")
