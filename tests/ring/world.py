"""Brokers of a ring on virtual time, the network between them, and what must hold.

The network delays and loses messages, splits and heals.  Brokers die, and come back with their
address books.  The rules are checked by code of their own: sorted lists, and Zave's invariant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random

import attrs

from octopi.identifiers import DirectoryId, Incarnation, RingPoint
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
from octopi.ring.lookup import HolderFound, HolderNotFound
from octopi.ring.points import RING_SIZE
from octopi.wire.ring import Leave, RingAnswer, RingNode, RingRequest


class BrokenRule(AssertionError):
    """The machines did what they must not do."""


@attrs.define
class RingBroker:
    """One broker: a process, and the book on its disk."""

    node: RingNode
    chord: Chord
    alive: bool = True
    hangs: bool = False
    """Whether a dead one is silent; otherwise its machine refuses connections."""
    stored: list[RingNode] = attrs.field(factory=list)
    begins: bool = False
    """Whether it may begin a ring: a founder, or a former member."""
    refused: bool = False
    wakes_at: float = inf


@attrs.define
class Asked:
    """A look-up, and what came of it."""

    broker: int
    key: RingPoint
    outcome: HolderFound | HolderNotFound | None = None
    was_alive: bool = False
    """Whether what was found was alive when it was found."""
    wanted: int | None = None
    """The holder at that moment, by the sorted list."""
    counted: bool = False
    at: float = 0.0


class RingWorld:
    """A cluster of brokers on a ring."""

    def __init__(
        self,
        random: Random,
        *,
        book_count_max: int = 512,
        successors_max: int = 4,
        lost: float = 0.0,
        checks: bool = True,
        make: Callable[..., Chord] = Chord,
    ) -> None:
        """*lost*: the share of messages that get lost.  *checks*: the machines check themselves
        after each event."""
        self.random = random
        self.now = 0.0
        self.brokers: dict[int, RingBroker] = {}
        self.asked: list[Asked] = []
        self.sent: Counter[str] = Counter()
        self._make, self.lost = make, lost
        self._checks = checks
        self._book_count_max, self._successors_max = book_count_max, successors_max
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = count()
        self._sides: list[set[int]] = []

    # --- what may happen -----------------------------------------------------------------

    def start(
        self,
        broker: int,
        contacts: Iterable[int] = (),
        *,
        point: int | None = None,
        begins: bool = False,
        host: str = "",
    ) -> None:
        """Start a broker for the first time."""
        node = RingNode(
            broker,  # type: ignore[arg-type]
            DirectoryId(f"{broker:02x}"),
            RingPoint(broker if point is None else point),
            host,
            f"ws://b{broker}:9101",
            Incarnation(1),
        )
        self._run(node, [], contacts, begins=begins)

    def kill(self, broker: int, *, hangs: bool = False) -> None:
        """End a broker's process; *hangs*: its machine with it."""
        one = self.brokers[broker]
        one.alive, one.hangs = False, hangs

    def restart(self, broker: int, contacts: Iterable[int] = (), *, wiped: bool = False) -> None:
        """Start a broker again; *wiped*: with an empty disk, as another node with the same id."""
        one = self.brokers[broker]
        if wiped:
            directory = DirectoryId(one.node.directory + "x")
            self._run(attrs.evolve(one.node, directory=directory), [], contacts, begins=False)
            return
        node = attrs.evolve(one.node, incarnation=Incarnation(one.node.incarnation + 1))
        self._run(node, self.stored(one), contacts, begins=one.begins)

    def stored(self, one: RingBroker) -> list[RingNode]:
        """What a restarted broker knows."""
        return one.stored

    def leave(self, broker: int) -> None:
        """A broker leaves the ring, and ends."""
        one = self.brokers[broker]
        self._perform(one, one.chord.leave())
        one.alive = False

    def split(self, *sides: Iterable[int]) -> None:
        """Split the network: only brokers of the same side reach each other."""
        self._sides = [set(side) for side in sides]

    def heal(self) -> None:
        """The network is whole again."""
        self._sides = []

    def look_up(self, broker: int, key: int) -> Asked:
        """Have a broker look for the holder of *key*."""
        asked = Asked(broker, RingPoint(key))
        self.asked.append(asked)
        one = self.brokers[broker]
        number = len(self.asked) - 1
        self._perform(one, one.chord.look_up(number, asked.key, self.now))
        return asked

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now + seconds
        while self._queue and self._queue[0][0] <= until:
            self.now, _, action = heappop(self._queue)
            action()
        self.now = until

    def run_until(self, holds: Callable[[], bool], seconds: float) -> None:
        """Let time pass, event by event, until *holds* is true."""
        until = self.now + seconds
        while not holds():
            if not self._queue or self._queue[0][0] > until:
                raise BrokenRule(f"it does not come to it within {seconds:g} s")
            self.now, _, action = heappop(self._queue)
            action()

    def run_until_ideal(self, seconds: float) -> float:
        """Let time pass until the ring is as it should be; return how long that took."""
        began = self.now
        while fault := self.fault():
            if self.now > began + seconds:
                raise BrokenRule(f"the ring is not repaired after {seconds:g} s: {fault}")
            self.run(0.5)
        return self.now - began

    # --- what is done about it -----------------------------------------------------------

    def _run(
        self, node: RingNode, known: list[RingNode], contacts: Iterable[int], *, begins: bool
    ) -> None:
        chord = self._make(
            node,
            self.random.random,
            known,
            book_count_max=self._book_count_max,
            successors_max=self._successors_max,
        )
        one = RingBroker(node, chord, stored=known, begins=begins)
        self.brokers[node.broker] = one
        addresses = [f"ws://b{contact}:9101" for contact in contacts]
        self._perform(one, chord.join(addresses, self.now, begins=begins))

    def place(self, nodes: Sequence[RingNode]) -> None:
        """Begin with a ring of *nodes* as it should be, of which all know all."""
        ordered = sorted(nodes, key=lambda one: one.place)
        for number, node in enumerate(ordered):
            behind = [*ordered[number + 1 :], *ordered[:number]]
            self.resume(node, behind, behind[-1], ordered)

    def resume(
        self,
        node: RingNode,
        behind: Sequence[RingNode],
        predecessor: RingNode | None,
        known: Sequence[RingNode],
    ) -> None:
        """Have a broker be a member, with the successors *behind* and the book *known*."""
        chord = self._make(
            node,
            self.random.random,
            known,
            book_count_max=self._book_count_max,
            successors_max=self._successors_max,
        )
        view = chord.neighbours.preceded_by(predecessor)
        if behind:
            view = view.led_by(behind[0], behind[1:])
        one = RingBroker(node, chord, stored=list(known), begins=True)
        self.brokers[node.broker] = one
        effects = chord._enter(view, self.now)
        chord._stabilise_at = self.now + self.random.random()
        self._perform(one, effects)

    def _perform(self, one: RingBroker, effects: Iterable[RingEffect]) -> None:
        for effect in effects:
            match effect:
                case SendToNode(node, message):
                    self._send(one, node.address, message)
                case SendToAddress(address, message):
                    self._send(one, address, message)
                case StoreBook():
                    one.stored = [entry.node for entry in one.chord.book]
                case EnterRing():
                    one.begins = True
                case RefuseJoining():
                    one.refused = True
                case ConcludeLookup(number, outcome):
                    asked = self.asked[number]
                    asked.outcome = outcome
                    if isinstance(outcome, HolderFound):
                        asked.at = self.now
                        asked.was_alive = self._is_there(outcome.holder)
                        asked.wanted = self.holder(asked.key)
                case AnswerNode():
                    raise AssertionError("nobody asked")
        self._schedule(one)

    def _schedule(self, one: RingBroker) -> None:
        wakes_at = one.chord.wakes_at
        if wakes_at < one.wakes_at:
            one.wakes_at = wakes_at
            self._at(wakes_at, lambda: self._tick(one, wakes_at))

    def _tick(self, one: RingBroker, at: float) -> None:
        if one.wakes_at == at:
            one.wakes_at = inf
        if self._is_running(one):
            self._perform(one, one.chord.tick(self.now))
            self._check(one)

    def _at(self, time: float, action: Callable[[], None]) -> None:
        heappush(self._queue, (max(time, self.now), next(self._sequence), action))

    def _delay(self) -> float:
        return self.random.uniform(0.001, 0.02)

    def _send(self, sender: RingBroker, address: str, message: RingRequest | Leave) -> None:
        self.sent[type(message).__name__] += 1
        if self.random.random() < self.lost:
            return
        self._at(self.now + self._delay(), lambda: self._arrive(sender, address, message))

    def _arrive(self, sender: RingBroker, address: str, message: RingRequest | Leave) -> None:
        number = int(address.removeprefix("ws://b").removesuffix(":9101"))
        target = self.brokers.get(number)
        if not self._reaches(sender.node.broker, number):
            return
        if target is None or not target.alive:
            if (target is None or not target.hangs) and not isinstance(message, Leave):
                request = message.request
                self._at(self.now + self._delay(), lambda: self._refuse(sender, request))
            return
        answers = target.chord.receive(message, self.now)
        self._perform(target, [one for one in answers if not isinstance(one, AnswerNode)])
        self._check(target)
        for effect in answers:
            if isinstance(effect, AnswerNode):
                self._reply(target, sender, effect.answer)

    def _reply(self, target: RingBroker, asker: RingBroker, answer: RingAnswer) -> None:
        self.sent[type(answer).__name__] += 1
        if self.random.random() < self.lost:
            return

        def arrive() -> None:
            if self._is_running(asker) and self._reaches(target.node.broker, asker.node.broker):
                self._perform(asker, asker.chord.receive(answer, self.now))
                self._check(asker)

        self._at(self.now + self._delay(), arrive)

    def _refuse(self, asker: RingBroker, request: int) -> None:
        if self._is_running(asker):
            self._perform(asker, asker.chord.failed(request, self.now))
            self._check(asker)

    def _check(self, one: RingBroker) -> None:
        if self._checks:
            one.chord.check_invariants()

    def _is_running(self, one: RingBroker) -> bool:
        return one.alive and self.brokers[one.node.broker] is one

    def _is_there(self, node: RingNode) -> bool:
        one = self.brokers[node.broker]
        return one.alive and one.node.is_same(node)

    def _reaches(self, one: int, other: int) -> bool:
        return not self._sides or any({one, other} <= side for side in self._sides)

    # --- the rules -----------------------------------------------------------------------

    @property
    def members(self) -> list[RingBroker]:
        """Those that are alive and in the ring, in its order."""
        there = [one for one in self.brokers.values() if one.alive and one.chord.is_member]
        return sorted(there, key=lambda one: one.node.place)

    def fault(self) -> str:
        """Why the ring is not as it should be; empty if it is."""
        waiting = [one for one in self.brokers.values() if one.alive and not one.chord.is_member]
        if waiting:
            return f"not in the ring: {[one.node.broker for one in waiting]}"
        ring = self.members
        order = [one.node.broker for one in ring]
        for index, one in enumerate(ring):
            behind = [*order[index + 1 :], *order[:index]]
            view = one.chord.neighbours
            if [node.broker for node in view.successors] != behind[: self._successors_max]:
                return f"{order[index]} has {[node.broker for node in view.successors]}"
            if behind and (view.predecessor is None or view.predecessor.broker != behind[-1]):
                return f"{order[index]} has the predecessor {view.predecessor}"
        return ""

    def holder(self, key: int) -> int:
        """The holder of *key*, by the sorted list of all that are in the ring."""
        ring = self.members
        behind = [one for one in ring if one.node.point >= key]
        return (behind or ring)[0].node.broker


