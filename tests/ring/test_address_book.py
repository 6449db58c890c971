"""What a broker of the ring remembers of others, and what it tells of them."""

from __future__ import annotations

from itertools import islice
from random import Random

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from octopi.identifiers import DirectoryId, Incarnation
from octopi.limits import BOOK_COUNT, RING_NEWS_COUNT
from octopi.ring.address_book import AddressBook
from octopi.ring.points import RING_SIZE, distance
from octopi.wire.ring import NodeNews, RingNode
from tests.ring.nodes import node

ME = node(5)


def book_of(*nodes: RingNode, count_max: int = BOOK_COUNT) -> AddressBook:
    """A book with *nodes*, which were heard at the time 0."""
    book = AddressBook(ME, count_max)
    for one in nodes:
        book.hear(one, 0.0)
    return book


def silent(book: AddressBook) -> set[int]:
    return {one.node.broker for one in book if one.is_silent}


def test_a_broker_is_not_in_its_own_book() -> None:
    assert len(book_of(ME)) == 0


def test_a_broker_that_did_not_answer_is_silent_until_it_is_heard_again() -> None:
    book = book_of(node(1), node(2))
    book.hear_silence(node(1), 1.0)
    assert silent(book) == {1}
    book.hear_of([NodeNews(node(1), age_ms=2000)], 2.5)  # heard before it fell silent
    assert silent(book) == {1}
    book.hear_of([NodeNews(node(1), age_ms=2000)], 3.5)
    assert silent(book) == set()
    book.hear_silence(node(1), 4.0)
    book.hear(node(1), 5.0)
    assert silent(book) == set()


def test_a_broker_that_is_only_named_is_not_told_on_and_does_not_come_back_to_life() -> None:
    book = book_of()
    book.hear_names([node(1)])
    assert book.tell_all(1.0) == ()
    book.hear_silence(node(1), 1.0)
    book.hear_names([node(1)])
    assert silent(book) == {1}


def test_a_silent_broker_is_told_as_silent_and_changes_nothing_that_is_known() -> None:
    """Whoever knows it may be the last one that does."""
    book = book_of(node(1))
    book.hear_silence(node(1), 1.0)
    assert book.tell_all(3.0) == (NodeNews(node(1), 3000, is_silent=True),)
    other = AddressBook(node(9))
    other.hear_of(book.tell_all(3.0), 3.0)
    assert silent(other) == {1}
    other.hear(node(1), 4.0)
    other.hear_of(book.tell_all(5.0), 5.0)
    assert silent(other) == set()


def test_news_say_how_long_ago_a_broker_was_heard() -> None:
    book = book_of(node(1))
    assert book.tell_all(3.0) == (NodeNews(node(1), 3000),)
    other = AddressBook(node(9))
    other.hear_of(book.tell_all(3.0), 103.0)  # by another clock
    assert other.tell_all(104.0) == (NodeNews(node(1), 4000),)


def test_a_later_incarnation_replaces_an_earlier_one_but_not_the_other_way_around() -> None:
    later = attrs.evolve(node(1), incarnation=Incarnation(2), address="ws://new:1")
    book = book_of(node(1))
    book.hear_names([later])
    assert [one.node for one in book] == [later]
    book.hear_of([NodeNews(node(1), 0)], 9.0)
    assert [one.node for one in book] == [later]


def test_another_directory_replaces_only_one_that_is_gone_unless_it_speaks_itself() -> None:
    wiped = attrs.evolve(node(1), directory=DirectoryId("x"))
    book = book_of(node(1))
    book.hear_of([NodeNews(wiped, 0)], 5.0)
    assert [one.node for one in book] == [node(1)]
    book.hear_silence(node(1), 6.0)
    book.hear_of([NodeNews(wiped, 0)], 7.0)
    assert [one.node for one in book] == [wiped]
    book.hear_silence(node(1), 8.0)  # of the former one
    assert silent(book) == set()
    book.hear(node(1), 9.0)
    assert [one.node for one in book] == [node(1)]


