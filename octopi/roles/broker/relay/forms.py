"""The messages of relays (`octopi.relay.messages`) and their form on the wire
(`octopi.wire.relay`).

Votes, starts and answers to a joining relay may have more streams than one message holds.  They are
sent in several, one behind the other on one connection, and put together again (`Pages`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

import attrs

from octopi.errors import ProtocolError, Status
from octopi.identifiers import BrokerId, Offset, PartitionId
from octopi.limits import RELAY_STREAMS_MAX, RELAY_STREAMS_TOLD_MAX
from octopi.relay.buffer import RelayTransaction, StreamPoint
from octopi.relay.digest import Digest
from octopi.relay.incarnations import Lives, RelayLife
from octopi.relay.message_ids import MessageId
from octopi.relay.messages import (
    RelayAnswer,
    RelayAsk,
    RelayBeat,
    RelayCompare,
    RelayCompared,
    RelayFetch,
    RelayIncoming,
    RelayMessage,
    RelayPart,
    RelayRefused,
    RelayStart,
    RelayStatus,
    RelaySubmit,
    RelaySubmitted,
    RelayVote,
    RelayWritten,
    StreamEnds,
    StreamPoints,
    SubmitRefusal,
)
from octopi.relay.relay_set import RelaySet
from octopi.relay.timelines import RelayEpoch, Timeline
from octopi.replication.prior_state import known_producers, sequences_of
from octopi.replication.producer_sequences import Refused
from octopi.wire import messages as m

_T = TypeVar("_T")

_STATES: Final = {RelayStatus[one.name]: one for one in m.RelayState}
_STATUSES: Final = {one.value: RelayStatus[one.name] for one in m.RelayState}
_WHYS: Final = {SubmitRefusal[one.name]: one for one in m.OrderRefusal}
_REFUSALS: Final = {one.value: SubmitRefusal[one.name] for one in m.OrderRefusal}

_TIMELINE_BYTES: Final = 8

RelayPaged = m.VoteTold | m.StartTold | m.AnswerTold


@attrs.frozen
class RelayHead:
    """What each message about a partition begins with: see `octopi.wire.relay.OfPartition`."""

    partition: PartitionId
    life: int
    to: int
    wall_ms: int = 0
    """What the sender's clock shows; only beats say it."""


# --- to the wire ---------------------------------------------------------------------------


def told(head: RelayHead, message: RelayMessage) -> Iterator[m.OfPartition]:
    """What to send for *message*, in order."""
    at = (head.partition, head.life, head.to)
    match message:
        case RelayVote():
            epoch, held = epoch_bytes(message.epoch), epoch_bytes(message.held)
            lives = _known_lives(message.lives)
            for ends, more in _pages(message.streams):
                rows = m.packed_ends(
                    (topic, point.end, point.digest, mark) for topic, point, mark in ends
                )
                yield m.VoteTold(*at, epoch, held, _set(message.relay_set), lives, rows, more)
        case RelayStart():
            lives = _known_lives(message.lives)
            epoch, members = epoch_bytes(message.epoch), _set(message.relay_set)
            removed = m.packed_ids(message.removed)
            for points, more in _pages(message.streams):
                yield m.StartTold(*at, epoch, members, lives, _rows(points), removed, more)
        case RelayAnswer(streams=None):
            epoch, members = epoch_bytes(message.epoch), _set(message.relay_set)
            yield m.AnswerTold(*at, epoch, members, _known_lives(message.lives), None)
        case RelayAnswer():
            assert message.streams is not None
            epoch, members = epoch_bytes(message.epoch), _set(message.relay_set)
            lives = _known_lives(message.lives)
            for points, more in _pages(message.streams):
                yield m.AnswerTold(*at, epoch, members, lives, _rows(points), more)
        case _:
            yield _told_at_once(at, message, head.wall_ms)


