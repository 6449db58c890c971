"""The members of a relay set change one at a time while messages go on, and streams are removed."""

from __future__ import annotations

from random import Random

import attrs
import pytest

from octopi.identifiers import BrokerId, Incarnation, Offset, PartitionId, TopicId
from octopi.limits import RELAY_REMOVED_MAX
from octopi.relay.buffer import BufferBounds, StreamPoint
from octopi.relay.digest import Digest
from octopi.relay.epoch import JoinAnswers, Votes
from octopi.relay.incarnations import RelayLife
from octopi.relay.messages import RelayAnswer, RelayStart, RelayVote
from octopi.relay.relay_set import RelaySet
from octopi.relay.stream_rules import StreamRules
from octopi.relay.timelines import NEVER, RelayEpoch, Timeline
from tests.relay.scenarios import settle
from tests.relay.world import RelayWorld

P = PartitionId(0)
LINE = Timeline(1, 7)
LIFE = RelayLife(Incarnation(1))


def relay_set(*members: int, version: int = 1) -> RelaySet:
    return RelaySet(P, [BrokerId(one) for one in members], version)


def begun(outside: int = 3, **options: object) -> RelayWorld:
    """A world of which the relays are alike, with something in it."""
    world = RelayWorld(Random(5), 3, outside, **options)  # type: ignore[arg-type]
    world.run_until(lambda: world.sequencer is not None, 8)
    for topic in world.topics:
        world.produce(1, topic)
    settle(world, 8)
    return world


def change(world: RelayWorld, *members: int, seconds: float = 10) -> None:
    """Order a set, and have messages go on until it is in force."""
    world.order(members)
    some = [world.produce(1 + one % 3, world.topics[0]) for one in range(5)]

    def again() -> None:
        for one in some:
            if one.receipt is None:
                world.send(one, world.random.choice(world.in_force.ranked))
        world.at(world.now + 0.3, again)

    world.at(world.now + 0.5, again)
    world.run_until(lambda: world.in_force == world.relay_set, seconds)
    world.run_until(lambda: all(one.receipt is not None for one in some), seconds)
    world.run_until_alike(seconds)


def test_a_member_is_added_and_another_one_removed_while_messages_go_on() -> None:
    world = begun()
    before = {one.number: one for one in world.brokers.values()}
    change(world, 1, 2, 3, 4)
    change(world, 1, 2, 4)
    change(world, 1, 2, 4, 5)
    change(world, 1, 2, 4, 5, 6)
    world.run(3)
    assert {one.life.emptied for one in world.members} == {0}, "nobody gives up what it holds"
    assert before[BrokerId(3)].member is None
    assert not world.gaps


def test_the_sequencer_is_removed() -> None:
    world = begun()
    assert world.sequencer is not None
    gone = world.sequencer.me
    change(world, *(one for one in (1, 2, 3) if one != gone))
    assert world.sequencer is not None
    assert world.sequencer.me != gone


def test_a_dead_member_is_removed_and_another_one_takes_its_place() -> None:
    world = begun()
    world.crash(2)
    change(world, 1, 3)
    change(world, 1, 3, 4)
    world.crash(1)
    one = world.produce(3, world.topics[1])
    world.run_until(lambda: one.receipt is not None, 8)
    world.check_must(world.member(4), "the new member has everything")


def test_a_set_that_needs_who_is_not_there_is_not_begun() -> None:
    world = begun()
    world.crash(4)
    world.order([1, 2, 3, 4])
    world.run(5)
    assert world.in_force == relay_set_of(world, 1, 2, 3)
    one = world.produce(1, world.topics[0])
    world.run_until(lambda: one.receipt is not None, 5)
    world.restart(4)
    world.run_until(lambda: world.in_force == world.relay_set, 10)
    world.run_until_alike(10)


def test_a_new_member_has_joined_before_it_counts() -> None:
    """So three of four are enough, although one of the old ones is dead."""
    world = begun()
    world.crash(2)
    world.run(1)
    world.order([1, 2, 3, 4])
    world.run_until(lambda: world.in_force == world.relay_set, 10)
    assert world.member(4).life.emptied == 0
    one = world.produce(1, world.topics[0])
    world.run_until(lambda: one.receipt is not None, 0.5)
    world.restart(2)
    world.run_until_alike(10)


def relay_set_of(world: RelayWorld, *members: int) -> RelaySet:
    return RelaySet(world.relay_set.partition, [BrokerId(one) for one in members])


def test_a_member_that_was_cut_off_while_its_set_changed_twice_comes_back() -> None:
    world = begun()
    world.split([3])
    world.order([1, 2, 3, 4])
    world.run_until(lambda: world.in_force == world.relay_set, 10)
    world.run(2)
    world.order([1, 3, 4])
    world.run_until(lambda: world.in_force == world.relay_set, 10)
    world.run(3)
    world.heal()
    world.run_until_alike(10)
    assert world.member(3).held_set == world.in_force


def test_a_member_of_two_that_lost_its_memory_gets_it_back() -> None:
    world = begun()
    change(world, 1, 2)
    world.crash(1)
    world.run(1)
    world.restart(1)
    world.run_until_alike(15)
    world.check_must(world.member(1), "the other one had everything")


def test_a_set_follows_another_one_if_it_is_newer_by_one_member() -> None:
    first = relay_set(1, 2, 3)
    assert relay_set(1, 2, 3, 4, version=2).follows(first)
    assert relay_set(1, 2, version=5).follows(first)
    assert not relay_set(1, 2, 4, version=2).follows(first)
    assert not relay_set(1, 2, 3, version=2).follows(first)
    assert not relay_set(1, 2, 3, 4).follows(first)
    assert first == relay_set(3, 2, 1)
    assert first != relay_set(1, 2, 3, version=2)
    assert len({first, relay_set(1, 2, 3)}) == 1


