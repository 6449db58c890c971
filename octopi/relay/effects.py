"""What a relay, or a receiver, wants done, in order."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from octopi.identifiers import BrokerId, Offset, TopicId
from octopi.relay.incarnations import RelayLife
from octopi.relay.messages import RelayMessage, RelayStatus
from octopi.relay.timelines import RelayEpoch


@attrs.frozen
class SendToRelay:
    """Send *message* to a broker, which may be this one; it may be lost."""

    to: BrokerId
    message: RelayMessage


@attrs.frozen
class StoreGeneration:
    """Store the greatest generation, and wait until it is durable, before the effects that
    follow."""

    generation: int


@attrs.frozen
class BeginLife:
    """This relay gave up what it held, and has another life from now on.  Make its connections
    anew, before the effects that follow."""

    life: RelayLife


@attrs.frozen
class EnterStatus:
    """The status, the epoch or what is held has changed.  A fenced relay serves no reader."""

    status: RelayStatus
    epoch: RelayEpoch


@attrs.frozen
class MoveHighwater:
    """More of a stream may be delivered: up to *highwater*."""

    topic_id: TopicId
    highwater: Offset


@attrs.frozen
class TellGap:
    """What a stream had before *start* is not in this relay's memory any more, and was not
    delivered here."""

    topic_id: TopicId
    start: Offset


@attrs.frozen
class TellTimeline:
    """All streams belong to another timeline now: readers are told where they differ."""

    epoch: RelayEpoch
    founders: frozenset[BrokerId] = frozenset()
    """If this relay has founded it: the members by whose votes, the best of what they held goes on.
    Empty: it takes part in what others have founded."""


@attrs.frozen
class TellConflict:
    """There is no quorum for any digest of a stream: memory is broken, or a program is wrong."""

    topic_id: TopicId


RelayEffect: TypeAlias = (
    SendToRelay
    | StoreGeneration
    | BeginLife
    | EnterStatus
    | MoveHighwater
    | TellGap
    | TellTimeline
    | TellConflict
)
