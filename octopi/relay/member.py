"""One relay of a set: it takes part in epochs, fences itself, joins, and founds timelines.

It does no I/O: messages and the time are events, and the result is a list of effects in order.
What it holds is in `octopi.relay.streams`.
"""

from __future__ import annotations

from collections.abc import Iterable

from octopi.identifiers import BrokerId, TopicId
from octopi.limits import (
    RELAY_BEAT_S,
    RELAY_CHANGE_S,
    RELAY_FOUND_RETRY_S,
    RELAY_STUCK_S,
)
from octopi.relay.adoption import AdoptionKind, EpochAdoption
from octopi.relay.buffer import BufferBounds
from octopi.relay.effects import (
    EnterStatus,
    RelayEffect,
    TellConflict,
)
from octopi.relay.epoch import EpochPlan, StreamTarget
from octopi.relay.incarnations import NO_LIFE, RelayLife, newest_lives
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
    RelayVote,
    RelayWritten,
    SubmitRefusal,
)
from octopi.relay.participation import RelayParticipation
from octopi.relay.relay_set import RelaySet
from octopi.relay.timelines import NAME_BITS, RelayEpoch, Timeline
from octopi.relay.written import Agreement


class RelayMember(RelayParticipation):
    """One member of a relay set.

    Invariants: one sequencer orders in an epoch, by the votes of a quorum; a fenced relay writes,
    orders and delivers nothing.
    """

    # --- events --------------------------------------------------------------------------

    def tick(self, now: float) -> list[RelayEffect]:
        """Do what is due.  To be called every `RELAY_TICK_S`."""
        if now >= self._scrubs_at:
            self._scrubs_at = now + self._scrub_s
            if not self.streams.is_intact():
                self._empty(keeps=False)
            for stream in self.evictable:  # a silent one has old transactions, too
                stream.buffer.trim(stream.highwater, now)
        self._count_by_newest(now)
        self._look_at_fence(now)
        self._look_for_timelines(now)
        if self.status in {RelayStatus.NORMAL, RelayStatus.CHANGING} and self.hearing.misses(
            self.sequencer, now
        ):
            self._vote_next(now)
        self._look_at_repairs(now)
        self._look_at_set(now)
        self._look_at_wish(now)
        if self.status is RelayStatus.CHANGING:
            self._look_at_change(now)
        if now >= self._beats_at:
            self._beats_at = now + RELAY_BEAT_S
            self._say(now)
        return self._take()

    def receive(
        self, sender: BrokerId, life: RelayLife, message: RelayMessage, now: float
    ) -> list[RelayEffect]:
        """Handle *message* of *sender*, whose connection is that of *life*."""
        if isinstance(message, RelaySubmit):
            self._submitted(sender, message, now)
            return self._take()
        if not self._is_member(sender) or sender == self.me:
            return []
        known = self.lives.get(sender, NO_LIFE)
        if life < known:
            return []
        if life > known:
            self.lives[sender] = life
            self.hearing.forget(sender)
            self.streams.level_with(sender)
        self.hearing.heard(sender, now)
        match message:
            case RelayBeat():
                self._heard_beat(sender, message, now)
            case RelayVote():
                self._heard_vote(sender, life, message, now)
            case RelayStart():
                self._heard_start(sender, message, now)
            case RelayAsk():
                self._asked(sender, message)
            case RelayAnswer() if self.status is RelayStatus.JOINING:
                self._answers.add(sender, life, message, now)
                self._try_to_join(now)
            case RelayCompared() | RelayPart():
                self._repaired(sender, message, now)
            case RelayCompare() | RelayFetch():
                self._wanted(sender, message)
            case RelayIncoming() | RelayWritten():
                if self.is_normal and message.epoch == self.epoch:
                    self._of_stream(sender, message, now)
        return self._take()

    def hand_over(self, now: float) -> list[RelayEffect]:
        """This relay is about to stop: if it is the sequencer, have another one begin an epoch.
        Nobody has to notice its silence then."""
        if self.is_sequencer:
            self._vote_next(now)
        return self._take()

    def wish(self, sequencer: BrokerId) -> None:
        """Whoever decides about sets wants *sequencer* to put things in order, if it can."""
        self.wished = sequencer

    def know_set(self, relay_set: RelaySet) -> None:
        """Whoever decides about sets wants this one: the sequencer brings it into force, once one
        member after the other is added or removed."""
        self._know(relay_set)

    def remove(self, topic_ids: Iterable[TopicId]) -> None:
        """Streams are removed for good.  In the middle of a change they stay until it is over:
        others may have to fetch them."""
        self.rules.remove(topic_ids)
        if self.is_normal:
            self.streams.drop_removed()

    def bound(self, topic_id: TopicId, bounds: BufferBounds) -> None:
        """Give a stream bounds of its own."""
        self.rules.bounds[topic_id] = bounds
        if (stream := self.streams.by_topic.get(topic_id)) is not None:
            stream.buffer.bounds = bounds

    # --- the streams of an epoch ---------------------------------------------------------

    def _submitted(self, receiver: BrokerId, submit: RelaySubmit, now: float) -> None:
        refusal = None
        if self.status is RelayStatus.FENCED:
            refusal = SubmitRefusal.NO_QUORUM
        elif not self.is_normal:
            refusal = SubmitRefusal.NOT_READY
        elif self.sequencer != self.me:
            refusal = SubmitRefusal.NOT_SEQUENCER
        if refusal is None:
            self.streams.submitted(receiver, submit, now)
            return
        named = self.sequencer if self.is_normal else None
        self._send(receiver, RelayRefused(submit.topic_id, submit.id, refusal, named))

    def _of_stream(
        self, sender: BrokerId, message: RelayIncoming | RelayWritten, now: float
    ) -> None:
        sources = self._sources(now)
        match message:
            case RelayIncoming() if sender == self.sequencer:
                self.streams.incoming(message, sources or [sender], now)
            case RelayWritten():
                self.streams.written(sender, message, sources, now)
                self._compare_digests(message, now)

    def _compare_digests(self, message: RelayWritten, now: float) -> None:
        """See whether this relay has the digest of a quorum."""
        stream = self.streams.by_topic.get(message.topic_id)
        if stream is None or message.topic_id in self.streams.repairs:
            return
        agreement, point, members = stream.marks.agreement()
        if agreement is Agreement.OPEN:
            return
        if agreement is Agreement.NONE:
            self._effects.append(TellConflict(stream.topic_id))
        is_wrong = agreement is Agreement.OFF_QUORUM and self.sequencer == self.me
        if is_wrong or not self.streams.is_intact():
            self._empty(keeps=False)
        elif self.sequencer == self.me:
            self._vote_next(now)  # it resigns
        elif point is not None:
            self.streams.repair(stream, point, members, now)

    def _wanted(self, sender: BrokerId, message: RelayCompare | RelayFetch) -> None:
        """Another one repairs: answer if this relay holds what it needs."""
        if message.epoch != self.epoch:
            return
        is_voter = self.status is RelayStatus.CHANGING and sender == self.sequencer
        if not is_voter and (not self.is_normal or message.topic_id in self.streams.repairs):
            return
        if isinstance(message, RelayCompare):
            self.streams.compare(sender, message)
        else:
            self.streams.fetch(sender, message)

    def _repaired(self, sender: BrokerId, message: RelayCompared | RelayPart, now: float) -> None:
        adoption = self.adoption
        if adoption is not None and message.epoch == adoption.plan.epoch:
            match message:
                case RelayCompared():
                    self._effects += adoption.compared(sender, message, now)
                case RelayPart():
                    self._effects += adoption.part(sender, message, now)
            self._look_at_adoption(now)
        elif self.is_normal and message.epoch == self.epoch:
            repair = self.streams.repairs.get(message.topic_id)
            if repair is None:
                return
            match message:
                case RelayCompared():
                    sends = repair.compared(sender, message, now)
                case RelayPart():
                    sends = repair.part(sender, message, now)
            self.streams.go_on(repair, sends, self._sources(now), now)

    def _look_at_repairs(self, now: float) -> None:
        sources = self._sources(now)
        if self.is_normal:
            for repair in list(self.streams.repairs.values()):
                self.streams.go_on(repair, repair.overdue(sources, now), sources, now)
            if self.streams.failed():
                self._empty(keeps=True)
        elif self.adoption is not None:
            self._effects += self.adoption.overdue(self._may_help(self.adoption, now), now)
            self._look_at_adoption(now)

    def _may_help(self, adoption: EpochAdoption, now: float) -> list[BrokerId]:
        fresh = self.hearing.fresh(now)
        if adoption.kind is AdoptionKind.START:
            return [one for one in self.relay_set.others(self.me) if one in fresh]
        return [one for one in self.hearing.normal_in(adoption.plan.epoch, now) if one != self.me]

    # --- hearing others ------------------------------------------------------------------

    def _heard_beat(self, sender: BrokerId, beat: RelayBeat, now: float) -> None:
        self.hearing.told(sender, beat)
        self._know(beat.known_set)
        self._count_by_newest(now)
        if self.is_normal and beat.status is RelayStatus.NORMAL and beat.epoch == self.epoch:
            self.streams.repeat(sender)
        if self._is_of_timeline(beat.epoch):
            if beat.status is RelayStatus.NORMAL and beat.epoch > self.held:
                if beat.epoch > self.epoch:
                    self._promise(beat.epoch, now)
                if beat.epoch == self.epoch and self.adoption is None:
                    self._send(sender, RelayAsk(is_joining=False))
            elif (
                beat.status is RelayStatus.CHANGING
                and beat.epoch > self.epoch
                and self.sequencer_of(beat.epoch) in self.hearing.fresh(now)
            ):
                self._vote(beat.epoch, now)
        elif beat.status is RelayStatus.CHANGING:
            self._consider_founding(beat.epoch, now)

    def _is_of_timeline(self, epoch: RelayEpoch) -> bool:
        return (
            self.status in {RelayStatus.NORMAL, RelayStatus.CHANGING}
            and epoch.timeline == self.epoch.timeline
        )

    def _heard_vote(self, sender: BrokerId, life: RelayLife, vote: RelayVote, now: float) -> None:
        if self.sequencer_of(vote.epoch) != self.me:
            return
        if self._is_of_timeline(vote.epoch):
            if vote.epoch > self.epoch:
                self._vote(vote.epoch, now)
        else:
            self._consider_founding(vote.epoch, now)
        if self.status is RelayStatus.CHANGING and vote.epoch == self.epoch:
            self._votes.add(sender, life, vote, now)
            self._try_to_start(now)

    def _heard_start(self, sender: BrokerId, start: RelayStart, now: float) -> None:
        if not self._is_of_timeline(start.epoch) or start.epoch <= self.held:
            return
        if self.me not in start.relay_set and self.me not in self.known_set:
            return  # it is no member any more, and fences itself when the others are silent
        if start.epoch > self.epoch:
            self._promise(start.epoch, now)
        if start.epoch != self.epoch or self.adoption is not None:
            return
        self.rules.remove(start.removed)
        targets = {topic: StreamTarget(point, (sender,)) for topic, point in start.streams}
        lives = newest_lives([self.lives, start.lives])
        plan = EpochPlan(start.epoch, start.relay_set, lives, targets)
        self._adopt(plan, AdoptionKind.FOLLOW, now)

    def _asked(self, sender: BrokerId, ask: RelayAsk) -> None:
        if not self.is_normal or not self.streams.is_whole:
            return
        if ask.is_joining:
            lives = self.lives.copy()
            streams = self.streams.points if self.sequencer == self.me else None
            self._send(sender, RelayAnswer(self.epoch, self.held_set, lives, streams))
        else:
            self._send(sender, self._start())

    # --- changing, fencing, founding ---------------------------------------------------------

    def _look_at_change(self, now: float) -> None:
        """Wait for the start of the epoch, or go on to the next one."""
        if self.adoption is not None:
            return
        said = self.hearing.beats(now).get(self.sequencer)
        if said is not None and said.starts and said.epoch == self.epoch:
            self._changing_since = now
        if now - self._changing_since > RELAY_CHANGE_S:
            self._vote_next(now)
        elif self.sequencer == self.me:
            self._try_to_start(now)

    def _look_at_fence(self, now: float) -> None:
        hears = any(self.hearing.hears_quorum(one, now) for one in self._sets)
        if self.status in {RelayStatus.NORMAL, RelayStatus.CHANGING}:
            if self._fence.closes(hears_quorum=hears):
                self._was_normal = self.is_normal
                self.status, self.adoption = RelayStatus.FENCED, None
                self.streams.abandon_repairs()
                self._effects.append(EnterStatus(self.status, self.epoch))
        elif self._fence.opens(now, hears_quorum=hears):
            self._come_back(now)

    def _come_back(self, now: float) -> None:
        """Go on after having been fenced."""
        holders = self.hearing.holders(self._beat(now), now)
        if (
            self._was_normal
            and self.epoch == self.held
            and holders[self.epoch.timeline] >= self.hearing.relay_set.quorum
        ):
            self.status = RelayStatus.NORMAL
            self._effects.append(EnterStatus(self.status, self.epoch))
            for stream in self.streams:
                self.streams.write(stream, now, asks=True)
            return
        self.status = RelayStatus.CHANGING
        if self.epoch == self.held:
            self._vote_next(now)
        else:
            self._vote(self.epoch, now)

    def _look_for_timelines(self, now: float) -> None:
        """Join a timeline of which a quorum are a part; if there is none that a quorum holds, found
        one."""
        fresh = self.hearing.fresh(now)
        holders = self.hearing.holders(self._beat(now), now)
        is_held = max(holders.values(), default=0) >= self.hearing.relay_set.quorum
        if is_held or not self.hearing.hears_quorum(self.known_set, now):
            self.hearing.stuck_since = None
        elif self.hearing.stuck_since is None:
            self.hearing.stuck_since = now
        live = self.hearing.live_timeline(now)
        takes_part = self.status in {RelayStatus.NORMAL, RelayStatus.CHANGING}
        if takes_part and live is not None and live != self.epoch.timeline:
            self._empty(keeps=True)
        if (
            self.status is not RelayStatus.FENCED
            and self.me == min(one for one in fresh if one in self.known_set or one == self.me)
            and self.me in self.known_set
            and now - self._proposed_at > RELAY_FOUND_RETRY_S
            and self._agrees_to_found(now)
            and self.hearing.are_all(fresh, self.known_set, now)
        ):
            self._proposed_at = now
            told = [beat.generation for beat in self.hearing.beats(now).values()]
            name = int(self._random() * (1 << NAME_BITS))
            timeline = Timeline(max([self.generation, *told]) + 1, name)
            self._vote(RelayEpoch(timeline, self.known_set.first_number(self.me)), now)

    def _agrees_to_found(self, now: float) -> bool:
        if self.hearing.stuck_since is None:
            return False
        stuck_s = now - self.hearing.stuck_since
        if self.status is RelayStatus.JOINING and self.relic is None:
            return stuck_s > RELAY_STUCK_S / 2
        fresh = self.hearing.fresh(now)
        return stuck_s > RELAY_STUCK_S and self.hearing.are_all(fresh, self.known_set, now)

    def _consider_founding(self, epoch: RelayEpoch, now: float) -> None:
        """Another member votes for a timeline that would begin with *epoch*."""
        if self.status is RelayStatus.FENCED or not self._agrees_to_found(now):
            return
        if self.status is RelayStatus.JOINING:
            # There it can have forgotten nothing.
            is_free = epoch.timeline.generation > self.generation
        else:
            is_free = epoch > self.epoch
        if is_free:
            self._vote(epoch, now)

    def check_invariants(self) -> None:
        """Assert what the class promises, as far as one relay can see it."""
        assert self.held <= self.epoch or self.epoch.timeline != self.held.timeline
        assert self.epoch.timeline.generation <= self.generation
        assert self.is_normal is (self.status is RelayStatus.NORMAL)
        assert not self.is_normal or self.held == self.epoch == self.streams.epoch
        assert self.is_normal or self.streams.is_whole
        self.streams.check_invariants()
