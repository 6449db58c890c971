"""Scenarios of relays that lose more than they can bear, and of rules that are easily left out.

They are fixed schedules after the executable model, each for a mistake that it knows.
"""

from __future__ import annotations

from collections.abc import Callable

from octopi.identifiers import BrokerId
from octopi.limits import RELAY_LOST_S
from octopi.relay.messages import (
    RelayAnswer,
    RelayIncoming,
    RelayMessage,
    RelayStart,
    RelayStatus,
    RelayWritten,
)
from tests.relay.parts import Producing
from tests.relay.scenarios import (
    REPAIRS,
    check,
    leader,
    others,
    outside_of,
    paused_s,
    produce,
    ready,
    settle,
)
from tests.relay.world import RelayWorld


def _restart_dead(world: RelayWorld) -> None:
    for broker in world.brokers.values():
        if not broker.alive:
            world.restart(broker.number)


def _is_held(world: RelayWorld, one: Producing) -> bool:
    """Whether all relays hold what was produced."""
    streams = [member.streams.by_topic[one.topic] for member in world.members]
    found = [of.buffer.read(of.buffer.start.end, of.buffer.end.end, 1 << 40) for of in streams]
    return all(any(held.records == one.records for held in of) for of in found)


def two_members_repair_while_more_is_published() -> None:
    """Both miss a transaction, and get what follows.  Who repairs must not count."""
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
    world.run(0.02)
    check(not one.streams.is_whole, "it does not repair")
    produce(world)
    world.run(0.05)
    check(missed.receipt is None, "what one relay holds is acknowledged")
    world.crash(leader(world).me)
    world.alter = lambda _, message: message
    world.run(0.1)
    _restart_dead(world)
    settle(world)


def what_one_survivor_has_written_and_not_delivered_goes_on() -> None:
    """It has not heard that a quorum has written the last transaction, when the others restart."""
    world = ready(topics=1)
    survivor = others(world)[0]
    world.alter = lambda to, message: (
        None if isinstance(message, RelayWritten) and to == survivor.me else message
    )
    one = produce(world)
    check(paused_s(world, one) < 0.1, "it is not acknowledged")
    [stream] = survivor.streams
    check(stream.highwater < stream.buffer.end.end, "the survivor knows that it is committed")
    for member in list(world.members):
        if member.me != survivor.me:
            world.crash(member.me)
    world.alter = lambda _, message: message
    world.run(0.2)
    _restart_dead(world)
    settle(world, 25)
    check(world.stats["founded"] == 2, "no timeline was founded")
    check(_is_held(world, one), "what was acknowledged, and one holds, is gone")


def the_newest_timeline_goes_on_and_not_the_longest_history() -> None:
    """One relay is away while the two others begin a timeline; then one of these restarts."""
    world = ready(topics=1)
    away = others(world)[0]
    for _ in range(5):
        produce(world)
    settle(world)
    world.split([away.me])
    for member in list(world.members):
        if member.me != away.me:
            world.crash(member.me)
            world.restart(member.me)
    world.run(RELAY_LOST_S + 2.5)
    check(world.stats["founded"] == 2, "they don't begin without it")
    one = produce(world)
    check(paused_s(world, one) < 1, "the new timeline takes nothing")
    kept, lost = (
        leader(world),
        next(member for member in world.members if member.me not in {away.me, leader(world).me}),
    )
    check(len(away.streams.by_topic[one.topic].buffer) > 1, "the old history is not the longer one")
    world.crash(lost.me)
    world.heal()
    world.restart(lost.me)
    settle(world, 25)
    check(world.member(kept.me).is_normal, "the survivor does not take part")
    check(_is_held(world, one), "what was acknowledged in the newer timeline is gone")


