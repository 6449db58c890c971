"""Whether a broker may join: not if it has the id of another one that is alive, or was removed."""

from __future__ import annotations

from octopi.identifiers import BrokerId
from octopi.ring.address_book import AddressBook
from octopi.wire.ring import RingNode, RingRefusal


class JoinCheck:
    """Judges those that want to join, by the address book of the broker that they ask.

    A broker that lost its disk comes back under its old id as another node.  It may join if the
    former node is dead, so that one is asked.  Until it has answered or not, the newcomer waits.
    """

    def __init__(self, me: RingNode, book: AddressBook) -> None:
        self._me = me
        self._book = book
        self._doubted: dict[BrokerId, float] = {}
        """Since when it is being found out whether a broker of the book is alive."""

    def refusal(self, sender: RingNode, now: float) -> RingRefusal | None:
        """Why *sender* may not join; None: it may.  `RingRefusal.ASK_AGAIN`: the node that the book
        has for its id has to be asked."""
        if sender.broker in self._book.gone:
            return RingRefusal.BROKER_REMOVED
        if sender.broker == self._me.broker:
            return None if sender.is_same(self._me) else RingRefusal.DUPLICATE_BROKER
        known = self._book.entry(sender.broker)
        if known is None or known.is_silent or known.node.is_same(sender):
            return None
        since = self._doubted.get(sender.broker, now)
        # As many as are in the book at most.
        self._doubted = {one: at for one, at in self._doubted.items() if self._book.entry(one)}
        self._doubted[sender.broker] = since
        return RingRefusal.DUPLICATE_BROKER if known.heard_at > since else RingRefusal.ASK_AGAIN
