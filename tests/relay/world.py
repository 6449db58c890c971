"""Relays in virtual time: a network that loses, doubles, reorders and delays, that splits and
heals; processes that crash, pause, and come back with nothing; clocks that step; bits that flip.

The rules are checked after each event, with code of their own: one timeline for each stream,
nothing acknowledged is lost that the promise covers, no receipt in a dead timeline, and at the end
all relays are alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random

import attrs

from octopi.identifiers import (
    BrokerId,
    Incarnation,
    Offset,
    TopicId,
)
from octopi.limits import RELAY_TICK_S
from octopi.relay.adoption import AdoptionKind, EpochAdoption
from octopi.relay.buffer import BufferBounds, RelayTransaction
from octopi.relay.effects import (
    BeginLife,
    EnterStatus,
    MoveHighwater,
    RelayEffect,
    SendToRelay,
    StoreGeneration,
    TellConflict,
    TellGap,
    TellTimeline,
)
from octopi.relay.incarnations import RelayLife
from octopi.relay.member import RelayMember
from octopi.relay.message_ids import MessageId, MessageIds, node_name
from octopi.relay.messages import (
    RelayMessage,
    RelayRefused,
    RelayStatus,
    RelaySubmitted,
    RelayWritten,
)
from octopi.relay.receiver import (
    AnswerProducer,
    NotStored,
    ReceiverEffect,
    RelayReceipt,
    RelayReceiver,
)
from octopi.relay.relay_set import RelaySet
from octopi.relay.timelines import RelayEpoch, Timeline
from tests.relay.parts import (
    PARTITION,
    TOPICS,
    BrokenRule,
    Producing,
    RelayBroker,
    Told,
    WatchedMember,
    produced,
)


class RelayWorld:
    """A relay set, brokers outside of it, and producers."""

    def __init__(
        self,
        random: Random,
        members: int = 3,
        outside: int = 1,
        *,
        bounds: BufferBounds | None = None,
        topics: int = 2,
        make: Callable[..., WatchedMember] = WatchedMember,
    ) -> None:
        self.random = random
        self.now = 0.0
        self.relay_set = RelaySet(PARTITION, [BrokerId(one + 1) for one in range(members)])
        """The newest set that was ordered."""
        self.in_force = self.relay_set
        """The newest set in which a quorum was part of an epoch."""
        self.topics = TOPICS[:topics]
        self.loss = self.doubling = 0.0
        self.delay_s = (0.0005, 0.004)
        self.cut: set[tuple[int, int]] = set()
        """(from, to)"""
        self.alter: Callable[[BrokerId, RelayMessage], RelayMessage | None] = lambda _, one: one
        """What becomes of a message to a broker on its way; None: it is lost."""
        self.producing: list[Producing] = []
        self.stats: Counter[str] = Counter()
        self.told: dict[tuple[Timeline, TopicId], dict[Offset, Told]] = {}
        self.timelines: set[Timeline] = set()
        self.sealed: set[Timeline] = set()
        self.must: dict[TopicId, dict[Offset, MessageId]] = {}
        """What the promise says is still there."""
        self.lost: set[BrokerId] = set()
        """Members that are lost, and not part of the newest timeline again."""
        self.gaps: list[tuple[BrokerId, TopicId, Offset]] = []
        self.conflicts = 0
        self.delivered: dict[BrokerId, list[tuple[TopicId, RelayTransaction]]] = {}
        self._bounds, self._make = bounds or BufferBounds(), make
        self._wrote: dict[tuple[RelayEpoch, TopicId], dict[BrokerId, Offset]] = {}
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._count = count()
        self._looks = 0
        self.brokers: dict[BrokerId, RelayBroker] = {}
        for number in range(1, members + outside + 1):
            broker = RelayBroker(BrokerId(number))
            self.brokers[broker.number] = broker
            self._start(broker)
            self.at(random.uniform(0, RELAY_TICK_S), partial(self._tick, broker))

    @property
    def members(self) -> list[WatchedMember]:
        return [one.member for one in self.brokers.values() if one.member is not None]

    def member(self, number: int) -> WatchedMember:
        found = self.brokers[BrokerId(number)].member
        assert found is not None
        return found

    @property
    def sequencer(self) -> WatchedMember | None:
        """The sequencer of the newest epoch."""
        leads = [
            one.member
            for one in self.brokers.values()
            if one.alive and one.member is not None and one.member.is_sequencer
        ]
        return max(leads, key=lambda one: one.epoch, default=None)

    # --- time ----------------------------------------------------------------------------

    def at(self, time: float, action: Callable[[], object]) -> None:
        """Have something happen at a time."""
        heappush(self._queue, (time, next(self._count), action))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.run_until(lambda: False, seconds, must=False)

    def run_until(self, holds: Callable[[], bool], seconds: float, *, must: bool = True) -> float:
        """Let time pass until *holds* is true; return how long that took."""
        began, until = self.now, self.now + seconds
        while not holds():
            if self._queue[0][0] > until:
                self.now = until
                if must:
                    raise BrokenRule(f"it does not come to it within {seconds:g} s: {self.view}")
                return seconds
            self.now, _, action = heappop(self._queue)
            action()
        return self.now - began

    @property
    def view(self) -> list[object]:
        """What the members are."""
        return [
            (
                one.number,
                "up" if one.alive else "down",
                one.member.status.value,
                tuple(one.member.epoch),
                [
                    (end.end, stream.highwater)
                    for (_, end), stream in zip(
                        one.member.streams.points, one.member.streams, strict=True
                    )
                ],
            )
            for one in self.brokers.values()
            if one.member is not None
        ]

    def _tick(self, broker: RelayBroker) -> None:
        self.at(max(self.now, broker.paused_until) + RELAY_TICK_S, lambda: self._tick(broker))
        if broker.alive and broker.paused_until <= self.now:
            if broker.member is not None:
                self._perform(broker, broker.member.tick(self.now))
                if broker.member.is_agreed(self.now):
                    self._has_begun(broker.member.held_set)
            self._perform(broker, broker.receiver.tick(self.now))

    # --- what may happen -----------------------------------------------------------------

    def _start(self, broker: RelayBroker) -> None:
        incarnation = Incarnation(broker.incarnation)
        ids = MessageIds(node_name(broker.number, incarnation))
        broker.receiver = RelayReceiver(broker.number, self.relay_set, ids)
        broker.status = RelayStatus.JOINING
        broker.delivered = {}
        broker.member = None
        # What is on its disk may be older than what was ordered.
        sets = {one.version: one for one in (self.relay_set, self.in_force)}
        known = self.random.choice(list(sets.values())) if len(sets) > 1 else self.relay_set
        if broker.number not in known:
            known = self.relay_set
        if broker.number in known:
            broker.member = self._make(
                broker.number,
                known,
                incarnation,
                broker.generation,
                self.random.random,
                self.now,
                self._bounds,
                scrub_s=1.0,
            )
            broker.member.settled = []

    def crash(self, number: int) -> None:
        """A process ends."""
        broker = self.brokers[BrokerId(number)]
        broker.alive = False
        if broker.member is not None:
            self.lost.add(broker.number)

    def restart(self, number: int) -> None:
        """A process begins again, with nothing but its disk."""
        broker = self.brokers[BrokerId(number)]
        broker.incarnation += 1
        broker.alive = True
        self._start(broker)

    def order(self, members: Iterable[int]) -> None:
        """Whoever decides about sets wants this one, and tells each broker, again and again."""
        wanted = RelaySet(PARTITION, [BrokerId(one) for one in members], self.relay_set.version + 1)
        assert wanted.follows(self.relay_set)
        assert self.in_force == self.relay_set
        self.relay_set = wanted
        for broker in self.brokers.values():
            self.at(self.now + self.random.uniform(0, 0.3), partial(self._ordered, broker, wanted))

    def _ordered(self, broker: RelayBroker, wanted: RelaySet) -> None:
        if wanted != self.relay_set:
            return
        self.at(self.now + self.random.uniform(0.5, 2), partial(self._ordered, broker, wanted))
        if not broker.alive or self.random.random() < 0.5:
            return
        if broker.member is not None:
            broker.member.know_set(wanted)
        elif broker.number in wanted:
            self._start(broker)

    def _leave(self, broker: RelayBroker) -> None:
        """A broker is told that it is no member any more."""
        if broker.number in self.in_force or broker.number in self.relay_set:
            return
        broker.member, broker.status = None, RelayStatus.JOINING
        broker.receiver.use(self.in_force)
        self.lost.discard(broker.number)

    def _has_begun(self, relay_set: RelaySet) -> None:
        """An epoch has begun with these members, and a quorum is part of it."""
        if relay_set.version > self.in_force.version:
            assert relay_set == self.relay_set
            self.in_force = relay_set
            self.stats["moves"] += 1
            for broker in self.brokers.values():
                self.at(self.now + self.random.uniform(0, 2), partial(self._leave, broker))
                if broker.number in relay_set and broker.member is None and broker.alive:
                    self._start(broker)
                elif broker.member is None:
                    broker.receiver.use(relay_set)

    def do(self, number: int, act: Callable[[WatchedMember], list[RelayEffect]]) -> None:
        """Have a member do something by itself."""
        broker = self.brokers[BrokerId(number)]
        self._perform(broker, act(self.member(number)))

    def pause(self, number: int, seconds: float) -> None:
        """A process does nothing for some time, and does not know it."""
        self.brokers[BrokerId(number)].paused_until = self.now + seconds

    def split(self, side: Iterable[int], *, heals_after: float | None = None) -> None:
        """Only brokers of the same side reach each other."""
        one = set(side)
        cut = {
            (low, high)
            for low in self.brokers
            for high in self.brokers
            if (low in one) != (high in one)
        }
        self.cut |= cut
        if heals_after is not None:
            self.at(self.now + heals_after, lambda: self.cut.difference_update(cut))

    def heal(self) -> None:
        """The network is whole, and nobody hangs."""
        self.cut.clear()
        self.loss = self.doubling = 0.0
        for broker in self.brokers.values():
            broker.paused_until = 0.0

    def flip(self, number: int) -> bool:
        """A bit flips in what a member holds and has delivered; return whether there was any."""
        for stream in self.member(number).streams:
            buffer = stream.buffer
            for index, one in enumerate(buffer._transactions):
                if one is not None and one.end <= stream.highwater:
                    changed = bytes([one.records[0] ^ 1]) + one.records[1:]
                    buffer._transactions[index] = attrs.evolve(one, records=changed)
                    self.stats["flips"] += 1
                    return True
        return False

    def produce(
        self, receiver: int, topic: TopicId, *, count: int = 1, size: int = 20
    ) -> Producing:
        """A producer of its own sends something, by way of a receiver."""
        number = len(self.producing) + 1
        values = [f"{number}.{one} ".encode().ljust(size, b".") for one in range(count)]
        one = Producing(number, topic, produced(number, values), count)
        self.producing.append(one)
        self.send(one, receiver)
        return one

    def send(self, one: Producing, receiver: int) -> None:
        """A producer tries, or tries again."""
        broker = self.brokers[BrokerId(receiver)]
        if not broker.alive or broker.paused_until > self.now or one.receipt is not None:
            return
        if broker.member is not None and broker.member.status is RelayStatus.FENCED:
            return
        one.attempts += 1
        wall_ms = int((self.now + 1000 + broker.skew_s) * 1000)
        effects = broker.receiver.produce(
            one.number, one.topic, one.records, one.count, self.now, wall_ms
        )
        self._perform(broker, effects)

    # --- what is done about it -----------------------------------------------------------

    def _perform(
        self, broker: RelayBroker, effects: Sequence[RelayEffect | ReceiverEffect]
    ) -> None:
        for effect in effects:
            match effect:
                case SendToRelay(to, message):
                    self._send(broker, to, message)
                case StoreGeneration(generation):
                    broker.generation = generation
                case EnterStatus(status):
                    broker.status = status
                    self._entered(broker)
                case MoveHighwater(topic_id, highwater):
                    self._deliver(broker, topic_id, highwater)
                case TellTimeline():
                    broker.delivered = {}
                case TellGap(topic_id, start):
                    self.gaps.append((broker.number, topic_id, start))
                case TellConflict():
                    self.conflicts += 1
                case BeginLife():
                    broker.delivered = {}
                case AnswerProducer(number, outcome):
                    self._answered(broker, self.producing[number - 1], outcome)
        if broker.member is not None and effects:
            self._look_at(broker, broker.member)

    def _send(self, sender: RelayBroker, to: BrokerId, message: RelayMessage) -> None:
        if isinstance(message, RelayWritten):
            wrote = self._wrote.setdefault((message.epoch, message.topic_id), {})
            wrote[sender.number] = max(message.point.end, wrote.get(sender.number, Offset(0)))
            if sender.member is None or sender.number not in sender.member.held_set:
                raise BrokenRule(f"{sender.number} writes, and is no member")
            if sender.status is not RelayStatus.NORMAL:
                raise BrokenRule(f"{sender.number} writes, and is {sender.status}")
        target = self.brokers[to]
        lives = (sender.life, target.life)
        altered = self.alter(to, message)
        if altered is None:
            return
        message = altered
        if to == sender.number:
            self.at(self.now, lambda: self._arrive(sender, target, lives, message))
            return
        for _ in range(1 + (self.random.random() < self.doubling)):
            if self.random.random() >= self.loss and (sender.number, to) not in self.cut:
                delay = self.random.uniform(*self.delay_s)
                self.at(self.now + delay, lambda: self._arrive(sender, target, lives, message))

    def _arrive(
        self,
        sender: RelayBroker,
        target: RelayBroker,
        lives: tuple[RelayLife, RelayLife],
        message: RelayMessage,
    ) -> None:
        if not target.alive or target.life != lives[1]:
            return
        if sender.life != lives[0] and self.random.random() < 0.5:
            return
        if target.paused_until > self.now:
            self.at(
                target.paused_until + 0.0001,
                lambda: self._arrive(sender, target, lives, message),
            )
            return
        if isinstance(message, RelayWritten | RelaySubmitted | RelayRefused):
            self._perform(target, target.receiver.receive(sender.number, message, self.now))
        is_to_receiver = isinstance(message, RelaySubmitted | RelayRefused)
        if target.member is not None and not is_to_receiver:
            effects = target.member.receive(sender.number, lives[0], message, self.now)
            self._perform(target, effects)

    def _answered(self, broker: RelayBroker, one: Producing, outcome: object) -> None:
        match outcome:
            case RelayReceipt():
                if broker.status is RelayStatus.FENCED:
                    raise BrokenRule("a fenced relay gives a receipt")
                one.receipt = outcome
                told = Told(outcome.id, None, None if outcome.is_duplicate else one.records)
                if not outcome.is_duplicate:
                    told = attrs.evolve(told, digest=outcome.digest)
                self._tell(outcome.epoch.timeline, one.topic, outcome.offset, told, "acknowledged")
                self.stats["acknowledged"] += 1
            case NotStored():
                one.refused.append(outcome)

    def _entered(self, broker: RelayBroker) -> None:
        member = broker.member
        assert member is not None
        if member.status is RelayStatus.FENCED:
            self.stats["fenced"] += 1
            self._perform(broker, broker.receiver.fenced())
        elif member.is_normal:
            broker.receiver.use(member.relay_set)
            self._perform(broker, broker.receiver.sequencer_is(member.sequencer, self.now))

    def _look_at(self, broker: RelayBroker, member: WatchedMember) -> None:
        self._looks += 1
        if self._looks % 8 == 0:
            member.check_invariants()
        if member.lost_memory:
            member.lost_memory = False
            self.lost.add(broker.number)
        for adoption in member.settled:
            self._settled(broker, adoption)
        member.settled.clear()
        if member.is_normal and member.epoch.timeline == max(self.timelines):
            self.lost.discard(broker.number)

    # --- the rules -----------------------------------------------------------------------

    def _settled(self, broker: RelayBroker, adoption: EpochAdoption) -> None:
        plan, timeline = adoption.plan, adoption.plan.epoch.timeline
        self.stats[f"{adoption.kind.name.lower()}s"] += 1
        if adoption.kind is not AdoptionKind.START or not plan.founds:
            return
        self.stats["founded"] += 1
        if not self.timelines or timeline > max(self.timelines):
            of = plan.relay_set
            self.lost |= set(of.ranked) - plan.voters
            if len(self.lost) > len(of) - of.quorum:
                self.must.clear()
            else:
                self.stats["kept"] += 1
                self.check_must(
                    self.member(broker.number), f"founded {timeline}, and {self.lost} are lost"
                )
        self.timelines.add(timeline)
        self.sealed |= {one for one in self.timelines if one < max(self.timelines)}

    def check_must(self, member: RelayMember, when: str) -> None:
        """What the promise covers is in what *member* holds."""
        for topic, offsets in self.must.items():
            for offset, message in offsets.items():
                stream = member.streams.by_topic.get(topic)
                if stream is not None and offset < stream.buffer.start.end:
                    continue
                found = stream.buffer.transaction_at(offset) if stream is not None else None
                if found is None or found.id != message:
                    raise BrokenRule(f"acknowledged and gone: {topic} {offset}, {when}")

    def _deliver(self, broker: RelayBroker, topic: TopicId, highwater: Offset) -> None:
        member = broker.member
        assert member is not None
        stream = member.streams.by_topic.get(topic)
        if stream is None or stream.highwater < highwater:
            return  # it has given up what it held in the same event
        begin = max(broker.delivered.get(topic, Offset(0)), stream.buffer.start.end)
        for one in stream.buffer.read(begin, highwater, 1 << 40):
            wrote = self._wrote.get((member.epoch, topic), {})
            of = member.held_set
            written = [end for writer, end in wrote.items() if writer in of]
            if sum(end >= one.end for end in written) < of.quorum:
                raise BrokenRule(f"{broker.number} delivers what no quorum has written: {one}")
            told = Told(one.id, one.digest, one.records)
            self._tell(member.epoch.timeline, topic, one.offset, told, "delivered")
            self.delivered.setdefault(broker.number, []).append((topic, one))
            self.stats["delivered"] += 1
        broker.delivered[topic] = highwater

    def _tell(
        self, timeline: Timeline, topic: TopicId, offset: Offset, told: Told, how: str
    ) -> None:
        known = self.told.setdefault((timeline, topic), {})
        before = known.get(offset)
        if before is None:
            if timeline in self.sealed:
                raise BrokenRule(f"{how} in a timeline after another one was founded: {timeline}")
            if told.records is not None and any(
                one.records == told.records for one in known.values()
            ):
                raise BrokenRule(f"twice in a timeline: {told.records!r}")
            known[offset] = told
            if timeline == max(self.timelines) and told.id is not None:
                self.must.setdefault(topic, {})[offset] = told.id
        elif before.differs(told):
            raise BrokenRule(f"two timelines at {offset}: {before} and {told}")
        else:
            known[offset] = Told(
                before.id or told.id, before.digest or told.digest, before.records or told.records
            )

    def fault(self) -> str:
        """Why the relays are not all alike; empty: they are."""
        if self.in_force != self.relay_set:
            return "the set is not in force"
        first = self.member(self.in_force.ranked[0])
        for broker in self.brokers.values():
            member = broker.member
            if member is None or broker.number not in self.in_force:
                continue
            if not broker.alive or not member.is_normal or not member.streams.is_whole:
                return f"{broker.number} is {member.status.value}"
            if member.epoch != first.epoch:
                return "epochs differ"
            if dict(member.streams.points) != dict(first.streams.points):
                return "streams differ"
            if any(one.highwater < one.buffer.end.end for one in member.streams):
                return "not all is committed"
        return ""

    def run_until_alike(self, seconds: float) -> float:
        """Let time pass until all relays are alike; return how long that took."""
        return self.run_until(lambda: not self.fault(), seconds)
