"""One relay partition on one broker: the machines, and what is done for them.

The machines of a member (`octopi.relay.member`), if this broker is one, and of the receiver
(`octopi.relay.receiver`) get messages and time, and return effects.  Effects are performed in
order; while the generation is being stored, those that follow wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Protocol

import trio

from octopi.environment import Clock, Environment
from octopi.errors import StorageError
from octopi.identifiers import NO_EPOCH, BrokerId, Epoch, Incarnation, Offset, TopicId, TopicName
from octopi.limits import RELAY_CHANGE_S, RELAY_STORE_RETRY_S, RELAY_TICK_S
from octopi.logger import get_logger
from octopi.relay.buffer import BufferBounds
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
from octopi.relay.memory import RelayMemory
from octopi.relay.message_ids import MessageIds
from octopi.relay.messages import (
    RelayMessage,
    RelayRefused,
    RelayStatus,
    RelaySubmit,
    RelaySubmitted,
    RelayWritten,
)
from octopi.relay.receiver import (
    AnswerProducer,
    ProduceOutcome,
    ReceiverEffect,
    RelayReceipt,
    RelayReceiver,
)
from octopi.relay.relay_set import RelaySet
from octopi.relay.stream import RelayStream
from octopi.relay.timelines import RelayEpoch
from octopi.roles.broker.relay.counts import RelayCounts
from octopi.roles.broker.relay.store import RelayStore
from octopi.roles.broker.relay.stream_log import StreamLog
from octopi.roles.broker.relay.tracer import RelayTracer

_log = get_logger(__name__)

_SERVING = (RelayStatus.NORMAL, RelayStatus.CHANGING)
"""Readers go on with what is delivered while the sequencer changes."""


class RelaySender(Protocol):
    """Sends to other relays (`octopi.roles.broker.relay.links`)."""

    def send(self, to: BrokerId, message: RelayMessage) -> None:
        """Send *message*; it may be lost."""

    def begin_life(self, emptied: int) -> None:
        """What is sent to this relay's former life is not for it any more."""


def client_epoch(epoch: RelayEpoch) -> Epoch:
    """An epoch as clients know it: a number that grows with timelines, and with the epochs of
    each."""
    return Epoch((epoch.timeline.generation << 32) + epoch.number)


