"""Each rule keeps Zave's invariant from every state of a small scope, whether or not it can be
reached.

The numbers of states are those of the model that the ring was designed with; a change of the code
that makes one smaller should be understood.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from hypothesis import given, settings, strategies as st

from tests.ring.nodes import node
from tests.ring.small_scope import Explored, Lists, Scope, fault_of, principals
from tests.ring.world import RingWorld


def test_a_member_is_principal_if_nobody_skips_it() -> None:
    assert principals({1: (2, 3), 2: (3, 1), 3: (1, 2)}) == {1, 2, 3}
    assert principals({1: (3,), 2: (3, 1), 3: (1, 2)}) == {1, 3}


def test_a_list_needs_a_live_entry_and_the_ring_enough_principal_members() -> None:
    assert fault_of({1: (2, 3), 2: (3, 4), 3: (1,)}, 2) == ""
    assert fault_of({1: (4,), 2: (3,), 3: (1,)}, 2) == "1 has no live successor"
    assert fault_of({1: (2,), 2: (1,)}, 2) == "too few members are principal"


def test_each_rule_keeps_the_invariant_among_four_brokers() -> None:
    assert Scope(4, 2).run() == Explored("", 216, 1_368)


def test_each_rule_keeps_the_invariant_among_five_brokers() -> None:
    assert Scope(5, 2).run() == Explored("", 4_947, 48_385)


def repair(lists: Lists, count_max: int, known: Iterable[int] = ()) -> None:
    """Have a ring with these lists, and the books *known* beside, repair itself.

    Raises:
      BrokenRule: if it does not.
    """
    world = RingWorld(Random(1), successors_max=count_max)
    for number, way in lists.items():
        behind = [node(one) for one in way]
        world.resume(node(number), behind, None, [node(one) for one in (*way, *known)])
    world.run_until_ideal(30)


def test_from_each_state_among_four_brokers_repair_alone_ends_in_the_ideal_ring() -> None:
    """With a book that has nobody but the broker's own successors."""
    for lists in Scope(4, 2).states():
        repair(lists, 2)


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.integers(1, 7),
        st.lists(st.integers(1, 7), max_size=3),
        min_size=1,
    )
)
def test_from_lists_that_the_proof_forbids_repair_ends_in_the_ideal_ring_by_the_book(
    lists: dict[int, list[int]],
) -> None:
    """Each broker has all others in its book, and any list at all."""
    count_max = 3
    repair({one: tuple(way) for one, way in lists.items()}, count_max, lists)
