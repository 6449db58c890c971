"""How a relay takes part in epochs: its promises and votes, the start of an epoch, joining one, and
giving up what it holds.  `octopi.relay.member` says when."""

from __future__ import annotations

import math
from collections.abc import Callable

from octopi.identifiers import BrokerId, Incarnation
from octopi.limits import (
    RELAY_ANSWER_S,
    RELAY_SCRUB_S,
)
from octopi.relay.adoption import AdoptionKind, EpochAdoption
from octopi.relay.buffer import BufferBounds
from octopi.relay.effects import (
    BeginLife,
    EnterStatus,
    RelayEffect,
    SendToRelay,
    StoreGeneration,
    TellGap,
    TellTimeline,
)
from octopi.relay.epoch import EpochPlan, JoinAnswers, Votes
from octopi.relay.fence import Fence, Hearing
from octopi.relay.incarnations import RelayLife, newest_lives
from octopi.relay.messages import (
    RelayAsk,
    RelayBeat,
    RelayMessage,
    RelayStart,
    RelayStatus,
    RelayVote,
)
from octopi.relay.relay_set import RelaySet
from octopi.relay.streams import RelayStreams
from octopi.relay.timelines import NEVER, RelayEpoch


class RelayParticipation:
    """What a relay is in its set, and the ways in which that changes.

    Invariants: nothing that a quorum has written is missing in a later epoch of its timeline; in no
    epoch does this relay write, once it has promised a greater one.
    """

    def __init__(
        self,
        me: BrokerId,
        relay_set: RelaySet,
        incarnation: Incarnation,
        generation: int,
        random: Callable[[], float],
        now: float,
        bounds: BufferBounds | None = None,
        scrub_s: float = RELAY_SCRUB_S,
    ) -> None:
        """*generation*: the greatest one that this broker has stored.  *random*: draws from 0 to 1.
        *now* (s): times are by one clock, and its start means nothing.  *scrub_s*: how often all
        digests are computed again."""
        assert me in relay_set
        self.me, self.relay_set = me, relay_set
        self.life = RelayLife(incarnation)
        self.lives: dict[BrokerId, RelayLife] = {me: self.life}
        """The newest life of each member that is known."""
        self.generation = generation
        """Stored: the greatest for which this broker ever voted, or to which it belonged."""
        self.status = RelayStatus.JOINING
        self.epoch = NEVER
        """The greatest one that was promised."""
        self.held = NEVER
        """The last one of which this relay was a part: what it holds is from there."""
        self.relic: tuple[RelayEpoch, RelayStreams] | None = None
        """What it held before it gave that up: for a founding, until it takes part again."""
        self.adoption: EpochAdoption | None = None
        self._bounds = bounds or BufferBounds()
        self._random = random
        self._effects: list[RelayEffect] = []
        self.streams = self._no_streams()
        self.hearing = Hearing(me, relay_set, now)
        self._fence = Fence()
        self._was_normal = False
        """Whether it was normal when it fenced itself."""
        self._votes = Votes(relay_set)
        self._answers = JoinAnswers(relay_set)
        self._changing_since = now
        self._stuck_since: float | None = None
        """Since when no timeline is held by a quorum of those that are heard."""
        self._proposed_at = -math.inf
        self._beats_at = now
        self._scrub_s = scrub_s
        self._scrubs_at = now + scrub_s

    def _no_streams(self) -> RelayStreams:
        return RelayStreams(self.me, self.relay_set, self._bounds, self._effects.append)

    # --- what it is ----------------------------------------------------------------------

    @property
    def is_normal(self) -> bool:
        """Whether it is part of its epoch."""
        return self.status is RelayStatus.NORMAL

    @property
    def sequencer(self) -> BrokerId:
        """The sequencer of the epoch that was promised."""
        return self.relay_set.sequencer(self.epoch)

    @property
    def is_sequencer(self) -> bool:
        """Whether it puts transactions in order."""
        return self.is_normal and self.sequencer == self.me

    def _beat(self, now: float) -> RelayBeat:
        may_lead = self.status in {RelayStatus.NORMAL, RelayStatus.CHANGING}
        starts = self.adoption is not None and self.adoption.kind is AdoptionKind.START
        return RelayBeat(
            self.status,
            self.epoch,
            self.relic[0] if self.relic is not None else self.held,
            frozenset(self.hearing.trusted(now, may_lead=may_lead)),
            self.generation,
            starts,
        )

    def _sources(self, now: float) -> list[BrokerId]:
        """Who may be asked for what is missing: the sequencer if it is heard, then others."""
        return [one for one in self.hearing.normal_in(self.epoch, now) if one != self.me]

    def _take(self) -> list[RelayEffect]:
        effects = self._effects.copy()
        self._effects.clear()
        return effects

    def _send(self, to: BrokerId, message: RelayMessage) -> None:
        self._effects.append(SendToRelay(to, message))

    def _send_all(self, message: RelayMessage) -> None:
        for member in self.relay_set.others(self.me):
            self._send(member, message)

    # --- epochs --------------------------------------------------------------------------

    def _promise(self, epoch: RelayEpoch, now: float) -> None:
        """Leave all epochs before *epoch*, which has begun elsewhere, or may."""
        self.status, self.epoch = RelayStatus.CHANGING, epoch
        self._changing_since = now
        self._votes.clear()
        self.adoption = None
        self.streams.abandon_repairs()
        self._raise_generation(epoch)
        self._effects.append(EnterStatus(self.status, epoch))

    def _raise_generation(self, epoch: RelayEpoch) -> None:
        if epoch.timeline.generation > self.generation:
            self.generation = epoch.timeline.generation
            self._effects.append(StoreGeneration(self.generation))

    def _vote(self, epoch: RelayEpoch, now: float) -> None:
        """Promise *epoch*, and say so to its sequencer."""
        if self.relic is not None:
            self.held, self.streams = self.relic
            self.relic = None
        self._promise(epoch, now)
        if not self.streams.is_intact():
            self._empty(keeps=False)
            return
        self._say(now)

    def _cast(self, now: float) -> None:
        vote = RelayVote(self.epoch, self.held, self.lives.copy(), self.streams.ends)
        if self.sequencer == self.me:
            self._votes.add(self.me, self.life, vote, now)
            self._try_to_start(now)
        else:
            self._send(self.sequencer, vote)

    def _vote_next(self, now: float) -> None:
        """Vote for the next epoch whose sequencer this relay hears."""
        trusted = self.hearing.trusted(now, may_lead=True)
        epoch = self.epoch.next
        while self.relay_set.sequencer(epoch) not in trusted:
            epoch = epoch.next
        self._vote(epoch, now)

    def _try_to_start(self, now: float) -> None:
        if self.adoption is not None or self.sequencer != self.me:
            return
        plan = self._start_plan(now)
        if plan is not None:
            self._adopt(plan, AdoptionKind.START, now)

    def _start_plan(self, now: float) -> EpochPlan | None:
        plan = self._votes.plan(self.epoch, self.lives, now)
        if plan is not None and plan.founds and not self.hearing.are_all(plan.voters, now):
            return None
        return plan

    def _try_to_join(self, now: float) -> None:
        if self.adoption is not None:
            return
        plan = self._answers.plan(self.lives, now)
        if plan is not None:
            self._adopt(plan, AdoptionKind.JOIN, now)

    def _adopt(self, plan: EpochPlan, kind: AdoptionKind, now: float) -> None:
        is_same = plan.epoch.timeline == self.held.timeline
        self.adoption = EpochAdoption(
            plan, kind, self.streams.by_topic, self.streams.new, now, keeps_delivered=is_same
        )
        self._effects += self.adoption.advance(now)
        self._look_at_adoption(now)

    def _look_at_adoption(self, now: float) -> None:
        """Go on with becoming a part of an epoch, or give it up."""
        adoption = self.adoption
        if adoption is None:
            return
        if adoption.has_failed:
            self.adoption = None
            if adoption.contradicts:
                self._empty(keeps=True)
        elif adoption.is_verified:
            self.adoption = None
            if self._still_holds(adoption, now):
                self._settle(adoption, now)

    def _still_holds(self, adoption: EpochAdoption, now: float) -> bool:
        """Whether what led to *adoption* is still true: fetching takes time, and votes, answers and
        starts count for half a second only."""
        epoch = adoption.plan.epoch
        match adoption.kind:
            case AdoptionKind.START:
                plan = self._start_plan(now)
                return plan is not None and plan.targets == adoption.plan.targets
            case AdoptionKind.JOIN:
                answered = self._answers.plan(self.lives, now)
                return answered is not None and answered.epoch == epoch
            case AdoptionKind.FOLLOW:
                return now - adoption.known_at <= RELAY_ANSWER_S or any(
                    beat.status is RelayStatus.NORMAL
                    and beat.epoch.timeline == epoch.timeline
                    and beat.epoch >= epoch
                    for beat in self.hearing.beats(now).values()
                )

    def _settle(self, adoption: EpochAdoption, now: float) -> None:
        """Be part of an epoch."""
        epoch = adoption.plan.epoch
        is_same = epoch.timeline == self.held.timeline
        self.status, self.epoch, self.held = RelayStatus.NORMAL, epoch, epoch
        self.lives = newest_lives([self.lives, adoption.plan.lives])
        self.relic = None
        self._votes.clear()
        self._answers.clear()
        self._raise_generation(epoch)
        self._effects.append(EnterStatus(self.status, epoch))
        if not is_same:
            self._effects.append(TellTimeline(epoch))
        self.streams.epoch = epoch
        self.streams.drop(set(adoption.repairs))
        for topic_id, repair in adoption.repairs.items():
            repair.stream.begin_epoch(is_same_timeline=is_same)
            self.streams.by_topic[topic_id] = repair.stream
            if repair.release(now) and is_same:
                self._effects.append(TellGap(topic_id, repair.stream.buffer.start.end))
        if adoption.kind is AdoptionKind.START:
            self._send_all(RelayStart(epoch, self.lives.copy(), self.streams.points))
        for stream in self.streams:
            self.streams.write(stream, now, asks=True)

    def _empty(self, *, keeps: bool) -> None:
        """Give up all that is held, and begin another life; *keeps*: it is right, as far as is
        known, so it may serve a founding."""
        self.relic = (self.held, self.streams) if keeps and self.held != NEVER else None
        self.life = RelayLife(self.life.incarnation, self.life.emptied + 1)
        self.lives[self.me] = self.life
        self.status, self.epoch, self.held = RelayStatus.JOINING, NEVER, NEVER
        self.streams.abandon_repairs()
        self.streams = self._no_streams()
        self.adoption, self._stuck_since = None, None
        self._fence = Fence()
        self._votes.clear()
        self._answers.clear()
        self._effects.append(BeginLife(self.life))
        self._effects.append(EnterStatus(self.status, self.epoch))

    def _say(self, now: float) -> None:
        """Tell all what it is; repeat what may be lost."""
        self._send_all(self._beat(now))
        if self.status is RelayStatus.JOINING:
            self._send_all(RelayAsk(is_joining=True))
        elif self.status is RelayStatus.CHANGING:
            self._cast(now)
