"""Scenarios of relays: what happens to them, and what has to come of it.

Each raises `BrokenRule` if a rule is broken, also those that the world checks after each event.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import attrs

from octopi.identifiers import BrokerId, TopicId
from octopi.limits import RELAY_LOST_S, RELAY_SILENCE_S, RELAY_TICK_S
from octopi.relay.buffer import BufferBounds
from octopi.relay.message_ids import MessageId
from octopi.relay.messages import (
    RelayCompare,
    RelayFetch,
    RelayIncoming,
    RelayMessage,
    RelayStatus,
    RelayWritten,
    SubmitRefusal,
)
from octopi.relay.timelines import RelayEpoch, Timeline
from tests.relay.parts import BrokenRule, Producing, WatchedMember
from tests.relay.world import RelayWorld

REPAIRS = RelayCompare | RelayFetch
"""Messages without which nothing is repaired."""


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise BrokenRule(otherwise)


def ready(
    members: int = 3,
    *,
    seed: int = 1,
    topics: int = 2,
    bounds: BufferBounds | None = None,
    made: int = 3,
) -> RelayWorld:
    """A set that has founded its first timeline, with some messages in each stream."""
    world = RelayWorld(Random(seed), members, topics=topics, bounds=bounds)
    world.run_until(lambda: world.sequencer is not None, 3)
    for topic in world.topics:
        for _ in range(made):
            produce(world, topic)
    settle(world)
    return world


def outside_of(world: RelayWorld) -> int:
    """The broker that is no member."""
    return len(world.relay_set) + 1


def produce(
    world: RelayWorld, topic: TopicId | None = None, receiver: int | None = None, size: int = 20
) -> Producing:
    """Produce once."""
    return world.produce(receiver or outside_of(world), topic or world.topics[0], size=size)


def settle(world: RelayWorld, seconds: float = 15) -> None:
    """Everything is acknowledged, producers try again, and all relays are alike."""
    for _ in range(int(seconds / 0.5)):
        if all(one.receipt is not None for one in world.producing) and not world.fault():
            world.check_must(world.members[0], "settled")
            return
        for one in world.producing:
            if one.receipt is None:
                world.send(one, outside_of(world))
        world.run(0.5)
    raise BrokenRule(f"it does not settle: {world.fault()} {world.view}")


def leader(world: RelayWorld) -> WatchedMember:
    found = world.sequencer
    assert found is not None
    return found


def others(world: RelayWorld) -> list[WatchedMember]:
    return [one for one in world.members if one.me != leader(world).me]


def paused_s(world: RelayWorld, one: Producing, seconds: float = 5) -> float:
    """How long a producer waits."""
    return world.run_until(lambda: one.receipt is not None, seconds)


# --- changes of the sequencer --------------------------------------------------------------


def a_sequencer_that_dies_is_replaced_within_a_second() -> None:
    world = ready()
    before = leader(world)
    world.crash(before.me)
    one = produce(world)
    check(paused_s(world, one) <= 1.0, "it takes longer than a second")
    world.restart(before.me)
    settle(world)


def a_sequencer_that_hands_over_before_it_stops_holds_nobody_up() -> None:
    world = ready()
    before = leader(world)
    world.do(before.me, lambda member: member.hand_over(world.now))
    one = produce(world)
    # A receiver that is told "not ready" asks again a beat later.
    check(paused_s(world, one) < 0.2, "the change is waited for as for a crash")
    check(leader(world).me != before.me, "it leads on")
    world.run(0.1)
    world.crash(before.me)
    check(paused_s(world, produce(world)) < 0.1, "its end is noticed")
    world.restart(before.me)
    settle(world)


def a_dead_member_changes_nothing() -> None:
    world = ready()
    epoch, member = leader(world).epoch, others(world)[0].me
    world.crash(member)
    for _ in range(10):
        check(paused_s(world, produce(world)) < 0.1, "a dead member holds others up")
    check(leader(world).epoch == epoch, "the epoch has changed")
    world.restart(member)
    settle(world)


def one_cut_link_to_the_sequencer_changes_nothing(members: int = 3) -> None:
    world = ready(members)
    epoch = leader(world).epoch
    pair = (leader(world).me, others(world)[0].me)
    world.cut |= {pair, pair[::-1]}
    for _ in range(20):
        check(paused_s(world, produce(world)) < 0.2, "a cut link holds others up")
        world.run(0.1)
    world.run(1)
    check(leader(world).epoch == epoch, "the epoch has changed")
    check(not world.fault(), "the member without the link gets nothing")


def an_isolated_sequencer_fences_itself_and_the_others_go_on() -> None:
    world = ready()
    old = leader(world)
    world.split([old.me])
    lonely = produce(world, receiver=old.me)
    took = world.run_until(lambda: old.status is RelayStatus.FENCED, 2)
    check(took <= RELAY_SILENCE_S + 0.1 + 2 * RELAY_TICK_S, f"it fences itself after {took} s")
    check(lonely.receipt is None, "a minority acknowledges")
    one = produce(world, receiver=next(m.me for m in world.members if m.me != old.me))
    check(paused_s(world, one) <= 1.2, "the others don't go on")
    world.send(lonely, outside_of(world))
    paused_s(world, lonely)
    world.heal()
    settle(world)


def a_sequencer_that_restarts_empty_at_once_leads_nobody() -> None:
    world = ready()
    old = leader(world)
    for _ in range(3):
        produce(world)
    world.crash(old.me)
    world.restart(old.me)
    one = produce(world)
    check(paused_s(world, one) <= 2.0, "it is taken for the sequencer")
    settle(world)


def late_heartbeats_suspect_nobody() -> None:
    """Four beats in a row are late."""
    world = ready()
    epoch = leader(world).epoch
    for _ in range(5):
        for broker in list(world.brokers):
            world.pause(broker, 0.38)
        world.run(1)
    check(leader(world).epoch == epoch, "the epoch has changed")
    check(not world.stats["fenced"], "somebody fenced itself")


# --- losses ----------------------------------------------------------------------------------


def what_is_lost_on_the_way_comes_again() -> None:
    """All that is published is lost for a second to one member, and what another one tells."""
    world = ready()
    epoch, (one, two) = leader(world).epoch, others(world)

    def lost(to: BrokerId, message: RelayMessage) -> RelayMessage | None:
        if isinstance(message, RelayIncoming) and to == one.me:
            return None
        return None if isinstance(message, RelayWritten) and to == two.me else message

    world.alter = lost
    for number in range(20):
        produce(world, world.topics[number % 2])
        world.run(0.05)
    world.alter = lambda _, message: message
    world.run(1)
    check(not world.fault(), f"what was lost is missing: {world.fault()}")
    check(leader(world).epoch == epoch, "the epoch has changed")


def two_members_miss_one_transaction() -> None:
    """It is lost to both, and the next one is not.  Who has a hole must not count."""
    world = ready(topics=1)
    one, two = others(world)
    lost: list[BrokerId] = []

    def lose(to: BrokerId, message: RelayMessage) -> RelayMessage | None:
        if isinstance(message, RelayIncoming) and len(lost) < 2 and to in {one.me, two.me}:
            lost.append(to)
            return None
        return None if isinstance(message, REPAIRS) else message

    world.alter = lose
    missed = produce(world)
    world.run(0.02)
    produce(world)
    world.run(0.05)
    world.crash(leader(world).me)
    world.alter = lambda _, message: message
    world.run(0.1)
    check(missed.receipt is None, "what one relay holds is acknowledged")
    for broker in world.brokers.values():
        if not broker.alive:
            world.restart(broker.number)
    settle(world)


def two_of_three_restart_and_what_the_third_holds_goes_on() -> None:
    world = ready()
    held = {topic: len(known) for topic, known in world.must.items()}
    for member in others(world):
        world.crash(member.me)
    world.run(0.2)
    for broker in world.brokers.values():
        if not broker.alive:
            world.restart(broker.number)
    settle(world, 25)
    check(world.stats["founded"] == 2, "no timeline was founded")
    first = world.members[0]
    for topic, count in held.items():
        check(len(first.streams.by_topic[topic].buffer) == count, "the survivor's history is lost")


def all_restart_and_begin_again() -> None:
    world = ready()
    for member in list(world.members):
        world.crash(member.me)
    for broker in list(world.brokers.values()):
        world.restart(broker.number) if broker.member else None
    one = produce(world)
    check(paused_s(world, one) < 3, "they don't begin")
    settle(world)
    check(len(world.timelines) == 2, "the old timeline goes on")


def the_third_is_isolated_while_two_restart(heals_after: float) -> None:
    """If it comes back in time its history goes on; otherwise the others begin without it."""
    world = ready()
    third = others(world)[0]
    world.split([third.me])
    for member in list(world.members):
        if member.me != third.me:
            world.crash(member.me)
            world.restart(member.me)
    world.run(heals_after)
    founded = world.stats["founded"] == 2
    check(founded is (heals_after > RELAY_LOST_S), f"founded: {founded}")
    world.heal()
    settle(world, 25)


def a_founding_with_two_of_five_away() -> None:
    """Three restart while two are isolated from them, and from each other."""
    world = ready(5)
    away = [one.me for one in others(world)[:2]]
    world.split([away[0]])
    world.split([away[1]])
    for member in list(world.members):
        if member.me not in away:
            world.crash(member.me)
            world.restart(member.me)
    world.run(RELAY_LOST_S - 1)
    check(world.stats["founded"] == 1, "a timeline is founded although two may be alive")
    world.run(4)
    check(world.stats["founded"] == 2, "three of five don't found")
    one = produce(world)
    check(paused_s(world, one) < 1, "the new timeline takes nothing")
    world.heal()
    settle(world, 25)


def a_founding_with_two_of_five_away_that_hold_the_most() -> None:
    """Two of five are away and come back while a founding is on its way: they are heard, so they
    have to vote, and what they hold goes on."""
    world = ready(5)
    kept = [one.me for one in others(world)[:2]]
    world.split(kept)
    for member in list(world.members):
        if member.me not in kept:
            world.crash(member.me)
            world.restart(member.me)
    count = len(world.must[world.topics[0]])
    world.run(RELAY_LOST_S - 0.7)
    world.heal()
    settle(world, 30)
    buffer = world.members[0].streams.by_topic[world.topics[0]].buffer
    check(len(buffer) == count, "what two of five held is gone")


def after_a_heal_each_is_of_another_timeline() -> None:
    """One relay alone is part of a newer timeline, one of the older one, and one is empty."""
    world = ready()
    one, two, three = world.members
    newer = RelayEpoch(Timeline(2, 7), 0)
    for member in (one, two, three):
        world.crash(member.me)
        world.restart(member.me)
    world.must.clear()
    world.timelines.add(newer.timeline)
    for number, epoch in ((1, newer), (2, two.epoch)):
        member = world.member(number)
        member.status, member.epoch, member.held = RelayStatus.NORMAL, epoch, epoch
        member.streams.epoch, member.generation = epoch, epoch.timeline.generation
    settle(world, 8)


# --- memory ---------------------------------------------------------------------------------


def a_flipped_bit_is_noticed_and_repaired(*, of_sequencer: bool) -> None:
    world = ready()
    target = leader(world) if of_sequencer else others(world)[0]
    check(world.flip(target.me), "nothing to flip")
    world.run(2)
    settle(world)
    for member in world.members:
        check(member.streams.is_intact(), "a flipped bit is left")
    check(target.life.emptied == 1, "it was not noticed")


def a_flipped_bit_does_not_become_the_history_of_an_epoch() -> None:
    """It flips in the one with the longest history, and before anybody computes digests again, the
    others can't be asked any more."""
    world = ready(topics=1)
    for member in world.members:
        member._scrubs_at = 1e9
    one, two = others(world)
    world.alter = lambda to, message: (
        None if isinstance(message, RelayIncoming) and to == two.me else message
    )
    paused_s(world, produce(world), 1)
    world.run(0.01)
    check(world.flip(one.me), "nothing to flip")
    world.crash(leader(world).me)
    world.alter = lambda _, message: message
    world.run_until(lambda: one.life.emptied == 1, 2)
    check(all(member.is_normal is False for member in (one, two)), "one relay leads alone")


