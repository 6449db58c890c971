"""Each rule keeps Zave's invariant from every state of a small scope, whether or not it can be
reached.

The numbers of states are those of the model that the ring was designed with; a change of the code
that makes one smaller should be understood.
"""

from __future__ import annotations

from tests.ring.small_scope import Explored, Scope, fault_of, principals


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
