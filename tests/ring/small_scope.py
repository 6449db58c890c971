"""Every rule of the ring from every state of a small scope, with the machines of the product.

A state says for each of a few brokers whether it is a member, and its list of successors.  All
states that satisfy Zave's invariant are gone through, whether or not they can be reached, and
every step from each of them has to keep it:

- each member has a live broker in its list;
- at least r + 1 members are *principal*: no member's list skips them (r: the length of the lists).

Steps that need answers of others are made as one, since what is answered is true at that moment.
A step is made only if the proof's assumptions hold for it: a broker dies only if each list keeps a
live entry, and it leaves only if those who know nobody else hear it; r + 1 members stay principal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import combinations, pairwise, product

import attrs

from octopi.ring.chord import Chord
from octopi.ring.effects import AnswerNode, RingEffect, SendToAddress, SendToNode
from octopi.ring.neighbours import RingNeighbours
from octopi.wire.ring import Leave, Probe, RingMessage, RingNode, Stabilise
from tests.ring.nodes import node

Lists = dict[int, tuple[int, ...]]
"""The successors of each member."""


@attrs.frozen
class Explored:
    """What came of a search."""

    fault: str
    """Empty: each step from each state keeps the invariant."""
    states: int
    steps: int


def is_inside(low: int, item: int, high: int) -> bool:
    """Whether *item* is passed on the way from *low* to *high*."""
    if low < high:
        return low < item < high
    return item not in {low, high} and (low < item or item < high)


@cache
def skipped(member: int, behind: tuple[int, ...]) -> frozenset[int]:
    """The brokers that a list skips."""
    steps = pairwise((member, *behind))
    return frozenset(one for low, high in steps for one in range(1, 9) if is_inside(low, one, high))


def principals(lists: Lists) -> set[int]:
    """The members that no member's list skips."""
    return set(lists).difference(*(skipped(*one) for one in lists.items()))


def fault_of(lists: Lists, count_max: int) -> str:
    """Why *lists* don't satisfy the invariant; empty if they do."""
    for member, behind in lists.items():
        if not any(one in lists for one in behind):
            return f"{member} has no live successor"
    if len(principals(lists)) <= count_max:
        return "too few members are principal"
    return ""


