"""Which steps (`octopi.tracing.subscriptions`) a leader comes to as it performs effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from octopi.environment import Trace
from octopi.identifiers import Epoch, MemberId, Offset, PartitionId, SubscriptionId
from octopi.subscriptions import effects as e
from octopi.subscriptions.entries import AssignmentPhase
from octopi.tracing import steps
from octopi.tracing.step import Step

_Edges: TypeAlias = tuple[Callable[..., Step], Callable[..., Step]]


class SubscriptionTracer:
    """The steps of one leadership.  Each method gives the steps of both edges, before and behind;
    none where nothing of interest happens."""

    def __init__(self, trace: Trace, partition: PartitionId, epoch: Epoch) -> None:
        self.trace = trace
        self._where = (partition, epoch)

    def loaded(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """The leader begins with *states*."""
        self.trace(steps.S13Loaded(*self._where, states))

    def append(self, state: e.AppendState) -> tuple[Step, Step]:
        """An entry is appended."""
        kind, _, ids = state.key.partition("/")
        value = state.value
        if value is None:
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
            claim = value.get("claim", 0)
            edges = (
                (steps.S9Storing, steps.S9Stored) if claim else (steps.S2Opening, steps.S2Opened)
            )
            facts = (value["topic"], last, value["mark"], claim)
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
        return None

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