def a_member_with_another_digest_than_the_quorum_repairs() -> None:
    """One member takes other records for those that were published."""
    world = ready()
    one = others(world)[0]
    world.alter = _changes({one.me: b"1"})
    asked = produce(world)
    check(paused_s(world, asked) < 0.5, "two of three don't acknowledge")
    world.alter = lambda _, message: message
    settle(world)
    check(not world.conflicts, "a quorum has one digest")


def a_sequencer_with_another_digest_than_the_quorum_begins_anew() -> None:
    world = ready()
    epoch = leader(world).epoch
    world.alter = _changes({one.me: b"1" for one in others(world)})
    produce(world)
    world.run(0.05)
    world.alter = lambda _, message: message
    world.run(2)
    check(leader(world).epoch > epoch, "it stays the sequencer")
    check(not world.fault(), world.fault())


def three_different_digests_end_in_one() -> None:
    world = ready()
    one, two = others(world)
    world.alter = _changes({one.me: b"1", two.me: b"2"})
    asked = produce(world)
    world.run(0.05)
    world.alter = lambda _, message: message
    check(asked.receipt is None, "it is acknowledged without a quorum on any digest")
    world.run(2)
    check(bool(world.conflicts), "nobody is told")
    check(not world.fault(), world.fault())


def _changes(
    variants: dict[BrokerId, bytes],
) -> Callable[[BrokerId, RelayMessage], RelayMessage | None]:
    """Of what is published, these members get other bytes, in records that are valid."""

    def changed(to: BrokerId, message: RelayMessage) -> RelayMessage | None:
        if not isinstance(message, RelayIncoming) or to not in variants:
            return message
        identity = MessageId(message.id[:-3] + variants[to] + message.id[-2:])
        return attrs.evolve(message, id=identity)

    return changed


