"""Founders that know only addresses choose one first value, in whatever order things happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import TypeVar

import attrs
import pytest

from octopi.agreement import founding
from octopi.agreement.acceptor import Acceptor, AnswerProposer
from octopi.agreement.founding import FirstChosen, Founding, SendToFounder
from octopi.agreement.values import first_value
from octopi.identifiers import BrokerId, DirectoryId, Incarnation, InstanceId
from octopi.wire.agreement import (
    NO_BALLOT,
    AcceptorId,
    AcceptValue,
    AgreedValue,
    Ballot,
    BallotPromised,
    BallotRefused,
    PrepareBallot,
    ToProposer,
    ValueAccepted,
)

VALUE = InstanceId(0)
T = TypeVar("T")
ADDRESSES = ("ws://a:1", "ws://b:1", "ws://c:1")


@attrs.define
class Founder:
    """A process, and what is on its disk."""

    number: int
    directory: DirectoryId
    acceptor: Acceptor
    machine: Founding
    incarnation: int = 1
    up: bool = True


class FoundingWorld:
    """Three founders, and a network that delays, doubles and loses what they send."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.founders = [self._new(number, 0) for number in range(len(ADDRESSES))]
        self.under_way: list[tuple[int, int, int, PrepareBallot | AcceptValue]] = []
        """Who sent it in which incarnation, to whom, and what."""
        self.answers: list[tuple[int, int, int, ToProposer]] = []
        self.accepted: dict[tuple[Ballot, AgreedValue], set[AcceptorId]] = {}
        self.told: set[AgreedValue] = set()
        self.wiped = 0

    def _new(self, number: int, disks: int) -> Founder:
        directory = DirectoryId(f"{number}.{disks}")
        identity = AcceptorId(BrokerId(number + 1), directory)
        return Founder(
            number, directory, Acceptor(VALUE, identity), self._machine(number, 1, disks)
        )

    def _machine(self, number: int, incarnation: int, disks: int) -> Founding:
        return Founding(
            VALUE,
            ADDRESSES,
            BrokerId(number + 1),
            Incarnation(incarnation),
            lambda group: first_value(group.values(), f"{number}/{incarnation}/{disks}".encode()),
            self.random.random,
            self.now + number * 0.1,
        )

    def step(self) -> None:
        random = self.random
        match random.randrange(14):
            case 0:
                founder = random.choice(self.founders)
                self.now = max(self.now, founder.machine.wakes_at) + 0.001
                if founder.up:
                    self._perform(founder, founder.machine.tick(self.now))
            case 1 | 2 | 3 | 4 | 5 | 6 if self.under_way:
                self._deliver(*self._taken(self.under_way))
            case 7 | 8 | 9 | 10 | 11 | 12 if self.answers:
                to, incarnation, origin, message = self._taken(self.answers)
                founder = self.founders[to]
                if founder.up and founder.incarnation == incarnation:
                    answered = founder.machine.receive(ADDRESSES[origin], message, self.now)
                    self._perform(founder, answered)
            case 13 if random.random() < 0.3:
                self._fault(random.choice(self.founders))

    def _taken(self, items: list[T]) -> T:
        at = self.random.randrange(len(items))
        return items[at] if self.random.random() < 0.1 else items.pop(at)

    def _fault(self, founder: Founder) -> None:
        """End a process, start it again, or replace a disk: of a minority only."""
        if founder.up:
            founder.up = False
            return
        founder.up, founder.incarnation = True, founder.incarnation + 1
        if not self.wiped and self.random.random() < 0.5:
            self.wiped = 1
            new = self._new(founder.number, 1)
            founder.directory, founder.acceptor = new.directory, new.acceptor
            founder.incarnation = 1
        disks = int(founder.directory[-1])
        founder.machine = self._machine(founder.number, founder.incarnation, disks)

    def _deliver(
        self, origin: int, incarnation: int, to: int, message: PrepareBallot | AcceptValue
    ) -> None:
        receiver = self.founders[to]
        if not receiver.up or self.random.random() < 0.1:
            return
        for effect in receiver.acceptor.receive(message):
            if not isinstance(effect, AnswerProposer):
                continue
            if isinstance(message, AcceptValue) and isinstance(effect.message, ValueAccepted):
                key = (message.ballot, message.value)
                self.accepted.setdefault(key, set()).add(effect.message.acceptor)
            self.answers.append((origin, incarnation, to, effect.message))

    def _perform(self, founder: Founder, effects: list[founding.FoundingEffect]) -> None:
        founder.machine.check_invariants()
        for effect in effects:
            match effect:
                case SendToFounder(address, message):
                    to = ADDRESSES.index(address)
                    self.under_way.append((founder.number, founder.incarnation, to, message))
                case FirstChosen(message):
                    self.told.add(message.value)

    def chosen(self) -> Iterator[AgreedValue]:
        for (_, value), acceptors in self.accepted.items():
            if value.is_quorum(acceptors):
                yield value


