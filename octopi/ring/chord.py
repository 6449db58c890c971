"""A broker of the ring: how it joins, keeps in touch with its neighbours, and finds others.

It does no I/O: calls are events with the time at which they happen, and results are lists of
effects in order.  The rules are those of P. Zave's corrected Chord (arXiv 1610.01140), and one
more, `learn`: a broker adopts any live broker between it and its first successor, wherever it heard
of it.  That repairs what the proof excludes: rings of few brokers, live brokers that were taken for
dead, and networks that were split.

====================================  ==============================================================
event                                 what happens
====================================  ==============================================================
every second                          the first successor is asked for its neighbours, which tells
                                      it, too, who takes itself for its predecessor
it answers                            its list is taken over; its predecessor, if it stands between,
                                      becomes the *candidate* and is asked
it does not answer, or refuses        it is dropped; the next one is asked
the address book has a live broker    it becomes the candidate and is asked
between this one and its successor
the candidate answers                 it becomes the first successor
a broker says that it precedes us     it becomes the predecessor, if there is none, if it stands
                                      behind it, or if that one does not answer
every 10 seconds                      a random broker of the book is asked whether it is there
a neighbour leaves                    its own neighbours become neighbours
====================================  ==============================================================
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, islice
from math import inf

from octopi.identifiers import BrokerId, RingPoint
from octopi.limits import (
    BOOK_COUNT,
    LOOKUP_TIMEOUT_S,
    NEARER_NODES,
    PROBE_S,
    RING_NEWS_COUNT,
    RING_SUCCESSORS,
    STABILISE_S,
)
from octopi.ring.address_book import AddressBook
from octopi.ring.effects import (
    AnswerNode,
    ConcludeLookup,
    EnterRing,
    RefuseJoining,
    RingEffect,
    SendToAddress,
    SendToNode,
    StoreBook,
)
from octopi.ring.join_check import JoinCheck
from octopi.ring.joining import Joining
from octopi.ring.lookup import HolderFound, HolderNotFound, Lookup, way_to_key
from octopi.ring.neighbours import RingNeighbours
from octopi.ring.nodes import key_place
from octopi.ring.points import RING_SIZE, distance
from octopi.ring.requests import (
    AskingCandidate,
    Awaited,
    CheckingPredecessor,
    LookingUp,
    Meeting,
    OpenLookup,
    OpenRequests,
    Probing,
    Stabilising,
)
from octopi.wire.ring import (
    FindHolder,
    HolderAnswer,
    Leave,
    Meet,
    Met,
    Neighbours,
    NodeNews,
    Probe,
    RingAnswer,
    RingMessage,
    RingNode,
    RingRefusal,
    RingRefused,
    Stabilise,
)


class Chord:
    """One broker of the ring.

    Invariant: it is a member, or has no neighbours.  A broker that was one before begins without
    any, too: what it knew may be so old that it would lead others astray.
    """

    def __init__(
        self,
        me: RingNode,
        draw: Callable[[], float],
        known: Iterable[RingNode] = (),
        *,
        book_count_max: int = BOOK_COUNT,
        successors_max: int = RING_SUCCESSORS,
    ) -> None:
        """*known*: the address book as it was stored.  *draw* gives random numbers from 0 to 1."""
        self.me = me
        self.book = AddressBook(me, book_count_max)
        self.book.hear_names(known)
        self._join_check = JoinCheck(me, self.book)
        self.neighbours = RingNeighbours(me, count_max=successors_max)
        self.is_member = False
        self._draw = draw
        self._joining: Joining | None = None
        self._requests = OpenRequests()
        self._lookups: list[OpenLookup] = []
        self._stabilise_at = inf
        self._probe_at = inf

    @property
    def candidate(self) -> RingNode | None:
        """The broker that is asked whether it lives, to become the first successor."""
        asked = self._requests.of(AskingCandidate)
        return asked[0].node if asked else None

    @property
    def wakes_at(self) -> float:
        """When `tick` has something to do; inf: never without another event."""
        times = [self._stabilise_at, self._probe_at, self._requests.wakes_at]
        times += [one.until for one in self._lookups]
        if self._joining is not None:
            times.append(self._joining.wakes_at)
        return min(times)

    # --- what happens --------------------------------------------------------------------

    def join(self, addresses: Collection[str], now: float, *, begins: bool) -> list[RingEffect]:
        """Join the ring by any of *addresses*.

        *begins*: if nobody who answers is a member, this broker begins a ring by itself, which the
        others find by their address books.  Only a founder of the cluster may do so, and a broker
        that was a member before: otherwise a wrong list of addresses makes a second cluster.
        """
        assert not self.is_member
        self._joining = Joining([one for one in addresses if one != self.me.address], begins)
        return self._meet_next(now)

    def leave(self) -> list[RingEffect]:
        """Leave the ring for good.  The neighbours close the gap at once."""
        view = self.neighbours
        self.neighbours = RingNeighbours(self.me, count_max=view.count_max)
        self.is_member = False
        self._joining = None
        self._requests.clear()
        self._lookups = [one for one in self._lookups if one.number is not None]
        self._stabilise_at = self._probe_at = inf
        message = Leave(self.me, view.predecessor, view.successors)
        told = {one.place: one for one in (view.predecessor, view.first) if one is not None}
        return [SendToNode(node, message) for node in told.values()]

    def remove_for_good(self, brokers: Collection[BrokerId]) -> None:
        """*brokers* are all that were removed from the cluster for good (`ClusterRecord.gone`).
        They are let in no more."""
        self.book.remove_for_good(brokers)

    def look_up(self, number: int, key: RingPoint, now: float) -> list[RingEffect]:
        """Look for the holder of *key*; the outcome has the *number*."""
        return self._begin_lookup(number, Lookup(self.me, key, self._before(key)), now)

    def tick(self, now: float) -> list[RingEffect]:
        """Time has passed."""
        effects: list[RingEffect] = []
        for one in [one for one in self._lookups if one.until <= now]:
            one.lookup.outcome = HolderNotFound(f"it took more than {LOOKUP_TIMEOUT_S:g} s")
            effects += self._go_on(one, now)
        for request in self._requests.late(now):
            effects += self.failed(request, now)
        if self._joining is not None and self._joining.wakes_at <= now:
            effects += self._meet_next(now)
        if self._stabilise_at <= now:
            self._stabilise_at = now + STABILISE_S
            effects += self._stabilise(now)
            effects += self._learn(now)
        if self._probe_at <= now:
            self._probe_at = now + PROBE_S
            effects += self._probe(now)
        return effects

    def failed(self, request: int, now: float) -> list[RingEffect]:
        """A request was not answered, or its connection was refused."""
        if (awaited := self._requests.take(request)) is None:
            return []
        if not isinstance(awaited, Meeting):
            self.book.hear_silence(awaited.node, now)
        match awaited:
            case Stabilising(node):
                return self._drop(node, now)
            case AskingCandidate():
                return self._learn(now)
            case CheckingPredecessor(node, other):
                known = self.neighbours.predecessor
                if known is not None and known.is_same(node):
                    self.neighbours = self.neighbours.preceded_by(other)
            case Meeting():
                return self._meet_next(now)
            case LookingUp(node, of) if of in self._lookups:
                of.lookup.failed(node)
                return self._go_on(of, now)
            case _:
                pass
        return []

    def receive(self, message: RingMessage, now: float) -> list[RingEffect]:
        """Handle *message*."""
        match message:
            case Meet():
                return self._meet(message, now)
            case Stabilise() | Probe():
                return self._tell_neighbours(message, now)
            case FindHolder():
                return [AnswerNode(self._holder(message.request, message.key))]
            case Leave():
                return self._left(message, now)
            case _:
                return self._answered(message, now)

    # --- what others ask -----------------------------------------------------------------

    def _meet(self, message: Meet, now: float) -> list[RingEffect]:
        sender = message.sender
        if sender is not None and (why := self._join_check.refusal(sender, now)) is not None:
            effects: list[RingEffect] = [AnswerNode(RingRefused(message.request, why))]
            known = self.book.entry(sender.broker)
            if known is not None and why is RingRefusal.ASK_AGAIN:
                effects += self._ask_alive(Probing(known.node), now)
            return effects
        self.book.hear_of(message.news, now)
        if sender is not None:
            self.book.hear(sender, now)
        met = Met(message.request, self.me, self.is_member, self.book.tell_all(now))
        return [StoreBook(), AnswerNode(met)]

    def _tell_neighbours(self, message: Stabilise | Probe, now: float) -> list[RingEffect]:
        sender = message.sender
        self.book.hear(sender, now)
        if isinstance(message, Stabilise):
            self.book.hear_of(message.news, now)
        if not self.is_member:
            return [AnswerNode(RingRefused(message.request, RingRefusal.NO_MEMBER))]
        effects = []
        if isinstance(message, Stabilise):
            effects = self._noticed(sender, now)
            effects += self._learn(now, [one.node for one in message.news])
        view = self.neighbours
        news = self.book.tell(sender, now, self._draw)
        told = Neighbours(message.request, self.me, view.predecessor, view.successors, news)
        return [AnswerNode(told), *effects]

    def _noticed(self, node: RingNode, now: float) -> list[RingEffect]:
        """*node* takes itself for the predecessor."""
        known = self.neighbours.predecessor
        if known is None or self.neighbours.is_preceded_by(node):
            self.neighbours = self.neighbours.preceded_by(node)
            return []
        if self._requests.of(CheckingPredecessor):
            return []
        return self._ask_alive(CheckingPredecessor(known, node), now)

    def _holder(self, request: int, key: RingPoint) -> HolderAnswer:
        """What this broker takes for true about *key*."""
        view = self.neighbours
        if self.is_member and view.holds(key):
            before = [view.predecessor] if view.predecessor and view.first else []
            return HolderAnswer(request, self.me, self.me, view.successors, tuple(before))
        if self.is_member and view.stands_before(key):
            return HolderAnswer(request, self.me, view.first, view.successors[1:], ())
        return HolderAnswer(request, self.me, None, view.successors, self._nearer(key))

    def _nearer(self, key: RingPoint) -> tuple[RingNode, ...]:
        known = islice(self.book.before(key_place(key)), NEARER_NODES)
        nodes = {one.node.broker: one.node for one in known}
        nodes |= {one.broker: one for one in self.neighbours.successors}
        own = way_to_key(self.me, key) if self.is_member else (RING_SIZE, 0)
        ways = sorted((way_to_key(one, key), number) for number, one in nodes.items())
        return tuple(nodes[number] for way, number in ways[:NEARER_NODES] if way < own)

    def _before(self, key: RingPoint) -> Iterator[RingNode]:
        """All that are known, those of the book first, the nearest before *key*."""
        book = (one.node for one in self.book.before(key_place(key)))
        return chain(book, reversed(self.neighbours.successors))

    def _left(self, message: Leave, now: float) -> list[RingEffect]:
        sender, view = message.sender, self.neighbours
        known = self.book.entry(sender.broker)
        since = known.node.incarnation if known and known.node.is_same(sender) else 0
        if since > sender.incarnation:
            return []  # it came late: the broker is back
        self.book.hear_silence(sender, now)
        self.book.hear_names(message.successors)
        if view.predecessor is not None and view.predecessor.is_same(sender):
            view = view.preceded_by(message.predecessor)
        if not any(one.is_same(sender) for one in view.successors):
            self.neighbours = view
            return []
        self.neighbours = view.without(sender, message.successors)
        return self._stabilise(now)

    # --- keeping in touch ----------------------------------------------------------------

    def _stabilise(self, now: float, former: RingNode | None = None) -> list[RingEffect]:
        """Ask the first successor.  *former*: the one until now, which it may not know."""
        first = self.neighbours.first
        if first is None or Stabilising(first) in self._requests.of(Stabilising):
            return []
        news = self.book.tell(first, now, self._draw)
        if former is not None:
            news = (NodeNews(former, round(1000 * STABILISE_S)), *news[: RING_NEWS_COUNT - 1])
        request = self._requests.add(Stabilising(first), now)
        return [SendToNode(first, Stabilise(request, self.me, news))]

    def _learn(self, now: float, named: Iterable[RingNode] = ()) -> list[RingEffect]:
        """Ask the next broker behind this one, of the book and those that were just *named*, if
        that is not the first successor."""
        if not self.is_member:
            return []
        known = [one for one in named if not self.book.is_silent(one)]
        if (next_one := self.book.next_before(self.neighbours.first)) is not None:
            known.append(next_one)
        adoptable = [one for one in known if self.neighbours.may_adopt(one)]
        if not adoptable:
            return []
        nearest = min(adoptable, key=lambda one: distance(self.me.point, one.point))
        return self._ask_candidate(nearest, now)

    def _ask_candidate(self, node: RingNode, now: float) -> list[RingEffect]:
        if self.candidate is not None or not self.neighbours.may_adopt(node):
            return []
        return self._ask_alive(AskingCandidate(node), now)

    def _probe(self, now: float) -> list[RingEffect]:
        node = self.book.any_node(self._draw)
        return self._ask_alive(Probing(node), now) if node is not None else []

    def _ask_alive(
        self, awaited: AskingCandidate | CheckingPredecessor | Probing, now: float
    ) -> list[RingEffect]:
        request = self._requests.add(awaited, now)
        return [SendToNode(awaited.node, Probe(request, self.me))]

    def _drop(self, node: RingNode, now: float) -> list[RingEffect]:
        """The first successor was asked and is dead."""
        first = self.neighbours.first
        if first is None or not first.is_same(node):
            return []
        self.neighbours = self.neighbours.without_first()
        return self._stabilise(now) or self._learn(now)

    # --- what is answered ----------------------------------------------------------------

    def _answered(self, message: RingAnswer, now: float) -> list[RingEffect]:
        awaited = self._requests.get(message.request)
        if awaited is None:
            return []  # it comes too late
        match awaited, message:
            case Meeting(), Met():
                self._requests.take(message.request)
                return self._has_met(message, now)
            case LookingUp(node, of), HolderAnswer() if message.node.is_same(node):
                self._requests.take(message.request)
                self.book.hear(message.node, now)
                self.book.hear_names(message.nearer)
                if of not in self._lookups:
                    return []
                of.lookup.answered(node, message)
                return self._go_on(of, now)
            case Meeting(), RingRefused(_, why):
                self._requests.take(message.request)
                return self._not_let_in(RingRefusal(why), now)
            case (
                Stabilising() | AskingCandidate() | CheckingPredecessor() | Probing(),
                Neighbours(),
            ) if message.node.is_same(awaited.node):
                self._requests.take(message.request)
                self.book.hear(message.node, now)
                self.book.hear_of(message.news, now)
                known = [*message.successors, message.predecessor]
                self.book.hear_names([one for one in known if one is not None])
                return self._alive(awaited, message, now)
            case _, Neighbours() | HolderAnswer():  # another broker may have its address now
                self.book.hear(message.node, now)
        return self.failed(message.request, now)

    def _alive(self, awaited: Awaited, message: Neighbours, now: float) -> list[RingEffect]:
        view, node = self.neighbours, message.node
        named = [one.node for one in message.news]
        match awaited:
            case Stabilising():
                if view.first is not None and view.first.is_same(node):
                    self.neighbours = view.led_by(node, message.successors)
                    if message.predecessor is not None:
                        return self._ask_candidate(message.predecessor, now)
            case AskingCandidate():
                if self.is_member and view.may_adopt(node):
                    self.neighbours = view.led_by(node, message.successors)
                    return [*self._stabilise(now, view.first), *self._learn(now, named)]
            case Probing():
                return self._learn(now, [*named, *message.successors])
            case _:
                pass
        return []

    # --- joining -------------------------------------------------------------------------

    def _meet_next(self, now: float) -> list[RingEffect]:
        joining = self._joining
        assert joining is not None
        known = [one.node.address for one in self.book if not one.is_silent]
        address = joining.next(known, now, self._draw)
        if address is None:
            return self._enter(self.neighbours, now) if joining.may_begin else []
        request = self._requests.add(Meeting(address), now)
        return [SendToAddress(address, Meet(request, self.me, self.book.tell_all(now)))]

    def _has_met(self, message: Met, now: float) -> list[RingEffect]:
        self.book.hear_of(message.news, now)
        self.book.hear(message.node, now)
        if not message.is_member:
            return [StoreBook(), *self._meet_next(now)]
        others = self._before(self.me.point)
        lookup = Lookup(self.me, self.me.point, others, for_predecessor=True)
        return [StoreBook(), *self._begin_lookup(None, lookup, now)]

    def _not_let_in(self, why: RingRefusal, now: float) -> list[RingEffect]:
        assert self._joining is not None
        if why in {RingRefusal.DUPLICATE_BROKER, RingRefusal.BROKER_REMOVED}:
            self._joining = None
            return [RefuseJoining(why)]
        self._joining.found_others = True
        return self._meet_next(now)

    def _located(self, outcome: HolderFound | HolderNotFound, now: float) -> list[RingEffect]:
        if not isinstance(outcome, HolderFound) or outcome.predecessor is None:
            return self._meet_next(now)
        successors = (outcome.holder, *outcome.successors)
        return self._enter(self.neighbours.joined_behind(outcome.predecessor, successors), now)

    def _enter(self, neighbours: RingNeighbours, now: float) -> list[RingEffect]:
        self._joining = None
        self.is_member = True
        self.neighbours = neighbours
        self._stabilise_at = now + STABILISE_S
        self._probe_at = now + PROBE_S * self._draw()
        return [EnterRing(), *self._stabilise(now), *self._learn(now)]

    # --- looking up ----------------------------------------------------------------------

    def _begin_lookup(self, number: int | None, lookup: Lookup, now: float) -> list[RingEffect]:
        lookup.answered(self.me, self._holder(0, lookup.key))
        opened = OpenLookup(lookup, number, now + LOOKUP_TIMEOUT_S)
        self._lookups.append(opened)
        return self._go_on(opened, now)

    def _go_on(self, opened: OpenLookup, now: float) -> list[RingEffect]:
        lookup = opened.lookup
        if (node := lookup.next()) is not None:
            request = self._requests.add(LookingUp(node, opened), now)
            return [SendToNode(node, FindHolder(request, lookup.key))]
        self._lookups.remove(opened)
        assert lookup.outcome is not None
        if opened.number is None:
            return self._located(lookup.outcome, now)
        return [ConcludeLookup(opened.number, lookup.outcome)]

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        self.neighbours.check_invariants()
        self.book.check_invariants()
        assert self.is_member or self.neighbours == RingNeighbours(
            self.me, count_max=self.neighbours.count_max
        )
        assert len(self._requests.of(AskingCandidate)) <= 1
        assert len(self._requests.of(CheckingPredecessor)) <= 1
        assert len(self._requests.of(Meeting)) <= 1
