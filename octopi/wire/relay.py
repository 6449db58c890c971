"""What the relays of a set, and receivers, send each other about streams in memory
(`octopi.relay`).

A message is about one relay partition.  It counts for two lives: that of its sender, and that of
its receiver as the sender knows it.  Epochs, ids and digests have fixed sizes, so they are byte
strings; so are lists of places in streams, of which there may be many thousands: they are rows of
one size, one behind the other.  What does not fit into one message is sent in several.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Annotated, Final, TypeAlias

import attrs

from octopi.field_bounds import AtMost, Exactly, Grammar, MayBeMissing, Within, judged
from octopi.identifiers import BrokerId, Incarnation, TopicId, id_fault, topic_name_fault
from octopi.limits import (
    BROKER_ID_MAX,
    COUNTED_MAX,
    ID_CHARACTERS,
    NONCE_BYTES_MAX,
    PRODUCERS_PER_LOG_MAX,
    RELAY_NAMES_TOLD_MAX,
    RELAY_PART_TRANSACTIONS,
    RELAY_PARTITIONS_MAX,
    RELAY_POINTS_MAX,
    RELAY_REMOVED_MAX,
    RELAY_STREAMS_TOLD_MAX,
    RELAYS_MAX,
    TEXT_BYTES_MAX,
    TOPIC_NAME_BYTES_MAX,
    WALL_MS_MAX,
)
from octopi.model import BrokerNumber, IncarnationNumber, PartitionNumber, Place, Verb
from octopi.wire.common import Records
from octopi.wire.declarations import (
    RELAY_TO_RELAY,
    RELAY_TO_RELAY_BACK,
    answer,
    notice,
    on_the_cluster,
    request,
)
from octopi.wire.relay_rows import (
    POINT_ROW,
    STREAM_END_ROW,
    STREAM_ROW,
    TOPIC_ID_BYTES,
    rows_fault,
)
from octopi.wire.replication import KnownProducer

_OF_NODES: Final = on_the_cluster(Verb.REPLICATE)

EpochBytes: TypeAlias = Annotated[bytes, Exactly(16)]
"""Generation of the timeline (3), its name (5), number of the epoch (8)."""
IdBytes: TypeAlias = Annotated[bytes, Exactly(16)]
DigestBytes: TypeAlias = Annotated[bytes, Exactly(32)]
RelayTopicId: TypeAlias = Annotated[TopicId, AtMost(ID_CHARACTERS), Grammar(id_fault)]
_Emptied: TypeAlias = Annotated[int, Within(0, 2**32 - 1)]
_Points: TypeAlias = Annotated[bytes, AtMost(RELAY_POINTS_MAX * POINT_ROW.size)]
_Streams: TypeAlias = Annotated[bytes, AtMost(RELAY_STREAMS_TOLD_MAX * STREAM_ROW.size)]
_StreamEnds: TypeAlias = Annotated[bytes, AtMost(RELAY_STREAMS_TOLD_MAX * STREAM_END_ROW.size)]


# --- words ---------------------------------------------------------------------------------


@unique
class RelayState(StrEnum):
    """What a relay says that it is (`octopi.relay.messages.RelayStatus`)."""

    JOINING = "joining"
    NORMAL = "normal"
    CHANGING = "changing"
    FENCED = "fenced"


@unique
class OrderRefusal(StrEnum):
    """Why a relay puts nothing in order (`octopi.relay.messages.SubmitRefusal`)."""

    NOT_SEQUENCER = "not sequencer"
    NOT_READY = "not ready"
    NO_QUORUM = "no quorum"
    BUFFER_FULL = "buffer full"
    MEMORY_FULL = "memory full"
    TOO_LARGE = "too large"
    TOO_MANY_STREAMS = "too many streams"
    BY_PRODUCER = "by producer"


def relay_state_fault(text: str) -> str:
    """Why *text* is no `RelayState`; empty: it is one."""
    return "" if text in set(RelayState) else f"it is none of {', '.join(RelayState)}"


def order_refusal_fault(text: str) -> str:
    """Why *text* is no `OrderRefusal`; empty: it is one."""
    return "" if text in set(OrderRefusal) else f"it is none of {', '.join(OrderRefusal)}"


@attrs.frozen
class KnownLife:
    """The newest life of a relay that somebody knows."""

    broker: BrokerNumber
    incarnation: IncarnationNumber
    emptied: _Emptied
    """How often it gave up what it held in that incarnation."""


@judged
@attrs.frozen
class ToldSet:
    """The members of a relay partition."""

    version: Annotated[int, Within(0, COUNTED_MAX)]
    """A greater one is newer; 0: that of a static list."""
    members: Annotated[tuple[BrokerNumber, ...], AtMost(RELAYS_MAX)]

    def fault(self) -> str:
        """Why this is no set; empty: it is one."""
        is_set = self.members and len(set(self.members)) == len(self.members)
        return "" if is_set else f"its members are none, or not all different: {self.members}"


_KNOWN_MAX: Final = 2 * RELAYS_MAX
"""A relay knows the members of two sets while its set changes."""

Lives: TypeAlias = Annotated[tuple[KnownLife, ...], AtMost(_KNOWN_MAX)]


# --- the connection ------------------------------------------------------------------------


@attrs.frozen
class EmptiedPartition:
    """How often a relay gave up what it held of a partition in its incarnation."""

    partition: PartitionNumber
    emptied: _Emptied


@attrs.frozen
class _Greeting:
    request: int
    broker: BrokerNumber
    """The sender."""
    incarnation: IncarnationNumber
    nonce: Annotated[str, AtMost(NONCE_BYTES_MAX)]
    """Of this incarnation: two copies of a data directory count to the same number."""
    mesh: DigestBytes
    """The digest of the static list of relays, or of the cluster's id: it has to be the same on all
    of them."""
    emptied: Annotated[tuple[EmptiedPartition, ...], AtMost(RELAY_PARTITIONS_MAX)]
    """How often the sender gave up what it held, where it did."""
    known: Annotated[Incarnation, Within(0, COUNTED_MAX)]
    """The newest incarnation of the other one that the sender knows; 0: none."""
    known_nonce: Annotated[str, AtMost(NONCE_BYTES_MAX)]


@request("relay_greet", RELAY_TO_RELAY, needs=_OF_NODES, since=2)
@attrs.frozen
class RelayGreet(_Greeting):
    """The first message on a connection: who the sender is.  Answer: `RelayGreeted`, or a refusal
    with the reason."""


@answer("relay_greeted", RELAY_TO_RELAY_BACK, since=2)
@attrs.frozen
class RelayGreeted(_Greeting):
    """Answer to `RelayGreet`: the same of the other side."""


@notice("relay_topics", RELAY_TO_RELAY, RELAY_TO_RELAY_BACK, needs=_OF_NODES, since=2)
@attrs.frozen
class RelayTopics:
    """Names of topics that are in use.  They are told when a connection begins, and when one is
    used for the first time."""

    names: Annotated[
        tuple[Annotated[str, AtMost(TOPIC_NAME_BYTES_MAX), Grammar(topic_name_fault)], ...],
        AtMost(RELAY_NAMES_TOLD_MAX),
    ]


# --- one partition -------------------------------------------------------------------------


@attrs.frozen
class OfPartition:
    """What each message about a partition has."""

    partition: PartitionNumber
    life: _Emptied
    """How often the sender gave up what it held, in the incarnation of its greeting."""
    to: _Emptied
    """The same of the receiver, as the sender knows it.  If it has done so since, the message is
    dropped."""


@notice("relay_beat", RELAY_TO_RELAY, RELAY_TO_RELAY_BACK, needs=_OF_NODES, since=2)
@attrs.frozen
class BeatTold(OfPartition):
    """To each other one, every 0.1 s: what the sender is, and whom it hears."""

    state: Annotated[str, AtMost(TEXT_BYTES_MAX), Grammar(relay_state_fault)]
    epoch: EpochBytes
    """The greatest one that it promised."""
    held: EpochBytes
    """The last one of which it was a part."""
    hears: Annotated[tuple[BrokerId, ...], AtMost(_KNOWN_MAX)]
    generation: Annotated[int, Within(0, 2**24 - 1)]
    """The greatest one that it ever voted for, or joined."""
    relay_set: ToldSet
    """The members in the epoch `held`."""
    known_set: ToldSet
    """The newest relay set of which the sender has heard; it may not be in force yet."""
    starts: Annotated[bool, MayBeMissing()] = False
    """It is the sequencer of the epoch, and fetches what it lacks."""
    wall_ms: Annotated[int, Within(0, WALL_MS_MAX), MayBeMissing()] = 0
    """What the sender's clock shows (ms since 1970); 0: it does not say."""