class RelayPartition:
    """One relay partition, as this broker takes part in it."""

    def __init__(
        self,
        environment: Environment,
        relay_set: RelaySet,
        me: BrokerId,
        incarnation: Incarnation,
        store: RelayStore,
        ids: MessageIds,
        bounds: BufferBounds,
        memory: RelayMemory,
        links: RelaySender,
        nursery: trio.Nursery,
        fail: Callable[[StorageError], None],
    ) -> None:
        """*nursery*: the broker's.  *fail*: is called if the generation can't be stored."""
        clock = environment.clock
        self.number = relay_set.partition
        self.logs: dict[TopicId, StreamLog] = {}
        """Streams that clients have named, as readers see them."""
        self.counts = RelayCounts()
        self.member: RelayMember | None = None
        """None: this broker only receives for this partition."""
        self.begun: Callable[[RelayPartition], None] = lambda partition: None
        """Called when an epoch has begun of which this broker is the sequencer, and a quorum is
        part of it."""
        self._agreed: RelayEpoch | None = None
        """The epoch about which that was called last."""
        self._set = relay_set
        self._clock = clock
        self._me = me
        self._store, self._links = store, links
        self._nursery, self._fail = nursery, fail
        self._receiver = RelayReceiver(me, relay_set, ids)
        trace = environment.trace
        self._tracer = None if trace is None else RelayTracer(trace, self.number, me)
        self._answers: dict[int, tuple[Callable[[ProduceOutcome], None], float]] = {}
        """Of each produce that waits: who is told, and since when it waits."""
        self._produced = 0
        self._todo: deque[RelayEffect | ReceiverEffect] = deque()
        self._is_performing = False
        self._is_storing = False
        self._epoch = NO_EPOCH
        self._was_in_timeline = False
        self._told: RelayStatus | None = None
        """The last status that was logged; while the sequencer changes, several epochs may be
        tried."""
        if me in relay_set:
            random = environment.randomness.random
            self.member = RelayMember(
                me,
                relay_set,
                incarnation,
                store.generation,
                random,
                clock.now(),
                bounds,
                memory=memory,
            )

    @property
    def relay_set(self) -> RelaySet:
        """The members, as far as this broker knows."""
        return self._set if self.member is None else self.member.relay_set

    # --- what whoever decides wants ------------------------------------------------------

    def know_set(self, relay_set: RelaySet) -> None:
        """There are to be these members: they bring it into force by themselves."""
        if self.member is not None:
            self.member.know_set(relay_set)

    def wish(self, sequencer: BrokerId) -> None:
        """See `octopi.relay.member.RelayMember.wish`."""
        if self.member is not None:
            self.member.wish(sequencer)

    def bound(self, topic_id: TopicId, bounds: BufferBounds) -> None:
        """Give a stream bounds of its own."""
        if self.member is not None:
            self.member.bound(topic_id, bounds)

    def remove(self, topic_id: TopicId) -> None:
        """A topic was deleted."""
        if self.member is not None:
            self.member.remove([topic_id])
        if (log := self.logs.pop(topic_id, None)) is not None:
            log.epoch = NO_EPOCH
            log.wake()

    def leave(self) -> None:
        """This broker is no member any more: it serves nobody, and gives no receipt."""
        self.member, self._epoch = None, NO_EPOCH
        self._todo.clear()
        self._perform(self._receiver.fenced())
        for log in self.logs.values():
            log.epoch = NO_EPOCH
            log.wake()

    # --- what clients see ----------------------------------------------------------------

    @property
    def is_serving(self) -> bool:
        """Whether readers are served here."""
        return self._epoch != NO_EPOCH

    @property
    def is_fenced(self) -> bool:
        """Whether this broker is a member that hears no quorum."""
        return self.member is not None and self.member.status is RelayStatus.FENCED

    @property
    def sequencer(self) -> BrokerId | None:
        """Who is the sequencer, as far as this broker knows; None: nobody."""
        member = self.member
        if member is None or not member.is_normal:
            return None
        return member.sequencer

    @property
    def live(self) -> list[BrokerId]:
        """The members that are part of the epoch, as far as this one hears; empty: it is none, or
        is part of no epoch."""
        member = self.member
        if member is None or not member.is_normal:
            return []
        heard = member.hearing.normal_in(member.epoch, self._clock.now())
        return [one for one in self.relay_set.ranked if one == self._me or one in heard]

    @property
    def receives_for(self) -> BrokerId:
        """Whom the receiver takes for the sequencer; it finds out when it is wrong."""
        return self._receiver.sequencer

    @property
    def epoch(self) -> Epoch:
        """The epoch of which this broker is a part, for clients; 0: of none."""
        return self._epoch

    def log(self, topic: TopicName, topic_id: TopicId) -> StreamLog:
        """The stream of *topic* as readers see it."""
        log = self.logs.get(topic_id)
        if log is None:
            tracer = self._tracer
            delivering = None if tracer is None else partial(tracer.delivering, topic_id)
            log = StreamLog(topic, topic_id, self.number, self.stream, delivering)
            self.logs[topic_id] = log
            self._tell(log)
        return log

    def has(self, topic_id: TopicId) -> bool:
        """Whether this broker holds something of that stream."""
        return self.stream(topic_id) is not None

    def stream(self, topic_id: TopicId) -> RelayStream | None:
        """What this broker holds of a stream; None: nothing."""
        return None if self.member is None else self.member.streams.by_topic.get(topic_id)

    def produce(
        self,
        topic_id: TopicId,
        records: bytes,
        count: int,
        wall_ms: int,
        answer: Callable[[ProduceOutcome], None],
    ) -> None:
        """Have *count* valid *records* of one producer put in order and written by a quorum."""
        self._produced += 1
        now = self._clock.now()
        self._answers[self._produced] = answer, now
        if self._tracer is not None:
            self._tracer.received(self._produced, topic_id, count)
        self._perform(
            self._receiver.produce(self._produced, topic_id, records, count, now, wall_ms)
        )

    # --- events --------------------------------------------------------------------------

    def tick(self) -> None:
        """Time has passed."""
        now = self._clock.now()
        member = self.member
        if member is not None:
            self._perform(member.tick(now))
            if member.is_sequencer and self._agreed != member.epoch and member.is_agreed(now):
                self._agreed = member.epoch
                self.begun(self)
        self._perform(self._receiver.tick(now))

    def receive(self, sender: BrokerId, life: RelayLife, message: RelayMessage) -> None:
        """Handle *message*, which *sender* has sent in that *life*."""
        now = self._clock.now()
        if self.member is not None:
            self._perform(self.member.receive(sender, life, message, now))
        if isinstance(message, RelayWritten | RelaySubmitted | RelayRefused):
            self._perform(self._receiver.receive(sender, message, now))

    def hand_over(self) -> None:
        """This broker is about to stop: another one is to be the sequencer."""
        if self.member is not None:
            self._perform(self.member.hand_over(self._clock.now()))

    @property
    def is_agreed(self) -> bool:
        """Whether this broker is the sequencer, and a quorum is part of its epoch."""
        member = self.member
        return member is not None and member.is_sequencer and self._agreed == member.epoch

    @property
    def is_handed_over(self) -> bool:
        """Whether this broker is part of an epoch of which another one is the sequencer, or of
        none."""
        return self.member is None or not (
            self.member.is_sequencer or self.member.status is RelayStatus.CHANGING
        )

    # --- effects -------------------------------------------------------------------------

    def _perform(self, effects: list[RelayEffect] | list[ReceiverEffect]) -> None:
        self._todo.extend(effects)
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while self._todo and not self._is_storing:
                effect = self._todo.popleft()
                if self._tracer is None:
                    self._do(effect)
                else:
                    trace_after = self._tracer.before(effect, self.member)
                    self._do(effect)
                    trace_after()
        finally:
            self._is_performing = False

    def _do(self, effect: RelayEffect | ReceiverEffect) -> None:
        match effect:
            case SendToRelay(to, message) if to == self._me:
                self._send_to_me(message)
            case SendToRelay(to, message):
                self._links.send(to, message)
            case AnswerProducer(number, outcome):
                answer, since = self._answers.pop(number)
                if isinstance(outcome, RelayReceipt):
                    self.counts.quorum.observe(self._clock.now() - since)
                answer(outcome)
            case MoveHighwater(topic_id, _):
                if (log := self.logs.get(topic_id)) is not None:
                    log.wake()
            case StoreGeneration(generation):
                self._is_storing = True
                self._nursery.start_soon(self._store_generation, generation)
            case BeginLife(life):
                self._links.begin_life(life.emptied)
            case EnterStatus():
                self._entered(effect)
            case TellGap(topic_id, start):
                self._gap(topic_id, start)
            case TellTimeline(epoch, _):
                self._begin_timeline(epoch)
            case TellConflict(topic_id):
                self.counts.conflicts += 1
                _log.error("no digest has a quorum", partition=self.number, topic_id=topic_id)

    def _send_to_me(self, message: RelayMessage) -> None:
        """A machine of this broker has something to say to the other one."""
        now = self._clock.now()
        if isinstance(message, RelaySubmit):
            if self.member is not None:
                self._todo.extend(self.member.receive(self._me, self.member.life, message, now))
        elif isinstance(message, RelayWritten | RelaySubmitted | RelayRefused):
            self._todo.extend(self._receiver.receive(self._me, message, now))

    async def _store_generation(self, generation: int) -> None:
        while True:
            try:
                await self._store.raise_to(generation)
            except StorageError as error:
                self._fail(error)  # the relay says nothing meanwhile, so others do without it
                await self._clock.sleep_until(self._clock.now() + RELAY_STORE_RETRY_S)
            else:
                break
        if self._tracer is not None:
            self._tracer.stored(generation)
        self._is_storing = False
        self._perform([])

    def _entered(self, entered: EnterStatus) -> None:
        member = self.member
        assert member is not None
        status = entered.status
        if status is not self._told or status is RelayStatus.NORMAL:
            self._told = status
            _log.info(
                "relay status",
                partition=self.number,
                status=status.value,
                epoch=entered.epoch.number,
                generation=entered.epoch.timeline.generation,
            )
        now = self._clock.now()
        self.counts.entered(status, now)
        if status is RelayStatus.NORMAL and self._me not in self.relay_set:
            self._epoch = NO_EPOCH  # it is to be a member, and does not count yet
        elif status is RelayStatus.NORMAL:
            self._epoch = client_epoch(entered.epoch)
            sequencer = self.relay_set.sequencer(entered.epoch)
            self._receiver.use(self.relay_set)
            self._todo.extend(self._receiver.sequencer_is(sequencer, now))
        elif status not in _SERVING:
            self._epoch = NO_EPOCH
        if status is RelayStatus.FENCED:
            self._todo.extend(self._receiver.fenced())
        for log in self.logs.values():
            self._tell(log)
            log.wake()

    def _begin_timeline(self, epoch: RelayEpoch) -> None:
        """All streams belong to another timeline.  Readers are told where it differs from what they
        have read; here it is only worth a warning if this process was part of another one."""
        self.counts.timelines += 1
        partition, generation = self.number, epoch.timeline.generation
        if self._was_in_timeline:
            _log.warning(
                "another timeline: history may be lost", partition=partition, generation=generation
            )
        else:
            _log.info("timeline", partition=partition, generation=generation)
        self._was_in_timeline = True

    def _tell(self, log: StreamLog) -> None:
        member = self.member
        log.epoch = self._epoch
        leads = member is not None and member.is_sequencer
        if leads and not log.knows_all:
            log.begun = log.end
        log.knows_all = leads

    def _gap(self, topic_id: TopicId, start: Offset) -> None:
        self.counts.gaps += 1
        log = self.logs.get(topic_id)
        name = topic_id if log is None else log.name
        partition = self.number
        _log.warning("readers miss records", topic=name, partition=partition, start=start)
        if log is not None:
            log.wake()


