"""How a relay takes part in epochs: its promises and votes, the start of an epoch, joining one, and
giving up what it holds.  `octopi.relay.member` says when."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from octopi.identifiers import BrokerId, Incarnation, TopicId
from octopi.limits import (
    RELAY_ANSWER_S,
    RELAY_BALANCE_S,
    RELAY_BALANCE_S_MAX,
    RELAY_BEAT_S,
    RELAY_SCRUB_S,
    RELAYS_MAX,
)
from octopi.relay.adoption import AdoptionKind, EpochAdoption
from octopi.relay.anti_entropy import RepairCounts
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
from octopi.relay.epoch import EpochPlan, JoinAnswers, StreamTarget, Votes
from octopi.relay.fence import Fence, Hearing
from octopi.relay.incarnations import RelayLife, newest_lives
from octopi.relay.memory import RelayMemory
from octopi.relay.messages import (
    RelayAsk,
    RelayBeat,
    RelayMessage,
    RelayStart,
    RelayStatus,
    RelayVote,
)
from octopi.relay.relay_set import RelaySet
from octopi.relay.stream import RelayStream
from octopi.relay.stream_rules import StreamRules
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
        memory: RelayMemory | None = None,
    ) -> None:
        """*generation*: the greatest one that this broker has stored.  *random*: draws from 0 to 1.
        *now* (s): times are by one clock, and its start means nothing.  *scrub_s*: how often all
        digests are computed again.  *memory*: of all streams of the broker."""
        assert me in relay_set
        self.me = me
        self.known_set = relay_set
        """The newest set that is known; it may not be in force yet."""
        self.held_set = relay_set
        """That of the epoch `held`."""
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
        self.relic: tuple[RelayEpoch, RelaySet, RelayStreams] | None = None
        """What it held before it gave that up: for a founding, until it takes part again."""
        self.adoption: EpochAdoption | None = None
        self.rules = StreamRules(bounds or BufferBounds(), memory=memory or RelayMemory())
        self._random = random
        self._effects: list[RelayEffect] = []
        self.repaired = RepairCounts()
        """What repairs did since this relay was started."""
        self.streams = self._no_streams()
        self.hearing = Hearing(me, relay_set, now)
        self._fence = Fence()
        self._was_normal = False
        """Whether it was normal when it fenced itself."""
        self._votes = Votes()
        self._answers = JoinAnswers()
        self._agreed = NEVER
        """The last epoch of which this relay knows that a quorum became a part: only then may the
        set change in the one behind it."""
        self.wished: BrokerId | None = None
        """Who is to be the sequencer, if it can; None: whoever is."""
        self._wish_due: float | None = None
        """When to hand over to that one, if it is part of the epoch until then."""
        self._wish_wait_s = RELAY_BALANCE_S
        self._changing_since = now
        self._proposed_at = -math.inf
        self._beats_at = now
        self._scrub_s = scrub_s
        self._scrubs_at = now + scrub_s

    def _no_streams(self) -> RelayStreams:
        return RelayStreams(
            self.me, self.known_set, self.rules, self._effects.append, repaired=self.repaired
        )

    # --- what it is ----------------------------------------------------------------------

    @property
    def is_normal(self) -> bool:
        """Whether it is part of its epoch."""
        return self.status is RelayStatus.NORMAL

    @property
    def held_bytes(self) -> int:
        """What it holds of all streams, or held before it gave that up."""
        relic = 0 if self.relic is None else self.relic[2].held_bytes
        return self.streams.held_bytes + relic

    @property
    def evictable(self) -> list[RelayStream]:
        """The streams of which the oldest may be left out now: none while epochs or streams are
        brought to where they should be."""
        if not self.is_normal:
            return []
        return [one for one in self.streams if one.topic_id not in self.streams.repairs]

    @property
    def relay_set(self) -> RelaySet:
        """The members of the epoch that it holds; if it holds nothing, those of the greatest epoch
        of which others are a part, or else the newest ones."""
        return self.hearing.relay_set if self.held == NEVER else self.held_set

    def sequencer_of(self, epoch: RelayEpoch) -> BrokerId:
        """The sequencer of *epoch*, as far as this relay knows.  A new timeline is founded by the
        newest set."""
        is_held = self.held != NEVER and epoch.timeline == self.held.timeline
        return (self.held_set if is_held else self.known_set).sequencer(epoch)

    @property
    def sequencer(self) -> BrokerId:
        """The sequencer of the epoch that was promised."""
        return self.sequencer_of(self.epoch)

    @property
    def is_sequencer(self) -> bool:
        """Whether it puts transactions in order."""
        return self.is_normal and self.sequencer == self.me

    def _beat(self, now: float) -> RelayBeat:
        relic = self.relic
        may_lead = self.status in {RelayStatus.NORMAL, RelayStatus.CHANGING}
        starts = self.adoption is not None and self.adoption.kind is AdoptionKind.START
        return RelayBeat(
            self.status,
            self.epoch,
            self.held if relic is None else relic[0],
            frozenset(self.hearing.trusted(now, may_lead=may_lead)),
            self.generation,
            self.relay_set if relic is None else relic[1],
            self.known_set,
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
        members = {one for of in self._sets for one in of.ranked}
        for member in sorted(members - {self.me}):
            self._send(member, message)

    # --- the set -------------------------------------------------------------------------

    @property
    def _sets(self) -> tuple[RelaySet, ...]:
        """Those whose members this relay talks to."""
        return self.relay_set, self.hearing.relay_set, self.known_set

    def _is_member(self, broker: BrokerId) -> bool:
        return any(broker in one for one in self._sets)

    def _know(self, relay_set: RelaySet) -> None:
        """There is, or shall be, such a set."""
        if relay_set.version > self.known_set.version:
            self.known_set = relay_set

    def _count_by_newest(self, now: float) -> None:
        """Count those whom this relay hears by the set of the greatest epoch that any of them
        holds: its own may have changed while it was away."""
        said = [(beat.held, beat.relay_set) for beat in self.hearing.beats(now).values()]
        held = max([NEVER if self.relic is None else self.relic[0], self.held])
        mine = self.held_set if self.relic is None else self.relic[1]
        newest = max([*said, (held, mine)], key=lambda one: one[0])
        self.hearing.relay_set = self.known_set if newest[0] == NEVER else newest[1]

    def _normal_now(self, now: float) -> list[BrokerId]:
        """Who is part of the epoch of this relay."""
        return [*self.hearing.normal_in(self.epoch, now), self.me]

    def is_agreed(self, now: float) -> bool:
        """Whether this is the sequencer, and a quorum of the set is part of the epoch: then the set
        is in force for good, since whoever begins a later epoch hears of it."""
        there = self._normal_now(now) if self.is_sequencer else []
        return sum(one in self.held_set for one in there) >= self.held_set.quorum

    def _look_at_set(self, now: float) -> None:
        """If this is the sequencer, bring the newest set into force, by an epoch of its own.  A
        quorum of the present members has to be part of the present epoch, so that whoever begins a
        later one hears of its set; and a quorum of the new ones, among them the one that is new,
        which has joined already, and does not count yet."""
        wanted = self.known_set
        if not self.is_sequencer or not wanted.follows(self.held_set):
            return
        there = self._normal_now(now)
        if not self.is_agreed(now) or sum(one in wanted for one in there) < wanted.quorum:
            return
        if any(one not in there for one in wanted.ranked if one not in self.held_set):
            return
        if self.me not in wanted:
            self._vote_next(now)  # the next one does it
            return
        self._agreed = self.epoch
        self._vote(self.held_set.change_epoch(self.me, self.epoch, wanted), now)

    def _look_at_wish(self, now: float) -> None:
        """If this is the sequencer, and another one is wished, hand over to that one once it has
        been part of the epoch for long, and nothing else changes.  Each time that this relay has
        done so it waits twice as long, so that one which comes and goes does not make the others
        change again and again."""
        if not self._may_hand_over(now):
            self._wish_due = None
        elif self._wish_due is None:
            # Those that one relay gives away do not change all at once.
            self._wish_due = now + self._wish_wait_s + self.held_set.partition % 16 * RELAY_BEAT_S
        elif now >= self._wish_due and self.streams.is_whole:
            self._wish_due = None
            self._wish_wait_s = min(2 * self._wish_wait_s, RELAY_BALANCE_S_MAX)
            epoch = self.epoch.next
            while self.sequencer_of(epoch) != self.wished:
                epoch = epoch.next
            self._vote(epoch, now)

    def _may_hand_over(self, now: float) -> bool:
        wished = self.wished
        is_other = wished is not None and wished in self.held_set and wished != self.me
        is_settled = self.is_sequencer and self.known_set == self.held_set
        return is_other and is_settled and self.is_agreed(now) and wished in self._normal_now(now)

    def _with_change(self, plan: EpochPlan) -> EpochPlan:
        """*plan* with the newest set, if it may come into force now."""
        wanted = self.known_set
        if (
            plan.held != self._agreed
            or plan.founds
            or not wanted.follows(plan.relay_set)
            or wanted.sequencer(plan.epoch) != self.me
        ):
            return plan
        return attrs.evolve(plan, relay_set=wanted)

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
            self.held, self.held_set, self.streams = self.relic
            self.relic = None
        self._promise(epoch, now)
        if not self.streams.is_intact():
            self._empty(keeps=False)
            return
        self._say(now)

    def _cast(self, now: float) -> None:
        lives, ends = self.lives.copy(), self.streams.ends
        vote = RelayVote(self.epoch, self.held, self.relay_set, lives, ends)
        if self.sequencer == self.me:
            self._votes.add(self.me, self.life, vote, now)
            self._try_to_start(now)
        else:
            self._send(self.sequencer, vote)

    def _vote_next(self, now: float) -> None:
        """Vote for the next epoch whose sequencer this relay hears."""
        trusted = self.hearing.trusted(now, may_lead=True)
        first = epoch = self.epoch.next
        for _ in range(RELAYS_MAX):
            if self.sequencer_of(epoch) in trusted:
                break
            epoch = epoch.next
        else:
            epoch = first  # it hears none, and is none any more
        self._vote(epoch, now)

    def _try_to_start(self, now: float) -> None:
        if self.adoption is not None or self.sequencer != self.me:
            return
        plan = self._start_plan(now)
        if plan is not None:
            self._adopt(plan, AdoptionKind.START, now)

    def _start_plan(self, now: float) -> EpochPlan | None:
        plan = self._votes.plan(self.epoch, self.lives, self.known_set, now)
        if plan is None or plan.relay_set.sequencer(plan.epoch) != self.me:
            return None
        if plan.founds and not self.hearing.are_all(plan.voters, plan.relay_set, now):
            return None
        return self._with_change(plan)

    def _try_to_join(self, now: float) -> None:
        if self.adoption is not None:
            return
        plan = self._answers.plan(self.lives, now)
        if plan is not None:
            self._adopt(plan, AdoptionKind.JOIN, now)

    def _adopt(self, plan: EpochPlan, kind: AdoptionKind, now: float) -> None:
        is_same = plan.epoch.timeline == self.held.timeline
        self.adoption = EpochAdoption(
            attrs.evolve(plan, targets=self._kept(plan)),
            kind,
            self.streams.by_topic,
            self.streams.new,
            self.rules.removed,
            now,
            keeps_delivered=is_same,
            repaired=self.repaired,
        )
        self._effects += self.adoption.advance(now)
        self._look_at_adoption(now)

    def _kept(self, plan: EpochPlan) -> dict[TopicId, StreamTarget]:
        removed = self.rules.removed
        return {one: target for one, target in plan.targets.items() if one not in removed}

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
                return (
                    plan is not None
                    and plan.relay_set == adoption.plan.relay_set
                    and self._kept(plan) == self._kept(adoption.plan)
                )
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
        before = self.relay_set
        self.status, self.epoch, self.held = RelayStatus.NORMAL, epoch, epoch
        self.held_set = adoption.plan.relay_set
        self._know(self.held_set)
        self._count_by_newest(now)
        self.streams.use(self.held_set)
        lives = newest_lives([self.lives, adoption.plan.lives])
        self.lives = {one: life for one, life in lives.items() if self._is_member(one)}
        self.relic = None
        self._votes.clear()
        self._answers.clear()
        self._raise_generation(epoch)
        self._effects.append(EnterStatus(self.status, epoch))
        if not is_same:
            plan = adoption.plan
            self._effects.append(TellTimeline(epoch, plan.voters if plan.founds else frozenset()))
        self.streams.epoch = epoch
        self.streams.drop(set(adoption.repairs))
        for topic_id, repair in adoption.repairs.items():
            repair.stream.begin_epoch(self.held_set, is_same_timeline=is_same)
            self.streams.by_topic[topic_id] = repair.stream
            if repair.release(now) and is_same:
                self._effects.append(TellGap(topic_id, repair.stream.buffer.start.end))
        self.streams.drop_removed()
        if adoption.kind is AdoptionKind.START:
            for member in sorted({*before.ranked, *self.held_set.ranked} - {self.me}):
                self._send(member, self._start())
        for stream in self.streams:
            self.streams.write(stream, now, asks=True)

    def _start(self) -> RelayStart:
        removed = tuple(self.rules.removed)
        lives, points = self.lives.copy(), self.streams.points
        return RelayStart(self.epoch, self.held_set, lives, points, removed)

    def _empty(self, *, keeps: bool) -> None:
        """Give up all that is held, and begin another life; *keeps*: it is right, as far as is
        known, so it may serve a founding."""
        kept = (self.held, self.held_set, self.streams)
        self.relic = kept if keeps and self.held != NEVER else None
        self.life = RelayLife(self.life.incarnation, self.life.emptied + 1)
        self.lives[self.me] = self.life
        self.status, self.epoch, self.held = RelayStatus.JOINING, NEVER, NEVER
        self.streams.abandon_repairs()
        self.streams = self._no_streams()
        self.adoption, self.hearing.stuck_since = None, None
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
