"""What happens to rings, by name.  Each raises `BrokenRule` if the ring does not come right.

*book* is the size of the address books: with four entries most of the way is Chord's.
"""

from __future__ import annotations

from random import Random

from octopi.limits import BOOK_COUNT
from tests.ring.nodes import node
from tests.ring.small_scope import Scope
from tests.ring.world import BrokenRule, RingWorld, check_lookups, spread

SETTLED_S = 30
"""Within this time a ring repairs itself, also after a split."""


def ring_of(count: int, book: int) -> RingWorld:
    """A ring of *count* brokers, as they form it when they are started one after another."""
    world = RingWorld(Random(1), book_count_max=book)
    for number, point in spread(range(1, count + 1), count).items():
        world.start(number, [1], point=point, begins=number == 1)
        world.run(0.2)
    world.run_until_ideal(SETTLED_S)
    return world


def run_until_member(world: RingWorld, broker: int) -> None:
    """Until a broker has joined; not until its neighbours have answered it."""
    world.run_until(lambda: world.brokers[broker].chord.is_member, 5)


def two_joiners_with_one_contact(book: int = BOOK_COUNT) -> None:
    """1 and 2 join by 3 at the same time, and it dies before it could tell one of the other."""
    world = RingWorld(Random(1), book_count_max=book)
    world.start(3, [3], point=300, begins=True)
    world.run(2)
    world.start(1, [3], point=100)
    world.start(2, [3], point=200)
    run_until_member(world, 1)
    run_until_member(world, 2)
    world.kill(3, hangs=True)
    world.run_until_ideal(SETTLED_S)


def a_ring_of_one_each(book: int = BOOK_COUNT) -> None:
    """1 is cut off and drops its successors one by one; the others drop it.  When the network
    heals, nobody has a neighbour on the other side."""
    world = ring_of(5, book)
    world.split({1}, {2, 3, 4, 5})
    world.run(120)
    if world.brokers[1].chord.neighbours.successors:
        raise BrokenRule("a broker keeps successors that don't answer")
    world.heal()
    world.run_until_ideal(SETTLED_S)


def three_brokers_that_lose_each_other(book: int = BOOK_COUNT) -> None:
    """Each is alone for a while: fewer than the proof's r + 1 members."""
    world = ring_of(3, book)
    world.split({1}, {2}, {3})
    world.run(20)
    world.heal()
    world.run_until_ideal(SETTLED_S)


def a_split_through_the_middle(book: int = BOOK_COUNT) -> None:
    """Each half closes a ring of its own, and both become one again."""
    world = ring_of(8, book)
    world.split({1, 2, 3, 4}, {5, 6, 7, 8})
    world.run(20)
    world.heal()
    world.run_until_ideal(SETTLED_S)
    check_lookups(world, world.random, 20)


def a_split_of_every_other_one_while_two_join(book: int = BOOK_COUNT) -> None:
    """No broker keeps a neighbour, and on each side somebody joins whom the other never heard."""
    world = ring_of(8, book)
    world.split({1, 3, 5, 7, 9}, {2, 4, 6, 8, 10})
    world.run(10)
    world.start(9, [1], point=12345)
    world.start(10, [2], point=54321)
    world.run(10)
    world.heal()
    world.run_until_ideal(SETTLED_S)
    check_lookups(world, world.random, 20)


def a_split_of_every_other_one_of_many(book: int = BOOK_COUNT) -> None:
    """After it each broker has another successor than before, whom few have in their books."""
    world = RingWorld(Random(1), book_count_max=book, checks=False)
    world.place([node(one, point=point) for one, point in spread(range(1, 61), 61).items()])
    world.split(range(1, 61, 2), range(2, 61, 2))
    world.run(12)
    world.heal()
    if world.run_until_ideal(SETTLED_S) > 15:
        raise BrokenRule("the halves are too slow to find each other")


def the_only_one_that_knows_a_broker_dies(book: int = BOOK_COUNT) -> None:
    """5 joins by 4 while both are cut off from the others.  Then 5 is cut off alone, and 4 goes
    back to the others, and dies."""
    world = ring_of(4, book)
    world.split({4, 5}, {1, 2, 3})
    world.run(20)
    world.start(5, [4], point=99)
    world.run(5)
    world.split({5}, {1, 2, 3, 4})
    world.run(30)
    world.kill(4, hangs=True)
    world.run(5)
    world.heal()
    world.run_until_ideal(SETTLED_S)


