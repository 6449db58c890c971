"""Messages about durable subscriptions, between clients and brokers.

A subscription's coordinator is the leader of its topic's first partition: it has the definition,
the members and the assignment of logs.  The leader of each partition of the topic has the mark of
its log.  All requests name a topic and a partition, as those for records do: the first partition
for the coordinator, the log's partition for a log's leader.  A broker that doesn't lead it answers
``not_leader``, with the address of the one that does.

What is answered is committed: a later leader knows it, too.
"""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.field_bounds import AtMost, MayBeMissing, Within
from octopi.identifiers import (
    NO_CLAIM,
    Claim,
    MemberId,
    Offset,
    PartitionId,
    SubscriptionId,
    TimestampMs,
)
from octopi.limits import (
    COUNTED_MAX,
    LIST_COUNT_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    QUEUE_WINDOW_MAX,
    SKIPPED_RANGES_MAX,
    TEXT_BYTES_MAX,
)
from octopi.model import (
    PartitionNumber,
    Place,
    SubscriptionDefinition,
    SubscriptionOptions,
    Verb,
)
from octopi.wire.common import Agent, Anchor, ConnectionName, Text
from octopi.wire.declarations import (
    ANY_TOKEN,
    CLIENT_TO_LEADER,
    TO_CLIENT,
    answer,
    notice,
    on_its_subscription,
    request,
)
from octopi.wire.queues import Attempt

Sid = Annotated[SubscriptionId, AtMost(TEXT_BYTES_MAX)]
"""The id of one creation of a subscription.  What names nothing is answered, not a fault of the
connection; so names and ids in requests are any text here."""
MemberText = Annotated[MemberId, AtMost(TEXT_BYTES_MAX)]
"""A member of a subscription; empty: none."""
ClaimNumber = Annotated[Claim, Within(0, COUNTED_MAX)]


@attrs.frozen
class LogClaim:
    """A log of a subscription, and the claim to it."""

    partition: PartitionNumber
    claim: ClaimNumber


Claims = Annotated[list[LogClaim], AtMost(PARTITIONS_PER_TOPIC_MAX)]


@attrs.frozen
class SubscriptionMember:
    """A member of a subscription, for people to look at."""

    member: MemberText
    static: bool
    """Whether it chose its id, and keeps its logs through a restart."""
    agent: Agent
    subject: Text
    """That of its token; empty: it had none."""
    log_count: int
    """How many logs it has."""
    name: ConnectionName = ""


@attrs.frozen
class AssignmentInfo:
    """Who has a log of a subscription."""

    partition: PartitionNumber
    phase: Text
    """``free``, ``assigned`` or ``resetting``."""
    member: MemberText
    claim: ClaimNumber


@attrs.frozen
class OffsetRange:
    """A part of a log."""

    begin: Offset
    end: Offset
    """Exclusive."""


# --- to the coordinator --------------------------------------------------------------


@request("create_subscription", CLIENT_TO_LEADER, needs=on_its_subscription())
@attrs.frozen
class CreateSubscription:
    """Have a subscription, or find it.  Answer: `SubscriptionDescription`.  While its state is
    ``creating``, the asker opens the marks in all partitions (`OpenMarks`) and then finishes it
    (`FinishSubscription`), whoever began that."""

    request: int
    topic: Text
    partition: PartitionId
    topic_id: Text
    partitions: Annotated[list[PartitionNumber], AtMost(PARTITIONS_PER_TOPIC_MAX)]
    """Those of the topic, in its order."""
    name: Text
    mode: Text
    options: SubscriptionOptions
    start: Text
    create: Text
    """``create`` (there is none yet), ``attach`` (there is one) or ``create_or_attach``."""


@request("describe_subscription", CLIENT_TO_LEADER, needs=on_its_subscription())
@attrs.frozen
class DescribeSubscription:
    """Ask for all that the coordinator knows.  Answer: `SubscriptionDescription`."""

    request: int
    topic: Text
    partition: PartitionId
    name: Text


@answer("subscription_description", TO_CLIENT)
@attrs.frozen
class SubscriptionDescription:
    """Answer to `CreateSubscription` and `DescribeSubscription`."""

    request: int
    definition: SubscriptionDefinition
    members: Annotated[list[SubscriptionMember], AtMost(LIST_COUNT_MAX)]
    assignments: Annotated[list[AssignmentInfo], AtMost(PARTITIONS_PER_TOPIC_MAX)]
    """Of logs that were ever assigned or reset."""


@request("list_subscriptions", CLIENT_TO_LEADER, needs=on_its_subscription())
@attrs.frozen
class ListSubscriptions:
    """Ask for the subscriptions of a topic in the order of their names, those that the token grants
    ``consume`` on.  Answer: `SubscriptionList`."""

    request: int
    topic: Text
    partition: PartitionId
    after: Text
    """Names greater than this one; empty: from the first."""
    count_max: int