def _told_at_once(
    at: tuple[PartitionId, int, int], message: RelayMessage, wall_ms: int
) -> m.OfPartition:
    match message:
        case RelayBeat():
            return m.BeatTold(
                *at,
                _STATES[message.status],
                epoch_bytes(message.epoch),
                epoch_bytes(message.held),
                tuple(sorted(message.hears)),
                message.generation,
                _set(message.relay_set),
                _set(message.known_set),
                message.starts,
                wall_ms,
            )
        case RelaySubmit():
            return m.SubmitTold(*at, message.topic_id, message.id, message.records)
        case RelaySubmitted():
            return m.PlacedTold(
                *at,
                epoch_bytes(message.epoch),
                message.topic_id,
                message.submitted,
                message.id,
                message.offset,
                _packed(() if message.point is None else (message.point,)),
                message.is_duplicate,
                message.committed,
                message.quorum,
            )
        case RelayRefused():
            verdict = message.verdict
            return m.OrderRefused(
                *at,
                message.topic_id,
                message.submitted,
                _WHYS[message.refusal],
                message.sequencer,
                0 if verdict is None else verdict.status,
                "" if verdict is None else verdict.reason,
            )
        case RelayIncoming():
            return m.IncomingTold(
                *at,
                epoch_bytes(message.epoch),
                message.topic_id,
                message.offset,
                message.id,
                message.receiver,
                message.digest_before,
                message.records,
            )
        case RelayWritten(epoch, topic_id, point, asks):
            return m.WrittenTold(*at, epoch_bytes(epoch), topic_id, point.end, point.digest, asks)
        case RelayCompare(epoch, topic_id, points):
            return m.CompareTold(*at, epoch_bytes(epoch), topic_id, _packed(points))
        case RelayCompared(epoch, topic_id, point, start, end):
            points = (start, end) if point is None else (point, start, end)
            return m.ComparedTold(*at, epoch_bytes(epoch), topic_id, _packed(points))
        case RelayFetch(epoch, topic_id, start, end, with_producers):
            return m.FetchTold(*at, epoch_bytes(epoch), topic_id, start, end, with_producers)
        case RelayPart():
            known = message.producers
            return m.PartTold(
                *at,
                epoch_bytes(message.epoch),
                message.topic_id,
                message.start,
                tuple(
                    m.SentTransaction(one.id, one.receiver, one.digest, one.records)
                    for one in message.transactions
                ),
                None if known is None else tuple(known_producers(known)),
            )
        case RelayAsk(is_joining):
            return m.AskTold(*at, is_joining)
    raise AssertionError(f"{type(message).__name__} has no form")


def epoch_bytes(epoch: RelayEpoch) -> bytes:
    """An epoch as it travels."""
    return epoch.timeline.to_bytes() + epoch.number.to_bytes(8, "big")


def _set(relay_set: RelaySet) -> m.ToldSet:
    return m.ToldSet(relay_set.version, tuple(sorted(relay_set.ranked)))


def _known_lives(lives: Lives) -> tuple[m.KnownLife, ...]:
    return tuple(m.KnownLife(broker, *life) for broker, life in sorted(lives.items()))


def _packed(points: Sequence[StreamPoint]) -> bytes:
    return m.packed_points((one.end, one.digest) for one in points)


def _rows(streams: StreamPoints) -> bytes:
    return m.packed_streams((topic, point.end, point.digest) for topic, point in streams)


def _pages(streams: tuple[_T, ...]) -> Iterator[tuple[tuple[_T, ...], bool]]:
    """*streams* in pages, each with whether another one follows; at least one page."""
    for begin in range(0, max(1, len(streams)), RELAY_STREAMS_TOLD_MAX):
        end = begin + RELAY_STREAMS_TOLD_MAX
        yield streams[begin:end], end < len(streams)


# --- from the wire -------------------------------------------------------------------------


class Pages:
    """Puts the messages together that came in several, of one connection and partition."""

    def __init__(self) -> None:
        self._before: list[RelayPaged] = []

    def take(self, message: RelayPaged) -> RelayVote | RelayStart | RelayAnswer | None:
        """The whole message, if *message* is the last of its pages.

        Raises:
          ProtocolError: if there are more streams than a partition may have.
        """
        before = self._before
        if before and attrs.evolve(before[0], streams=b"") != attrs.evolve(
            message, streams=b"", more=True
        ):
            before.clear()  # the rest of another one was lost
        before.append(message)
        if len(before) > RELAY_STREAMS_MAX // RELAY_STREAMS_TOLD_MAX + 1:
            raise ProtocolError(f"a relay partition has at most {RELAY_STREAMS_MAX} streams")
        if message.more:
            return None
        self._before = []
        return _whole(before)


def _whole(pages: Sequence[RelayPaged]) -> RelayVote | RelayStart | RelayAnswer:
    last = pages[-1]
    epoch, lives = epoch_of(last.epoch), _lives_of(last.lives)
    relay_set = _set_of(last.partition, last.relay_set)
    if isinstance(last, m.VoteTold):
        ends: StreamEnds = tuple(
            (topic, StreamPoint(end, Digest(digest)), mark)
            for one in pages
            for topic, end, digest, mark in m.ends_of(one.streams or b"")
        )
        return RelayVote(epoch, epoch_of(last.held), relay_set, lives, ends)
    points: StreamPoints = tuple(
        (topic, StreamPoint(end, Digest(digest)))
        for one in pages
        for topic, end, digest in m.streams_of(one.streams or b"")
    )
    if isinstance(last, m.StartTold):
        return RelayStart(epoch, relay_set, lives, points, tuple(m.ids_of(last.removed)))
    return RelayAnswer(epoch, relay_set, lives, None if last.streams is None else points)


