"""What the relays of a cluster hold, as an observer knows it that asks none of them.

It counts by itself what a quorum has written, recomputes all digests, and knows which relays are
lost: their processes ended, or they gave up what they held, or were away when a timeline began.
So it can say what the promise of relay topics covers: what is committed stays while no more relays
are lost at once than a set can bear (docs/relay.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import attrs

from octopi.identifiers import BrokerId, Epoch, Offset, PartitionId, TopicId
from octopi.limits import RELAY_LOST_S
from octopi.relay.buffer import StreamPoint
from octopi.relay.messages import RelayStatus, StreamPoints
from octopi.relay.receiver import RelayReceipt
from octopi.relay.timelines import NEVER, RelayEpoch
from octopi.roles.broker.relay.partition import client_epoch
from octopi.simulation.invariants.relay_tree import Published, StreamTree
from octopi.simulation.kernel.host import KILL, LOSE_POWER
from octopi.simulation.kernel.world import Event, StepEvent
from octopi.simulation.step_handlers import StepHandlers
from octopi.tracing import steps

_GONE: Final = ("exit", KILL, LOSE_POWER)
_AWAY_S: Final = RELAY_LOST_S - 1.0
"""Who does nothing for so long may count as lost: it has stopped a moment after the others heard it
last."""
_SERVING: Final = (RelayStatus.NORMAL, RelayStatus.CHANGING)


@attrs.frozen
class MemoryLoss:
    """A timeline has begun without all that was committed in a stream."""

    topic_id: TopicId
    kept_end: Offset
    """What lies before it goes on."""
    epoch: Epoch
    """The first one of the timeline, as clients know it."""
    is_covered: bool
    """Whether the promise covers what is gone, so that it must not be."""
    event: Event


@attrs.define
class RelayFacts:
    """What is known of one relay partition."""

    partition: PartitionId
    epoch: RelayEpoch = NEVER
    """The newest one of which a relay is a part."""
    founded: RelayEpoch = NEVER
    """The epoch with which the newest timeline began."""
    joined: set[BrokerId] = attrs.field(factory=set)
    """Relays that were normal in the newest timeline, its founder among them."""
    members: tuple[BrokerId, ...] = ()
    """In `epoch`, in the order in which they are sequencers."""
    sets: dict[RelayEpoch, tuple[tuple[BrokerId, ...], int]] = attrs.field(factory=dict)
    """The members of each epoch, and the version of the set."""
    statuses: dict[BrokerId, tuple[RelayStatus, RelayEpoch]] = attrs.field(factory=dict)
    whole: set[BrokerId] = attrs.field(factory=set)
    """Those that hold what they once took over or wrote: they are not lost."""
    streams: dict[TopicId, StreamTree] = attrs.field(factory=dict)
    written: dict[tuple[TopicId, RelayEpoch], dict[BrokerId, Published]] = attrs.field(factory=dict)
    """How far each member has told to have written a stream, in each epoch."""
    seen_at: dict[BrokerId, float] = attrs.field(factory=dict)
    """When each relay did something last, as a part of an epoch."""

    @property
    def sequencer(self) -> BrokerId | None:
        """The sequencer of the newest epoch; None: none has begun."""
        count = len(self.members)
        return self.members[self.epoch.number % count] if count else None

    def stream(self, topic_id: TopicId) -> StreamTree:
        """What is known of a stream."""
        if topic_id not in self.streams:
            self.streams[topic_id] = StreamTree(topic_id, self.partition)
        return self.streams[topic_id]

    def look_at_losses(self, away: Collection[BrokerId] = ()) -> None:
        """If more relays are lost than the set can bear, what is committed so far may be lost.
        *away*: those that a timeline begins without, since they were silent for too long."""
        can_bear = len(self.members) - (len(self.members) // 2 + 1)
        if sum(one not in self.whole or one in away for one in self.members) > can_bear:
            for stream in self.streams.values():
                stream.guarded_end = stream.tip.end


class RelayObserver:
    """An observer of the relays of a cluster.  *is_known*: whether there is a topic of that id."""

    def __init__(self, is_known: Callable[[TopicId], bool]) -> None:
        self.partitions: dict[PartitionId, RelayFacts] = {}
        self.losses: list[Callable[[MemoryLoss], None]] = []
        """Called with each loss, whether or not it is covered by the promise."""
        self.rules: list[Callable[[str, str, Event], None]] = []
        """Called with each broken rule: its name, what was observed, and when."""
        self.topics: set[str] = set()
        """The names of topics in memory, as far as anybody has met them."""
        self._is_known = is_known
        self._on_host: dict[BrokerId, str] = {}
        self._handlers = StepHandlers()
        on = self._handlers.on
        on(self._publish, steps.M3Publishing)
        on(self._write, steps.M5Telling)
        on(self._check_highwater, steps.M6Moved)
        on(self._check_receipt, steps.M7Answering)
        on(self._check_delivery, steps.M8Delivering)
        on(self._enter, steps.M9Entered)
        on(self._check_start, steps.M11Starting)
        on(self._empty, steps.M13Emptied)
        on(self._change, steps.M14Changed)
        self._handlers.on_word(self._end, *_GONE)
        self.kinds = self._handlers.kinds
        """The kinds of events that it needs."""

    def __call__(self, event: Event) -> None:
        """Take *event* into account."""
        handler = self._handlers.of(event)
        if handler is not None:
            handler(event)

    @property
    def sequencers(self) -> dict[PartitionId, BrokerId]:
        """The sequencer of each relay partition that has one."""
        known = {number: one.sequencer for number, one in self.partitions.items()}
        return {number: one for number, one in known.items() if one is not None}

    def _facts(self, event: StepEvent[steps.RelayStep]) -> RelayFacts:
        number, relay = event.step.relay_partition, event.step.relay
        self._on_host[relay] = event.host
        facts = self.partitions.setdefault(number, RelayFacts(number))
        if facts.statuses.get(relay, (None, NEVER))[0] in _SERVING:
            facts.seen_at[relay] = event.at
        return facts

    def _broken(self, rule: str, text: str, event: Event) -> None:
        for told in self.rules:
            told(rule, text, event)

    # --- order and write -----------------------------------------------------------------

    def _publish(self, event: StepEvent[steps.M3Publishing]) -> None:
        facts, message = self._facts(event), event.step.message
        if wrong := facts.stream(message.topic_id).publish(message, event):
            text = f"what {event.host} publishes of {message.topic_id} {wrong}"
            self._broken("relay-digest-wrong", text, event)

    def _write(self, event: StepEvent[steps.M5Telling]) -> None:
        facts, step = self._facts(event), event.step
        message, writer = step.message, step.relay
        stream = facts.stream(message.topic_id)
        what = f"{event.host} tells that it has {message.topic_id} up to {message.point.end}"
        place = stream.at(message.point.digest, message.point.end)
        if place is None:
            text = f"{what} with digest {message.point.digest.hex()[:8]}, which nobody published"
            return self._broken("relay-digest-wrong", text, event)
        if facts.statuses.get(writer) != (RelayStatus.NORMAL, message.epoch):
            text = f"{what} in epoch {message.epoch}, and it is {facts.statuses.get(writer)}"
            return self._broken("relay-written-wrongly", text, event)
        members, _ = facts.sets[message.epoch]
        if writer not in members:
            text = f"{what}, and is none of {sorted(members)}"
            return self._broken("relay-written-wrongly", text, event)
        told = facts.written.setdefault((message.topic_id, message.epoch), {})
        told[writer] = place
        quorum = len(members) // 2 + 1
        furthest = sorted(told.values(), key=lambda one: one.end, reverse=True)
        if len(furthest) >= quorum:
            least = furthest[quorum - 1]
            if sum(stream.is_before(least, one) for one in furthest) >= quorum:
                self._commit(facts, stream, least, message.epoch, event)
        return None

    def _commit(
        self,
        facts: RelayFacts,
        stream: StreamTree,
        place: Published,
        epoch: RelayEpoch,
        event: Event,
    ) -> None:
        """A quorum has written *stream* up to *place*."""
        if place.digest in stream.committed and place.end <= stream.tip.end:
            return
        what = f"a quorum has written {stream.topic_id} up to {place.end} in epoch {epoch}"
        if epoch.timeline < facts.founded.timeline:
            text = f"{what}, and timeline {facts.founded.timeline} had begun"
            self._broken("relay-dead-timeline", text, event)
        elif not stream.is_before(stream.tip, place):
            text = f"{what}, without what had been committed up to {stream.tip.end}"
            self._broken("relay-forked", text, event)
        elif wrong := stream.commit(place):
            self._broken("relay-doubled", f"{stream.topic_id} {wrong}", event)
        else:
            facts.look_at_losses()

    def _check_highwater(self, event: StepEvent[steps.M6Moved]) -> None:
        step = event.step
        stream = self._facts(event).stream(step.topic_id)
        if step.digest not in stream.committed:
            text = f"{event.host} takes {step.topic_id} for committed up to {step.highwater}, and "
            text += f"it is up to {stream.tip.end}"
            self._broken("relay-uncommitted", text, event)

    # --- clients -------------------------------------------------------------------------

    def _check_receipt(self, event: StepEvent[steps.M7Answering]) -> None:
        facts, step = self._facts(event), event.step
        outcome = step.outcome
        if not isinstance(outcome, RelayReceipt):
            return
        stream = facts.stream(step.topic_id)
        what = f"{event.host} acknowledges {step.topic_id} at {outcome.offset}"
        status, _ = facts.statuses.get(step.relay, (None, NEVER))
        if status is RelayStatus.FENCED:
            self._broken("relay-fenced-serves", f"{what}, and is fenced", event)
        elif outcome.digest is None:
            if outcome.offset >= stream.tip.end:
                text = f"{what}; committed is what lies before {stream.tip.end}"
                self._broken("relay-uncommitted", text, event)
        elif outcome.digest not in stream.committed:
            text = f"{what}, and no quorum has written that"
            self._broken("relay-uncommitted", text, event)
        elif stream.by_digest[outcome.digest].offset != outcome.offset:
            text = f"{what}; it is at {stream.by_digest[outcome.digest].offset}"
            self._broken("relay-uncommitted", text, event)

    def _check_delivery(self, event: StepEvent[steps.M8Delivering]) -> None:
        facts, step = self._facts(event), event.step
        what = f"{event.host} hands out {step.topic_id} from {step.offset} to {step.end}"
        status, _ = facts.statuses.get(step.relay, (None, NEVER))
        if status not in _SERVING:
            text = f"{what}, and is {'in no epoch' if status is None else status.value}"
            self._broken("relay-fenced-serves", text, event)
        elif step.digest not in facts.stream(step.topic_id).committed:
            self._broken("relay-uncommitted", f"{what}, which no quorum has written", event)

    # --- epochs and timelines ------------------------------------------------------------

    def _enter(self, event: StepEvent[steps.M9Entered]) -> None:
        facts, step = self._facts(event), event.step
        facts.statuses[step.relay] = step.status, step.epoch
        if step.status is not RelayStatus.NORMAL:
            return
        of_epoch = tuple(step.members), step.version
        if facts.sets.setdefault(step.epoch, of_epoch) != of_epoch:
            text = f"{event.host} takes {of_epoch} for the set of epoch {step.epoch}, and others "
            text += f"{facts.sets[step.epoch]}"
            self._broken("relay-two-starts", text, event)
        if step.epoch > facts.epoch:
            facts.epoch = step.epoch
            facts.whole.difference_update({*facts.members} - {*step.members})
            facts.members = tuple(step.members)
        if step.epoch.timeline == facts.epoch.timeline:
            facts.whole.add(step.relay)
        if step.epoch.timeline == facts.founded.timeline:
            facts.joined.add(step.relay)
        facts.look_at_losses()

    def _check_start(self, event: StepEvent[steps.M11Starting]) -> None:
        facts, message = self._facts(event), event.step.message
        if message.epoch != facts.epoch or event.step.relay != facts.sequencer:
            return
        epoch, points = message.epoch, dict(message.streams)
        for topic_id, stream in facts.streams.items():
            if stream.tip.before is None or not self._is_known(topic_id):
                continue
            begin = _place(stream, points.get(topic_id))
            if begin is None or not stream.is_before(stream.tip, begin):
                text = f"epoch {epoch} begins without what was committed of {topic_id} up to "
                text += f"{stream.tip.end}"
                self._broken("relay-forgotten", text, event)

    def _empty(self, event: StepEvent[steps.M13Emptied]) -> None:
        self._lose(self._facts(event), event.step.relay)

    def _end(self, event: Event) -> None:
        for broker, host in self._on_host.items():
            if host == event.host:
                for facts in self.partitions.values():
                    self._lose(facts, broker)

    def _lose(self, facts: RelayFacts, broker: BrokerId) -> None:
        facts.statuses.pop(broker, None)
        facts.whole.discard(broker)
        facts.look_at_losses()

    def _change(self, event: StepEvent[steps.M14Changed]) -> None:
        """A relay becomes part of another timeline; perhaps it has founded it.

        If the founder dies, a later epoch of the same timeline may be a founding again, as long as
        no quorum was normal in it: nothing was committed in it then.
        """
        facts, step = self._facts(event), event.step
        if not step.founders:
            return
        others = facts.joined - {step.relay}
        begins_again = (
            step.epoch.timeline == facts.founded.timeline
            and step.epoch > facts.founded
            and len(others) < len(facts.members) // 2 + 1
        )
        if step.epoch.timeline <= facts.founded.timeline and not begins_again:
            text = f"{event.host} begins timeline {step.epoch.timeline}, and "
            text += f"{facts.founded.timeline} had begun"
            self._broken("relay-timeline-again", text, event)
            return
        facts.founded = step.epoch
        facts.joined = {step.relay}
        facts.look_at_losses(
            [
                one
                for one in facts.members
                if one not in step.founders and event.at - facts.seen_at.get(one, 0.0) > _AWAY_S
            ]
        )
        self._keep(facts, step.streams, step.epoch, event)
        facts.whole.intersection_update(step.founders)
        facts.whole.add(step.relay)
        facts.look_at_losses()

    def _keep(
        self, facts: RelayFacts, streams: StreamPoints, epoch: RelayEpoch, event: Event
    ) -> None:
        """Compare what a timeline begins with to what was committed."""
        points = dict(streams)
        for topic_id, stream in facts.streams.items():
            if stream.tip.before is None or not self._is_known(topic_id):
                continue
            begin = _place(stream, points.get(topic_id))
            kept = stream.common(stream.tip, begin or _first(stream))
            if kept is stream.tip:
                continue
            is_covered = stream.tip.end > stream.guarded_end
            loss = MemoryLoss(topic_id, kept.end, client_epoch(epoch), is_covered, event)
            if is_covered:
                text = f"{event.host} begins timeline {epoch.timeline} with {topic_id} up to "
                text += f"{kept.end}; it was committed up to {stream.tip.end}, and no more relays "
                text += "were lost at once since then than the set can bear"
                self._broken("relay-lost", text, event)
            stream.tip = kept
            for told in self.losses:
                told(loss)


def _first(stream: StreamTree) -> Published:
    return next(iter(stream.by_digest.values()))


def _place(stream: StreamTree, point: StreamPoint | None) -> Published | None:
    """Where *point* is; None: nowhere, or there is none."""
    return None if point is None else stream.at(point.digest, point.end)
