"""What a broker answers about durable subscriptions: the messages of what the machines say."""

from __future__ import annotations

from octopi.identifiers import Claim, PartitionId
from octopi.limits import TEXT_BYTES_MAX
from octopi.subscriptions import effects as e
from octopi.subscriptions.entries import LostSpan
from octopi.wire import messages as m


def assignment(request: int, told: e.TellAssigned | e.TellRevoked) -> m.Assignment:
    """Of what a member has from now on, or is to release."""
    logs = _claims(told.logs)
    add, release = (logs, []) if isinstance(told, e.TellAssigned) else ([], logs)
    return m.Assignment(request, told.member, add, release, told.session_timeout_ms)


def marks_description(request: int, told: e.TellMarks, lag_ms: int) -> m.MarksDescription:
    """Of how far a subscription is in a log; *lag_ms*: age of the message at the mark."""
    return m.MarksDescription(
        request,
        told.mark,
        told.claim,
        told.highwater,
        told.lag_bytes,
        lag_ms,
        told.changed_ms,
        told.member,
        None if told.lost is None else _range(told.lost),
        [_range(one) for one in told.skipped],
        told.anchor,
        told.member_count,
        told.open_count,
        told.waiting_count,
        told.dead_count,
        told.letter_fault[:TEXT_BYTES_MAX],
        told.held_bytes,
    )


def _claims(logs: tuple[tuple[PartitionId, Claim], ...]) -> list[m.LogClaim]:
    return [m.LogClaim(partition, claim) for partition, claim in logs]


def _range(span: LostSpan) -> m.OffsetRange:
    return m.OffsetRange(span.begin, span.end)


def attached(request: int, told: e.TellAttached) -> m.Attached:
    """Of where a member goes on."""
    lost = told.lost
    begin, end = (None, None) if lost is None else (lost.begin, lost.end)
    return m.Attached(request, told.mark, told.claim, told.log_start, begin, end, told.anchor)


def description(request: int, told: e.TellDescription) -> m.SubscriptionDescription:
    """Of one subscription."""
    members = [
        m.SubscriptionMember(
            one.member, one.static, one.agent, one.subject, one.log_count, one.name
        )
        for one in told.members
    ]
    assignments = [
        m.AssignmentInfo(one.partition, one.phase, one.member, one.claim)
        for one in told.assignments
    ]
    return m.SubscriptionDescription(request, told.definition, members, assignments)