def a_dead_predecessor(book: int = BOOK_COUNT) -> None:
    """Nobody stands nearer before 3 than dead 2, so only asking 2 tells that it is dead."""
    world = ring_of(5, book)
    world.kill(2, hangs=True)
    world.run_until_ideal(SETTLED_S)


def a_row_of_neighbours_dies(book: int = BOOK_COUNT) -> None:
    """As many as a list is long, but one."""
    world = ring_of(10, book)
    for number in (3, 4, 5):
        world.kill(number, hangs=number == 4)
    world.run_until_ideal(SETTLED_S)


def a_row_as_long_as_the_lists_dies(book: int = BOOK_COUNT) -> None:
    """Only the address book is left to 2."""
    world = ring_of(10, book)
    for number in (3, 4, 5, 6):
        world.kill(number)
    world.run_until_ideal(SETTLED_S)


def a_broker_comes_back_to_other_neighbours(book: int = BOOK_COUNT) -> None:
    """All its former neighbours are dead, and others have come."""
    world = ring_of(7, book)
    world.kill(4)
    world.run(5)
    for number in (5, 6, 7):
        world.kill(number, hangs=True)
        world.run(5)
    for number, point in spread(range(8, 12), 11).items():
        world.start(number, [1], point=point + 7)
        world.run(5)
    world.restart(4, [1, 2, 3])
    run_until_member(world, 4)
    for one in world.brokers[4].chord.neighbours.successors:
        if not world.brokers[one.broker].alive:
            raise BrokenRule(f"it came back with a dead neighbour: {one}")
    world.run_until_ideal(SETTLED_S)


def a_joiner_whose_first_successor_dies(book: int = BOOK_COUNT) -> None:
    """It knows the next one from the beginning."""
    world = ring_of(6, book)
    world.start(7, [1], point=spread([3], 6)[3] + 5)
    run_until_member(world, 7)
    view = world.brokers[7].chord.neighbours
    if [one.broker for one in view.successors] != [4, 5, 6, 1]:
        raise BrokenRule(f"it joined with {view.successors}")
    world.kill(4)
    world.run_until_ideal(SETTLED_S)


def a_candidate_that_is_dead(book: int = BOOK_COUNT) -> None:
    """2 dies between 1 and 3, and 3 still names it."""
    world = ring_of(5, book)
    world.kill(2, hangs=True)
    world.run_until(lambda: _first(world, 1) == 3, 5)
    for _ in range(500):
        world.run(0.002)
        if _first(world, 1) != 3:
            raise BrokenRule("a broker is adopted that nobody asked")


def _first(world: RingWorld, broker: int) -> int | None:
    first = world.brokers[broker].chord.neighbours.first
    return None if first is None else first.broker


def everybody_is_restarted_at_once(book: int = BOOK_COUNT) -> None:
    """Nobody is a member any more, and each has the others in its book."""
    world = ring_of(6, book)
    for number in world.brokers:
        world.kill(number)
    world.run(5)
    for number in world.brokers:
        world.restart(number)
    world.run_until_ideal(SETTLED_S)


def a_flapping_broker(book: int = BOOK_COUNT) -> None:
    """It is restarted every two seconds."""
    world = ring_of(6, book)
    for _ in range(10):
        world.kill(3)
        world.run(1)
        world.restart(3, [1])
        world.run(1)
    world.run_until_ideal(SETTLED_S)


def everybody_but_one_leaves(book: int = BOOK_COUNT) -> None:
    """The neighbours close each gap at once."""
    world = ring_of(6, book)
    for number in (2, 3, 4, 5, 6):
        world.leave(number)
        world.run(0.2)
        view = world.brokers[1].chord.neighbours
        if any(one.broker == number for one in (*view.successors, view.predecessor) if one):
            raise BrokenRule("a broker that left is a neighbour")
        world.run(5)
    world.run_until_ideal(SETTLED_S)


def any_state_of_a_small_scope() -> None:
    """Every rule from every state."""
    if fault := Scope(5, 2).run().fault:
        raise BrokenRule(fault)


SCENARIOS = [
    two_joiners_with_one_contact,
    a_ring_of_one_each,
    three_brokers_that_lose_each_other,
    a_split_through_the_middle,
    a_split_of_every_other_one_while_two_join,
    a_split_of_every_other_one_of_many,
    the_only_one_that_knows_a_broker_dies,
    a_dead_predecessor,
    a_row_of_neighbours_dies,
    a_row_as_long_as_the_lists_dies,
    a_broker_comes_back_to_other_neighbours,
    a_joiner_whose_first_successor_dies,
    a_candidate_that_is_dead,
    everybody_is_restarted_at_once,
    a_flapping_broker,
    everybody_but_one_leaves,
]