def spread(numbers: Iterable[int], of: int) -> dict[int, int]:
    """Points for brokers *numbers* that divide the ring evenly into *of* parts."""
    return {number: number * (RING_SIZE // of) for number in numbers}


def walk(
    seed: int,
    brokers: int = 8,
    steps: int = 40,
    *,
    make: Callable[..., RingWorld] = RingWorld,
) -> RingWorld:
    """Brokers come, die, come back and leave while the network splits and heals; then they repair
    the ring by themselves, and look-ups are right.

    Raises:
      BrokenRule: if a rule is broken.
    """
    random = Random(seed)
    world = make(random, lost=random.choice([0.0, 0.02]))
    founders = range(1, 4)
    for number in founders:
        world.start(number, founders, point=_any_point(random), begins=True)
    world.run_until_ideal(60)
    for _ in range(steps):
        _step(world, random, brokers)
        world.run(random.choice([0.0, 0.1, 1.0, 5.0]))
        check_outcomes(world)
    world.heal()
    world.lost = 0.0
    for number, one in world.brokers.items():
        if not one.alive and random.random() < 0.5:
            world.restart(number, world.brokers)
    world.run(5)
    for number, one in list(world.brokers.items()):
        # Whom the addresses that it was given, or the last members, are all dead.
        if not one.chord.is_member or not world.members:
            world.restart(number, world.brokers)
    world.run_until_ideal(120)
    check_lookups(world, random, 20)
    return world


def _step(world: RingWorld, random: Random, brokers: int) -> None:
    """One thing happens."""
    alive = [number for number, one in world.brokers.items() if one.alive]
    dead = [number for number, one in world.brokers.items() if not one.alive]
    new = next(number for number in count(1) if number not in world.brokers)
    kind = random.random()
    contacts = random.sample(sorted(world.brokers), min(3, len(world.brokers)))
    if kind < 0.2 and new <= brokers:
        world.start(new, contacts, point=_any_point(random))
    elif kind < 0.4 and dead:
        world.restart(random.choice(dead), contacts)
    elif kind < 0.43 and dead:
        world.restart(random.choice(dead), contacts, wiped=True)
    elif kind < 0.6 and alive:
        world.kill(random.choice(alive), hangs=random.random() < 0.5)
    elif kind < 0.66 and alive:
        world.leave(random.choice(alive))
    elif kind < 0.72:
        side = {one for one in world.brokers if random.random() < 0.5}
        world.split(side, set(range(1, brokers + 1)) - side)
    elif kind < 0.8:
        world.heal()
    elif alive:
        world.look_up(random.choice(alive), _any_point(random))


def check_outcomes(world: RingWorld) -> None:
    """What was found was a live broker."""
    for asked in world.asked:
        if isinstance(asked.outcome, HolderFound) and not asked.was_alive:
            raise BrokenRule(f"a look-up found a dead broker: {asked}")


def check_lookups(world: RingWorld, random: Random, number: int) -> None:
    """While nothing happens, look-ups find what the sorted list says."""
    members = [one.node.broker for one in world.members]
    asked = [world.look_up(random.choice(members), _any_point(random)) for _ in range(number)]
    world.run_until(lambda: all(one.outcome is not None for one in asked), 10)
    for one in asked:
        found = one.outcome
        if not isinstance(found, HolderFound) or found.holder.broker != world.holder(one.key):
            raise BrokenRule(f"a look-up is wrong: {one}, and not {world.holder(one.key)}")


def _any_point(random: Random) -> int:
    return random.randrange(RING_SIZE)
