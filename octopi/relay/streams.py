"""The streams of a relay partition, as one relay holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from octopi.identifiers import BrokerId, TopicId
from octopi.limits import (
    RELAY_PART_BYTES,
    RELAY_PART_TRANSACTIONS,
    RELAY_REPEATS_MAX,
    RELAY_STREAMS_MAX,
)
from octopi.relay.anti_entropy import RepairCounts, StreamRepair
from octopi.relay.buffer import StreamPoint
from octopi.relay.effects import MoveHighwater, RelayEffect, SendToRelay, TellGap
from octopi.relay.messages import (
    RelayCompare,
    RelayCompared,
    RelayFetch,
    RelayIncoming,
    RelayPart,
    RelayRefused,
    RelaySubmit,
    RelayWritten,
    StreamEnds,
    StreamPoints,
    SubmitRefusal,
)
from octopi.relay.relay_set import RelaySet
from octopi.relay.sequencer import PutInOrder, put_in_order
from octopi.relay.stream import RelayStream, one_run
from octopi.relay.stream_rules import StreamRules
from octopi.relay.timelines import NEVER


class RelayStreams:
    """The streams of one partition: they are ordered, written, delivered and repaired one by one.

    Invariant: what this relay has told to have written of a stream is what it holds of it, and in
    an epoch of which it is a part.
    """

    def __init__(
        self,
        me: BrokerId,
        relay_set: RelaySet,
        rules: StreamRules,
        perform: Callable[[RelayEffect], None],
        streams_max: int = RELAY_STREAMS_MAX,
        repaired: RepairCounts | None = None,
    ) -> None:
        """*perform*: takes the effects.  *repaired*: what repairs do is added there."""
        self.streams_max = streams_max
        self._repaired = repaired or RepairCounts()
        self._me, self._set, self._rules, self._perform = me, relay_set, rules, perform
        self.epoch = NEVER
        """Of which this relay is a part, if it is."""
        self.by_topic: dict[TopicId, RelayStream] = {}
        self.repairs: dict[TopicId, StreamRepair] = {}
        """Those that go on.  This relay does not count for these streams."""
        self._lagging: dict[BrokerId, dict[TopicId, None]] = {
            one: {} for one in relay_set.others(me)
        }
        """Streams of which a member has not told that it has written all, the same as this one."""

    def __iter__(self) -> Iterator[RelayStream]:
        return iter(self.by_topic.values())

    @property
    def points(self) -> StreamPoints:
        """How far each stream goes."""
        return tuple((one.topic_id, one.buffer.end) for one in self)

    @property
    def ends(self) -> StreamEnds:
        """How far each stream goes, and is delivered."""
        return tuple((one.topic_id, one.buffer.end, one.highwater) for one in self)

    @property
    def held_bytes(self) -> int:
        """What all streams hold."""
        return sum(one.buffer.size_bytes for one in self)

    @property
    def is_whole(self) -> bool:
        """Whether no stream is under repair."""
        return not self.repairs

    def is_intact(self) -> bool:
        """Whether all digests are right: computes all of them again."""
        return all(one.buffer.is_intact() for one in self)

    def new(self, topic_id: TopicId) -> RelayStream:
        """An empty stream, which is not one of these."""
        bounds, memory = self._rules.of(topic_id), self._rules.memory
        return RelayStream(topic_id, self._me, self._set, bounds, memory)

    def open(self, topic_id: TopicId) -> RelayStream:
        """The stream of *topic_id*, empty if it is new."""
        if topic_id not in self.by_topic:
            self.by_topic[topic_id] = self.new(topic_id)
        return self.by_topic[topic_id]

    def _send(self, to: BrokerId, message: object) -> None:
        self._perform(SendToRelay(to, message))  # type: ignore[arg-type]

    # --- order and write -----------------------------------------------------------------

    def submitted(self, receiver: BrokerId, submit: RelaySubmit, now: float) -> None:
        """Put in order what *receiver* has submitted.  This relay is the sequencer.  What is for a
        stream that was removed is dropped: the topic is not known any more where it came from."""
        if submit.topic_id in self._rules.removed:
            return
        if submit.topic_id not in self.by_topic and len(self.by_topic) >= self.streams_max:
            refused = RelayRefused(submit.topic_id, submit.id, SubmitRefusal.TOO_MANY_STREAMS)
            self._send(receiver, refused)
            return
        stream = self.by_topic.get(submit.topic_id) or self.new(submit.topic_id)
        ordered = put_in_order(stream, self.epoch, receiver, submit, now)
        if not isinstance(ordered, PutInOrder):
            self._send(receiver, ordered)
            return
        self.by_topic[submit.topic_id] = stream
        one = ordered.transaction
        incoming = RelayIncoming(
            self.epoch,
            stream.topic_id,
            one.offset,
            one.id,
            receiver,
            one.records,
            ordered.before.digest,
        )
        for member in self._set.others(self._me):
            self._send(member, incoming)
        self._send(receiver, ordered.answer)
        self.write(stream, now)

    def incoming(self, message: RelayIncoming, sources: Sequence[BrokerId], now: float) -> None:
        """The sequencer has published a transaction."""
        if message.topic_id in self._rules.removed:
            return
        stream = self.open(message.topic_id)
        if (repair := self.repairs.get(message.topic_id)) is not None:
            repair.queue_incoming(message)
            return
        end = stream.buffer.end
        run = one_run(message.records)
        before = StreamPoint(message.offset, message.digest_before)
        if before == end and run is not None:
            stream.append(message.id, message.receiver, message.records, run, now)
            self.write(stream, now)
        elif message.offset >= end.end:
            self.repair(stream, before, sources, now)
            if (repair := self.repairs.get(message.topic_id)) is not None:
                repair.queue_incoming(message)

    def write(self, stream: RelayStream, now: float, *, asks: bool = False) -> None:
        """Tell that this relay holds all of *stream*, up to its end.  One that is to be a member,
        and is none yet, does not count."""
        if self._me not in self._set:
            return
        point = stream.buffer.end
        stream.marks.hear(self._me, point, stream.buffer)
        written = RelayWritten(self.epoch, stream.topic_id, point, asks)
        for member, lagging in self._lagging.items():
            if not stream.marks.is_level(member, stream.buffer):
                lagging[stream.topic_id] = None
            self._send(member, written)
        for receiver in {*stream.outside, self._me}:
            self._send(receiver, written)
        self._advance(stream, now)

    def _advance(self, stream: RelayStream, now: float) -> None:
        if stream.advance(now):
            self._perform(MoveHighwater(stream.topic_id, stream.highwater))
        if stream.shed():
            self._perform(TellGap(stream.topic_id, stream.buffer.start.end))

    def written(
        self, sender: BrokerId, message: RelayWritten, sources: Sequence[BrokerId], now: float
    ) -> None:
        """Member *sender* has written a stream up to a point.  *sources*: the members from which
        one may take what is missing, the best one first."""
        if message.topic_id in self._rules.removed:
            return
        stream = self.open(message.topic_id)
        stream.marks.hear(sender, message.point, stream.buffer)
        if stream.topic_id in self.repairs:
            return
        self._advance(stream, now)
        if stream.marks.is_level(sender, stream.buffer):
            self._lagging.get(sender, {}).pop(stream.topic_id, None)
        if message.asks and self._me in self._set:
            self._send(sender, RelayWritten(self.epoch, stream.topic_id, stream.buffer.end))
            is_behind = message.point.end > stream.buffer.end.end
            if is_behind and sources and sender == sources[0]:
                self.repair(stream, message.point, sources, now)

    def repeat(self, member: BrokerId) -> None:
        """Tell *member*, which is there, of streams in which it seems to be behind, and ask."""
        lagging = self._lagging.get(member, {}) if self._me in self._set else {}
        for topic_id in list(lagging)[:RELAY_REPEATS_MAX]:
            stream = self.by_topic.get(topic_id)
            if stream is None or stream.marks.is_level(member, stream.buffer):
                del lagging[topic_id]
            elif topic_id not in self.repairs:
                point = stream.buffer.end
                self._send(member, RelayWritten(self.epoch, topic_id, point, asks=True))

    # --- compare and fetch ------------------------------------------------------------------

    def compare(self, sender: BrokerId, message: RelayCompare) -> None:
        """*sender* looks for the last point that it shares with this relay."""
        stream = self.by_topic.get(message.topic_id) or self.new(message.topic_id)
        buffer = stream.buffer
        shared = [one for one in message.points if buffer.digest_at(one.end) == one.digest]
        last = max(shared, key=lambda one: one.end, default=None)
        answer = RelayCompared(message.epoch, message.topic_id, last, buffer.start, buffer.end)
        self._send(sender, answer)

    def fetch(self, sender: BrokerId, message: RelayFetch) -> None:
        """*sender* wants what lies between two offsets."""
        stream = self.by_topic.get(message.topic_id)
        if stream is None:
            return
        found = stream.buffer.read(
            message.start, message.end, RELAY_PART_BYTES, RELAY_PART_TRANSACTIONS
        )
        producers = None
        if message.with_producers:
            producers = tuple(stream.producers.before(message.start).dump())
        part = RelayPart(message.epoch, message.topic_id, message.start, tuple(found), producers)
        self._send(sender, part)

    # --- repair within an epoch ----------------------------------------------------------

    def repair(
        self, stream: RelayStream, target: StreamPoint, sources: Sequence[BrokerId], now: float
    ) -> None:
        """Bring *stream* to *target*."""
        if not sources or stream.topic_id in self.repairs:
            return
        repair = StreamRepair(
            stream, self.epoch, target, sources, keeps_delivered=True, counts=self._repaired
        )
        self.repairs[stream.topic_id] = repair
        self.go_on(repair, repair.begin(now), sources, now)

    def go_on(
        self,
        repair: StreamRepair,
        sends: Sequence[SendToRelay],
        sources: Sequence[BrokerId],
        now: float,
    ) -> None:
        """*repair* of one of these streams has made a step, and wants *sends* sent."""
        for one in sends:
            self._perform(one)
        stream = repair.stream
        if not repair.is_verified:
            return
        if repair.release(now):
            self._perform(TellGap(stream.topic_id, stream.buffer.start.end))
        del self.repairs[stream.topic_id]
        self.write(stream, now, asks=True)
        for queued in repair.queue:
            self.incoming(queued, sources, now)

    def failed(self) -> bool:
        """Whether a repair has found nobody who can help."""
        return any(one.has_failed for one in self.repairs.values())

    def abandon_repairs(self) -> None:
        """This relay is not part of the epoch any more."""
        self.repairs.clear()

    def drop(self, kept: set[TopicId]) -> None:
        """Keep only the streams *kept*."""
        self.by_topic = {one: self.by_topic[one] for one in self.by_topic if one in kept}

    def level_with(self, member: BrokerId) -> None:
        """*member* has another life: nothing of what it told holds."""
        if member in self._lagging:
            self._lagging[member] = dict.fromkeys(self.by_topic)

    def use(self, relay_set: RelaySet) -> None:
        """An epoch begins with these members."""
        self._set = relay_set
        self._lagging = {one: self._lagging.get(one, {}) for one in relay_set.others(self._me)}

    def drop_removed(self) -> None:
        """Forget the streams that were removed."""
        for topic_id in self._rules.removed:
            self.by_topic.pop(topic_id, None)
            self.repairs.pop(topic_id, None)

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        for stream in self:
            stream.check_invariants()
