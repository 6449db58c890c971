"""Looking for the holder of a key, step by step."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings, strategies as st

from octopi.identifiers import RingPoint
from octopi.limits import LOOKUP_STEPS_MAX
from octopi.ring.lookup import HolderFound, HolderNotFound, Lookup, way_to_key
from octopi.ring.points import RING_SIZE
from octopi.wire.ring import HolderAnswer, RingNode
from tests.ring.nodes import node

ME = node(1)
KEY = RingPoint(30)


def answer(
    holder: RingNode | None, *behind: RingNode, nearer: tuple[RingNode, ...] = ()
) -> HolderAnswer:
    return HolderAnswer(0, ME, holder, behind, nearer)


def looking(*nearer: RingNode, for_predecessor: bool = False) -> Lookup:
    """A look-up of a broker that knows *nearer*."""
    lookup = Lookup(ME, KEY, for_predecessor=for_predecessor)
    lookup.answered(ME, answer(None, nearer=nearer))
    return lookup


def test_the_nearest_broker_before_the_key_is_asked_first() -> None:
    lookup = looking(node(10), node(29), node(30), node(31))
    assert lookup.next() == node(29)
    lookup.failed(node(29))
    assert lookup.next() == node(10)


def test_the_holder_that_is_named_is_asked_as_well() -> None:
    lookup = looking(node(20))
    assert lookup.next() == node(20)
    lookup.answered(node(20), answer(node(40), node(50)))
    assert lookup.outcome is None
    assert lookup.next() == node(40)
    lookup.answered(node(40), answer(None))
    assert lookup.outcome == HolderFound(node(40), (node(50),), node(20), 2)
    assert lookup.next() is None


def test_a_holder_that_does_not_answer_is_skipped() -> None:
    lookup = looking(node(20))
    lookup.next()
    lookup.answered(node(20), answer(node(40), node(50)))
    assert lookup.next() == node(40)
    lookup.failed(node(40))
    assert lookup.next() == node(50)
    lookup.answered(node(50), answer(node(50)))
    assert lookup.outcome == HolderFound(node(50), (), node(20), 3)


def test_a_broker_that_failed_before_is_not_asked_as_the_holder() -> None:
    lookup = looking(node(20), node(25))
    assert lookup.next() == node(25)
    lookup.failed(node(25))
    assert lookup.next() == node(20)
    lookup.answered(node(20), answer(node(25), node(40)))
    assert lookup.next() == node(40)


def test_if_all_named_holders_are_dead_another_way_is_tried() -> None:
    lookup = looking(node(10), node(20))
    lookup.next()
    lookup.answered(node(20), answer(node(40)))
    lookup.next()
    lookup.failed(node(40))
    assert lookup.next() == node(10)
    lookup.failed(node(10))
    assert lookup.next() is None
    assert lookup.outcome == HolderNotFound("nobody that is known leads to it")


def test_a_dead_broker_that_stands_last_before_the_key_is_skipped() -> None:
    """Who stands before it has not noticed yet that it is dead."""
    lookup = looking(node(20))
    lookup.next()
    behind = (node(25), node(28), node(40), node(50))
    lookup.answered(node(20), HolderAnswer(0, node(20), None, behind, (node(28), node(25))))
    assert lookup.next() == node(28)
    lookup.failed(node(28))
    assert lookup.next() == node(25)
    lookup.failed(node(25))
    assert lookup.next() == node(40)
    lookup.answered(node(40), answer(None))
    assert lookup.outcome == HolderFound(node(40), (node(50),), node(20), 4)


def test_a_holder_that_says_so_itself_need_not_be_asked_again() -> None:
    lookup = looking(node(20))
    lookup.next()
    lookup.answered(node(20), answer(node(20), node(40), nearer=(node(10),)))
    assert lookup.outcome == HolderFound(node(20), (node(40),), node(10), 1)


def test_a_broker_that_holds_the_key_itself_asks_nobody() -> None:
    lookup = Lookup(ME, KEY)
    lookup.answered(ME, answer(ME, node(40)))
    assert lookup.outcome == HolderFound(ME, (node(40),), None, 0)
    named = looking(node(20))
    named.next()
    named.answered(node(20), answer(ME, node(40)))
    assert named.next() is None
    assert named.outcome == HolderFound(ME, (node(40),), node(20), 1)


def test_who_looks_for_the_predecessor_gets_one_that_has_answered() -> None:
    lookup = looking(node(20), for_predecessor=True)
    lookup.next()
    lookup.answered(node(20), answer(node(40), node(50)))
    assert lookup.outcome == HolderFound(node(40), (node(50),), node(20), 1)


def test_who_looks_for_the_predecessor_goes_on_from_the_holder_to_it() -> None:
    lookup = looking(node(40), for_predecessor=True)
    assert lookup.next() == node(40)
    lookup.answered(node(40), answer(node(40), node(50), nearer=(node(20),)))
    assert lookup.next() == node(20)
    lookup.answered(node(20), answer(node(40), node(50)))
    assert lookup.outcome == HolderFound(node(40), (node(50),), node(20), 2)


def test_the_predecessor_in_a_ring_of_one_is_that_one() -> None:
    lookup = looking(node(40), for_predecessor=True)
    lookup.next()
    lookup.answered(node(40), answer(node(40)))
    assert lookup.outcome == HolderFound(node(40), (), node(40), 1)


def test_a_look_up_ends_after_so_many_brokers() -> None:
    lookup = looking(node(100))
    for number in range(LOOKUP_STEPS_MAX):
        asked = lookup.next()
        assert asked is not None
        lookup.answered(asked, answer(None, nearer=(node(101 + number),)))
    assert lookup.next() is None
    assert lookup.outcome == HolderNotFound(f"{LOOKUP_STEPS_MAX} brokers were asked")


@settings(max_examples=50)
@given(
    st.sets(st.integers(2, 60), min_size=5, max_size=30),
    st.integers(0, 61),
    st.sets(st.integers(2, 60)),
    st.randoms(use_true_random=False),
)
def test_a_live_holder_is_found_as_the_sorted_list_says(
    numbers: set[int], key: int, dead: set[int], random: Random
) -> None:
    """Each broker knows its four successors, of which one is alive, and any three others."""
    ring = sorted({1, *numbers})
    dead = set(sorted(dead & numbers)[:3])
    live = [one for one in ring if one not in dead]
    lookup = Lookup(ME, RingPoint(key))
    asked = ME
    reply = _answer_of(1, ring, live, key, random)
    while True:
        lookup.answered(asked, reply)
        found = lookup.next()
        while found is not None and found.broker in dead:
            lookup.failed(found)
            found = lookup.next()
        if found is None:
            break
        asked, reply = found, _answer_of(found.broker, ring, live, key, random)
    wanted = next((one for one in live if one >= key), live[0])
    assert isinstance(lookup.outcome, HolderFound)
    assert lookup.outcome.holder.broker == wanted


def _answer_of(
    broker: int, ring: list[int], live: list[int], key: int, random: Random
) -> HolderAnswer:
    place = ring.index(broker)
    behind = [ring[(place + way) % len(ring)] for way in range(1, min(5, len(ring)))]
    way = (key - broker - 1) % RING_SIZE
    if way < (behind[0] - broker) % RING_SIZE:
        holder, *others = (node(one) for one in behind)
        return HolderAnswer(0, node(broker), holder, tuple(others), ())
    known = {*behind, *random.sample(live, min(3, len(live)))} - {broker}
    own = way_to_key(node(broker), RingPoint(key))
    nodes = sorted((node(one) for one in known), key=lambda one: way_to_key(one, RingPoint(key)))
    nearer = tuple(one for one in nodes if way_to_key(one, RingPoint(key)) < own)[:3]
    return HolderAnswer(0, node(broker), None, tuple(node(one) for one in behind), nearer)
