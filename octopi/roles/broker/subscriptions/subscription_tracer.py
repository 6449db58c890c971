"""Which steps (`octopi.tracing.subscriptions`) a leader comes to as it performs effects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from octopi.environment import Trace
from octopi.identifiers import Epoch, MemberId, Offset, PartitionId, SubscriptionId
from octopi.subscriptions import effects as e
from octopi.subscriptions.entries import AssignmentPhase
from octopi.subscriptions.log_queue import Answers
from octopi.tracing import steps
from octopi.tracing.step import Step

_Edges: TypeAlias = tuple[Callable[..., Step], Callable[..., Step]]


class SubscriptionTracer:
    """The steps of one leadership.  Each method gives the steps of both edges, before and behind;
    none where nothing of interest happens."""

    def __init__(self, trace: Trace, partition: PartitionId, epoch: Epoch) -> None:
        self.trace = trace
        self._where = (partition, epoch)
        self._marks: set[str] = set()
        """The keys of marks that are stored."""

    def loaded(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """The leader begins with *states*."""
        self._marks = {key for key in states if key.startswith("k/")}
        self.trace(steps.S13Loaded(*self._where, states))

    def append(self, state: e.AppendState) -> tuple[Step, Step]:
        """An entry is appended."""
        kind, _, ids = state.key.partition("/")
        value = state.value
        if value is None:
            self._marks.discard(state.key)
            return self._both((steps.S12Removing, steps.S12Removed), state.key)
        sid, _, last = ids.partition("/")
        edges: _Edges
        facts: tuple[Any, ...]
        if kind == "s":
            edges = steps.S1Creating, steps.S1Created
            facts = tuple(value[one] for one in ("name", "topic", "topic_id", "state"))
        elif kind == "m":
            edges = steps.S3Joining, steps.S3Joined
            facts = (last, value.get("static", False))
        elif kind == "a" and value.get("phase") == AssignmentPhase.ASSIGNED:
            edges = steps.S4Assigning, steps.S4Assigned
            facts = (int(last), value["member"], value["claim"])
        elif kind == "a":
            edges = steps.S11Freeing, steps.S11Freed
            facts = (int(last), value.get("claim", 0), value.get("reset_to"))
        else:
            edges = steps.S2Opening, steps.S2Opened
            if state.key in self._marks:
                edges = steps.S9Storing, steps.S9Stored
            self._marks.add(state.key)
            facts = (value["topic"], last, value["mark"], value.get("claim", 0))
        return self._both(edges, sid, *facts)

    def commit(self, state: e.AppendState) -> tuple[Step, Step]:
        """What waited for the commit of an entry is done."""
        return self._both((steps.S10Hearing, steps.S10Heard), state.key, state.value)

    def tell(
        self, effect: e.Effect, sid: SubscriptionId | None, attached: MemberId
    ) -> tuple[Step, Step] | None:
        """A session is told something about the subscription *sid*; None: it has none any more.
        *attached*: who attached with it."""
        if sid is None:
            return None
        match effect:
            case e.TellAssigned(_, member, _, logs):
                return self._told_logs(sid, member, logs, revoked=False)
            case e.TellRevoked(_, member, _, logs):
                return self._told_logs(sid, member, logs, revoked=True)
            case e.TellAttached(_, mark, _, claim, _, lost):
                span = (None, None) if lost is None else (lost.begin, lost.end)
                edges = steps.S5Attaching, steps.S5Attached
                return self._both(edges, sid, attached, claim, mark, *span)
            case e.TellMarked(_, acknowledge):
                return self._both((steps.S8Confirming, steps.S8Confirmed), sid, acknowledge)
            case e.TellSettled(session, acknowledge, stale, is_confirmed):
                facts = session, acknowledge, list(stale), is_confirmed
                return self._both((steps.S7Telling, steps.S7Told), sid, *facts)
        return None

    def deal(self, effect: e.DealMessages) -> tuple[Step, Step]:
        """Messages are dealt."""
        edges = steps.S6Dealing, steps.S6Dealt
        facts = effect.topic_id, effect.session, _dealt(effect.messages)
        return self._both(edges, effect.sid, *facts)

    def send(
        self, sid: SubscriptionId, session: e.Session, messages: Sequence[e.Dealt]
    ) -> tuple[Step, Step]:
        """Messages that were dealt are sent."""
        return self._both((steps.S6Sending, steps.S6Sent), sid, session, _dealt(messages))

    def answer(
        self, sid: SubscriptionId, session: e.Session, answers: Answers, acknowledge: int | None
    ) -> tuple[Step, Step]:
        """A member of a queue answers."""
        edges = steps.S7Answering, steps.S7Answered
        return self._both(
            edges,
            sid,
            session,
            acknowledge,
            [[offset, attempt] for offset, attempt in answers.acknowledged],
            [[offset, attempt] for offset, attempt, _ in answers.released],
            [[offset, attempt] for offset, attempt, _ in answers.rejected],
            [[offset, attempt] for offset, attempt in answers.extended],
        )

    def leave(
        self, sid: SubscriptionId, session: e.Session, seen: Collection[tuple[Offset, int]]
    ) -> None:
        """A member of a queue leaves, whose program was given these deliveries."""
        pairs = [[offset, attempt] for offset, attempt in sorted(seen)]
        self.trace(steps.S7Leaving(*self._where, sid, session, pairs))

    def letter(self, effect: e.AppendLetter) -> tuple[Step, Step]:
        """A dead letter is appended."""
        return self._both((steps.S14Appending, steps.S14Appended), *_letter(effect))

    def letter_committed(self, effect: e.AppendLetter) -> tuple[Step, Step]:
        """A dead letter is committed."""
        return self._both((steps.S14Hearing, steps.S14Heard), *_letter(effect))

    def take(
        self, sid: SubscriptionId, offset: Offset, acknowledge: int | None
    ) -> tuple[Step, Step]:
        """A member's mark is taken."""
        return self._both((steps.S8Taking, steps.S8Taken), sid, offset, acknowledge)

    def _told_logs(
        self,
        sid: SubscriptionId,
        member: MemberId,
        logs: tuple[tuple[int, int], ...],
        *,
        revoked: bool,
    ) -> tuple[Step, Step]:
        pairs = [[log, claim] for log, claim in logs]
        return self._both((steps.S4Telling, steps.S4Told), sid, member, pairs, revoked)

    def _both(self, edges: _Edges, *facts: object) -> tuple[Step, Step]:
        before, behind = (one(*self._where, *facts) for one in edges)
        return before, behind


def _dealt(messages: Sequence[e.Dealt]) -> list[list[int]]:
    return [[one.offset, one.end, one.attempt] for one in messages]


def _letter(effect: e.AppendLetter) -> tuple[object, ...]:
    return effect.sid, effect.topic_id, effect.offset, effect.number
