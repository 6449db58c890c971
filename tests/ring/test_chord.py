"""One broker of the ring: what it does at each event."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import attrs
import pytest

from octopi.identifiers import DirectoryId, Incarnation, RingPoint
from octopi.limits import JOIN_MEETINGS, LOOKUP_TIMEOUT_S, RING_ANSWER_S, STABILISE_S
from octopi.ring.chord import Chord
from octopi.ring.effects import (
    AnswerNode,
    ConcludeLookup,
    EnterRing,
    RefuseJoining,
    RingEffect,
    SendToAddress,
    SendToNode,
    StoreBook,
)
from octopi.ring.lookup import HolderFound, HolderNotFound
from octopi.ring.neighbours import RingNeighbours
from octopi.wire.ring import (
    FindHolder,
    HolderAnswer,
    Leave,
    Meet,
    Met,
    Neighbours,
    NodeNews,
    Probe,
    RingNode,
    RingRefusal,
    RingRefused,
    Stabilise,
)
from tests.ring.nodes import node
from tests.ring.world import RingWorld, check_lookups

ME = node(10)


def member(*successors: int, predecessor: int | None = None, known: Sequence[int] = ()) -> Chord:
    """A member of the ring, which has nothing to do before the time 1."""
    chord = Chord(ME, Random(1).random, [node(one) for one in known])
    chord.is_member = True
    chord._stabilise_at = 1.0
    chord.neighbours = RingNeighbours(
        ME,
        node(predecessor) if predecessor is not None else None,
        tuple(node(one) for one in successors),
    )
    return chord


def sent(effects: Sequence[RingEffect]) -> list[tuple[int, type]]:
    """To whom messages go, and of which class they are."""
    return [
        (int(one.node.broker), type(one.message)) for one in effects if isinstance(one, SendToNode)
    ]


def request_of(effects: Sequence[RingEffect], kind: type) -> int:
    """The number of the request of class *kind*."""
    [message] = [
        one.message
        for one in effects
        if isinstance(one, SendToNode | SendToAddress) and isinstance(one.message, kind)
    ]
    assert not isinstance(message, Leave)
    return message.request


def neighbours(
    request: int, of: int, *successors: int, predecessor: int | None = None
) -> Neighbours:
    before = node(predecessor) if predecessor is not None else None
    return Neighbours(request, node(of), before, tuple(node(one) for one in successors), ())


def successors(chord: Chord) -> list[int]:
    chord.check_invariants()
    return [int(one.broker) for one in chord.neighbours.successors]


def answers(effects: Sequence[RingEffect]) -> list[object]:
    return [one.answer for one in effects if isinstance(one, AnswerNode)]


# --- keeping in touch --------------------------------------------------------------------


def test_the_list_of_the_first_successor_is_taken_over_as_far_as_it_goes_around() -> None:
    chord = member(20, 30)
    asked = request_of(chord.tick(1.0), Stabilise)
    chord.receive(neighbours(asked, 20, 40, 5, 10, 20), 1.1)
    assert successors(chord) == [20, 40, 5]


def test_a_list_has_four_entries() -> None:
    chord = member(20)
    asked = request_of(chord.tick(1.0), Stabilise)
    chord.receive(neighbours(asked, 20, 30, 40, 50, 60), 1.1)
    assert successors(chord) == [20, 30, 40, 50]


def test_a_successor_that_does_not_answer_is_dropped_and_the_next_one_is_asked() -> None:
    chord = member(20, 30)
    chord.tick(1.0)
    assert chord.wakes_at == 1.0 + RING_ANSWER_S
    assert sent(chord.tick(1.0 + RING_ANSWER_S)) == [(30, Stabilise)]
    assert successors(chord) == [30]


def test_a_successor_that_refuses_is_dropped_at_once() -> None:
    chord = member(20, 30)
    asked = request_of(chord.tick(1.0), Stabilise)
    refused = RingRefused(asked, RingRefusal.NO_MEMBER)
    assert sent(chord.receive(refused, 1.01)) == [(30, Stabilise)]
    assert chord.failed(asked, 1.02) == [], "it was told before"
    assert successors(chord) == [30]


def test_another_broker_at_the_successors_address_is_not_the_successor() -> None:
    chord = member(20, 30)
    asked = request_of(chord.tick(1.0), Stabilise)
    other = attrs.evolve(node(20), directory=DirectoryId("x"))
    told = attrs.evolve(neighbours(asked, 20, 40), node=other)
    assert sent(chord.receive(told, 1.1)) == [(30, Stabilise)]
    assert successors(chord) == [30]


def test_a_restarted_successor_is_known_by_its_new_address() -> None:
    chord = member(20)
    asked = request_of(chord.tick(1.0), Stabilise)
    again = attrs.evolve(node(20), incarnation=Incarnation(2), address="ws://new:1")
    chord.receive(attrs.evolve(neighbours(asked, 20), node=again), 1.1)
    assert chord.neighbours.first == again


def test_an_answer_that_comes_too_late_changes_nothing() -> None:
    chord = member(20, 30)
    asked = request_of(chord.tick(1.0), Stabilise)
    chord.tick(1.8)
    assert chord.receive(neighbours(asked, 20, 40), 1.9) == []
    assert successors(chord) == [30]


def test_an_answer_of_a_successor_that_is_no_longer_the_first_changes_nothing() -> None:
    chord = member(20, known=[15])
    effects = chord.tick(1.0)
    assert sent(effects) == [(20, Stabilise), (15, Probe)]
    chord.receive(neighbours(request_of(effects, Probe), 15, 20), 1.1)
    chord.receive(neighbours(request_of(effects, Stabilise), 20, 30), 1.2)
    assert successors(chord) == [15, 20]


def test_who_is_alone_asks_nobody_but_goes_on_looking_in_its_book() -> None:
    chord = member(20, known=[5])
    asked = request_of(chord.tick(1.0), Stabilise)
    assert sent(chord.failed(asked, 1.1)) == [(5, Probe)]
    assert successors(chord) == []
    assert member().tick(1.0) == []


# --- candidates --------------------------------------------------------------------------


def test_a_broker_between_is_asked_before_it_becomes_the_successor() -> None:
    chord = member(20)
    asked = request_of(chord.tick(1.0), Stabilise)
    effects = chord.receive(neighbours(asked, 20, 30, predecessor=15), 1.1)
    assert sent(effects) == [(15, Probe)]
    assert successors(chord) == [20, 30]
    assert chord.candidate == node(15)
    effects = chord.receive(neighbours(request_of(effects, Probe), 15, 20, 30), 1.2)
    assert sent(effects) == [(15, Stabilise)], "it hears at once who precedes it"
    assert successors(chord) == [15, 20, 30]
    assert chord.candidate is None


def test_a_candidate_that_does_not_answer_is_forgotten_until_it_is_heard() -> None:
    chord = member(20, known=[15])
    probe = request_of(chord.tick(1.0), Probe)
    assert chord.failed(probe, 1.1) == []
    assert successors(chord) == [20]
    effects = chord.receive(Stabilise(9, node(5), (NodeNews(node(15), 0),)), 2.5)
    assert (15, Probe) in sent(effects)


def test_a_new_first_successor_hears_of_the_former_one() -> None:
    """It may never have heard of it, after a split through every other broker."""
    chord = member(20, known=[15])
    probe = request_of(chord.tick(1.0), Probe)
    effects = chord.receive(neighbours(probe, 15, 30), 1.1)
    [asked] = [one.message for one in effects if isinstance(one, SendToNode)]
    assert isinstance(asked, Stabilise)
    assert asked.news[0].node == node(20)
    assert successors(chord) == [15, 30]
    other = Chord(node(15), Random(1).random)
    other.is_member = True
    other.neighbours = RingNeighbours(node(15), None, (node(30),))
    assert sent(other.receive(asked, 1.2)) == [(20, Probe)]


def test_there_is_one_candidate_at_a_time_and_the_nearest_is_the_first() -> None:
    chord = member(20, known=[13, 12, 14])
    probe = request_of(chord.tick(1.0), Probe)
    assert chord.candidate == node(12)
    effects = chord.failed(probe, 1.1)
    assert sent(effects) == [(13, Probe)]


def test_a_candidate_that_answers_when_a_nearer_one_was_found_is_not_adopted() -> None:
    chord = member(20, known=[15])
    probe = request_of(chord.tick(1.0), Probe)
    chord.neighbours = chord.neighbours.led_by(node(12), [node(20)])
    chord.receive(neighbours(probe, 15, 20), 1.1)
    assert successors(chord) == [12, 20]


# --- the predecessor ---------------------------------------------------------------------


def test_who_stands_nearer_becomes_the_predecessor_at_once() -> None:
    chord = member(20)
    for number in (3, 5, 7):
        [told] = answers(chord.receive(Stabilise(1, node(number), ()), 0.5))
        assert isinstance(told, Neighbours)
        assert told.predecessor == node(number)
    assert chord.neighbours.predecessor == node(7)


def test_who_stands_farther_becomes_the_predecessor_only_if_the_known_one_is_dead() -> None:
    chord = member(20, predecessor=7)
    effects = chord.receive(Stabilise(1, node(5), ()), 0.5)
    assert sent(effects) == [(7, Probe)]
    assert sent(chord.receive(Stabilise(1, node(3), ()), 0.6)) == [], "it is being asked"
    chord.receive(neighbours(request_of(effects, Probe), 7), 0.7)
    assert chord.neighbours.predecessor == node(7)
    effects = chord.receive(Stabilise(1, node(5), ()), 0.8)
    chord.failed(request_of(effects, Probe), 0.9)
    assert chord.neighbours.predecessor == node(5)


def test_a_predecessor_that_was_replaced_meanwhile_is_not_replaced_again() -> None:
    chord = member(20, predecessor=7)
    effects = chord.receive(Stabilise(1, node(5), ()), 0.5)
    chord.receive(Stabilise(1, node(8), ()), 0.6)
    chord.failed(request_of(effects, Probe), 0.7)
    assert chord.neighbours.predecessor == node(8)


def test_who_is_no_member_names_no_neighbours() -> None:
    chord = Chord(ME, Random(1).random)
    for message in (Stabilise(4, node(5), ()), Probe(4, node(5))):
        assert answers(chord.receive(message, 0.5)) == [RingRefused(4, RingRefusal.NO_MEMBER)]
    assert chord.neighbours.predecessor is None


# --- joining -----------------------------------------------------------------------------


def met(request: int, by: int, *known: int, is_member: bool = True) -> Met:
    return Met(request, node(by), is_member, tuple(NodeNews(node(one), 0) for one in known))


def test_a_broker_joins_behind_the_predecessor_that_it_finds() -> None:
    chord = Chord(ME, Random(1).random)
    effects = chord.join(["ws://b50:9101"], 0.0, begins=False)
    effects = chord.receive(met(request_of(effects, Meet), 50, 5, 20), 0.1)
    assert effects[0] == StoreBook(), "durable before it goes on"
    assert sent(effects) == [(5, FindHolder)]
    found = HolderAnswer(request_of(effects, FindHolder), node(5), node(20), (node(30),), ())
    effects = chord.receive(found, 0.2)
    assert effects[0] == EnterRing()
    assert sent(effects) == [(20, Stabilise)]
    assert successors(chord) == [20, 30]
    assert chord.neighbours.predecessor == node(5)


def test_who_meets_somebody_is_in_its_book_before_it_is_answered() -> None:
    chord = member(20, known=[20])
    effects = chord.receive(Meet(3, node(12), (NodeNews(node(13), 0),)), 0.5)
    assert effects[0] == StoreBook()
    [told] = answers(effects)
    assert isinstance(told, Met)
    assert told.is_member
    assert {int(one.node.broker) for one in told.news} == {12, 13}
    assert chord.book.entry(node(12).broker) is not None


def test_who_has_no_point_yet_learns_of_the_ring_but_is_not_in_the_book() -> None:
    chord = member(20)
    [told] = answers(chord.receive(Meet(3, None, ()), 0.5))
    assert isinstance(told, Met)
    assert len(chord.book) == 0


def test_a_broker_that_reaches_no_member_waits_and_begins_no_ring() -> None:
    """A wrong list of addresses makes no second cluster."""
    chord = Chord(ME, Random(1).random)
    effects = chord.join(["ws://a:1", "ws://c:1"], 0.0, begins=False)
    tried = []
    while effects:
        tried += [one.address for one in effects if isinstance(one, SendToAddress)]
        effects = chord.failed(request_of(effects, Meet), 0.1)
    assert sorted(tried) == ["ws://a:1", "ws://c:1"]
    assert not chord.is_member
    assert chord.wakes_at == pytest.approx(0.1 + STABILISE_S)
    assert chord.tick(chord.wakes_at) != [], "it tries again"


def test_a_founder_begins_a_ring_when_it_meets_no_member() -> None:
    chord = Chord(ME, Random(1).random)
    effects = chord.join([ME.address, "ws://b20:9101"], 0.0, begins=True)
    effects = chord.receive(met(request_of(effects, Meet), 20, is_member=False), 0.1)
    assert EnterRing() in effects
    assert sent(effects) == [(20, Probe)], "it learns of the other founder from its book"
    chord = Chord(ME, Random(1).random)
    assert EnterRing() in chord.join([ME.address], 0.0, begins=True)


def test_a_round_of_addresses_is_bounded() -> None:
    chord = Chord(ME, Random(1).random, [node(one) for one in range(11, 100)])
    effects = chord.join(["ws://a:1"], 0.0, begins=False)
    tried = 0
    while effects:
        tried += 1
        effects = chord.failed(request_of(effects, Meet), 0.1)
    assert tried == JOIN_MEETINGS


def test_a_broker_whose_place_is_not_found_tries_the_next_address() -> None:
    chord = Chord(ME, Random(1).random)
    effects = chord.join(["ws://a:1", "ws://b:1"], 0.0, begins=False)
    effects = chord.receive(met(request_of(effects, Meet), 50), 0.1)
    effects = chord.failed(request_of(effects, FindHolder), 0.2)
    assert [type(one) for one in effects] == [SendToAddress]


def test_a_second_broker_of_the_same_id_is_refused_while_the_first_is_alive() -> None:
    chord = member(20, known=[20])
    chord.receive(Probe(1, node(20)), 0.1)
    other = attrs.evolve(node(20), directory=DirectoryId("x"))
    effects = chord.receive(Meet(3, other, ()), 0.5)
    assert answers(effects) == [RingRefused(3, RingRefusal.ASK_AGAIN)]
    chord.receive(neighbours(request_of(effects, Probe), 20), 0.6)
    again = chord.receive(Meet(4, other, ()), 1.5)
    assert answers(again) == [RingRefused(4, RingRefusal.DUPLICATE_BROKER)]
    itself = attrs.evolve(ME, directory=DirectoryId("x"))
    refused = answers(chord.receive(Meet(5, itself, ()), 1.6))
    assert refused == [RingRefused(5, RingRefusal.DUPLICATE_BROKER)]


def test_a_broker_that_lost_its_disk_is_let_in_when_the_former_one_is_found_dead() -> None:
    chord = member(20, known=[20])
    chord.receive(Probe(1, node(20)), 0.1)
    other = attrs.evolve(node(20), directory=DirectoryId("x"))
    effects = chord.receive(Meet(3, other, ()), 0.5)
    chord.failed(request_of(effects, Probe), 0.6)
    [told] = answers(chord.receive(Meet(4, other, ()), 1.5))
    assert isinstance(told, Met)


def test_who_is_no_member_asks_after_a_duplicate_as_well() -> None:
    chord = Chord(ME, Random(1).random, [node(20)])
    other = attrs.evolve(node(20), directory=DirectoryId("x"))
    effects = chord.receive(Meet(3, other, ()), 0.5)
    assert chord.receive(neighbours(request_of(effects, Probe), 20), 0.6) == []
    refused = answers(chord.receive(Meet(4, other, ()), 1.5))
    assert refused == [RingRefused(4, RingRefusal.DUPLICATE_BROKER)]


def test_a_broker_that_is_refused_for_good_tries_nobody_else() -> None:
    chord = Chord(ME, Random(1).random)
    effects = chord.join(["ws://a:1", "ws://b:1"], 0.0, begins=True)
    wait = RingRefused(request_of(effects, Meet), RingRefusal.ASK_AGAIN)
    effects = chord.receive(wait, 0.1)
    effects = chord.failed(request_of(effects, Meet), 0.2)
    assert effects == [], "and begins no ring, since there is somebody"
    effects = chord.tick(chord.wakes_at)
    refused = RingRefused(request_of(effects, Meet), RingRefusal.DUPLICATE_BROKER)
    assert chord.receive(refused, 2.0) == [RefuseJoining(RingRefusal.DUPLICATE_BROKER)]
    assert chord.tick(100.0) == []


def test_a_broker_comes_back_without_neighbours() -> None:
    chord = Chord(ME, Random(1).random, [node(20), node(30)])
    assert successors(chord) == []
    assert len(chord.book) == 2


# --- leaving -----------------------------------------------------------------------------


def test_who_leaves_tells_both_its_neighbours() -> None:
    chord = member(20, 30, predecessor=5)
    assert sent(chord.leave()) == [(5, Leave), (20, Leave)]
    assert not chord.is_member
    assert successors(chord) == []
    assert chord.tick(100.0) == []
    alone = member(20, predecessor=20)
    assert sent(alone.leave()) == [(20, Leave)], "once, if they are one"


def test_the_neighbours_of_one_that_leaves_close_the_gap() -> None:
    chord = member(20, 30, predecessor=20)
    effects = chord.receive(Leave(node(20), node(5), (node(30), ME)), 0.5)
    assert successors(chord) == [30]
    assert chord.neighbours.predecessor == node(5)
    assert sent(effects) == [(30, Stabilise)]


def test_who_knows_only_the_one_that_leaves_takes_over_its_successors() -> None:
    chord = member(20)
    chord.receive(Leave(node(20), ME, (ME, node(30))), 0.5)
    assert successors(chord) == [30]
    chord.receive(Leave(node(30), ME, (ME,)), 0.6)
    assert successors(chord) == []


def test_one_that_leaves_and_is_no_neighbour_changes_nothing() -> None:
    chord = member(20, predecessor=5)
    assert chord.receive(Leave(node(40), node(5), (node(50),)), 0.5) == []
    assert successors(chord) == [20]


def test_a_farewell_that_comes_after_the_broker_is_back_changes_nothing() -> None:
    chord = member(20, 30)
    again = attrs.evolve(node(20), incarnation=Incarnation(2))
    chord.receive(Probe(1, again), 0.4)
    assert chord.receive(Leave(node(20), ME, (node(30),)), 0.5) == []
    assert successors(chord) == [20, 30]


# --- looking up --------------------------------------------------------------------------


def test_what_a_broker_says_about_keys() -> None:
    chord = member(20, 30, predecessor=5, known=[3, 40, 60])

    def told(key: int) -> HolderAnswer:
        [one] = answers(chord.receive(FindHolder(1, RingPoint(key)), 0.5))
        assert isinstance(one, HolderAnswer)
        return one

    assert told(10) == told(6) == HolderAnswer(1, ME, ME, (node(20), node(30)), (node(5),))
    assert told(11) == told(20) == HolderAnswer(1, ME, node(20), (node(30),), ())
    behind = (node(20), node(30))
    assert told(41) == HolderAnswer(1, ME, None, behind, (node(40), node(30), node(20)))
    assert told(5).nearer == (node(3), node(60), node(40))
    assert Chord(ME, Random(1).random, [node(30)])._holder(1, RingPoint(15)).nearer == (node(30),)


def test_a_look_up_has_an_outcome_in_time() -> None:
    chord = member(20, known=[30, 40])
    chord.neighbours = chord.neighbours.preceded_by(node(5))
    chord._stabilise_at = 100.0
    chord.look_up(7, RingPoint(3), 1.0)
    concluded: list[RingEffect] = []
    while not concluded:
        effects = chord.tick(chord.wakes_at)
        concluded = [one for one in effects if isinstance(one, ConcludeLookup)]
    assert concluded == [ConcludeLookup(7, HolderNotFound("nobody that is known leads to it"))]
    slow = member(20, predecessor=5)
    effects = slow.look_up(7, RingPoint(3), 1.0)
    for step in range(1, 20):
        [asked] = [one for one in effects if isinstance(one, SendToNode)]
        at = 1.0 + step * 0.5
        concluded = [one for one in slow.tick(at) if isinstance(one, ConcludeLookup)]
        if concluded:
            break
        answer = HolderAnswer(
            request_of(effects, FindHolder), asked.node, None, (), (node(1000 + step),)
        )
        effects = slow.receive(answer, at)
    assert concluded == [ConcludeLookup(7, HolderNotFound("it took more than 5 s"))]
    assert at == 1.0 + LOOKUP_TIMEOUT_S
    late = HolderAnswer(request_of(effects, FindHolder), asked.node, asked.node, (), ())
    assert slow.receive(late, at + 0.1) == []
    assert not slow._lookups


def test_a_look_up_of_ones_own_key_asks_nobody() -> None:
    chord = member(20, predecessor=5)
    outcome = HolderFound(ME, (node(20),), node(5), 0)
    assert chord.look_up(1, RingPoint(7), 0.5) == [ConcludeLookup(1, outcome)]


def test_an_answer_of_another_kind_than_asked_for_is_none() -> None:
    chord = member(20, predecessor=5, known=[30, 40])
    asked = request_of(chord.look_up(1, RingPoint(45), 0.5), FindHolder)
    effects = chord.receive(RingRefused(asked, RingRefusal.NO_MEMBER), 0.6)
    assert sent(effects) == [(30, FindHolder)]
    joiner = Chord(ME, Random(1).random)
    effects = joiner.join(["ws://a:1", "ws://b:1"], 0.0, begins=False)
    effects = joiner.receive(neighbours(request_of(effects, Meet), 20), 0.1)
    assert [type(one) for one in effects] == [SendToAddress]
    asked = request_of(chord.look_up(1, RingPoint(45), 0.7), FindHolder)
    assert sent(chord.receive(neighbours(asked, 40), 0.8)) == [(20, FindHolder)]


def test_a_look_up_goes_on_through_the_whole_book_when_the_nearest_are_dead() -> None:
    chord = member(20, predecessor=5, known=[30, 40, 50, 60])
    effects = chord.look_up(1, RingPoint(70), 0.5)
    asked = []
    while sent(effects):
        [(broker, _)] = sent(effects)
        asked.append(broker)
        effects = chord.failed(request_of(effects, FindHolder), 0.6)
    assert asked == [60, 50, 40, 30, 20]


def test_another_broker_at_the_address_of_the_one_that_is_asked_is_not_that_one() -> None:
    """It lost its disk, and is another node now."""
    chord = member(20, predecessor=5, known=[30, 40])
    asked = request_of(chord.look_up(1, RingPoint(45), 0.5), FindHolder)
    other = attrs.evolve(node(40), directory=DirectoryId("x"))
    effects = chord.receive(HolderAnswer(asked, other, other, (), ()), 0.6)
    assert sent(effects) == [(30, FindHolder)]
    entry = chord.book.entry(node(40).broker)
    assert entry is not None
    assert entry.node == other


def test_who_leaves_while_it_joins_does_not_join() -> None:
    chord = Chord(ME, Random(1).random)
    effects = chord.join(["ws://a:1"], 0.0, begins=False)
    assert chord.leave() == []
    assert chord.receive(met(request_of(effects, Meet), 20), 0.1) == []
    effects = chord.join(["ws://a:1"], 1.0, begins=False)
    effects = chord.receive(met(request_of(effects, Meet), 20), 1.1)
    assert chord.leave() == []
    found = HolderAnswer(request_of(effects, FindHolder), node(20), node(20), (), ())
    assert chord.receive(found, 1.2) == []
    assert not chord.is_member


def test_a_removed_broker_is_not_learned_of_and_not_let_in() -> None:
    chord = member(20, known=[15])
    chord.remove_for_good([node(15).broker])
    assert sent(chord.tick(1.0)) == [(20, Stabilise)]
    [refused] = answers(chord.receive(Meet(3, node(15), ()), 1.1))
    assert refused == RingRefused(3, RingRefusal.BROKER_REMOVED)
    removed = Chord(node(15), Random(1).random)
    request = request_of(removed.join(["ws://a:1"], 0.0, begins=True), Meet)
    told = removed.receive(attrs.evolve(refused, request=request), 0.1)
    assert told == [RefuseJoining(RingRefusal.BROKER_REMOVED)]


# --- several together --------------------------------------------------------------------


def test_brokers_at_one_point_form_a_ring_in_the_order_of_their_ids() -> None:
    """Two that join a ring of one at once choose the same point."""
    world = RingWorld(Random(3))
    world.start(5, [5], point=100, begins=True)
    world.run(2)
    for number in (2, 9, 4):
        world.start(number, [5], point=1 << 50)
    world.run_until_ideal(30)
    assert [one.node.broker for one in world.members] == [5, 2, 4, 9]
    check_lookups(world, world.random, 20)


def test_founders_that_start_at_once_form_one_ring() -> None:
    world = RingWorld(Random(3))
    for number in (1, 2, 3):
        world.start(number, [1, 2, 3], point=number * 1000, begins=True)
    world.run_until_ideal(30)


def test_a_wiped_broker_joins_as_another_node_when_the_former_is_dead() -> None:
    world = RingWorld(Random(3))
    for number in (1, 2, 3):
        world.start(number, [1, 2, 3], point=number * 1000, begins=True)
    world.run_until_ideal(30)
    world.kill(2)
    world.run(0.5)
    world.restart(2, [1, 3], wiped=True)
    world.run_until_ideal(30)
    first: RingNode | None = world.brokers[1].chord.neighbours.first
    assert first is not None
    assert first.directory == world.brokers[2].node.directory