def heard(message: m.OfPartition) -> RelayMessage:
    """The message that came as *message*, which is none that comes in pages.

    Raises:
      ProtocolError: if what it has can't be true.
    """
    match message:
        case m.BeatTold():
            return RelayBeat(
                _STATUSES[message.state],
                epoch_of(message.epoch),
                epoch_of(message.held),
                frozenset(message.hears),
                message.generation,
                _set_of(message.partition, message.relay_set),
                _set_of(message.partition, message.known_set),
                message.starts,
            )
        case m.SubmitTold():
            return RelaySubmit(message.topic_id, MessageId(message.id), message.records)
        case m.PlacedTold():
            ends = _points_of(message.point)
            return RelaySubmitted(
                epoch_of(message.epoch),
                message.topic_id,
                MessageId(message.submitted),
                None if message.id is None else MessageId(message.id),
                Offset(message.offset),
                ends[0] if ends else None,
                message.is_duplicate,
                Offset(message.committed),
                message.quorum,
            )
        case m.OrderRefused():
            return _refused(message)
        case m.IncomingTold():
            return RelayIncoming(
                epoch_of(message.epoch),
                message.topic_id,
                Offset(message.offset),
                MessageId(message.id),
                BrokerId(message.receiver),
                message.records,
                Digest(message.digest_before),
            )
        case m.WrittenTold():
            point = StreamPoint(Offset(message.end), Digest(message.digest))
            return RelayWritten(epoch_of(message.epoch), message.topic_id, point, message.asks)
        case m.CompareTold():
            points = _points_of(message.points)
            return RelayCompare(epoch_of(message.epoch), message.topic_id, points)
        case m.ComparedTold():
            *shared, start, end = _points_of(message.points)
            epoch, topic_id = epoch_of(message.epoch), message.topic_id
            return RelayCompared(epoch, topic_id, shared[0] if shared else None, start, end)
        case m.FetchTold():
            return RelayFetch(
                epoch_of(message.epoch),
                message.topic_id,
                Offset(message.start),
                Offset(message.end),
                message.with_producers,
            )
        case m.PartTold():
            return _part(message)
        case m.AskTold():
            return RelayAsk(message.is_joining)
    raise ProtocolError(f"{type(message).__name__} is no message about a relay partition")


def epoch_of(data: bytes) -> RelayEpoch:
    """The inverse of `epoch_bytes`."""
    timeline = Timeline.from_bytes(data[:_TIMELINE_BYTES])
    return RelayEpoch(timeline, int.from_bytes(data[_TIMELINE_BYTES:], "big"))


def _set_of(partition: PartitionId, told: m.ToldSet) -> RelaySet:
    return RelaySet(partition, told.members, told.version)


def _lives_of(lives: Sequence[m.KnownLife]) -> Lives:
    return {one.broker: RelayLife(one.incarnation, one.emptied) for one in lives}


def _points_of(data: bytes) -> tuple[StreamPoint, ...]:
    return tuple(StreamPoint(end, Digest(digest)) for end, digest in m.points_of(data))


def _refused(message: m.OrderRefused) -> RelayRefused:
    refusal = _REFUSALS[message.why]
    verdict = None
    if refusal is SubmitRefusal.BY_PRODUCER:
        if message.status not in set(Status):
            raise ProtocolError(f"relay_refused.status: {message.status} is no status")
        verdict = Refused(Status(message.status), message.reason)
    submitted = MessageId(message.submitted)
    return RelayRefused(message.topic_id, submitted, refusal, message.sequencer, verdict)


def _part(message: m.PartTold) -> RelayPart:
    transactions: list[RelayTransaction] = []
    offset = Offset(message.start)
    for one in message.transactions:
        transactions.append(
            RelayTransaction(
                offset, MessageId(one.id), BrokerId(one.receiver), one.records, Digest(one.digest)
            )
        )
        offset = transactions[-1].end
    producers: tuple[Any, ...] | None = None
    if message.producers is not None:
        producers = tuple(sequences_of(message.producers, ()).dump())
    return RelayPart(
        epoch_of(message.epoch),
        message.topic_id,
        Offset(message.start),
        tuple(transactions),
        producers,
    )
