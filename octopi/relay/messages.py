"""What relays of a set, and receivers, send each other about one partition.

Each message comes by a connection, and counts only for the two lives that the connection was made
for.  Messages about streams name the epoch in which they hold; those of another one are dropped.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import Any, TypeAlias

import attrs

from octopi.identifiers import BrokerId, Offset, TopicId
from octopi.relay.buffer import RelayTransaction, StreamPoint
from octopi.relay.digest import Digest
from octopi.relay.incarnations import Lives
from octopi.relay.message_ids import MessageId
from octopi.relay.relay_set import RelaySet
from octopi.relay.timelines import RelayEpoch
from octopi.replication.producer_sequences import Refused


@unique
class RelayStatus(Enum):
    """What a relay is."""

    JOINING = "joining"
    """It knows nothing: it asks, and votes for nothing but a new timeline."""
    NORMAL = "normal"
    """It is part of its epoch."""
    CHANGING = "changing"
    """It has promised an epoch that has not begun for it."""
    FENCED = "fenced"
    """It hears no quorum, and does nothing until it does."""


StreamPoints: TypeAlias = tuple[tuple[TopicId, StreamPoint], ...]
"""How far each stream goes."""

StreamEnds: TypeAlias = tuple[tuple[TopicId, StreamPoint, Offset], ...]
"""How far each stream goes, and its highwater mark."""


@attrs.frozen
class RelayBeat:
    """To all members, every 0.1 s: that it is there, and what it is."""

    status: RelayStatus
    epoch: RelayEpoch
    """The greatest one that it promised."""
    held: RelayEpoch
    """The last one of which it was a part; what it holds is from there."""
    hears: frozenset[BrokerId]
    """The members that it has heard, without those that can't lead: itself too, if it can."""
    generation: int
    """The greatest one for which it ever voted, or to which it belonged."""
    relay_set: RelaySet
    """That of `held`; of one that holds nothing, the newest of which it has heard."""
    known_set: RelaySet
    """The newest relay set of which it has heard; it may not be in force yet."""
    starts: bool = False
    """Whether it is the sequencer of `epoch`, has votes enough, and fetches what it lacks."""


@attrs.frozen
class RelayIncoming:
    """Sequencer to members: a transaction that follows in a stream."""

    epoch: RelayEpoch
    topic_id: TopicId
    offset: Offset
    id: MessageId
    receiver: BrokerId
    records: bytes
    digest_before: Digest


@attrs.frozen
class RelayWritten:
    """Member to members, and to receivers outside the set: it holds a stream up to this point."""

    epoch: RelayEpoch
    topic_id: TopicId
    point: StreamPoint
    asks: bool = False
    """Whether the other shall answer with its own; it may have lost something."""


@attrs.frozen
class RelayCompare:
    """To whoever holds the stream: which is the last point that we share?"""

    epoch: RelayEpoch
    topic_id: TopicId
    points: tuple[StreamPoint, ...]
    """In ascending order."""


@attrs.frozen
class RelayCompared:
    """Answer to `RelayCompare`."""

    epoch: RelayEpoch
    topic_id: TopicId
    point: StreamPoint | None
    """The last of the points that is in the stream; None: none of them is."""
    start: StreamPoint
    """Where the buffer of the one who answers starts."""
    end: StreamPoint


@attrs.frozen
class RelayFetch:
    """To whoever holds the stream: send what lies between these offsets."""

    epoch: RelayEpoch
    topic_id: TopicId
    start: Offset
    end: Offset
    with_producers: bool
    """Whether the table of producers before *start* is wanted, too."""


@attrs.frozen
class RelayPart:
    """Answer to `RelayFetch`: as much of it as goes into one message."""

    epoch: RelayEpoch
    topic_id: TopicId
    start: Offset
    transactions: tuple[RelayTransaction, ...]
    producers: tuple[Any, ...] | None = None
    """What `ProducerSequences.dump` returns."""


@attrs.frozen
class RelayVote:
    """To the sequencer of *epoch*: the sender has left all earlier epochs, and holds this."""

    epoch: RelayEpoch
    held: RelayEpoch
    relay_set: RelaySet
    """That of `held`; of one that holds nothing, the newest of which it has heard."""
    lives: Lives = attrs.field(hash=False)
    streams: StreamEnds


@attrs.frozen
class RelayStart:
    """From a member that is part of *epoch*: it has begun, and so far its streams go."""

    epoch: RelayEpoch
    relay_set: RelaySet
    """That of the epoch: it may differ by a member from that of the one before."""
    lives: Lives = attrs.field(hash=False)
    streams: StreamPoints
    removed: tuple[TopicId, ...] = ()
    """Streams that are not there because they were removed."""


@attrs.frozen
class RelayAsk:
    """To all members: let me take part.  From one that knows nothing, or that missed a start."""

    is_joining: bool


@attrs.frozen
class RelayAnswer:
    """Answer to `RelayAsk` of one that knows nothing, from a member that is part of *epoch*."""

    epoch: RelayEpoch
    relay_set: RelaySet
    """That of the epoch."""
    lives: Lives = attrs.field(hash=False)
    streams: StreamPoints | None
    """None: the sender is not the sequencer."""


@attrs.frozen
class RelaySubmit:
    """Receiver to sequencer: put this in order."""

    topic_id: TopicId
    id: MessageId
    records: bytes


@unique
class SubmitRefusal(Enum):
    """Why a relay puts nothing in order."""

    NOT_SEQUENCER = "not the sequencer"
    NOT_READY = "no epoch has begun"
    NO_QUORUM = "fenced"
    BUFFER_FULL = "too much waits for a quorum"
    MEMORY_FULL = "too much of all streams together waits for a quorum"
    TOO_LARGE = "larger than the buffer"
    TOO_MANY_STREAMS = "the partition has as many streams as it may"
    BY_PRODUCER = "the producer's sequences, or its records, are wrong"


@attrs.frozen
class RelaySubmitted:
    """Answer to `RelaySubmit`: where it is in the stream.  It is committed when a quorum has
    written up to its end."""

    epoch: RelayEpoch
    topic_id: TopicId
    submitted: MessageId
    """The id in the request."""
    id: MessageId | None
    """The id in the stream, which is another one for a repetition; None: it is forgotten."""
    offset: Offset
    point: StreamPoint | None
    """Its end; None: it is no more in the buffer."""
    is_duplicate: bool
    committed: Offset
    """The sequencer's highwater mark."""
    quorum: int
    """How many members have to write it, in this epoch."""


@attrs.frozen
class RelayRefused:
    """Answer to `RelaySubmit`: it was not put in order."""

    topic_id: TopicId
    submitted: MessageId
    refusal: SubmitRefusal
    sequencer: BrokerId | None = None
    """Who is the sequencer, as far as the sender knows."""
    verdict: Refused | None = None
    """With `SubmitRefusal.BY_PRODUCER`: what is wrong."""


ToRelay: TypeAlias = (
    RelayBeat
    | RelayIncoming
    | RelayWritten
    | RelayCompare
    | RelayCompared
    | RelayFetch
    | RelayPart
    | RelayVote
    | RelayStart
    | RelayAsk
    | RelayAnswer
    | RelaySubmit
)
ToReceiver: TypeAlias = RelaySubmitted | RelayRefused | RelayWritten
RelayMessage: TypeAlias = ToRelay | ToReceiver