@pytest.mark.parametrize("members", [(1, 2), (1, 2, 3, 4), (1, 2, 3, 4, 5, 6, 7, 8)])
def test_both_sets_have_the_same_sequencer_in_the_epoch_of_a_change(members: tuple[int]) -> None:
    old, me = relay_set(*members), BrokerId(members[0])
    for wanted in (relay_set(*members, 9, version=2), relay_set(*members[:-1], version=2)):
        for number in range(100):
            after = RelayEpoch(LINE, number)
            epoch = old.change_epoch(me, after, wanted)
            assert epoch > after
            assert old.sequencer(epoch) == wanted.sequencer(epoch) == me
            assert epoch.number - number <= len(old) * len(wanted)


def test_the_quorum_of_an_epoch_is_that_of_the_set_in_which_its_history_was_held() -> None:
    """Two of three have voted, and the history of one is from a set of four."""
    held, epoch = RelayEpoch(LINE, 4), RelayEpoch(LINE, 6)
    votes, larger = Votes(), relay_set(1, 2, 3, 4, version=2)

    def vote(voter: int, of: RelayEpoch, members: RelaySet) -> None:
        votes.add(BrokerId(voter), LIFE, RelayVote(epoch, of, members, {}, ()), 0.0)

    vote(1, held, larger)
    vote(2, RelayEpoch(LINE, 1), relay_set(1, 2, 3))
    assert votes.plan(epoch, {}, larger, 0.0) is None
    vote(3, NEVER, larger)
    plan = votes.plan(epoch, {}, larger, 0.0)
    assert plan is not None
    assert (plan.relay_set, plan.held) == (larger, held)


def test_who_joins_needs_a_quorum_of_the_set_that_is_in_force() -> None:
    epoch, answers = RelayEpoch(LINE, 0), JoinAnswers()
    larger = relay_set(1, 2, 3, 4, 5, version=3)
    first = larger.sequencer(epoch)
    for one in larger.ranked[:3]:
        assert answers.plan({}, 0.0) is None
        streams = () if one == first else None
        answers.add(one, LIFE, RelayAnswer(epoch, larger, {}, streams), 0.0)
    plan = answers.plan({}, 0.0)
    assert plan is not None
    assert plan.relay_set == larger


# --- streams that are removed ------------------------------------------------------------------


def emptied(world: RelayWorld) -> list[int]:
    return [one.life.emptied for one in world.members]


def test_a_stream_is_removed_and_the_others_go_on() -> None:
    world = begun(outside=1)
    gone, kept = world.topics
    world.must.pop(gone, None)
    for member in world.members:
        member.remove([gone])
    assert world.sequencer is not None
    world.do(world.sequencer.me, lambda one: one.hand_over(world.now))
    world.run_until_alike(8)
    assert all(list(one.streams.by_topic) == [kept] for one in world.members)
    one = world.produce(1, kept)
    world.run_until(lambda: one.receipt is not None, 5)
    assert emptied(world) == [0, 0, 0]


@pytest.mark.parametrize("names_removed", [True, False])
def test_a_member_that_was_not_told_of_a_removal_learns_of_it_from_a_start(
    names_removed: bool,
) -> None:
    """Without that it would take the history without the stream for one that contradicts its
    own."""
    world = begun(outside=1)
    gone = world.topics[0]
    world.must.pop(gone)
    if not names_removed:
        world.alter = lambda _, message: (
            attrs.evolve(message, removed=()) if isinstance(message, RelayStart) else message
        )
    assert world.sequencer is not None
    first = world.sequencer.me
    late = next(one.me for one in world.members if one.me not in {first, next_after(world)})
    for one in world.members:
        if one.me != late:
            one.remove([gone])
    # Its vote does not arrive in time, so the history is that of the others.
    world.cut |= {(late, other) for other in world.brokers}
    world.do(first, lambda one: one.hand_over(world.now))
    world.run_until(lambda: world.sequencer is not None, 5)
    world.cut.clear()
    if names_removed:
        world.run_until_alike(8)
        assert gone not in world.member(late).streams.by_topic
    else:
        world.run(8)
    assert emptied(world).count(0) == (3 if names_removed else 2)


def next_after(world: RelayWorld) -> BrokerId:
    assert world.sequencer is not None
    return world.sequencer.sequencer_of(world.sequencer.epoch.next)


def test_a_stream_has_bounds_of_its_own() -> None:
    world = begun(outside=1)
    small = world.topics[0]
    for one in world.members:
        one.bound(small, BufferBounds(count=3))
    for _ in range(6):
        for topic in world.topics:
            world.produce(1, topic)
    settle(world, 8)
    for one in world.members:
        counts = [len(one.streams.by_topic[topic].buffer) for topic in world.topics]
        assert counts == [3, 7]


def test_what_is_said_about_a_removed_stream_is_dropped() -> None:
    world = begun(outside=1)
    gone = world.topics[0]
    assert world.sequencer is not None
    first = world.sequencer
    first.remove([gone])
    world.produce(1, gone)
    world.run(1)
    assert gone not in first.streams.by_topic
    assert StreamPoint(Offset(0), Digest(bytes(32))) not in dict(first.streams.points).values()


def test_a_relay_remembers_a_bounded_number_of_removed_streams() -> None:
    rules = StreamRules()
    ids = [TopicId(f"{number:016x}") for number in range(RELAY_REMOVED_MAX + 5)]
    rules.bounds[ids[0]] = BufferBounds(count=1)
    rules.remove(ids)
    assert list(rules.removed) == ids[5:]
    assert not rules.bounds