def a_slow_quorum_fills_the_buffer_and_overwrites_nothing() -> None:
    bounds = BufferBounds(size_bytes=2_000, count=1_000, age_s=600.0)
    world = ready(topics=1, bounds=bounds)
    members = {one.me for one in others(world)}
    world.alter = lambda to, message: (
        None if isinstance(message, RelayIncoming) and to in members else message
    )
    waiting = [produce(world, size=100) for _ in range(20)]
    world.run(0.2)
    refused = [
        one
        for one in waiting
        if any(why.refused.refusal is SubmitRefusal.BUFFER_FULL for why in one.refused)
    ]
    check(bool(refused), "the sequencer takes more than it can keep")
    check(len(refused) < 20, "it takes nothing")
    stream = leader(world).streams.by_topic[world.topics[0]]
    check(stream.uncommitted_bytes <= 1_000, "more than half of the buffer waits")
    world.alter = lambda _, message: message
    settle(world)


def a_member_that_hears_no_quorum_keeps_within_its_buffer() -> None:
    """One member is told nothing of what others have written, while they go on."""
    bounds = BufferBounds(size_bytes=2_000, count=1_000, age_s=600.0)
    world = ready(topics=1, bounds=bounds)
    slow = others(world)[0]
    world.alter = lambda to, message: (
        None if isinstance(message, RelayWritten) and to == slow.me else message
    )
    for _ in range(60):
        produce(world, size=100)
        world.run(0.02)
        stream = slow.streams.by_topic[world.topics[0]]
        check(stream.buffer.size_bytes <= 2_000, "it keeps more than its buffer")
    world.alter = lambda _, message: message
    settle(world)
    check(bool(world.gaps), "what it has not delivered is gone, and nobody is told")


