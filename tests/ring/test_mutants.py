"""Known mistakes, planted one by one: a scenario, or the search of a small scope, notices each."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs
import pytest

from octopi.agreement.values import first_value
from octopi.identifiers import DirectoryId
from octopi.ring.address_book import AddressBook
from octopi.ring.chord import Chord
from octopi.ring.effects import RingEffect
from octopi.ring.groups import replica_group
from octopi.ring.lookup import Lookup
from octopi.ring.neighbours import RingNeighbours
from octopi.ring.requests import Awaited, Stabilising
from octopi.wire.agreement import AcceptorId, AgreedValue
from octopi.wire.ring import HolderAnswer, Leave, Neighbours, RingNode
from tests.ring import first_acceptors, scenarios
from tests.ring.first_acceptors import PARTITION, View
from tests.ring.world import BrokenRule, walk

Plant = Callable[[pytest.MonkeyPatch], None]
Scenario = Callable[[], object]

MUTANTS: list[tuple[str, Scenario, Plant]] = []


def mutant(rule: str, scenario: Scenario) -> Callable[[Plant], Plant]:
    """Register a function that plants a mistake; *rule*: how the broken rule is worded in
    *scenario*."""

    def register(plant: Plant) -> Plant:
        MUTANTS.append((rule, scenario, plant))
        return plant

    return register


def walks() -> None:
    for seed in range(30):
        walk(seed)


@mutant("no live successor", scenarios.any_state_of_a_small_scope)
def a_list_has_one_successor(patch: pytest.MonkeyPatch) -> None:
    cut = RingNeighbours._cut
    patch.setattr(RingNeighbours, "_cut", lambda self, nodes: cut(self, nodes)[:1])


@mutant("no live successor", scenarios.any_state_of_a_small_scope)
def a_joiner_copies_no_list(patch: pytest.MonkeyPatch) -> None:
    joined = RingNeighbours.joined_behind

    def alone(
        self: RingNeighbours, predecessor: RingNode, successors: Iterable[RingNode]
    ) -> RingNeighbours:
        return joined(self, predecessor, list(successors)[:1])

    patch.setattr(RingNeighbours, "joined_behind", alone)


@mutant("it joined with", scenarios.a_joiner_whose_first_successor_dies)
def a_joiner_copies_no_list_among_many(patch: pytest.MonkeyPatch) -> None:
    a_joiner_copies_no_list(patch)


@mutant("a dead neighbour", scenarios.a_broker_comes_back_to_other_neighbours)
def a_broker_comes_back_with_its_old_list(patch: pytest.MonkeyPatch) -> None:
    enter = Chord._enter

    def entering(self: Chord, neighbours: RingNeighbours, now: float) -> list[RingEffect]:
        if len(self.book) > 1:
            known = [entry.node for entry in self.book]
            behind = sorted(known, key=lambda one: (one.place < self.me.place, one.place))
            neighbours = neighbours.led_by(behind[0], behind[1:])
        return enter(self, neighbours, now)

    patch.setattr(Chord, "_enter", entering)


@mutant("not repaired", scenarios.a_dead_predecessor)
def a_dead_predecessor_is_kept(patch: pytest.MonkeyPatch) -> None:
    noticed = Chord._noticed

    def trusting(self: Chord, node: RingNode, now: float) -> list[RingEffect]:
        known = self.neighbours.predecessor
        if known is not None and not self.neighbours.is_preceded_by(node):
            return []
        return noticed(self, node, now)

    patch.setattr(Chord, "_noticed", trusting)


@mutant("not repaired", scenarios.two_joiners_with_one_contact)
def who_meets_somebody_hears_of_nobody_else(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AddressBook, "tell_all", lambda self, now: ())
    # Otherwise the contact tells it in the second before it dies.
    patch.setattr(AddressBook, "tell", lambda self, other, now, draw: ())
    a_new_successor_hears_nothing_of_the_former_one(patch)


def without_the_book(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AddressBook, "next_before", lambda self, first: None)
    patch.setattr(AddressBook, "any_node", lambda self, draw: None)


@mutant("not repaired", scenarios.a_split_through_the_middle)
def nobody_learns_from_the_book_after_a_split(patch: pytest.MonkeyPatch) -> None:
    without_the_book(patch)


@mutant("not repaired", scenarios.a_ring_of_one_each)
def nobody_learns_from_the_book_when_it_is_alone(patch: pytest.MonkeyPatch) -> None:
    without_the_book(patch)


@mutant("not repaired", scenarios.three_brokers_that_lose_each_other)
def nobody_learns_from_the_book_in_a_small_ring(patch: pytest.MonkeyPatch) -> None:
    without_the_book(patch)


@mutant("not repaired", scenarios.three_brokers_that_lose_each_other)
def silent_brokers_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    def forgetting(self: AddressBook, node: RingNode, now: float) -> None:
        self._drop([node.broker])

    patch.setattr(AddressBook, "hear_silence", forgetting)


@mutant("not repaired", scenarios.a_ring_of_one_each)
def silent_brokers_are_never_asked_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AddressBook, "any_node", lambda self, draw: self.next_before(None))


@mutant("too slow|not repaired", lambda: scenarios.a_split_of_every_other_one_of_many(4))
def a_new_successor_hears_nothing_of_the_former_one(patch: pytest.MonkeyPatch) -> None:
    stabilise = Chord._stabilise
    patch.setattr(Chord, "_stabilise", lambda self, now, former=None: stabilise(self, now))


@mutant("that nobody asked", scenarios.a_candidate_that_is_dead)
def a_candidate_is_adopted_unasked(patch: pytest.MonkeyPatch) -> None:
    """Under the assumptions of the proof this is harmless, as in the original Chord: no search has
    refuted it."""
    alive = Chord._alive

    def adopting(
        self: Chord, awaited: Awaited, message: Neighbours, now: float
    ) -> list[RingEffect]:
        effects = alive(self, awaited, message, now)
        named = message.predecessor
        if isinstance(awaited, Stabilising) and named and self.neighbours.may_adopt(named):
            behind = self.neighbours.successors
            self.neighbours = self.neighbours.led_by(named, behind)
        return effects

    patch.setattr(Chord, "_alive", adopting)


@mutant("principal", scenarios.any_state_of_a_small_scope)
def a_successor_that_leaves_is_believed(patch: pytest.MonkeyPatch) -> None:
    """Its list is taken over, although it may skip somebody."""

    def believing(
        self: RingNeighbours, node: RingNode, behind: Iterable[RingNode]
    ) -> RingNeighbours:
        others = [one for one in behind if one.broker != self.me.broker]
        return attrs.evolve(self, successors=self._cut(others))

    patch.setattr(RingNeighbours, "without", believing)


@mutant("a broker that left is a neighbour", scenarios.everybody_but_one_leaves)
def nobody_hears_that_a_neighbour_leaves(patch: pytest.MonkeyPatch) -> None:
    def deaf(self: Chord, message: Leave, now: float) -> list[RingEffect]:
        return []

    patch.setattr(Chord, "_left", deaf)


@mutant("a look-up found a dead broker", walks)
def the_holder_is_not_asked_itself(patch: pytest.MonkeyPatch) -> None:
    answered = Lookup.answered

    def hasty(self: Lookup, node: RingNode, answer: HolderAnswer) -> None:
        answered(self, node, answer)
        if self._holders and self.outcome is None:
            self._found()

    patch.setattr(Lookup, "answered", hasty)


@mutant("not in the ring", scenarios.everybody_is_restarted_at_once)
def former_members_wait_for_a_ring(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("octopi.ring.joining.Joining.may_begin", False)


@mutant("two groups", first_acceptors.two_groups)
def first_acceptors_are_those_that_a_broker_sees(patch: pytest.MonkeyPatch) -> None:
    def seen(view: View) -> AgreedValue:
        _, acceptors = replica_group(PARTITION, 3, view.sees)
        return first_value([one.identity for one in acceptors], b"")

    patch.setattr(first_acceptors, "first_of", seen)


@mutant("two first values", first_acceptors.an_acceptor_without_its_disk)
def an_acceptor_is_known_by_its_id_alone(patch: pytest.MonkeyPatch) -> None:
    number = property(lambda self: AcceptorId(self.broker, DirectoryId("")))
    patch.setattr(RingNode, "identity", number)


@pytest.mark.parametrize(
    ("rule", "scenario", "plant"), MUTANTS, ids=[plant.__name__ for *_, plant in MUTANTS]
)
def test_a_planted_mistake_is_noticed(
    rule: str, scenario: Scenario, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(BrokenRule, match=rule):
        scenario()