class Scope:
    """A search through *count* brokers with lists of *count_max*."""

    def __init__(
        self,
        count: int,
        count_max: int,
        *,
        least: int = 1,
        make: Callable[..., Chord] = Chord,
    ) -> None:
        """*least*: the shortest lists; *make*: makes the machines."""
        # Ids begin at 1; points are the ids.
        self._numbers = range(1, count + 1)
        self._count_max = count_max
        self._least = least
        self._make = make
        self._nodes = {number: node(number) for number in self._numbers}
        self._addresses = {one.address: number for number, one in self._nodes.items()}
        self._made: dict[object, tuple[int, ...]] = {}

    def run(self) -> Explored:
        states = steps = 0
        for lists in self.states():
            states += 1
            for label, after in self._steps(lists):
                steps += 1
                if fault := fault_of(after, self._count_max):
                    return Explored(f"{fault} after {label} in {lists}", states, steps)
        return Explored("", states, steps)

    def states(self) -> Iterator[Lists]:
        """All states that satisfy the invariant."""
        ways = {number: self._ways(number) for number in self._numbers}
        for size in range(self._count_max + 1, len(self._numbers) + 1):
            for members in combinations(self._numbers, size):
                for chosen in product(*(ways[one] for one in members)):
                    lists = dict(zip(members, chosen, strict=True))
                    if not fault_of(lists, self._count_max):
                        yield lists

    def _ways(self, number: int) -> list[tuple[int, ...]]:
        sizes = range(self._least, self._count_max + 1)
        return [way for size in sizes for way in combinations(self._others(number), size)]

    def _others(self, number: int) -> list[int]:
        """All other brokers, in the order in which they come behind *number*."""
        return [*range(number + 1, self._numbers.stop), *range(1, number)]

    def _steps(self, lists: Lists) -> Iterator[tuple[str, Lists]]:
        for member, behind in lists.items():
            after = self._stabilised(lists, member)
            yield f"{member} stabilises", after
            for other in lists:
                if is_inside(member, other, behind[0]):
                    yield f"{member} learns of {other}", self._learned(lists, member, other)
            for other in self._numbers:
                if other not in lists and is_inside(member, other, behind[0]):
                    yield f"{other} joins by {member}", self._joined(lists, member, other)
            yield from self._ended(lists, member)

    def _ended(self, lists: Lists, member: int) -> Iterator[tuple[str, Lists]]:
        without = {one: way for one, way in lists.items() if one != member}
        may_die = not fault_of(without, self._count_max)
        if may_die:
            yield f"{member} dies", without
        # Who knows nobody but the one that leaves hears it from that.
        others = principals(lists) - {member}
        if may_die or (
            len(others) > self._count_max
            and all(
                way == (member,) or any(one in without for one in way) for way in without.values()
            )
        ):
            told = dict(without)
            for other, way in without.items():
                if way[0] == member:
                    told |= self._told_of_leave(lists, member, other)
            yield f"{member} leaves", told

    # --- the machines --------------------------------------------------------------------

    def _chord(self, number: int, behind: Sequence[int] | None = None) -> Chord:
        """A member with the list *behind*; None: one that comes back with its book."""
        known = [self._nodes[one] for one in self._others(number)] if behind is None else []
        chord = self._make(
            self._nodes[number],
            lambda: 0.0,
            known,
            book_count_max=len(self._numbers),
            successors_max=self._count_max,
        )
        if behind is not None:
            chord.is_member = True
            chord._stabilise_at = 0.0
            chord.neighbours = RingNeighbours(
                self._nodes[number],
                successors=tuple(self._nodes[one] for one in behind),
                count_max=self._count_max,
            )
        return chord

    def _way_of(self, chord: Chord) -> tuple[int, ...]:
        chord.check_invariants()
        return tuple(int(one.broker) for one in chord.neighbours.successors)

    def _exchange(
        self, chord: Chord, effects: Sequence[RingEffect], lists: Lists, kind: type[RingMessage]
    ) -> None:
        """Have the members answer the first message of *kind* in *effects*; the dead refuse it."""
        for effect in effects:
            match effect:
                case SendToNode(RingNode(broker=broker), message) if isinstance(message, kind):
                    target = int(broker)
                case SendToAddress(address, message) if isinstance(message, kind):
                    target = self._addresses[address]
                case _:
                    continue
            assert not isinstance(message, Leave)
            if target not in lists:
                self._rest = chord.failed(message.request, 0.0)
                return
            for answer in self._chord(target, lists[target]).receive(message, 0.0):
                if isinstance(answer, AnswerNode):
                    self._rest = chord.receive(answer.answer, 0.0)
            return

    def _once(self, make: Callable[..., tuple[int, ...]], *arguments: object) -> tuple[int, ...]:
        """What *make* makes of *arguments*; the machines run once for each."""
        key = (make.__name__, arguments)
        if key not in self._made:
            self._made[key] = make(*arguments)
        return self._made[key]

    def _stabilised(self, lists: Lists, member: int) -> Lists:
        way, first = lists[member], lists[member][0]
        return lists | {member: self._once(self._stabilise, member, way, lists.get(first))}

    def _stabilise(
        self, member: int, way: tuple[int, ...], firsts: tuple[int, ...] | None
    ) -> tuple[int, ...]:
        chord = self._chord(member, way)
        others = {way[0]: firsts} if firsts is not None else {}
        self._exchange(chord, chord.tick(0.0), others, Stabilise)
        return self._way_of(chord)

    def _learned(self, lists: Lists, member: int, other: int) -> Lists:
        arguments = (member, lists[member], other, lists[other])
        return lists | {member: self._once(self._learn, *arguments)}

    def _learn(
        self, member: int, way: tuple[int, ...], other: int, others: tuple[int, ...]
    ) -> tuple[int, ...]:
        chord = self._chord(member, way)
        chord.book.hear_names([self._nodes[other]])
        self._exchange(chord, chord.tick(0.0), {other: others}, Probe)
        return self._way_of(chord)

    def _joined(self, lists: Lists, member: int, other: int) -> Lists:
        return lists | {other: self._once(self._join, other, member, lists[member])}

    def _join(self, other: int, member: int, way: tuple[int, ...]) -> tuple[int, ...]:
        chord = self._chord(other)
        effects = chord.join([self._nodes[member].address], 0.0, begins=False)
        while not chord.is_member:
            kind = type(effects[-1].message)  # type: ignore[union-attr]
            self._exchange(chord, effects, {member: way}, kind)
            effects = self._rest
        return self._way_of(chord)

    def _told_of_leave(self, lists: Lists, member: int, other: int) -> Lists:
        return {other: self._once(self._leave, member, lists[member], other, lists[other])}

    def _leave(
        self, member: int, way: tuple[int, ...], other: int, others: tuple[int, ...]
    ) -> tuple[int, ...]:
        leaver = self._chord(member, way)
        leaver.neighbours = leaver.neighbours.preceded_by(self._nodes[other])
        leave = next(
            one.message
            for one in leaver.leave()
            if isinstance(one, SendToNode) and one.node.broker == other
        )
        chord = self._chord(other, others)
        chord.receive(leave, 0.0)
        return self._way_of(chord)
