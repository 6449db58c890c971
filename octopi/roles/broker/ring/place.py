"""The place of one broker on the ring: the clock, disk and connections around `Chord`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import NotReadyError, OctopiError
from octopi.identifiers import RingPoint
from octopi.logger import get_logger
from octopi.ring.chord import Chord
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
from octopi.ring.lookup import HolderFound
from octopi.roles.broker.ring.description import refusal_of
from octopi.roles.broker.ring.lookups import AwaitedLookups
from octopi.roles.broker.ring.peers import RingPeers
from octopi.roles.broker.ring.store import KeptRing
from octopi.roles.noted_events import NotedEvents
from octopi.wire import messages as m

_log = get_logger(__name__)


class RingPlace:
    """The place of this broker, once it has one."""

    def __init__(
        self,
        environment: Environment,
        peers: RingPeers,
        kept: KeptRing,
        fail: Callable[[OctopiError], None],
        moved: Callable[[], None],
        events: NotedEvents,
    ) -> None:
        """*fail* is told if the others refuse this broker for good.  *moved*: `tick` may have
        something to do earlier."""
        self.chord: Chord | None = None
        """None: the broker has no place on the ring yet."""
        self.entered = trio.Event()
        """Set when this broker is a member of the ring."""
        self._environment = environment
        self._peers = peers
        self._kept = kept
        self._fail = fail
        self._moved = moved
        self._events = events
        self._first: m.RingNode | None = None
        """The first successor."""
        self.refused_joins = 0
        """How often this broker let another one not in."""
        self._lookups = AwaitedLookups()

    @property
    def wakes_at(self) -> float:
        """When `tick` has something to do."""
        return inf if self.chord is None else self.chord.wakes_at

    def tick(self, now: float) -> None:
        """Time has passed."""
        if self.chord is not None and self.chord.wakes_at <= now:
            self._perform(self.chord.tick(now))

    def join(
        self, me: m.RingNode, known: Iterable[m.RingNode], addresses: Sequence[str], *, begins: bool
    ) -> None:
        """Join as *me*, by any of *addresses*; see `Chord.join`."""
        self.chord = Chord(me, self._environment.randomness.random, known)
        self._perform(self.chord.join(addresses, self._environment.clock.now(), begins=begins))

    def leave(self) -> None:
        """Leave for good."""
        if self.chord is not None:
            self._perform(self.chord.leave())

    def receive(self, message: m.RingMessage, answer: Callable[[object], None]) -> None:
        """Another broker asks or tells something.

        Raises:
          NotReadyError: if this broker has no place yet.
        """
        if self.chord is None:
            raise NotReadyError("this broker has no place on the ring yet")
        effects = self.chord.receive(message, self._environment.clock.now())
        if isinstance(message, m.Meet):
            refusals = [one for one in effects if isinstance(one, AnswerNode)]
            self.refused_joins += any(isinstance(one.answer, m.RingRefused) for one in refusals)
        self._perform(effects, answer)

    async def locate(self, key: RingPoint) -> HolderFound:
        """The holder of *key*; this broker has a place.

        Raises:
          NotReadyError: if it is not found.
        """
        chord = self.chord
        assert chord is not None, "a member has a place"
        return await self._lookups.look_up(
            lambda number: self._perform(chord.look_up(number, key, self._environment.clock.now()))
        )

    def _perform(
        self, effects: list[RingEffect], answer: Callable[[object], None] = lambda message: None
    ) -> None:
        """Do what the machine says.  *answer* answers the message that led to it."""
        self._note_lost()
        for place, effect in enumerate(effects):
            match effect:
                case SendToNode(node, message) if isinstance(message, m.Leave):
                    self._peers.post(node.address, message)
                case SendToNode(m.RingNode(address=address), message) | SendToAddress(
                    address, message
                ):
                    assert not isinstance(message, m.Leave)
                    take = partial(self._answered, message.request)
                    self._peers.ask(address, message, take)
                case AnswerNode(told):
                    answer(told)
                case StoreBook():
                    self._kept.store_then(partial(self._perform, effects[place + 1 :], answer))
                    break
                case EnterRing():
                    self._enter()
                case RefuseJoining(why):
                    self._fail(refusal_of(why))
                case ConcludeLookup(number, outcome):
                    self._lookups.conclude(number, outcome)
        self._moved()

    def _note_lost(self) -> None:
        """The broker that stands before one that is gone is the one that notices it first."""
        chord = self.chord
        if chord is None:
            return
        former, self._first = self._first, chord.neighbours.first
        is_first = self._first is not None and former is not None and self._first.is_same(former)
        if former is not None and not is_first and chord.book.is_silent(former):
            why = f"broker {chord.me.broker}, which stands before it on the ring, got no answer"
            self._events.left(former.broker, why)

    def _enter(self) -> None:
        assert self.chord is not None
        me = self.chord.me
        self._events.joined(me.broker, me.incarnation, me.address)
        _log.info("in the ring", broker=self.chord.me.broker)
        self.entered.set()
        if not self._kept.content.was_member:
            self._kept.content = attrs.evolve(self._kept.content, was_member=True)
            self._kept.store_then()

    def _answered(self, request: int, answer: object) -> None:
        """A question on the ring was answered, or not."""
        assert self.chord is not None
        now = self._environment.clock.now()
        if isinstance(answer, m.RingAnswer):
            self._perform(self.chord.receive(answer, now))
        else:
            self._perform(self.chord.failed(request, now))