def relays_that_forgot_a_timeline_begin_another_one() -> None:
    """A founding reaches two of three.  These two end, and one of them comes back empty: with the
    third, which promised that timeline and was never part of it, it could begin it again."""
    world = ready(topics=1)
    third = world.members[2].me
    for member in list(world.members):
        world.crash(member.me)
        world.restart(member.me)
    world.alter = lambda to, message: (
        None
        if isinstance(message, RelayStart | RelayAnswer | RelayIncoming) and to == third
        else message
    )
    world.run_until(lambda: world.stats["founded"] == 2, 5)
    one = produce(world)
    check(paused_s(world, one) < 2, "two of three acknowledge nothing")
    check(world.member(third).status is RelayStatus.CHANGING, "the third takes part")
    first = leader(world).me
    second = next(member.me for member in world.members if member.me not in {first, third})
    world.crash(first)
    world.crash(second)
    world.alter = lambda _, message: message
    world.restart(second)
    world.run_until(lambda: world.stats["founded"] == 3, RELAY_LOST_S + 5)
    check(len(world.timelines) == 3, "the timeline of which they forgot the history begins again")
    produce(world)
    world.restart(first)
    settle(world, 25)


def who_has_joined_again_is_no_longer_taken_for_empty() -> None:
    """A relay was empty when one of the others heard its last beat.  It has joined since, and holds
    what that one misses.  The third one restarts, and the two others wait until the one that is cut
    off may count as lost."""
    world = ready(topics=1)
    first = min(member.me for member in world.members)
    world.crash(first)
    world.run(1.5)
    world.restart(first)  # whoever has the lowest id proposes timelines; it is not the sequencer
    settle(world)
    sequencer = leader(world).me
    check(sequencer != first, "the lowest id is the sequencer")
    joining = next(one.me for one in world.members if one.me not in {first, sequencer})
    world.crash(joining)
    world.restart(joining)
    world.run_until(lambda: world.member(joining).is_normal, 5)
    world.alter = lambda to, message: (
        None if to == first and isinstance(message, RelayIncoming) else message
    )
    one = produce(world)
    world.run_until(lambda: one.receipt is not None, 0.09)
    told = world.member(first).hearing.beats(world.now)[joining]
    check(told.status is RelayStatus.JOINING, "its next beat was heard")
    world.crash(sequencer)
    world.split([joining])
    world.alter = lambda _, message: message
    world.restart(sequencer)
    world.run(RELAY_LOST_S - 2.0)
    world.heal()
    settle(world, 25)
    check(_is_held(world, one), "one relay was lost, and what was acknowledged is gone")


def two_of_five_die_and_nothing_is_lost() -> None:
    """One of them is the sequencer; the others go on without them."""
    world = ready(5)
    for member in (leader(world), others(world)[0]):
        world.crash(member.me)
    check(paused_s(world, produce(world)) <= 1.5, "three of five don't go on")
    for _ in range(10):
        check(paused_s(world, produce(world)) < 0.1, "the dead hold others up")
    _restart_dead(world)
    settle(world)
    check(world.stats["founded"] == 1, "a timeline was founded without need")


def all_deliver_at_most_one_hop_behind_the_receipt() -> None:
    """The receipt comes after two hops at a member, after three at a broker outside of the set."""
    world = ready(topics=1)
    world.delay_s = (0.004, 0.004)
    for receiver in (leader(world).me, others(world)[0].me, outside_of(world)):
        one = produce(world, receiver=receiver)
        hops = 2 if BrokerId(receiver) in world.relay_set else 3
        waited_s = paused_s(world, one)
        check(abs(waited_s - hops * 0.004) < 0.0001, f"{waited_s} s are not {hops} hops")
        is_delivered = _all_deliver(world)
        later_s = world.run_until(is_delivered, 1)
        check(later_s <= 0.004 + 0.0001, f"delivery is {later_s} s behind the receipt")
        world.run(0.5)


def _all_deliver(world: RelayWorld) -> Callable[[], bool]:
    end = max(member.streams.points[0][1].end for member in world.members)
    return lambda: all(
        stream.highwater >= end for member in world.members for stream in member.streams
    )


SCENARIOS = {
    one.__name__: one
    for one in (
        two_members_repair_while_more_is_published,
        what_one_survivor_has_written_and_not_delivered_goes_on,
        the_newest_timeline_goes_on_and_not_the_longest_history,
        relays_that_forgot_a_timeline_begin_another_one,
        who_has_joined_again_is_no_longer_taken_for_empty,
        two_of_five_die_and_nothing_is_lost,
        all_deliver_at_most_one_hop_behind_the_receipt,
    )
}
