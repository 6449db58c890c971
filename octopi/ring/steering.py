"""Which brokers are to be the acceptors of the cluster record when one of them is gone."""

from __future__ import annotations

from octopi.limits import REPLACE_ACCEPTOR_S
from octopi.ring.address_book import AddressBook
from octopi.wire.agreement import AcceptorId, AgreedValue
from octopi.wire.ring import RingNode


def next_acceptors(
    value: AgreedValue, me: RingNode, book: AddressBook, now: float, since: float
) -> tuple[AcceptorId, ...] | None:
    """The acceptors that this broker is to propose in the place of those of *value*; None: they
    stay, or another broker proposes.  *since*: when this broker became a member.

    One at a time is replaced: the first that did not answer and was not heard for
    `REPLACE_ACCEPTOR_S`, by the first live broker behind it on the ring that is none.  The live
    acceptor with the lowest id proposes.  If two do, the moves are made one after the other, or one
    is found not to apply: agreement keeps it safe whoever proposes.
    """
    group = value.acceptors
    if me.identity not in group or now - since < REPLACE_ACCEPTOR_S:
        return None
    others = [one for one in group if one != me.identity]
    if any(one.broker < me.broker and not _is_gone(one, book, now) for one in others):
        return None
    if value.is_joint:
        return group  # whoever began the move did not complete it
    gone = next((one for one in others if _is_gone(one, book, now)), None)
    if gone is None:
        return None
    left = [one for one in group if one != gone]
    taken = {one.broker for one in left}
    entry = book.entry(gone.broker)
    place = me.place if entry is None else entry.node.place
    fresh = (one.node for one in book.behind(place) if one.node.broker not in taken)
    new = next(fresh, None)
    return None if new is None else tuple(sorted([*left, new.identity]))


def _is_gone(acceptor: AcceptorId, book: AddressBook, now: float) -> bool:
    """Whether nobody heard of *acceptor* for a while.  One that is not in the book may be there."""
    entry = book.entry(acceptor.broker)
    if entry is None:
        return False
    if entry.node.identity != acceptor:
        return True  # it has lost its disk
    return entry.is_silent and now - entry.heard_at >= REPLACE_ACCEPTOR_S