@answer("subscription_list", TO_CLIENT)
@attrs.frozen
class SubscriptionList:
    """Answer to `ListSubscriptions`."""

    request: int
    definitions: Annotated[list[SubscriptionDefinition], AtMost(LIST_COUNT_MAX)]
    after: Text
    """What to ask with for the next page; empty: this is the last one."""


@request("finish_subscription", CLIENT_TO_LEADER, needs=on_its_subscription())
@attrs.frozen
class FinishSubscription:
    """Each log has its mark now: the subscription is ready.  Answer: `Done`."""

    request: int
    topic: Text
    partition: PartitionId
    sid: Sid


@request("delete_subscription", CLIENT_TO_LEADER, needs=on_its_subscription(also=Verb.ADMIN))
@attrs.frozen
class DeleteSubscription:
    """Delete a subscription: step ``begin``, then `DeleteMarks` at each log's leader, then step
    ``end``.  Answer: `Done`, also if there is none."""

    request: int
    topic: Text
    partition: PartitionId
    sid: Sid
    step: Text


@request("reset_subscription", CLIENT_TO_LEADER, needs=on_its_subscription(also=Verb.ADMIN))
@attrs.frozen
class ResetSubscription:
    """Begin to move the mark in one log.  Answer: `ResetBegun`."""

    request: int
    topic: Text
    partition: PartitionId
    sid: Sid
    log: PartitionNumber
    offset: Place
    force: bool
    """Also if a member has the log; it is fenced."""
    newest: ClaimNumber = NO_CLAIM
    """The newest claim that the log's leader knows, if it refused the reset with an older one."""


@answer("reset_begun", TO_CLIENT)
@attrs.frozen
class ResetBegun:
    """Answer to `ResetSubscription`: set the mark with this claim (`SetMark`), then finish
    (`FinishReset`)."""

    request: int
    claim: ClaimNumber


@request("finish_reset", CLIENT_TO_LEADER, needs=on_its_subscription(also=Verb.ADMIN))
@attrs.frozen
class FinishReset:
    """The mark is set: members may have the log again.  Answer: `Done`."""

    request: int
    topic: Text
    partition: PartitionId
    sid: Sid
    log: PartitionNumber
    claim: ClaimNumber


@request("join_group", CLIENT_TO_LEADER, needs=on_its_subscription())
@attrs.frozen
class JoinGroup:
    """Be a member.  Answer: `Assignment`, again and again, until `LeaveGroup`, `Detached` or
    `Failure`; all carry this request's number."""

    request: int
    topic: Text
    partition: PartitionId
    sid: Sid
    member: MemberText
    """The name of a static member; of others empty at first, and then the id that was told."""
    static: bool
    take_over: bool
    """In mode ``exclusive``: also if there is a member; it is fenced."""
    held: Claims
    """What it has, after a connection broke."""


@answer("assignment", TO_CLIENT)
@attrs.frozen
class Assignment:
    """What changes for a member: logs that it has from now on, and logs that it is to finish with
    and to release (`Holding`).  The first one has its id, and may name no log."""

    request: int
    member: MemberText
    add: Claims
    release: Claims
    session_timeout_ms: int
    """A member that was silent for so long is one no more."""


@notice("holding", CLIENT_TO_LEADER, needs=ANY_TOKEN)
@attrs.frozen
class Holding:
    """The member that joined with this request is alive, and has released these logs: it has stored
    its marks in them and reads them no more.  No answer.  Sent each third of the session timeout,
    and when there is something to release."""

    request: int
    released: Claims


@notice("leave_group", CLIENT_TO_LEADER, needs=ANY_TOKEN)
@attrs.frozen
class LeaveGroup:
    """End the membership of this request.  Answer: `Done`; nothing of the join follows it."""

    request: int


# --- to a log's leader ---------------------------------------------------------------


@request("open_marks", CLIENT_TO_LEADER, needs=on_its_subscription())
@attrs.frozen
class OpenMarks:
    """Have a mark in a log, at the subscription's start; one that is there stays.
    Answer: `Done`."""

    request: int
    topic: Text
    partition: PartitionId
    topic_id: Text
    sid: Sid
    name: Text
    mode: Text
    options: SubscriptionOptions
    start: Text


@request("attach", CLIENT_TO_LEADER, needs=on_its_subscription())
@attrs.frozen
class Attach:
    """Have a log, with the claim that the coordinator gave.  Answer: `Attached`, then `Marked` for
    each confirmed mark, until `Detach`, `Detached` or `Failure`; all carry this request's
    number.

    In the modes of queues many members have a log, with the claim 0; behind `Attached` come
    `octopi.wire.queues.Deal` and `octopi.wire.queues.QueueSettled` instead of `Marked`."""

    request: int
    topic: Text
    partition: PartitionId
    sid: Sid
    member: MemberText
    claim: ClaimNumber
    credit_messages: Annotated[int, Within(0, COUNTED_MAX), MayBeMissing()] = 0
    """Queues: so many messages may be dealt (`octopi.wire.queues.QueueCredit`); at least 1."""
    credit_bytes: Annotated[int, Within(0, COUNTED_MAX), MayBeMissing()] = 0
    """The same in bytes of their records; a message is dealt while some of it is left."""