# --- streams, receivers ------------------------------------------------------------------------


def a_change_takes_the_longest_history_of_each_stream() -> None:
    """Of two members that are left, each has something that the other has not."""
    world = ready(topics=2)
    (one, two), (first, second) = others(world), world.topics
    lonely = {one.me: first, two.me: second}
    world.alter = lambda to, message: (
        None
        if (isinstance(message, RelayIncoming) and lonely.get(to) == message.topic_id)
        or isinstance(message, REPAIRS)
        else message
    )
    asked = [produce(world, topic) for topic in world.topics]
    for producing in asked:
        paused_s(world, producing, 1)
    world.crash(leader(world).me)
    world.alter = lambda _, message: None if isinstance(message, RelayWritten) else message
    world.run_until(lambda: world.sequencer is not None, 3)
    world.check_must(leader(world), "after a change")
    world.alter = lambda _, message: message
    settle_without(world)


def settle_without(world: RelayWorld) -> None:
    """The others go on, and then the dead one comes back."""
    world.run_until(lambda: world.sequencer is not None, 3)
    world.check_must(leader(world), "after a change")
    for broker in world.brokers.values():
        if not broker.alive:
            world.restart(broker.number)
    settle(world)


def one_stream_is_repaired_while_another_delivers() -> None:
    world = ready(topics=2)
    member, (first, second) = others(world)[0], world.topics
    world.alter = lambda to, message: (
        None
        if to == member.me
        and getattr(message, "topic_id", None) == first
        and not isinstance(message, RelayWritten)
        else message
    )
    for _ in range(5):
        produce(world, first)
        world.run(0.02)
    world.run_until(lambda: first in member.streams.repairs, 1)
    asked = produce(world, second)
    paused_s(world, asked)
    world.run(0.01)
    stream = member.streams.by_topic[second]
    check(stream.highwater == stream.buffer.end.end, "another stream waits")
    check(first in member.streams.repairs, "it is repaired without a source")
    world.alter = lambda _, message: message
    settle(world)