def walk(seed: int, steps: int = 400) -> FoundingWorld:
    world = FoundingWorld(Random(seed))
    for _ in range(steps):
        world.step()
        chosen = set(world.chosen())
        assert len(chosen) <= 1, f"two first values in walk {seed}: {chosen}"
        assert world.told <= chosen
    return world


def walks(count: int) -> list[FoundingWorld]:
    return [walk(seed) for seed in range(count)]


def test_founders_choose_one_value_while_processes_end_and_a_disk_is_lost() -> None:
    worlds = walks(150)
    assert sum(bool(world.told) for world in worlds) > 50
    assert sum(bool(world.told) and world.wiped for world in worlds) > 10


def test_a_majority_that_begins_without_the_others_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted mistake: a first value after the promises of a majority."""
    right: Callable[..., list[founding.FoundingEffect]] = Founding._propose

    def hasty(self: Founding, attempt: founding._FoundingAttempt) -> list[founding.FoundingEffect]:
        every = self._addresses
        if 2 * len(attempt.promises) > len(every):
            self._addresses = tuple(attempt.promises)
        try:
            return right(self, attempt)
        finally:
            self._addresses = every

    monkeypatch.setattr(Founding, "_propose", hasty)
    with pytest.raises(AssertionError, match="two first values"):
        walks(2000)


# --- one founder -------------------------------------------------------------------------


def founder(number: int = 1) -> Founding:
    return Founding(
        VALUE,
        ADDRESSES,
        BrokerId(number),
        Incarnation(1),
        lambda group: first_value(group.values(), b"first"),
        lambda: 0.5,
        0.0,
    )


def acceptor(number: int) -> AcceptorId:
    return AcceptorId(BrokerId(number), DirectoryId("d"))


def promise(number: int, ballot: Ballot, value: AgreedValue | None = None) -> BallotPromised:
    accepted = NO_BALLOT if value is None else Ballot(1, BrokerId(9), Incarnation(1))
    return BallotPromised(VALUE, acceptor(number), ballot, accepted, value)


def test_nothing_is_proposed_before_all_have_promised() -> None:
    machine = founder()
    [sent, *_] = machine.tick(0.0)
    assert isinstance(sent, SendToFounder)
    ballot = sent.message.ballot
    for number in (1, 2):
        assert machine.receive(ADDRESSES[number - 1], promise(number, ballot), 0.1) == []
    assert machine.missing == [ADDRESSES[2]]
    proposed = machine.receive(ADDRESSES[2], promise(3, ballot), 0.1)
    assert [one.address for one in proposed if isinstance(one, SendToFounder)] == [*ADDRESSES]


def test_a_value_that_one_accepted_is_proposed_again_after_a_majority() -> None:
    machine = founder()
    [sent, *_] = machine.tick(0.0)
    assert isinstance(sent, SendToFounder)
    ballot = sent.message.ballot
    known = first_value([acceptor(1), acceptor(2), acceptor(3)], b"of another founder")
    assert machine.receive(ADDRESSES[1], promise(2, ballot, known), 0.1) == []
    proposed = machine.receive(ADDRESSES[0], promise(1, ballot), 0.1)
    assert {one.message.value for one in proposed} == {known}  # type: ignore[union-attr]
    accepted = [ValueAccepted(VALUE, acceptor(number), ballot, ballot) for number in (1, 2)]
    assert machine.receive(ADDRESSES[0], accepted[0], 0.2) == []
    [chosen] = machine.receive(ADDRESSES[1], accepted[1], 0.2)
    assert isinstance(chosen, FirstChosen)
    assert chosen.message.value == known


def test_one_node_at_two_addresses_does_not_count_twice() -> None:
    machine = founder()
    [sent, *_] = machine.tick(0.0)
    assert isinstance(sent, SendToFounder)
    ballot = sent.message.ballot
    for address, number in zip(ADDRESSES, (1, 2, 2), strict=True):
        assert machine.receive(address, promise(number, ballot), 0.1) == []


def test_a_founder_that_is_refused_tries_again_in_a_higher_ballot() -> None:
    machine = founder()
    [sent, *_] = machine.tick(0.0)
    assert isinstance(sent, SendToFounder)
    higher = Ballot(7, BrokerId(3), Incarnation(1))
    refused = BallotRefused(VALUE, acceptor(2), sent.message.ballot, higher)
    assert machine.receive(ADDRESSES[1], refused, 0.1) == []
    assert machine.wakes_at > 0.1
    [again, *_] = machine.tick(machine.wakes_at)
    assert isinstance(again, SendToFounder)
    assert again.message.ballot > higher
    assert machine.receive("ws://stranger:1", promise(1, again.message.ballot), 1.0) == []
