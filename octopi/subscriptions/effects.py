"""What the machines of subscriptions want done, in this order and no other.

"Durable before told" is the shape of `AppendState`: what follows from a state, such as the answer
to the member that asked for it, stands inside the effect and is performed when the state is
committed.  If its leader is deposed before that, it is never performed.

All others are answers.  Each names its *session*: one request of one connection, which the caller
numbers; an answer for a session that has ended is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from octopi.errors import Status
from octopi.identifiers import (
    Claim,
    MemberId,
    Offset,
    PartitionId,
    SubscriptionId,
    TimestampMs,
    TopicId,
    TopicName,
)
from octopi.model import SubscriptionDefinition
from octopi.position import Anchor
from octopi.subscriptions.entries import LostSpan

Session: TypeAlias = int
"""A request of a connection, as the caller numbers them: where answers go.  Never used again."""


@attrs.frozen
class AppendState:
    """Append *value* under *key* to the partition's log ``~subscriptions``; None removes the key.

    When it is committed, perform *then*, tell the machine (`committed`), and perform what that
    returns."""

    key: str
    value: Mapping[str, Any] | None
    """Plain values for CBOR (`octopi.subscriptions.entries`)."""
    then: tuple[Effect, ...] = ()


@attrs.frozen
class TellDone:
    """Answer a request: what it asked for is committed."""

    session: Session


@attrs.frozen
class TellRefused:
    """Answer a request: nothing of it was done, and its session has ended."""

    session: Session
    status: Status
    reason: str


# --- from the coordinator ------------------------------------------------------------


@attrs.frozen
class MemberFacts:
    """A member, for people to look at."""

    member: MemberId
    static: bool
    agent: str
    subject: str
    log_count: int
    name: str


@attrs.frozen
class AssignmentFacts:
    """Who has a log, for people to look at."""

    partition: PartitionId
    phase: str
    """An `octopi.subscriptions.entries.AssignmentPhase`."""
    member: MemberId
    """Empty: nobody."""
    claim: Claim


@attrs.frozen
class TellDescription:
    """Answer with what is known of one subscription."""

    session: Session
    definition: SubscriptionDefinition
    members: tuple[MemberFacts, ...] = ()
    assignments: tuple[AssignmentFacts, ...] = ()


@attrs.frozen
class TellSubscriptions:
    """Answer with subscriptions, in the order of their names."""

    session: Session
    definitions: tuple[SubscriptionDefinition, ...]


@attrs.frozen
class TellAssigned:
    """Tell a member which logs it has now, beside those that it was told before.  The first answer
    to a join, with the member's id; it may name no log."""

    session: Session
    member: MemberId
    session_timeout_ms: int
    logs: tuple[tuple[PartitionId, Claim], ...] = ()


@attrs.frozen
class TellRevoked:
    """Ask a member to finish with logs, and to release them."""

    session: Session
    member: MemberId
    session_timeout_ms: int
    logs: tuple[tuple[PartitionId, Claim], ...]


@attrs.frozen
class TellResetBegun:
    """Tell who asked for a reset that the mark may be set now, with *claim*."""

    session: Session
    partition: PartitionId
    claim: Claim


# --- from a log's leader -------------------------------------------------------------


@attrs.frozen
class TellAttached:
    """Tell a member that its claim is in force and where its mark is."""

    session: Session
    mark: Offset
    anchor: Anchor
    claim: Claim
    log_start: Offset
    lost: LostSpan | None = None
    """What the log has no more: below its start, where retention removed it (`mark` is below
    `log_start`), else behind the mark, where all replicas lost it."""


@attrs.frozen
class TellMarked:
    """Tell a member that its mark number *acknowledge* is committed."""

    session: Session
    acknowledge: int


@attrs.frozen
class TellDetached:
    """Tell a member, of an attach or of a join, that it has ended, and why."""

    session: Session
    status: Status
    reason: str


@attrs.frozen
class TellMarks:
    """Answer with how far a subscription is in a log."""

    session: Session
    mark: Offset
    anchor: Anchor
    claim: Claim
    highwater: Offset
    lag_bytes: int
    changed_ms: TimestampMs
    member: MemberId
    """The one that is attached; empty: none."""
    lost: LostSpan | None
    skipped: tuple[LostSpan, ...]
    member_count: int = 0
    open_count: int = 0
    waiting_count: int = 0
    dead_count: int = 0
    letter_fault: str = ""
    held_bytes: int = 0
    """What retention would have removed, and keeps for this subscription."""


# --- from a queue --------------------------------------------------------------------


@attrs.frozen
class Dealt:
    """A message that is dealt."""

    offset: Offset
    end: Offset
    """Where its record ends."""
    attempt: int


@attrs.frozen
class DealMessages:
    """Read these records and send them to a member; they are in the order in which they are to be
    worked on."""

    session: Session
    sid: SubscriptionId
    topic_id: TopicId
    messages: tuple[Dealt, ...]


@attrs.frozen
class TellSettled:
    """Tell a member that what counts of its answer number *acknowledge* is committed, if it asked
    for that, and which messages of that answer don't count."""

    session: Session
    acknowledge: int
    stale: tuple[Offset, ...] = ()
    is_confirmed: bool = False
    """Whether it asked for that."""


@attrs.frozen
class WantMessages:
    """Read committed messages from `octopi.subscriptions.queue.Queue.read_end` on, as many as its
    `wanted_count` says, and tell the machine (`feed`).  Said again whenever it wants some."""

    sid: SubscriptionId


@attrs.frozen
class AppendLetter:
    """Append a dead letter to the log of *letter_topic* in this partition, and tell the machine
    what became of that (`letter_committed`, `letter_failed`, `begin_letters`)."""

    sid: SubscriptionId
    topic_id: TopicId
    offset: Offset
    """Of the original message."""
    end: Offset
    number: int
    attempts: int
    reason: str
    letter_topic: TopicName
    letter_topic_id: TopicId
    """What the sequence belongs to; if the topic has another id now, another sequence has to
    begin."""
    producer_epoch: int
    sequence: int


Told: TypeAlias = (
    TellDone
    | TellRefused
    | TellDescription
    | TellSubscriptions
    | TellAssigned
    | TellRevoked
    | TellResetBegun
    | TellAttached
    | TellMarked
    | TellDetached
    | TellMarks
    | TellSettled
    | DealMessages
)
"""What goes to a session."""

Effect: TypeAlias = AppendState | AppendLetter | WantMessages | Told
