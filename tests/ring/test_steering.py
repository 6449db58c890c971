"""An acceptor of the cluster record that is gone is replaced by one broker, once."""

from __future__ import annotations

import attrs

from octopi.agreement.values import first_value
from octopi.identifiers import BrokerId, DirectoryId
from octopi.limits import REPLACE_ACCEPTOR_S
from octopi.ring.address_book import AddressBook
from octopi.ring.steering import next_acceptors
from octopi.wire.agreement import AgreedValue
from tests.ring.nodes import node

GROUP = first_value([node(number).identity for number in (1, 2, 3)], b"")
NOW = 100.0


def book(me: int, heard: dict[int, float], silent: tuple[int, ...] = ()) -> AddressBook:
    """The book of broker *me*: when others were heard, and which did not answer since."""
    made = AddressBook(node(me))
    for number, at in heard.items():
        made.hear(node(number), at)
    for number in silent:
        made.hear_silence(node(number), NOW)
    return made


def proposed(
    me: int, known: AddressBook, value: AgreedValue = GROUP, since: float = 0.0
) -> list[int] | None:
    group = next_acceptors(value, node(me), known, NOW, since)
    return None if group is None else [one.broker for one in group]


ALL = {1: 99.0, 2: 50.0, 3: 99.0, 4: 99.0, 5: 99.0}


def without(me: int) -> dict[int, float]:
    return {number: at for number, at in ALL.items() if number != me}


def test_the_next_broker_of_the_ring_takes_the_place_of_one_that_is_gone() -> None:
    assert proposed(1, book(1, without(1), silent=(2,))) == [1, 3, 4]
    assert proposed(1, book(1, without(1), silent=(2, 4))) == [1, 3, 5]


def test_only_the_live_acceptor_with_the_lowest_id_proposes() -> None:
    assert proposed(3, book(3, without(3), silent=(2,))) is None
    assert proposed(4, book(4, without(4), silent=(2,))) is None  # no acceptor
    assert proposed(3, book(3, {**without(3), 1: 20.0}, silent=(1, 2))) == [2, 3, 4]


def test_a_restart_moves_nothing() -> None:
    soon = NOW - REPLACE_ACCEPTOR_S / 2
    assert proposed(1, book(1, {**without(1), 2: soon}, silent=(2,))) is None
    assert proposed(1, book(1, without(1), silent=(2,)), since=soon) is None
    assert proposed(1, book(1, without(1))) is None


def test_nobody_is_replaced_by_nobody_and_who_is_unknown_may_be_there() -> None:
    assert proposed(1, book(1, {2: 50.0, 3: 99.0}, silent=(2,))) is None
    assert proposed(1, book(1, {3: 99.0, 4: 99.0})) is None


def test_a_move_that_was_begun_is_completed_before_another_one() -> None:
    moving = GROUP.moved_to([node(number).identity for number in (1, 3, 4)])
    assert proposed(1, book(1, without(1), silent=(2, 3)), moving) == [1, 3, 4]
    assert proposed(3, book(3, without(3)), moving) is None


def test_one_that_lost_its_disk_is_replaced_though_a_broker_has_its_id() -> None:
    known = book(1, {3: 99.0, 4: 99.0})
    known.hear(attrs.evolve(node(2), directory=DirectoryId("new")), 99.0)
    assert proposed(1, known) == [1, 3, 4]


def leaving(me: int, known: AddressBook, *brokers: int, value: AgreedValue = GROUP) -> list[int]:
    """The acceptors that *me* proposes at once after its start, while *brokers* leave; empty:
    none."""
    group = next_acceptors(value, node(me), known, NOW, NOW, [BrokerId(one) for one in brokers])
    return [one.broker for one in group or ()]


def test_one_that_leaves_is_replaced_at_once_also_the_one_that_proposes() -> None:
    assert leaving(1, book(1, without(1)), 2) == [1, 3, 4]
    assert leaving(1, book(1, without(1)), 2, 4) == [1, 3, 5]
    assert leaving(1, book(1, without(1)), 1) == [2, 3, 4]
    assert leaving(2, book(2, without(2)), 1) == []


def test_without_another_one_who_leaves_leaves_an_odd_number_of_others() -> None:
    alone = first_value([node(1).identity], b"")
    assert leaving(1, book(1, {2: 99.0, 3: 99.0}), 3) == [1]
    assert leaving(1, book(1, {2: 50.0, 3: 99.0}, silent=(2,)), 3) == [1]
    assert leaving(1, book(1, {2: 99.0}), 1, value=alone) == [2]
    assert leaving(1, book(1, {2: 99.0}), 1, 2, value=alone) == []


def test_a_move_because_of_one_that_leaves_is_completed_at_once() -> None:
    moving = GROUP.moved_to([node(number).identity for number in (1, 3, 4)])
    assert leaving(1, book(1, without(1)), 3, value=moving) == [1, 3, 4]
    assert leaving(1, book(1, without(1)), value=moving) == []


def test_too_few_acceptors_become_three_when_there_are_brokers() -> None:
    alone = first_value([node(1).identity], b"")
    assert proposed(1, book(1, {2: 99.0, 3: 99.0, 4: 99.0}), alone) == [1, 2, 3]
    assert proposed(1, book(1, {2: 99.0}), alone) is None
    assert proposed(1, book(1, {2: 99.0, 3: 99.0}), alone, since=NOW - 1) is None
