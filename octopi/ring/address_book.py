"""The brokers of the ring that a broker remembers, and when they were heard.

Up to `BOOK_COUNT` brokers, everybody remembers everybody.  Beyond that, a book keeps brokers at all
distances: each class of distances is twice as wide as the one before, and what is dropped belongs
to the fullest class.  So a look-up halves its way with each step.

Brokers that don't answer stay in the book, because a network that is split makes the whole other
side silent.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from math import inf

import attrs

from octopi.identifiers import BrokerId
from octopi.limits import BOOK_COUNT, BOOK_DROPPED_SHARE, BOOK_SILENT_SHARE, RING_NEWS_COUNT
from octopi.ring.points import distance, is_between
from octopi.wire.ring import NodeNews, RingNode


@attrs.frozen
class BookEntry:
    """What is known of a broker.  Times are those of this broker's clock."""

    node: RingNode
    heard_at: float
    """When it was heard last, by this broker or by one that told it; -inf: it was only named."""
    silent_at: float = -inf
    """When it did not answer last."""

    @property
    def is_silent(self) -> bool:
        """Whether it was not heard since it did not answer."""
        return self.silent_at > self.heard_at


class AddressBook:
    """The address book of one broker, which is not in it.

    Invariant: it has at most *count_max* entries, one for each broker.
    """

    def __init__(self, me: RingNode, count_max: int = BOOK_COUNT) -> None:
        self._me = me
        self._count_max = count_max
        self._entries: dict[BrokerId, BookEntry] = {}
        """Those that changed last come last."""
        self._places: list[tuple[int, int]] = []
        """Of all entries, in the order of the ring: point and broker."""
        self.gone: frozenset[BrokerId] = frozenset()
        """Brokers that were removed from the cluster for good: no news brings them back."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[BookEntry]:
        return iter(self._entries.values())

    def nodes(self) -> tuple[RingNode, ...]:
        """All brokers, in the order of the ring."""
        return tuple(self._entries[BrokerId(broker)].node for _, broker in self._places)

    def entry(self, broker: BrokerId) -> BookEntry | None:
        """What is known of *broker*."""
        return self._entries.get(broker)

    # --- what is heard -------------------------------------------------------------------

    def hear(self, node: RingNode, now: float) -> None:
        """*node* itself was heard, so it is what its broker is now."""
        known = self._entries.get(node.broker)
        if known is not None and not known.is_silent and known.node == node:
            self._entries[node.broker] = attrs.evolve(known, heard_at=now)
        else:
            self._enter(BookEntry(node, now))

    def hear_of(self, news: Iterable[NodeNews], now: float) -> None:
        """Another broker told its *news*."""
        for one in news:
            heard_at = now - one.age_ms / 1000
            if not one.is_silent:
                self._hear_of(one.node, heard_at)
            elif one.node.broker not in self._entries:
                self._enter(BookEntry(one.node, heard_at, silent_at=now))

    def hear_names(self, nodes: Iterable[RingNode]) -> None:
        """*nodes* were named, as somebody's neighbours: they may be dead for some time."""
        for node in nodes:
            self._hear_of(node, -inf)

    def _hear_of(self, node: RingNode, heard_at: float) -> None:
        known = self._entries.get(node.broker)
        if known is None:
            self._enter(BookEntry(node, heard_at))
        elif not known.node.is_same(node):
            # Each directory counts its own incarnations, so the time decides, and only if the
            # known one is gone.
            if known.silent_at < heard_at and known.is_silent:
                self._enter(BookEntry(node, heard_at))
        elif node.incarnation > known.node.incarnation:
            heard_at = max(heard_at, known.heard_at)
            self._enter(BookEntry(node, heard_at, known.silent_at))
        elif heard_at > known.heard_at:
            after = attrs.evolve(known, heard_at=heard_at)
            if known.is_silent and not after.is_silent:
                self._enter(after)
            else:
                self._entries[node.broker] = after

    def hear_silence(self, node: RingNode, now: float) -> None:
        """*node* did not answer, or is no member of the ring."""
        known = self._entries.get(node.broker)
        if known is not None and known.node.is_same(node):
            self._entries[node.broker] = attrs.evolve(known, silent_at=now)

    def remove_for_good(self, brokers: Collection[BrokerId]) -> None:
        """*brokers* are all that were removed from the cluster for good."""
        self.gone = frozenset(brokers)
        self._drop(self.gone)

    def _drop(self, brokers: Iterable[BrokerId]) -> None:
        for broker in brokers:
            if (known := self._entries.pop(broker, None)) is not None:
                self._places.remove(known.node.place)

    def _enter(self, entry: BookEntry) -> None:
        """Enter what has changed."""
        broker = entry.node.broker
        if broker == self._me.broker or broker in self.gone:
            return
        self._drop([broker])
        self._entries[broker] = entry
        insort(self._places, entry.node.place)
        if len(self._entries) > self._count_max:
            self._drop(self._least_useful(max(1, self._count_max // BOOK_DROPPED_SHARE)))

    def _least_useful(self, count: int) -> list[BrokerId]:
        """So many entries to drop."""
        silent = [one for one in self._entries.values() if one.is_silent]
        silent.sort(key=lambda one: one.heard_at)
        kept = self._count_max // BOOK_SILENT_SHARE
        dropped = silent[: min(count, max(0, len(silent) - kept))]
        classes: dict[int, list[BookEntry]] = {}
        for one in sorted(self._entries.values(), key=lambda one: -one.heard_at):
            if not one.is_silent:
                classes.setdefault(self._class(one), []).append(one)
        while len(dropped) < count:
            # Of two equal classes the nearer one: the successors are near already.
            fullest = max(classes, key=lambda number: (len(classes[number]), -number))
            dropped.append(classes[fullest].pop())
        return [one.node.broker for one in dropped]

    def _class(self, entry: BookEntry) -> int:
        return distance(self._me.point, entry.node.point).bit_length()

    # --- what is read --------------------------------------------------------------------

    def behind(self, place: tuple[int, int]) -> Iterator[BookEntry]:
        """The entries in the order in which they come behind *place*, once around, without those
        that don't answer.  The book may change meanwhile."""
        start = bisect_right(self._places, place)
        yield from self._live((*self._places[start:], *self._places[:start]))

    def before(self, place: tuple[int, int]) -> Iterator[BookEntry]:
        """The same in the other direction."""
        start = bisect_left(self._places, place)
        yield from self._live((*self._places[:start][::-1], *self._places[start:][::-1]))

    def _live(self, places: Iterable[tuple[int, int]]) -> Iterator[BookEntry]:
        for _, broker in places:
            entry = self._entries.get(BrokerId(broker))
            if entry is not None and not entry.is_silent:
                yield entry

    def is_silent(self, node: RingNode) -> bool:
        """Whether *node* is known not to answer."""
        known = self._entries.get(node.broker)
        return known is not None and known.is_silent and known.node.is_same(node)

    def next_before(self, first: RingNode | None) -> RingNode | None:
        """The live broker that is next behind this one and before *first*, if there is one; None:
        before this one again."""
        end = self._me if first is None else first
        for entry in self.behind(self._me.place):
            between = is_between(self._me.place, entry.node.place, end.place)
            return entry.node if between else None
        return None

    def tell_all(self, now: float) -> tuple[NodeNews, ...]:
        """The whole book."""
        return tuple(_news(one, now) for one in self._entries.values() if _is_news(one))

    def tell(self, other: RingNode, now: float, draw: Callable[[], float]) -> tuple[NodeNews, ...]:
        """What to tell *other*: in equal parts those behind it on the ring, of which it has to know
        each; the latest news; and any entries, silent ones, too.  *draw* gives random numbers from
        0 to 1."""
        part = RING_NEWS_COUNT // 3
        behind = (one for one in self.behind(other.place) if _is_news(one))
        changed = (one for one in reversed(self._entries.values()) if not one.is_silent)
        latest = (one for one in changed if _is_news(one))
        told = {one.node.broker: one for one in (*islice(behind, part), *islice(latest, part))}
        for _ in range(RING_NEWS_COUNT - len(told)):
            if self._places and _is_news(one := self._any(draw)):
                told[one.node.broker] = one
        return tuple(_news(one, now) for one in told.values() if one.node.broker != other.broker)

    def any_node(self, draw: Callable[[], float]) -> RingNode | None:
        """A random broker, also one that did not answer."""
        return self._any(draw).node if self._places else None

    def _any(self, draw: Callable[[], float]) -> BookEntry:
        _, broker = self._places[int(draw() * len(self._places))]
        return self._entries[BrokerId(broker)]

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert len(self._entries) <= self._count_max
        assert self._me.broker not in self._entries
        assert self._places == sorted(one.node.place for one in self._entries.values())


def _is_news(entry: BookEntry) -> bool:
    return entry.heard_at > -inf


def _news(entry: BookEntry, now: float) -> NodeNews:
    age_ms = round(1000 * max(0.0, now - entry.heard_at))
    return NodeNews(entry.node, age_ms, entry.is_silent)
