"""Known mistakes, planted one by one: a run, a scenario, or the search of a small scope notices
each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import attrs
import pytest

from octopi.identifiers import BrokerId, Offset, TopicId
from octopi.relay import anti_entropy, buffer, epoch as epochs, fence
from octopi.relay.adoption import AdoptionKind
from octopi.relay.buffer import RelayBuffer, StreamPoint
from octopi.relay.digest import Digest, next_digest
from octopi.relay.effects import RelayEffect
from octopi.relay.epoch import EpochPlan, JoinAnswers, StreamTarget, Votes
from octopi.relay.fence import Fence, Hearing
from octopi.relay.incarnations import Lives, RelayLife, newest_lives
from octopi.relay.member import RelayMember
from octopi.relay.message_ids import MessageId, MessageIds, message_id
from octopi.relay.messages import (
    RelayAnswer,
    RelayAsk,
    RelayBeat,
    RelayIncoming,
    RelayMessage,
    RelayStart,
    RelayStatus,
    RelayVote,
    RelayWritten,
    StreamEnds,
)
from octopi.relay.relay_set import RelaySet
from octopi.relay.stream import RelayStream
from octopi.relay.streams import RelayStreams
from octopi.relay.timelines import RelayEpoch, Timeline
from octopi.relay.written import WrittenMarks
from octopi.replication.producer_sequences import Fresh, ProducerSequences
from tests.relay import founding_scenarios, runs, scenarios, test_message_ids as ids, walks
from tests.relay.parts import RelayBroker
from tests.relay.small_scope import SET
from tests.relay.world import RelayWorld

Plant = Callable[[pytest.MonkeyPatch], None]
Scenario = Callable[[], object]

MUTANTS: list[tuple[Scenario, Plant]] = []


def mutant(scenario: Scenario) -> Callable[[Plant], Plant]:
    """Register a function that plants a mistake, and what notices it."""

    def register(plant: Plant) -> Plant:
        MUTANTS.append((scenario, plant))
        return plant

    return register


def _written(message: RelayIncoming) -> RelayWritten:
    """What somebody would tell that has all up to *message*."""
    end = Offset(message.offset + len(message.records))
    digest = next_digest(message.digest_before, message.id, message.records)
    return RelayWritten(message.epoch, message.topic_id, StreamPoint(end, digest))


# --- writing -----------------------------------------------------------------------------------


@mutant(scenarios.two_members_miss_one_transaction)
def a_member_with_a_hole_writes(patch: pytest.MonkeyPatch) -> None:
    incoming = RelayStreams.incoming

    def hasty(
        self: RelayStreams, message: RelayIncoming, sources: Sequence[BrokerId], now: float
    ) -> None:
        if message.offset > self.open(message.topic_id).buffer.end.end:
            for member in self._lagging:
                self._send(member, _written(message))
            for receiver in (self._me, message.receiver):
                self._send(receiver, _written(message))
        incoming(self, message, sources, now)

    patch.setattr(RelayStreams, "incoming", hasty)


@mutant(runs.every_run_of_one_order_and_one_change)
def it_is_delivered_before_the_quorum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WrittenMarks, "committed", lambda self: self._same.get(self._me))


@mutant(runs.an_empty_relay_is_sent_what_it_does_not_have_later)
def a_relay_that_knows_nothing_writes(patch: pytest.MonkeyPatch) -> None:
    receive = RelayMember.receive

    def counting(
        self: RelayMember, sender: BrokerId, life: RelayLife, message: RelayMessage, now: float
    ) -> list[RelayEffect]:
        if isinstance(message, RelayIncoming) and self.status is RelayStatus.JOINING:
            stream = self.streams.open(message.topic_id)
            stream.buffer = RelayBuffer(_before(message), stream.buffer.bounds)
            stream.buffer.append(message.id, message.receiver, message.records, now)
            self._send_all(_written(message))
            return self._take()
        return receive(self, sender, life, message, now)

    patch.setattr(RelayMember, "receive", counting)


def _before(message: RelayIncoming) -> StreamPoint:
    return StreamPoint(message.offset, message.digest_before)


@mutant(founding_scenarios.two_members_repair_while_more_is_published)
def a_relay_writes_what_it_repairs(patch: pytest.MonkeyPatch) -> None:
    incoming = RelayStreams.incoming

    def counting(
        self: RelayStreams, message: RelayIncoming, sources: Sequence[BrokerId], now: float
    ) -> None:
        if message.topic_id in self.repairs:
            for member in self._lagging:
                self._send(member, _written(message))
            for receiver in (self._me, message.receiver):
                self._send(receiver, _written(message))
        incoming(self, message, sources, now)

    patch.setattr(RelayStreams, "incoming", counting)


@mutant(runs.every_run_of_one_order_and_one_change)
def a_relay_that_promised_a_new_epoch_writes_in_the_old_one(patch: pytest.MonkeyPatch) -> None:
    receive = RelayMember.receive

    def stubborn(
        self: RelayMember, sender: BrokerId, life: RelayLife, message: RelayMessage, now: float
    ) -> list[RelayEffect]:
        is_old = self.status is RelayStatus.CHANGING
        if isinstance(message, RelayIncoming) and is_old and message.epoch == self.held:
            self.streams.incoming(message, [], now)
            return self._take()
        return receive(self, sender, life, message, now)

    patch.setattr(RelayMember, "receive", stubborn)


@mutant(runs.the_same_is_sent_twice)
def a_repetition_is_ordered_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerSequences, "check", lambda self, run: Fresh())


@mutant(runs.the_same_is_sent_to_two_sequencers)
def the_digest_is_without_the_id(patch: pytest.MonkeyPatch) -> None:
    def of_records(before: Digest, message: MessageId, records: bytes) -> Digest:
        return next_digest(before, MessageId(bytes(16)), records)

    for module in (buffer, anti_entropy):
        patch.setattr(module, "next_digest", of_records)


@mutant(scenarios.what_is_lost_on_the_way_comes_again)
def nothing_is_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RelayStreams, "repeat", lambda self, member: None)


@mutant(scenarios.a_slow_quorum_fills_the_buffer_and_overwrites_nothing)
def a_sequencer_takes_whatever_comes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RelayStream, "uncommitted_bytes", property(lambda self: 0))


@mutant(scenarios.a_member_that_hears_no_quorum_keeps_within_its_buffer)
def a_member_keeps_more_than_its_buffer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RelayStream, "shed", lambda self: False)


# --- epochs ------------------------------------------------------------------------------------


@mutant(runs.every_run_of_one_order_and_one_change)
def fewer_than_a_quorum_begin_an_epoch(patch: pytest.MonkeyPatch) -> None:
    plan = Votes.plan

    def alone(
        self: Votes, epoch: RelayEpoch, lives: Lives, known_set: RelaySet, now: float
    ) -> EpochPlan | None:
        patch.setattr(SET, "quorum", 1)
        try:
            return plan(self, epoch, lives, known_set, now)
        finally:
            patch.setattr(SET, "quorum", 2)

    patch.setattr(Votes, "plan", alone)


@mutant(runs.every_run_of_one_order_and_one_change)
def an_epoch_keeps_only_what_was_delivered(patch: pytest.MonkeyPatch) -> None:
    def ends(self: RelayStreams) -> StreamEnds:
        found = []
        for one in self:
            digest = one.buffer.digest_at(one.highwater)
            assert digest is not None
            found.append((one.topic_id, StreamPoint(one.highwater, digest), one.highwater))
        return tuple(found)

    patch.setattr(RelayStreams, "ends", property(ends))


@mutant(runs.the_longest_history_is_not_the_newest)
def the_longest_history_wins(patch: pytest.MonkeyPatch) -> None:
    valid = Votes._valid

    def all_newest(
        self: Votes, epoch: RelayEpoch, lives: Lives, now: float
    ) -> dict[BrokerId, epochs._CastVote]:
        cast = valid(self, epoch, lives, now)
        newest = max((one.vote.held for one in cast.values()), default=epoch)
        return {
            voter: attrs.evolve(one, vote=attrs.evolve(one.vote, held=newest))
            for voter, one in cast.items()
        }

    patch.setattr(Votes, "_valid", all_newest)


@mutant(scenarios.a_change_takes_the_longest_history_of_each_stream)
def one_vote_has_the_history_of_all_streams(patch: pytest.MonkeyPatch) -> None:
    longest_of = epochs.longest_of

    def of_one(votes: dict[BrokerId, RelayVote]) -> dict[TopicId, StreamTarget]:
        voter = max(votes, key=lambda one: sum(end.end for _, end, _ in votes[one].streams))
        return longest_of({voter: votes[voter]})

    patch.setattr(epochs, "longest_of", of_one)


@mutant(runs.a_vote_from_before_a_crash_comes_late)
def a_vote_from_before_a_crash_counts(patch: pytest.MonkeyPatch) -> None:
    receive = RelayMember.receive

    def forgiving(
        self: RelayMember, sender: BrokerId, life: RelayLife, message: RelayMessage, now: float
    ) -> list[RelayEffect]:
        return receive(self, sender, max(life, self.lives.get(sender, life)), message, now)

    patch.setattr(RelayMember, "receive", forgiving)


@mutant(scenarios.a_flipped_bit_does_not_become_the_history_of_an_epoch)
def votes_are_given_without_a_look_at_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RelayStreams, "is_intact", lambda self: True)


@mutant(scenarios.a_sequencer_that_restarts_empty_at_once_leads_nobody)
def who_is_empty_is_trusted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Hearing, "trusted", lambda self, now, *, may_lead: self.fresh(now))


@mutant(scenarios.one_cut_link_to_the_sequencer_changes_nothing)
def one_relay_alone_suspects_the_sequencer(patch: pytest.MonkeyPatch) -> None:
    def misses(self: Hearing, sequencer: BrokerId, now: float) -> bool:
        return sequencer not in self.trusted(now, may_lead=True)

    patch.setattr(Hearing, "misses", misses)


@mutant(scenarios.a_sequencer_with_another_digest_than_the_quorum_begins_anew)
def a_sequencer_that_is_wrong_votes_and_its_vote_counts_as_any(patch: pytest.MonkeyPatch) -> None:
    empty = RelayMember._empty

    def proud(self: RelayMember, *, keeps: bool) -> None:
        if self.is_sequencer and not keeps:
            self._vote_next(self._beats_at)
        else:
            empty(self, keeps=keeps)

    def of_lowest(votes: dict[BrokerId, RelayVote]) -> dict[TopicId, StreamTarget]:
        lowest = {
            voter: attrs.evolve(
                vote, streams=tuple((*one[:2], Offset(-one[2])) for one in vote.streams)
            )
            for voter, vote in votes.items()
        }
        return longest_of(lowest)

    longest_of = epochs.longest_of
    patch.setattr(epochs, "longest_of", of_lowest)
    patch.setattr(RelayMember, "_empty", proud)


# --- joining, fencing, founding --------------------------------------------------------------


@mutant(founding_scenarios.who_has_joined_again_is_no_longer_taken_for_empty)
def who_said_that_it_is_empty_is_taken_for_empty_for_ever(patch: pytest.MonkeyPatch) -> None:
    def said_so(self: Hearing, known: fence._Heard) -> bool:
        return known.beat is not None and known.beat.status is RelayStatus.JOINING

    patch.setattr(Hearing, "_is_still_empty", said_so)


@mutant(runs.an_empty_relay_asks_one_that_missed_a_change)
def one_answer_is_enough_to_join(patch: pytest.MonkeyPatch) -> None:
    plan = JoinAnswers.plan

    def alone(self: JoinAnswers, lives: Lives, now: float) -> EpochPlan | None:
        patch.setattr(SET, "quorum", 1)
        try:
            return plan(self, lives, now)
        finally:
            patch.setattr(SET, "quorum", 2)

    patch.setattr(JoinAnswers, "plan", alone)


@mutant(runs.an_empty_relay_asks_one_that_missed_a_transaction)
def what_anybody_answers_is_enough_to_join(patch: pytest.MonkeyPatch) -> None:
    plan = JoinAnswers.plan

    def shortest(self: JoinAnswers, lives: Lives, now: float) -> EpochPlan | None:
        found = plan(self, lives, now)
        told = {one: of.answer.streams for one, of in self._answers.items()}
        if found is not None:
            member = next(one for one in told if one != found.relay_set.sequencer(found.epoch))
            targets = {topic: StreamTarget(end, (member,)) for topic, end in told[member] or ()}
            found = attrs.evolve(found, targets=targets)
        return found

    def asked(self: RelayMember, sender: BrokerId, ask: RelayAsk) -> None:
        if self.is_normal:
            points = self.streams.points
            self._send(sender, RelayAnswer(self.epoch, self.held_set, self.lives.copy(), points))

    patch.setattr(JoinAnswers, "plan", shortest)
    patch.setattr(RelayMember, "_asked", asked)


@mutant(runs.an_empty_relay_is_sent_the_start_of_an_epoch)
def a_start_is_enough_to_join(patch: pytest.MonkeyPatch) -> None:
    heard_start = RelayMember._heard_start

    def trusting(self: RelayMember, sender: BrokerId, start: RelayStart, now: float) -> None:
        if self.status is not RelayStatus.JOINING:
            heard_start(self, sender, start, now)
            return
        targets = {topic: StreamTarget(point, (sender,)) for topic, point in start.streams}
        lives = newest_lives([self.lives, start.lives])
        self._adopt(
            EpochPlan(start.epoch, start.relay_set, lives, targets), AdoptionKind.FOLLOW, now
        )

    patch.setattr(RelayMember, "_heard_start", trusting)


@mutant(runs.a_vote_from_before_it_gave_up_what_it_held_comes_late)
def a_relay_that_gives_up_what_it_holds_keeps_its_life(patch: pytest.MonkeyPatch) -> None:
    empty = RelayMember._empty

    def same(self: RelayMember, *, keeps: bool) -> None:
        life = self.life
        empty(self, keeps=keeps)
        self.life = self.lives[self.me] = life

    patch.setattr(RelayMember, "_empty", same)


@mutant(founding_scenarios.relays_that_forgot_a_timeline_begin_another_one)
def the_generation_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    begin = RelayWorld._start

    def forgetful(self: RelayWorld, broker: RelayBroker) -> None:
        broker.generation = 0
        begin(self, broker)

    patch.setattr(RelayWorld, "_start", forgetful)


@mutant(founding_scenarios.what_one_survivor_has_written_and_not_delivered_goes_on)
def a_founding_keeps_only_what_was_delivered(patch: pytest.MonkeyPatch) -> None:
    ends: property = RelayStreams.__dict__["ends"]

    def delivered(self: RelayStreams) -> StreamEnds:
        found = []
        for one in self:
            digest = one.buffer.digest_at(one.highwater)
            assert digest is not None
            found.append((one.topic_id, StreamPoint(one.highwater, digest), one.highwater))
        return tuple(found)

    cast = RelayMember._cast

    def casting(self: RelayMember, now: float) -> None:
        is_founding = self.epoch.timeline != self.held.timeline
        patch.setattr(RelayStreams, "ends", property(delivered) if is_founding else ends)
        cast(self, now)

    patch.setattr(RelayMember, "_cast", casting)


@mutant(founding_scenarios.the_newest_timeline_goes_on_and_not_the_longest_history)
def a_founding_takes_the_longest_history(patch: pytest.MonkeyPatch) -> None:
    valid = Votes._valid

    def all_alike(
        self: Votes, epoch: RelayEpoch, lives: Lives, now: float
    ) -> dict[BrokerId, epochs._CastVote]:
        cast = valid(self, epoch, lives, now)
        newest = max((one.vote.held for one in cast.values()), default=epoch)
        if newest.timeline == epoch.timeline:
            return cast
        return {
            voter: attrs.evolve(one, vote=attrs.evolve(one.vote, held=newest))
            for voter, one in cast.items()
        }

    patch.setattr(Votes, "_valid", all_alike)


@mutant(scenarios.an_isolated_sequencer_fences_itself_and_the_others_go_on)
def nobody_fences_itself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fence, "closes", lambda self, hears_quorum: False)


@mutant(scenarios.a_founding_with_two_of_five_away)
def a_timeline_is_founded_while_somebody_may_be_alive(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Hearing, "is_gone", lambda self, member, now: member not in self.fresh(now))


@mutant(scenarios.after_a_heal_each_is_of_another_timeline)
def members_of_different_timelines_are_added_up(patch: pytest.MonkeyPatch) -> None:
    holders = Hearing.holders

    def summed(self: Hearing, mine: RelayBeat, now: float) -> Counter[Timeline]:
        found = holders(self, mine, now)
        return Counter({one: sum(found.values()) for one in found})

    patch.setattr(Hearing, "holders", summed)


# --- changes of sets -----------------------------------------------------------------------------


def _swap(world: RelayWorld) -> None:
    """Order two other members for two of them, at once."""
    random, now = world.random, list(world.relay_set.ranked)
    others = [one for one in world.brokers if one not in now and world.brokers[one].alive]
    if world.in_force != world.relay_set or len(now) < 3 or len(others) < 2:
        return
    left = random.sample(now, len(now) - 2)
    world.order([*left, *random.sample(others, 2)])


@mutant(partial(walks.walk, 0, moves=10))
def a_set_changes_by_several_members_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RelaySet, "follows", lambda self, other: self.version > other.version)
    patch.setattr(walks, "_move", _swap)


@mutant(partial(walks.walk, 1, moves=10))
def votes_are_counted_by_the_newest_set(patch: pytest.MonkeyPatch) -> None:
    plan = Votes.plan

    def by_newest(
        self: Votes, epoch: RelayEpoch, lives: Lives, known_set: RelaySet, now: float
    ) -> EpochPlan | None:
        for voter, one in self._cast.items():
            vote = attrs.evolve(one.vote, relay_set=known_set)
            self._cast[voter] = attrs.evolve(one, vote=vote)
        return plan(self, epoch, lives, known_set, now)

    patch.setattr(Votes, "plan", by_newest)


# --- ids -----------------------------------------------------------------------------------------


@mutant(ids.test_ids_of_one_life_grow_and_never_overlap_whatever_the_clock_does)
def ids_follow_a_clock_that_steps_back(patch: pytest.MonkeyPatch) -> None:
    take = MessageIds.take

    def trusting(self: MessageIds, count: int, wall_ms: int) -> MessageId:
        if wall_ms < self._ms:
            self._ms, self._next = wall_ms, 0
        return take(self, count, wall_ms)

    patch.setattr(MessageIds, "take", trusting)


@mutant(ids.test_a_full_millisecond_is_followed_by_the_next_one)
def sequences_of_ids_wrap(patch: pytest.MonkeyPatch) -> None:
    def wrapping(self: MessageIds, count: int, wall_ms: int) -> MessageId:
        if wall_ms > self._ms:
            self._ms, self._next = wall_ms, 0
        taken = message_id(self._ms, self._node, self._next % (1 << 16))
        self._next += count
        return taken

    patch.setattr(MessageIds, "take", wrapping)


@mutant(ids.test_a_restart_in_the_same_millisecond_gives_other_ids)
def ids_are_without_the_life(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ids, "node_name", lambda broker, incarnation: broker.to_bytes(6, "big"))


@pytest.mark.parametrize(
    ("scenario", "plant"), MUTANTS, ids=[plant.__name__ for _, plant in MUTANTS]
)
def test_a_planted_mistake_is_noticed(
    scenario: Scenario, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, runs.Fault)):
        scenario()


@pytest.mark.parametrize("one", runs.RUNS, ids=lambda one: one.__name__)
def test_a_run_that_leads_astray_without_a_rule_keeps_the_rules(one: Scenario) -> None:
    one()


def test_every_run_of_a_small_scope_keeps_the_rules() -> None:
    states = runs.every_run_of_one_order_and_one_change()
    assert states > 500


def test_every_run_with_a_crash_keeps_the_rules() -> None:
    assert runs.every_run(runs.Bounds(orders=1, changes=0, crashes=1)) > 150


@pytest.mark.slow
def test_every_run_of_a_larger_scope_keeps_the_rules() -> None:
    # With a change and a crash there are 17,183 states: two minutes, without a fault.
    assert runs.every_run(runs.Bounds(orders=2, changes=1)) > 7_000