def make_room(memory: RelayMemory, partitions: Iterable[RelayPartition], now: float) -> None:
    """Leave out the oldest transactions of streams if all *partitions* of a broker together hold
    more than *memory* allows."""
    if not memory.is_due(now):
        return
    members = [one.member for one in partitions if one.member is not None]
    streams = [stream for one in members for stream in one.evictable]
    held_bytes = sum(one.held_bytes for one in members)
    fixed_bytes = held_bytes - sum(one.buffer.size_bytes for one in streams)
    evicted = memory.make_room(streams, fixed_bytes, now)
    if evicted:
        size_bytes = sum(evicted.values())
        _log.info("oldest messages left out", streams=len(evicted), size_bytes=size_bytes)
    if memory.is_full:
        _log.warning("memory for topics is full", held_bytes=memory.held_bytes)


def why_not_normal(partitions: Iterable[RelayPartition]) -> str:
    """Why this broker is not part of an epoch in one of *partitions*; empty: it is in all."""
    for one in partitions:
        if one.member is not None and not one.member.is_normal:
            return f"relay partition {one.number}: {one.member.status.value}"
    return ""


async def hand_over(clock: Clock, partitions: Collection[RelayPartition]) -> None:
    """Have others be the sequencers of *partitions*; at most for the time after which they would
    do so by themselves."""
    for one in partitions:
        one.hand_over()
    with clock.timeout(RELAY_CHANGE_S):
        while not all(one.is_handed_over for one in partitions):
            await clock.sleep_until(clock.now() + RELAY_TICK_S)
