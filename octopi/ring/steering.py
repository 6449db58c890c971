"""Which brokers are to be the acceptors of the cluster record when one is gone or leaves."""

from __future__ import annotations

from collections.abc import Collection

from octopi.identifiers import BrokerId
from octopi.limits import RECORD_ACCEPTORS, REPLACE_ACCEPTOR_S
from octopi.ring.address_book import AddressBook
from octopi.wire.agreement import AcceptorId, AgreedValue
from octopi.wire.ring import RingNode


def is_in_charge(value: AgreedValue, me: RingNode, book: AddressBook, now: float) -> bool:
    """Whether this broker is the one that proposes changes which nobody has ordered: the live
    acceptor of the cluster record with the lowest id.

    If two take themselves for it, their changes are made one after the other, or one is found not
    to apply: agreement keeps it safe whoever proposes.
    """
    if me.identity not in value.acceptors:
        return False
    lower = (one for one in value.acceptors if one.broker < me.broker)
    return all(_is_gone(one, book, now) for one in lower)


def next_acceptors(
    value: AgreedValue,
    me: RingNode,
    book: AddressBook,
    now: float,
    since: float,
    leaving: Collection[BrokerId] = (),
) -> tuple[AcceptorId, ...] | None:
    """The acceptors that this broker is to propose in the place of those of *value*; None: they
    stay, or another broker proposes.  *since*: when this broker became a member.  *leaving*:
    brokers that are to be removed for good.

    One at a time is replaced: the first that leaves, or did not answer and was not heard for
    `REPLACE_ACCEPTOR_S`, by the first live broker behind it on the ring that is none.  If there is
    none, who is gone stays one, and who leaves leaves the largest odd number of others.  If they
    are fewer than `RECORD_ACCEPTORS`, two more become some.
    """
    if not is_in_charge(value, me, book, now):
        return None
    group = value.acceptors
    is_settled = now - since >= REPLACE_ACCEPTOR_S
    going = next((one for one in group if one.broker in leaving), None)
    if value.is_joint:
        # Whoever began the move did not complete it.
        return group if is_settled or going is not None else None
    if going is None and is_settled:
        others = (one for one in group if one != me.identity)
        going = next((one for one in others if _is_gone(one, book, now)), None)
        if going is None:
            return _more(group, me, book, leaving)
    if going is None:
        return None
    left = [one for one in group if one != going]
    entry = book.entry(going.broker)
    place = me.place if entry is None else entry.node.place
    fresh = _fresh(group, place, book, leaving)
    if fresh:
        return tuple(sorted([*left, fresh[0]]))
    if going.broker not in leaving or not left:
        return None
    if len(left) % 2 == 0:
        left.remove(max(left, key=lambda one: (_is_gone(one, book, now), one.broker)))
    return tuple(sorted(left))


def _more(
    group: tuple[AcceptorId, ...], me: RingNode, book: AddressBook, leaving: Collection[BrokerId]
) -> tuple[AcceptorId, ...] | None:
    """The acceptors with two more of them, if they are too few."""
    fresh = _fresh(group, me.place, book, leaving)[:2]
    if len(group) >= RECORD_ACCEPTORS or len(fresh) < 2:
        return None
    return tuple(sorted([*group, *fresh]))


def _fresh(
    group: tuple[AcceptorId, ...],
    place: tuple[int, int],
    book: AddressBook,
    leaving: Collection[BrokerId],
) -> list[AcceptorId]:
    """The live brokers that are no acceptors, in their order behind *place*."""
    taken = {*leaving, *(one.broker for one in group)}
    return [one.node.identity for one in book.behind(place) if one.node.broker not in taken]


def _is_gone(acceptor: AcceptorId, book: AddressBook, now: float) -> bool:
    """Whether nobody heard of *acceptor* for a while.  One that is not in the book may be there."""
    entry = book.entry(acceptor.broker)
    if entry is None:
        return False
    if entry.node.identity != acceptor:
        return True  # it has lost its disk
    return entry.is_silent and now - entry.heard_at >= REPLACE_ACCEPTOR_S