@notice("relay_submit", RELAY_TO_RELAY, RELAY_TO_RELAY_BACK, needs=_OF_NODES, since=2)
@attrs.frozen
class SubmitTold(OfPartition):
    """Receiver to sequencer: put these records in order.  Answer: `PlacedTold`, or
    `OrderRefused`."""

    topic_id: RelayTopicId
    id: IdBytes
    records: Records


@judged
@notice("relay_submitted", RELAY_TO_RELAY, RELAY_TO_RELAY_BACK, needs=_OF_NODES, since=2)
@attrs.frozen
class PlacedTold(OfPartition):
    """Answer to `SubmitTold`: where it is.  It is committed when a quorum has written it."""

    epoch: EpochBytes
    topic_id: RelayTopicId
    submitted: IdBytes
    """The id in the request."""
    id: IdBytes | None
    """The id in the stream, which is another one for a repetition; None: it is forgotten."""
    offset: Place
    point: Annotated[bytes, AtMost(POINT_ROW.size)]
    """Its end, and the digest there; empty: it is no more in memory."""
    is_duplicate: bool
    committed: Place
    """The sequencer's highwater mark."""
    quorum: Annotated[int, Within(1, RELAYS_MAX)]
    """How many members have to write it, in this epoch."""

    def fault(self) -> str:
        """Why this is no such message; empty: it is one."""
        return rows_fault("point", self.point, POINT_ROW)


