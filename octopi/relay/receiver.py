"""Takes what producers send, whether or not this broker is a relay: gives it an id, has it put in
order, and answers when a quorum has written it.

If nobody says so in time, the outcome is not known, and the producer sends the same again.  That is
safe anywhere, because the sequences of producers are in the streams.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

from octopi.identifiers import BrokerId, Offset, TopicId
from octopi.limits import (
    RELAY_AHEAD_MAX,
    RELAY_BEAT_S,
    RELAY_CHANGE_S,
    RELAY_PENDING_MAX,
    RELAY_PRODUCE_S,
)
from octopi.relay.buffer import StreamPoint
from octopi.relay.digest import Digest
from octopi.relay.effects import SendToRelay
from octopi.relay.message_ids import MessageId, MessageIds
from octopi.relay.messages import (
    RelayRefused,
    RelaySubmit,
    RelaySubmitted,
    RelayWritten,
    SubmitRefusal,
    ToReceiver,
)
from octopi.relay.relay_set import RelaySet
from octopi.relay.timelines import NEVER, RelayEpoch

_AGAIN = {SubmitRefusal.NOT_SEQUENCER, SubmitRefusal.NOT_READY, SubmitRefusal.NO_QUORUM}
"""Another relay, or the same one a little later, may take it."""

_NOTHING: Final = Offset(0)


@attrs.frozen
class RelayReceipt:
    """A transaction is committed."""

    epoch: RelayEpoch
    offset: Offset
    id: MessageId | None
    """None: it is a repetition, and the id of the first time is forgotten."""
    digest: Digest | None
    """Behind it; None as well."""
    is_duplicate: bool


@attrs.frozen
class NotStored:
    """It was refused, and certainly not stored."""

    refused: RelayRefused


@attrs.frozen
class NotKnown:
    """Whether it is stored is not known: the same may be sent again, anywhere."""


ProduceOutcome: TypeAlias = RelayReceipt | NotStored | NotKnown


@attrs.frozen
class AnswerProducer:
    """Answer the produce with that *number*."""

    number: int
    outcome: ProduceOutcome


ReceiverEffect: TypeAlias = SendToRelay | AnswerProducer


@attrs.define
class _Pending:
    number: int
    submit: RelaySubmit
    ends_at: float
    retries_at: float
    asked: int = 0
    """How often it was submitted."""
    placed: RelaySubmitted | None = None
    """Where the sequencer has put it."""


@attrs.define
class _WrittenEnds:
    """What members have written of one stream, as far as a broker can tell that has no copy."""

    epoch: RelayEpoch = NEVER
    quorum: int = 0
    """Of that epoch, as its sequencer said; 0: it has not yet."""
    committed: Offset = _NOTHING
    agreed: dict[Offset, Digest] = attrs.field(factory=dict)
    """The digests of a quorum at the newest ends."""
    by_end: dict[Offset, dict[Digest, set[BrokerId]]] = attrs.field(factory=dict)
    waiting: dict[MessageId, _Pending] = attrs.field(factory=dict)
    """Produces that wait for it."""

    def hear(self, member: BrokerId, epoch: RelayEpoch, point: StreamPoint) -> bool:
        """*member* has written up to *point*; return whether more is committed than before."""
        if epoch < self.epoch:
            return False
        self._enter(epoch)
        if point.end <= self.committed:
            return False
        self.by_end.setdefault(point.end, {}).setdefault(point.digest, set()).add(member)
        if self._look_at(point.end):
            return True
        if len(self.by_end) > RELAY_AHEAD_MAX:
            del self.by_end[min(self.by_end)]
        return False

    def learn(self, epoch: RelayEpoch, quorum: int) -> None:
        """The sequencer of *epoch* says how many members have to write.  It depends on the epoch:
        members are added and removed."""
        if epoch >= self.epoch:
            self._enter(epoch)
            if not self.quorum:
                self.quorum = quorum
                for end in sorted(self.by_end):
                    self._look_at(end)

    def _enter(self, epoch: RelayEpoch) -> None:
        if epoch > self.epoch:
            self.epoch, self.quorum, self.committed = epoch, 0, _NOTHING
            self.by_end.clear()
            self.agreed.clear()

    def _look_at(self, end: Offset) -> bool:
        """See whether a quorum has written up to *end*."""
        for digest, members in self.by_end.get(end, {}).items():
            if 0 < self.quorum <= len(members):
                self.committed = end
                self.agreed[end] = digest
                if len(self.agreed) > RELAY_AHEAD_MAX:
                    del self.agreed[min(self.agreed)]
                self.by_end = {one: of for one, of in self.by_end.items() if one > end}
                return True
        return False


class RelayReceiver:
    """The produces of one relay partition at one broker that wait for their receipts.

    Invariant: a receipt is given only for what a quorum has written in the epoch in which the
    sequencer put it in order, or what the sequencer has said is committed.
    """

    def __init__(self, me: BrokerId, relay_set: RelaySet, ids: MessageIds) -> None:
        self._me, self._set, self._ids = me, relay_set, ids
        self._pending: dict[MessageId, _Pending] = {}
        self._streams: dict[TopicId, _WrittenEnds] = {}
        self.sequencer = relay_set.ranked[0]
        """Whom to ask first."""

    def __len__(self) -> int:
        return len(self._pending)

    def produce(
        self, number: int, topic_id: TopicId, records: bytes, count: int, now: float, wall_ms: int
    ) -> list[ReceiverEffect]:
        """A producer sends *count* valid *records* of its own."""
        submit = RelaySubmit(topic_id, self._ids.take(count, wall_ms), records)
        if len(self._pending) >= RELAY_PENDING_MAX:
            full = RelayRefused(topic_id, submit.id, SubmitRefusal.BUFFER_FULL)
            return [AnswerProducer(number, NotStored(full))]
        pending = _Pending(number, submit, now + RELAY_PRODUCE_S, now)
        self._pending[submit.id] = pending
        self._streams.setdefault(topic_id, _WrittenEnds()).waiting[submit.id] = pending
        return [self._submit(pending, now)]

    def receive(self, sender: BrokerId, message: ToReceiver, now: float) -> list[ReceiverEffect]:
        """Handle *message* of member *sender*."""
        match message:
            case RelayWritten():
                return self._written(sender, message)
            case RelaySubmitted():
                return self._placed(message)
            case RelayRefused():
                return self._refused(message, now)

    def use(self, relay_set: RelaySet) -> None:
        """The set has other members now."""
        self._set = relay_set
        if self.sequencer not in relay_set:
            self.sequencer = relay_set.ranked[0]

    def sequencer_is(self, broker: BrokerId, now: float) -> list[ReceiverEffect]:
        """*broker* is the sequencer of a new epoch: what waits is submitted again."""
        self.sequencer = broker
        return [self._submit(one, now) for one in self._pending.values()]

    def tick(self, now: float) -> list[ReceiverEffect]:
        """Do what is due: submit again, give up."""
        effects: list[ReceiverEffect] = []
        for pending in list(self._pending.values()):
            if now >= pending.ends_at:
                effects.append(self._end(pending, NotKnown()))
            elif now >= pending.retries_at:
                if pending.placed is None and pending.asked > 1:
                    self._ask_another()
                effects.append(self._submit(pending, now))
        return effects

    def fenced(self) -> list[ReceiverEffect]:
        """This broker is a relay that hears no quorum: it gives no receipt."""
        return [self._end(one, NotKnown()) for one in list(self._pending.values())]

    def _ask_another(self) -> None:
        ranked = self._set.ranked
        self.sequencer = ranked[(ranked.index(self.sequencer) + 1) % len(ranked)]

    def _submit(self, pending: _Pending, now: float) -> SendToRelay:
        pending.asked += 1
        pending.retries_at = now + RELAY_CHANGE_S
        pending.placed = None
        return SendToRelay(self.sequencer, pending.submit)

    def _written(self, sender: BrokerId, message: RelayWritten) -> list[ReceiverEffect]:
        stream = self._streams.get(message.topic_id)
        if stream is None:
            return []
        if not stream.hear(sender, message.epoch, message.point):
            return []
        placed = [one for one in stream.waiting.values() if one.placed is not None]
        return [effect for one in placed for effect in self._look_at(one)]

    def _placed(self, message: RelaySubmitted) -> list[ReceiverEffect]:
        pending = self._pending.get(message.submitted)
        if pending is None:
            return []
        pending.placed = message
        self._streams[pending.submit.topic_id].learn(message.epoch, message.quorum)
        return self._look_at(pending)

    def _look_at(self, pending: _Pending) -> list[ReceiverEffect]:
        placed = pending.placed
        assert placed is not None
        stream = self._streams[pending.submit.topic_id]
        end = placed.point.end if placed.point is not None else placed.offset
        written = stream.committed if stream.epoch == placed.epoch else _NOTHING
        if end > max(written, placed.committed):
            return []
        agreed = stream.agreed.get(end) if stream.epoch == placed.epoch else None
        if placed.point is not None and agreed not in {None, placed.point.digest}:
            # The sequencer is wrong: the next one will find what a quorum has.
            pending.placed = None
            return []
        digest = placed.point.digest if placed.point is not None else None
        receipt = RelayReceipt(placed.epoch, placed.offset, placed.id, digest, placed.is_duplicate)
        return [self._end(pending, receipt)]

    def _refused(self, message: RelayRefused, now: float) -> list[ReceiverEffect]:
        pending = self._pending.get(message.submitted)
        if pending is None:
            return []
        if message.refusal not in _AGAIN:
            # An earlier attempt may have been taken.
            is_certain = pending.asked == 1 or message.refusal is SubmitRefusal.BY_PRODUCER
            return [self._end(pending, NotStored(message) if is_certain else NotKnown())]
        if message.sequencer is not None and message.sequencer in self._set:
            self.sequencer = message.sequencer
            if message.refusal is SubmitRefusal.NOT_SEQUENCER:
                return [self._submit(pending, now)]
        pending.retries_at = min(pending.retries_at, now + RELAY_BEAT_S)
        return []

    def _end(self, pending: _Pending, outcome: ProduceOutcome) -> AnswerProducer:
        del self._pending[pending.submit.id]
        topic_id = pending.submit.topic_id
        stream = self._streams[topic_id]
        del stream.waiting[pending.submit.id]
        if not stream.waiting:
            del self._streams[topic_id]
        return AnswerProducer(pending.number, outcome)
