"""The neighbours of a broker on the ring, and the rules by which they change: Zave's, and `learn`.

Each method is one rule and tells the next state.  Whether somebody is alive, and what it answers,
is found out by `octopi.ring.chord`.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from octopi.identifiers import RingPoint
from octopi.limits import RING_SUCCESSORS
from octopi.ring.nodes import key_place
from octopi.ring.points import is_between
from octopi.wire.ring import RingNode


@attrs.frozen
class RingNeighbours:
    """Whom a broker takes for its neighbours.

    Invariant: the successors are different, in the order in which they come behind `me`, and `me`
    is not among them.
    """

    me: RingNode
    predecessor: RingNode | None = None
    successors: tuple[RingNode, ...] = ()
    """Empty: it knows nobody alive."""
    count_max: int = RING_SUCCESSORS

    @property
    def first(self) -> RingNode | None:
        """The first successor."""
        return self.successors[0] if self.successors else None

    def may_adopt(self, node: RingNode) -> bool:
        """Whether *node* stands between this broker and its first successor, so it becomes that,
        if it is alive."""
        if node.broker == self.me.broker:
            return False
        return self.first is None or is_between(self.me.place, node.place, self.first.place)

    def led_by(self, first: RingNode, behind: Iterable[RingNode]) -> RingNeighbours:
        """*first* is alive, and has answered that *behind* are its successors."""
        return attrs.evolve(self, successors=self._cut((first, *behind)))

    def without_first(self) -> RingNeighbours:
        """The first successor is dead.  The list gets shorter, until the next one answers with
        its own."""
        return attrs.evolve(self, successors=self.successors[1:])

    def without(self, node: RingNode, behind: Iterable[RingNode]) -> RingNeighbours:
        """*node* has left the ring, and had the successors *behind*.

        These count only if this broker knows nobody else: their list may skip a broker that this
        one knows, and which nobody skips any more when *node* has gone.
        """
        left = [one for one in self.successors if not one.is_same(node)]
        others = [one for one in behind if one.broker != self.me.broker]
        return attrs.evolve(self, successors=self._cut(left or others))

    def joined_behind(
        self, predecessor: RingNode, successors: Iterable[RingNode]
    ) -> RingNeighbours:
        """This broker joins between *predecessor* and the first of *successors*, which are the
        predecessor's."""
        # This broker's former incarnation may still be among them.
        others = [one for one in successors if one.broker != self.me.broker]
        joined = attrs.evolve(self, successors=self._cut(others or [predecessor]))
        return attrs.evolve(joined, predecessor=predecessor)

    def is_preceded_by(self, node: RingNode) -> bool:
        """Whether *node*, which takes itself for the predecessor, is known as that, or becomes it
        in any case.  Otherwise it becomes it if the known one is dead."""
        known = self.predecessor
        return (
            known is None
            or known.is_same(node)
            or is_between(known.place, node.place, self.me.place)
        )

    def preceded_by(self, node: RingNode | None) -> RingNeighbours:
        """*node* is the predecessor; None: nobody is known to be."""
        if node is not None and node.broker == self.me.broker:
            node = None
        return attrs.evolve(self, predecessor=node)

    def holds(self, key: RingPoint) -> bool:
        """Whether this broker takes itself for the holder of *key*."""
        if self.first is None:
            return True
        return self.predecessor is not None and is_between(
            self.predecessor.place, key_place(key), self.me.place
        )

    def stands_before(self, key: RingPoint) -> bool:
        """Whether the first successor is the holder of *key*."""
        return self.first is not None and is_between(
            self.me.place, key_place(key), self.first.place
        )

    def _cut(self, nodes: Iterable[RingNode]) -> tuple[RingNode, ...]:
        """As many of *nodes* as go once around, and no more than are kept."""
        kept: list[RingNode] = []
        for node in nodes:
            last = kept[-1] if kept else self.me
            if node.broker == self.me.broker or len(kept) == self.count_max:
                break
            if not is_between(last.place, node.place, self.me.place):
                break
            kept.append(node)
        return tuple(kept)

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert self._cut(self.successors) == self.successors
        assert self.predecessor is None or self.predecessor.broker != self.me.broker