@notice("relay_refused", RELAY_TO_RELAY, RELAY_TO_RELAY_BACK, needs=_OF_NODES, since=2)
@attrs.frozen
class OrderRefused(OfPartition):
    """Answer to `SubmitTold`: it was not put in order."""

    topic_id: RelayTopicId
    submitted: IdBytes
    why: Annotated[str, AtMost(TEXT_BYTES_MAX), Grammar(order_refusal_fault)]
    sequencer: Annotated[BrokerId, Within(1, BROKER_ID_MAX)] | None
    """Who is, as far as the sender knows."""
    status: int
    """If it is the producer's fault: a number of `octopi.errors.Status`."""
    reason: Annotated[str, AtMost(TEXT_BYTES_MAX)]


@notice("relay_incoming", RELAY_TO_RELAY, RELAY_TO_RELAY_BACK, needs=_OF_NODES, since=2)
@attrs.frozen
class IncomingTold(OfPartition):
    """Sequencer to members: the next transaction of a stream."""

    epoch: EpochBytes
    topic_id: RelayTopicId
    offset: Place
    id: IdBytes
    receiver: BrokerNumber
    digest_before: DigestBytes
    records: Records


@notice("relay_written", RELAY_TO_RELAY, RELAY_TO_RELAY_BACK, needs=_OF_NODES, since=2)
@attrs.frozen
class WrittenTold(OfPartition):
    """Member to members, and to receivers outside the set: it holds a stream up to this place."""

    epoch: EpochBytes
    topic_id: RelayTopicId
    end: Place
    digest: DigestBytes
    asks: Annotated[bool, MayBeMissing()] = False
    """Whether the other one shall answer with its own."""


@judged
@notice("relay_compare", RELAY_TO_RELAY, RELAY_TO_RELAY_BACK, needs=_OF_NODES, since=2)
@attrs.frozen
class CompareTold(OfPartition):
    """To whoever holds the stream: which is the last of these places that we share?  Answer:
    `ComparedTold`."""

    epoch: EpochBytes
    topic_id: RelayTopicId
    points: _Points
    """See `packed_points`; in ascending order."""

    def fault(self) -> str:
        """Why this is no such message; empty: it is one."""
        return rows_fault("points", self.points, POINT_ROW)


@judged
@notice("relay_compared", RELAY_TO_RELAY, RELAY_TO_RELAY_BACK, needs=_OF_NODES, since=2)
@attrs.frozen
class ComparedTold(OfPartition):
    """Answer to `CompareTold`."""

    epoch: EpochBytes
    topic_id: RelayTopicId
    points: Annotated[bytes, AtMost(3 * POINT_ROW.size)]
    """Three places: the last shared one, and where the stream starts and ends in the memory of the
    sender.  Two: they share none of them."""

    def fault(self) -> str:
        """Why this is no such message; empty: it is one."""
        if len(self.points) < 2 * POINT_ROW.size:
            return "points has to have two places at least"
        return rows_fault("points", self.points, POINT_ROW)