def test_a_removed_broker_is_forgotten_and_does_not_come_back_by_news() -> None:
    book = book_of(node(1), node(2))
    book.remove_for_good([node(1).broker, node(3).broker])
    book.hear_of([NodeNews(node(1), 0)], 1.0)
    book.hear(node(1), 2.0)
    assert [one.node for one in book] == [node(2)]
    book.check_invariants()


def test_entries_are_gone_through_around_the_ring_without_silent_ones() -> None:
    book = book_of(node(1), node(3), node(7), node(9))
    book.hear_silence(node(7), 1.0)
    assert [one.node.broker for one in book.behind(ME.place)] == [9, 1, 3]
    assert [one.node.broker for one in book.before(ME.place)] == [3, 1, 9]
    assert book.next_before(node(3)) == node(9)
    assert book.next_before(node(9)) is None
    assert book.next_before(None) == node(9)
    assert book_of().next_before(None) is None


def test_what_a_broker_of_the_ring_remembers_and_tells_is_bounded() -> None:
    """So is what it tells one that it meets, which is the whole book."""
    book = book_of(*(node(number) for number in range(1000, 2000)))
    book.check_invariants()
    assert BOOK_COUNT * 15 // 16 <= len(book) <= BOOK_COUNT
    assert len(book.tell_all(1.0)) == len(book)
    full = book_of(*(node(number) for number in range(1000, 1000 + BOOK_COUNT)))
    assert len(full) == BOOK_COUNT, "so many brokers all know each other"
    assert len(book.tell(node(1), 1.0, Random(1).random)) <= RING_NEWS_COUNT


def test_who_is_told_hears_first_who_stands_behind_it() -> None:
    book = book_of(*(node(number) for number in range(10, 100)))
    told = [one.node.broker for one in book.tell(node(40), 1.0, Random(1).random)]
    assert {41, 42} <= set(told)
    assert {99, 98} <= set(told), "the latest news"
    assert len(told) > 4, "any entries"
    assert 40 not in told


def test_silent_brokers_make_room_except_a_few() -> None:
    """A split makes all of the other side silent, and the ring has to find it again."""
    book = AddressBook(ME, 8)
    for number in range(10, 18):
        book.hear(node(number), float(number))
        book.hear_silence(node(number), 20.0)
    for number in range(30, 40):
        book.hear(node(number), 21.0)
    assert len(book) == 8
    assert silent(book) == {16, 17}, "the two that were heard last"


def test_a_small_book_of_a_large_ring_has_brokers_at_all_distances() -> None:
    random = Random(1)
    me = node(1, point=0)
    book = AddressBook(me, 8)
    for number in range(2, 400):
        book.hear(node(number, point=random.randrange(RING_SIZE)), 0.0)
    classes = {distance(0, one.node.point).bit_length() for one in book}
    assert len(classes) == 8, "each in a class of its own"


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from("hnsf"), st.booleans())))
def test_the_order_of_a_book_is_right_after_any_events(
    events: list[tuple[int, str, bool]],
) -> None:
    book = AddressBook(ME, 4)
    for now, (number, kind, wiped) in enumerate(events):
        one = node(number, point=number * 7 % 11)
        one = attrs.evolve(one, directory=DirectoryId("x")) if wiped else one
        match kind:
            case "h":
                book.hear(one, float(now))
            case "n":
                book.hear_of([NodeNews(one, 1500)], float(now))
            case "s":
                book.hear_silence(one, float(now))
            case _:
                book.remove_for_good([one.broker])
        book.check_invariants()
    assert len(list(islice(book.behind(ME.place), 9))) == len(book) - len(silent(book))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_any_broker_is_one_of_the_book(count: int) -> None:
    nodes = [node(number) for number in range(10, 10 + count)]
    book = book_of(*nodes)
    found = {book.any_node(Random(seed).random) for seed in range(30)}
    assert found == (set(nodes) if nodes else {None})