def many_streams_come_back_to_a_member_that_restarts(count: int = 150) -> None:
    world = ready(topics=1)
    names = [TopicId(f"{number:016x}") for number in range(1_000, 1_000 + count)]
    for name in names:
        produce(world, name)
        world.run(0.002)
    settle(world)
    member = others(world)[0].me
    world.crash(member)
    world.run(0.1)
    world.restart(member)
    settle(world)
    check(len(world.member(member).streams.by_topic) == count + 1, "streams are missing")


def a_receiver_outside_the_set_gets_receipts_also_over_a_change() -> None:
    world = ready()
    waiting = []
    for number in range(30):
        waiting.append(produce(world, world.topics[number % 2]))
        world.run(0.01)
        if number == 15:
            world.crash(leader(world).me)
    for one in waiting:
        paused_s(world, one)
    check(all(one.attempts == 1 for one in waiting), "a producer has to send again")
    settle_without(world)


def a_receiver_that_dies_is_replaced_by_another_one() -> None:
    """The producer sends the same again elsewhere: it is stored once, which the world checks."""
    world = ready()
    member = others(world)[0].me
    for _ in range(10):
        one = produce(world, receiver=member)
        world.run(world.random.uniform(0, 0.004))
        world.crash(member)
        world.send(one, outside_of(world))
        paused_s(world, one)
        world.restart(member)
        world.run(1)
    settle(world)


SCENARIOS = {
    one.__name__: one
    for one in (
        a_sequencer_that_dies_is_replaced_within_a_second,
        a_sequencer_that_hands_over_before_it_stops_holds_nobody_up,
        a_dead_member_changes_nothing,
        one_cut_link_to_the_sequencer_changes_nothing,
        an_isolated_sequencer_fences_itself_and_the_others_go_on,
        a_sequencer_that_restarts_empty_at_once_leads_nobody,
        late_heartbeats_suspect_nobody,
        what_is_lost_on_the_way_comes_again,
        two_members_miss_one_transaction,
        two_of_three_restart_and_what_the_third_holds_goes_on,
        all_restart_and_begin_again,
        after_a_heal_each_is_of_another_timeline,
        a_founding_with_two_of_five_away,
        a_founding_with_two_of_five_away_that_hold_the_most,
        a_flipped_bit_does_not_become_the_history_of_an_epoch,
        a_sequencer_with_another_digest_than_the_quorum_begins_anew,
        a_member_that_hears_no_quorum_keeps_within_its_buffer,
        a_change_takes_the_longest_history_of_each_stream,
        one_stream_is_repaired_while_another_delivers,
        many_streams_come_back_to_a_member_that_restarts,
        a_receiver_that_dies_is_replaced_by_another_one,
    )
}