@notice("relay_fetch", RELAY_TO_RELAY, RELAY_TO_RELAY_BACK, needs=_OF_NODES, since=2)
@attrs.frozen
class FetchTold(OfPartition):
    """To whoever holds the stream: send what lies between these offsets.  Answer: `PartTold`."""

    epoch: EpochBytes
    topic_id: RelayTopicId
    start: Place
    end: Place
    with_producers: bool
    """Whether the table of producers before `start` is wanted, too."""


@attrs.frozen
class SentTransaction:
    """A transaction; it begins where the one before it ends."""

    id: IdBytes
    receiver: BrokerNumber
    digest: DigestBytes
    """Behind it."""
    records: Records


@notice("relay_part", RELAY_TO_RELAY, RELAY_TO_RELAY_BACK, needs=_OF_NODES, since=2)
@attrs.frozen
class PartTold(OfPartition):
    """Answer to `FetchTold`: as much of it as goes into one message."""

    epoch: EpochBytes
    topic_id: RelayTopicId
    start: Place
    transactions: Annotated[tuple[SentTransaction, ...], AtMost(RELAY_PART_TRANSACTIONS)]
    producers: Annotated[tuple[KnownProducer, ...], AtMost(PRODUCERS_PER_LOG_MAX)] | None


@judged
@notice("relay_vote", RELAY_TO_RELAY, RELAY_TO_RELAY_BACK, needs=_OF_NODES, since=2)
@attrs.frozen
class VoteTold(OfPartition):
    """To the sequencer of `epoch`: the sender has left all earlier ones, and holds this."""

    epoch: EpochBytes
    held: EpochBytes
    """The last one of which it was a part."""
    relay_set: ToldSet
    """Its members; of one that holds nothing, the newest set of which it has heard."""
    lives: Lives
    streams: _StreamEnds
    """See `packed_ends`."""
    more: Annotated[bool, MayBeMissing()] = False
    """Whether another message follows on this connection with more of the streams."""

    def fault(self) -> str:
        """Why this is no such message; empty: it is one."""
        return rows_fault("streams", self.streams, STREAM_END_ROW)


@judged
@notice("relay_start", RELAY_TO_RELAY, RELAY_TO_RELAY_BACK, needs=_OF_NODES, since=2)
@attrs.frozen
class StartTold(OfPartition):
    """From a member that is part of `epoch`: it has begun, and so far its streams go."""

    epoch: EpochBytes
    relay_set: ToldSet
    """The members in that epoch."""
    lives: Lives
    streams: _Streams
    """See `packed_streams`."""
    removed: Annotated[bytes, AtMost(RELAY_REMOVED_MAX * TOPIC_ID_BYTES)] = b""
    """Ids, one behind the other, of streams that are not there because they were removed."""
    more: Annotated[bool, MayBeMissing()] = False
    """See `VoteTold`."""

    def fault(self) -> str:
        """Why this is no such message; empty: it is one."""
        if len(self.removed) % TOPIC_ID_BYTES:
            return f"removed has {len(self.removed)} bytes, and an id has {TOPIC_ID_BYTES}"
        return rows_fault("streams", self.streams, STREAM_ROW)


@notice("relay_ask", RELAY_TO_RELAY, RELAY_TO_RELAY_BACK, needs=_OF_NODES, since=2)
@attrs.frozen
class AskTold(OfPartition):
    """To the other members: let me take part.  Answer: `AnswerTold` or `StartTold`."""

    is_joining: bool
    """Whether the sender knows nothing; otherwise it has missed a start."""


@judged
@notice("relay_answer", RELAY_TO_RELAY, RELAY_TO_RELAY_BACK, needs=_OF_NODES, since=2)
@attrs.frozen
class AnswerTold(OfPartition):
    """Answer to `AskTold` of one that knows nothing, from a member that is part of `epoch`."""

    epoch: EpochBytes
    relay_set: ToldSet
    """The members in that epoch."""
    lives: Lives
    streams: _Streams | None
    """None: the sender is not the sequencer."""
    more: Annotated[bool, MayBeMissing()] = False
    """See `VoteTold`."""

    def fault(self) -> str:
        """Why this is no such message; empty: it is one."""
        return rows_fault("streams", self.streams or b"", STREAM_ROW)
