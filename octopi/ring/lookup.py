"""Looking for the broker that holds a key, step by step, by whoever wants to know.

Each step asks one broker.  One before the key names brokers nearer to it; the last one before the
key names the holder.  The holder is then asked as well, so what is found is alive.  A broker that
doesn't answer is skipped.  What is found may be wrong while brokers come and go: who uses it has to
be told by the holder itself what it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import dropwhile
from typing import TypeAlias

import attrs

from octopi.identifiers import RingPoint
from octopi.limits import LOOKUP_STEPS_MAX
from octopi.ring.nodes import key_place
from octopi.ring.points import RING_SIZE, distance, is_between
from octopi.wire.agreement import AcceptorId
from octopi.wire.ring import HolderAnswer, RingNode


@attrs.frozen
class HolderFound:
    """A live broker that is taken for the holder."""

    holder: RingNode
    successors: tuple[RingNode, ...]
    """Those behind the holder; they may be dead."""
    predecessor: RingNode | None
    """The broker that stands before the key; None: the holder does not know."""
    steps: int
    """Brokers that were asked."""


@attrs.frozen
class HolderNotFound:
    """Nobody that is known leads to the key, or not within the allowed steps and time."""

    why: str


LookupOutcome: TypeAlias = HolderFound | HolderNotFound


class Lookup:
    """Looks for the holder of a key.  It has no clock: whoever asks ends it in time."""

    def __init__(
        self,
        me: RingNode,
        key: RingPoint,
        others: Iterable[RingNode] = (),
        *,
        for_predecessor: bool = False,
    ) -> None:
        """*others* are asked, in this order, when nobody that was named is left.
        *for_predecessor*: the broker that stands before the key is wanted, and is what has to
        answer; the holder may be dead."""
        self.key = key
        self.outcome: LookupOutcome | None = None
        self._me = me
        self._others = iter(others)
        self._for_predecessor = for_predecessor
        self._candidates: dict[AcceptorId, RingNode] = {}
        """Not asked yet."""
        self._asked: set[AcceptorId] = {me.identity}
        self._silent: set[AcceptorId] = set()
        self._holders: list[RingNode] = []
        """Who holds the key, if it is alive; otherwise the next one does."""
        self._predecessor: RingNode | None = None
        self._before: list[tuple[RingNode, tuple[RingNode, ...]]] = []
        """The brokers before the key that have answered, with their successors, the nearest to the
        key last."""
        self._steps = 0

    def start_at(self, nodes: Iterable[RingNode]) -> None:
        """*nodes* may know the way."""
        for node in nodes:
            if node.identity not in self._asked:
                self._candidates[node.identity] = node

    def next(self) -> RingNode | None:
        """The broker to ask now; None: the look-up has an outcome."""
        if self.outcome is not None:
            return None
        if self._steps == LOOKUP_STEPS_MAX:
            self.outcome = HolderNotFound(f"{LOOKUP_STEPS_MAX} brokers were asked")
            return None
        if self._holders:
            node = self._holders[0]
            if node.is_same(self._me):
                self._found()
                return None
        elif self._candidates:
            node = min(self._candidates.values(), key=lambda one: way_to_key(one, self.key))
            del self._candidates[node.identity]
        else:
            left = (one for one in self._others if one.identity not in self._asked)
            if (other := next(left, None)) is None:
                self.outcome = HolderNotFound("nobody that is known leads to it")
                return None
            node = other
        self._asked.add(node.identity)
        self._steps += 1
        return node

    def answered(self, node: RingNode, answer: HolderAnswer) -> None:
        """*node* was asked, and has answered.  What this broker itself takes for true is the first
        answer."""
        if self._holders:
            self._found()
        elif answer.holder is None:
            self.start_at(answer.nearer)
            self._before.append((node, answer.successors))
            self._before.sort(key=lambda one: way_to_key(one[0], self.key), reverse=True)
            self._skip_dead()
        elif not answer.holder.is_same(node):
            self._found_before(node, (answer.holder, *answer.successors))
        elif self._for_predecessor and answer.nearer:
            self.start_at(answer.nearer)
        else:
            self._predecessor = next(iter(answer.nearer), None)
            self._holders = [node, *answer.successors]
            if self._for_predecessor:  # it is alone
                self._predecessor = node
            self._found()

    def _found_before(self, node: RingNode, successors: Iterable[RingNode]) -> None:
        """*node* stands before the key, and the first of its *successors* that is alive is the
        holder."""
        known = list(successors)
        alive = [one for one in known if one.identity not in self._silent]
        self._predecessor, self._holders = node, alive
        if self._for_predecessor:
            self._holders = known
            self._found()

    def _skip_dead(self) -> None:
        """Somebody before the key has only dead brokers between itself and the key."""
        for node, successors in reversed(self._before):
            rest = list(dropwhile(lambda one: one.identity in self._silent, successors))
            if rest and is_between(node.place, key_place(self.key), rest[0].place):
                self._found_before(node, rest)
                return

    def _found(self) -> None:
        holder, *successors = self._holders
        self.outcome = HolderFound(holder, tuple(successors), self._predecessor, self._steps)

    def failed(self, node: RingNode) -> None:
        """*node* was asked, and does not answer."""
        self._silent.add(node.identity)
        self._holders = [one for one in self._holders if not one.is_same(node)]
        if not self._holders:
            self._skip_dead()


def way_to_key(node: RingNode, key: RingPoint) -> tuple[int, int]:
    """What nodes are sorted by, the nearest before *key* first.  A node at the key's own point
    stands behind the key, so it is a whole way from it."""
    return distance(node.point, key) or RING_SIZE, -node.broker