@answer("attached", TO_CLIENT)
@attrs.frozen
class Attached:
    """Answer to `Attach`: from now on marks of no lower claim count."""

    request: int
    mark: Offset
    """What is to be read next: all below is processed."""
    claim: ClaimNumber
    log_start: Offset
    lost_from: Offset | None
    """What the subscription was to be given, and the log has no more; None: nothing."""
    lost_to: Offset | None
    anchor: Anchor = ""
    """Of the mark."""


@notice("mark", CLIENT_TO_LEADER, needs=ANY_TOKEN)
@attrs.frozen
class Mark:
    """All below `offset` is processed.  `request` is that of the `Attach`.  Answer: `Marked` if
    `confirm`, else none."""

    request: int
    offset: Place
    confirm: bool
    acknowledge: int
    """The number of this mark, which `Marked` repeats."""
    anchor: Anchor = ""
    """Of `offset`: where the log has another history, `Detached` follows (history_forked)."""


@answer("marked", TO_CLIENT)
@attrs.frozen
class Marked:
    """The mark with this number is committed."""

    request: int
    acknowledge: int


@notice("detach", CLIENT_TO_LEADER, needs=ANY_TOKEN)
@attrs.frozen
class Detach:
    """End the attach of this request.  Answer: `Done` when its marks are committed; nothing of the
    attach follows it.

    A member of a queue says which deliveries its program was given, and whose answers the leader
    may lack.  All others that are open at it don't count as attempts."""

    request: int
    seen: Annotated[Annotated[list[Place], AtMost(QUEUE_WINDOW_MAX)] | None, MayBeMissing()] = None
    """Offsets of the messages; missing: all that are open count."""
    attempts: Annotated[list[Attempt], AtMost(QUEUE_WINDOW_MAX), MayBeMissing()] = attrs.field(
        factory=list
    )
    """The deliveries of these messages, in the same order."""


@answer("detached", TO_CLIENT)
@attrs.frozen
class Detached:
    """A join or an attach has ended, and `status` says why."""

    request: int
    status: int
    reason: Text


@request("set_mark", CLIENT_TO_LEADER, needs=on_its_subscription(also=Verb.ADMIN))
@attrs.frozen
class SetMark:
    """The second step of a reset.  Answer: `Done`."""

    request: int
    topic: Text
    partition: PartitionId
    sid: Sid
    claim: ClaimNumber
    offset: Place


@request("delete_marks", CLIENT_TO_LEADER, needs=on_its_subscription(also=Verb.ADMIN))
@attrs.frozen
class DeleteMarks:
    """Forget how far a subscription is in a log.  Answer: `Done`, also if nothing is known."""

    request: int
    topic: Text
    partition: PartitionId
    sid: Sid


@request("describe_marks", CLIENT_TO_LEADER, needs=on_its_subscription())
@attrs.frozen
class DescribeMarks:
    """Ask how far a subscription is in a log.  Answer: `MarksDescription`."""

    request: int
    topic: Text
    partition: PartitionId
    sid: Sid
    confirmed: Annotated[bool, MayBeMissing()] = False
    """Whether the answer is to wait until the mark that it tells is committed: no mark before that
    one comes after it, but by a reset."""


@answer("marks_description", TO_CLIENT)
@attrs.frozen
class MarksDescription:
    """Answer to `DescribeMarks`."""

    request: int
    mark: Offset
    claim: ClaimNumber
    highwater: Offset
    lag_bytes: int
    """Committed and not known to be processed."""
    lag_ms: int
    """Age of the message at the mark; 0: it is at the end."""
    changed_ms: TimestampMs
    """When the mark was stored last (ms since 1970-01-01 UTC)."""
    member: MemberText
    """The one that is attached; of a queue one of them."""
    lost: OffsetRange | None
    """What was lost and the members have not gone on behind yet."""
    skipped: Annotated[list[OffsetRange], AtMost(SKIPPED_RANGES_MAX)]
    """What was lost before, the newest last."""
    anchor: Anchor = ""
    """Of the mark."""
    member_count: Annotated[int, MayBeMissing()] = 0
    """Members that are attached to the log."""
    open_count: Annotated[int, MayBeMissing()] = 0
    """Of a queue: messages that are dealt and not answered."""
    waiting_count: Annotated[int, MayBeMissing()] = 0
    """Of a queue: messages that are to be dealt again, or to become dead letters."""
    dead_count: Annotated[int, MayBeMissing()] = 0
    """Dead letters of this log so far."""
    letter_fault: Annotated[Text, MayBeMissing()] = ""
    """Why a message that is to become a dead letter is none yet; empty: nothing is wrong."""
    held_bytes: Annotated[int, MayBeMissing()] = 0
    """What retention would have removed of the log, and keeps since the subscription has yet to
    process it."""
