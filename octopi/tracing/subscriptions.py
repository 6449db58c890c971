"""The steps of durable subscriptions, at the leader of a partition.  S6, S7 and S14 are those of
queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octopi.identifiers import (
    Claim,
    MemberId,
    Offset,
    PartitionId,
    SubscriptionId,
    SubscriptionName,
)
from octopi.tracing.common import EpochStep
from octopi.tracing.step import part, step


@part
class SubscriptionStep(EpochStep):
    """Of one subscription, at the leader of a partition."""

    sid: SubscriptionId


@part
class DefinitionStep(SubscriptionStep):
    """Of what was decided about a subscription."""

    name: SubscriptionName
    topic: str
    topic_id: str
    state: str


@part
class StoredMarkStep(SubscriptionStep):
    """Of a mark that is to be kept."""

    topic: str
    topic_id: str
    mark: Offset
    claim: Claim


@part
class StoredMemberStep(SubscriptionStep):
    """Of a member."""

    member: MemberId
    static: bool


@part
class AssignmentStep(SubscriptionStep):
    """Of a log that gets a member."""

    log: PartitionId
    member: MemberId
    claim: Claim


@part
class ToldLogsStep(SubscriptionStep):
    """Of what a member is told to have, or to release."""

    member: MemberId
    logs: list[list[int]]
    revoked: bool


@part
class AttachedStep(SubscriptionStep):
    """Of the mark that a member is told, and of what its log has no more."""

    member: MemberId
    claim: Claim
    mark: Offset
    lost_from: Offset | None
    lost_to: Offset | None


@part
class DealtStep(SubscriptionStep):
    """Of messages that a queue deals to one attach."""

    topic_id: str
    session: int
    dealt: list[list[int]]


@part
class SentDealsStep(SubscriptionStep):
    """Of dealt messages that are sent together."""

    session: int
    dealt: list[list[int]]


@part
class AnsweredStep(SubscriptionStep):
    """Of what a queue's member answers to its deliveries."""

    session: int
    acknowledge: int | None
    acknowledged: list[list[int]]
    released: list[list[int]]
    rejected: list[list[int]]
    extended: list[list[int]]


@part
class ToldSettledStep(SubscriptionStep):
    """Of what a queue's member is told about its answers."""

    session: int
    acknowledge: int
    stale: list[Offset]
    confirmed: bool


@part
class LeavingStep(SubscriptionStep):
    """Of which deliveries a member of a queue, which leaves, gave to its program."""

    session: int
    seen: list[list[int]]


@part
class TakenMarkStep(SubscriptionStep):
    """Of a mark that a member sent."""

    offset: Offset
    acknowledge: int | None


@part
class ConfirmedMarkStep(SubscriptionStep):
    """Of a mark that is confirmed, by its number."""

    acknowledge: int


@part
class LetterStep(SubscriptionStep):
    """Of a dead letter, by its number among those of one queue."""

    topic_id: str
    offset: Offset
    letter: int


@part
class StateStep(EpochStep):
    """Of an entry of the log ``~subscriptions``."""

    key: str
    value: Mapping[str, Any] | None


@part
class FreedLogStep(SubscriptionStep):
    """Of a log that has no member any more."""

    log: PartitionId
    claim: Claim
    reset_to: Offset | None


@part
class RemovedStateStep(EpochStep):
    """Of a key of the log ``~subscriptions`` that goes."""

    key: str


@part
class LoadedStatesStep(EpochStep):
    """Of what a leader begins with."""

    states: Mapping[str, Mapping[str, Any]]


@step("S1a leader stores what a subscription is")
class S1Creating(DefinitionStep):
    pass


@step("S1b leader stored what a subscription is")
class S1Created(DefinitionStep):
    pass


@step("S2a leader opens the mark of a subscription")
class S2Opening(StoredMarkStep):
    pass


@step("S2b leader opened the mark of a subscription")
class S2Opened(StoredMarkStep):
    pass


@step("S3a leader stores a member of a subscription")
class S3Joining(StoredMemberStep):
    pass


@step("S3b leader stored a member of a subscription")
class S3Joined(StoredMemberStep):
    pass


@step("S4a leader assigns a log to a member")
class S4Assigning(AssignmentStep):
    pass


@step("S4b leader assigned a log to a member")
class S4Assigned(AssignmentStep):
    pass


@step("S4c leader tells a member its logs")
class S4Telling(ToldLogsStep):
    pass


@step("S4d leader told a member its logs")
class S4Told(ToldLogsStep):
    pass


@step("S5a leader tells a member its mark")
class S5Attaching(AttachedStep):
    pass


@step("S5b leader told a member its mark")
class S5Attached(AttachedStep):
    pass


@step("S6a leader deals messages of a queue")
class S6Dealing(DealtStep):
    pass


@step("S6b leader dealt messages of a queue")
class S6Dealt(DealtStep):
    pass


@step("S6c leader sends messages of a queue")
class S6Sending(SentDealsStep):
    pass


@step("S6d leader sent messages of a queue")
class S6Sent(SentDealsStep):
    pass


@step("S7a leader takes answers of a queue's member")
class S7Answering(AnsweredStep):
    pass


@step("S7b leader took answers of a queue's member")
class S7Answered(AnsweredStep):
    pass


@step("S7c leader tells a queue's member which answers count")
class S7Telling(ToldSettledStep):
    pass


@step("S7d leader told a queue's member which answers count")
class S7Told(ToldSettledStep):
    pass


@step("S7e leader hears that a queue's member leaves, and which messages its program was given")
class S7Leaving(LeavingStep):
    pass


@step("S8a leader takes a mark")
class S8Taking(TakenMarkStep):
    pass


@step("S8b leader took a mark")
class S8Taken(TakenMarkStep):
    pass


@step("S8c leader confirms a mark")
class S8Confirming(ConfirmedMarkStep):
    pass


@step("S8d leader confirmed a mark")
class S8Confirmed(ConfirmedMarkStep):
    pass


@step("S9a leader stores a mark")
class S9Storing(StoredMarkStep):
    pass


@step("S9b leader stored a mark")
class S9Stored(StoredMarkStep):
    pass


@step("S10a leader hears that an entry about subscriptions is committed")
class S10Hearing(StateStep):
    pass


@step("S10b leader did what waited for the commit of an entry about subscriptions")
class S10Heard(StateStep):
    pass


@step("S11a leader takes a log from its member")
class S11Freeing(FreedLogStep):
    pass


@step("S11b leader took a log from its member")
class S11Freed(FreedLogStep):
    pass


@step("S12a leader removes an entry about subscriptions")
class S12Removing(RemovedStateStep):
    pass


@step("S12b leader removed an entry about subscriptions")
class S12Removed(RemovedStateStep):
    pass


@step("S13 leader read what is stored about subscriptions")
class S13Loaded(LoadedStatesStep):
    pass


@step("S14a leader appends a dead letter")
class S14Appending(LetterStep):
    pass


@step("S14b leader appended a dead letter")
class S14Appended(LetterStep):
    pass


@step("S14c leader hears that a dead letter is committed")
class S14Hearing(LetterStep):
    pass


@step("S14d leader did what waited for the commit of a dead letter")
class S14Heard(LetterStep):
    pass
