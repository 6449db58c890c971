"""Brokers that agree on the value of one instance: messages are lost, doubled and reordered, disks
keep a part of what was written or are replaced, and processes stop and start again.

Each action is one step of one part, so that a test or a random walk decides what happens when.  The
rules are checked after each step, with code of their own (`tests.agreement.history`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from random import Random

import attrs

from octopi.agreement.acceptor import Acceptor, AcceptorState, AnswerProposer, Persist
from octopi.agreement.entries import AcceptEntry, AcceptorEntry
from octopi.agreement.proposals import Change, NoChange, confirm, move_acceptors
from octopi.agreement.proposer import (
    ChangeMade,
    ChangeNotMade,
    ChangeOutcome,
    ConcludeChange,
    Proposer,
    ProposerEffect,
    SendToAcceptor,
    TellChosen,
)
from octopi.agreement.values import first_value
from octopi.identifiers import BrokerId, DirectoryId, Incarnation, InstanceId
from octopi.wire.agreement import (
    NO_BALLOT,
    AcceptorId,
    AgreedValue,
    Ballot,
    BallotPromised,
    ToAcceptor,
    ToProposer,
    ValueAccepted,
    ValueChosen,
)
from tests.agreement.history import fault_in, is_chosen, operations, with_operation

INSTANCE = InstanceId(1)
_FIRST_INCARNATION = Incarnation(1)


class BrokenRule(AssertionError):
    """The machines did what they must not do."""


@attrs.frozen
class ToBroker:
    """A message on its way to an acceptor, and from which proposer it comes."""

    acceptor: AcceptorId
    message: ToAcceptor
    sender: tuple[BrokerId, Incarnation]


@attrs.frozen
class ToSender:
    """An answer on its way to a proposer."""

    proposer: tuple[BrokerId, Incarnation]
    message: ToProposer


@attrs.define
class Broker:
    """One broker: a process, and a disk."""

    number: BrokerId
    identity: AcceptorId
    acceptor: Acceptor
    proposer: Proposer
    incarnation: Incarnation = _FIRST_INCARNATION
    disk: list[AcceptorEntry] = attrs.field(factory=list)
    """What is durable."""
    written: list[AcceptorEntry] = attrs.field(factory=list)
    """What is not durable yet."""
    held: list[ToSender] = attrs.field(factory=list)
    """Answers that wait for the device."""

    @property
    def life(self) -> tuple[BrokerId, Incarnation]:
        return (self.number, self.incarnation)


class World:
    """A group of brokers, the messages between them, and what was chosen."""

    def __init__(self, count: int, acceptors: int, random: Random) -> None:
        """The first *acceptors* of *count* brokers are the first acceptors."""
        self.now = 0.0
        self.random = random
        self.messages: list[ToBroker | ToSender] = []
        identities = [_identity(number, 0) for number in range(1, count + 1)]
        self.first = first_value(identities[:acceptors], b"")
        self._asked = 0
        self._disks = 0
        self._accepted: dict[Ballot, tuple[AgreedValue, set[AcceptorId]]] = {}
        self.chosen: dict[int, AgreedValue] = {0: self.first}
        self.made: set[str] = set()
        self.refused: set[str] = set()
        self.outcomes: dict[int, ChangeOutcome] = {}
        """By the number of the change."""
        self._promises: dict[AcceptorId, Ballot] = defaultdict(lambda: NO_BALLOT)
        self.answers = 0
        self.brokers = {
            one.broker: Broker(one.broker, one, self._acceptor(one), self._proposer(one.broker, 1))
            for one in identities
        }

    def _acceptor(self, identity: AcceptorId) -> Acceptor:
        return Acceptor(INSTANCE, identity, self.first)

    def _proposer(self, broker: BrokerId, incarnation: int) -> Proposer:
        return Proposer(INSTANCE, broker, Incarnation(incarnation), self.first, self.random.random)

    @property
    def newest(self) -> AgreedValue:
        """The newest value that was chosen."""
        return self.chosen[max(self.chosen)]

    # --- what may happen -----------------------------------------------------------------

    def ask(self, number: int, change: Change) -> None:
        """Ask a broker's proposer for *change*."""
        broker = self.brokers[BrokerId(number)]
        self._asked += 1
        self._perform(broker, broker.proposer.ask(self._asked, change, self.now))

    def append(self, number: int) -> str:
        """Ask for an operation that applies to every value; return its name."""
        name = f"o{self._asked + 1}"
        self.ask(number, lambda value: self._made(value, name))
        return name

    def append_if_unchanged(self, number: int) -> str:
        """Ask for an operation that applies only to the newest value that this broker knows, as a
        leader does for its in-sync set; return its name."""
        length = len(operations(self.brokers[BrokerId(number)].proposer.known))
        name = f"q{self._asked + 1}"

        def change(value: AgreedValue) -> AgreedValue | NoChange:
            if len(operations(value)) != length:
                return NoChange("something else was made")
            return self._made(value, name)

        self.ask(number, change)
        return name

    def _made(self, value: AgreedValue, name: str) -> AgreedValue | NoChange:
        return NoChange("it is made") if name in operations(value) else with_operation(value, name)

    def move(self, number: int, group: list[int]) -> None:
        """Ask a broker's proposer for other acceptors."""
        acceptors = [self.brokers[BrokerId(one)].identity for one in group]
        self.ask(number, move_acceptors(acceptors))

    def read(self, number: int) -> None:
        """Ask a broker's proposer for the newest value."""
        self.ask(number, confirm)

    def deliver(self, index: int, *, keep: bool = False) -> None:
        """Deliver one of the messages on their way; *keep*: it will come again."""
        sent = self.messages[index] if keep else self.messages.pop(index)
        match sent:
            case ToBroker():
                broker = self.brokers[sent.acceptor.broker]
                if isinstance(sent.message, ValueChosen):
                    self._perform(broker, broker.proposer.chosen(sent.message, self.now))
                if sent.acceptor == broker.identity:
                    self._accept(broker, sent)
            case ToSender():
                broker = self.brokers[sent.proposer[0]]
                if sent.proposer == broker.life:
                    self._perform(broker, broker.proposer.receive(sent.message, self.now))

    def lose(self, index: int) -> None:
        """Lose one of the messages on their way."""
        del self.messages[index]

    def sync(self, number: int) -> None:
        """What a broker has written becomes durable, and its answers go out."""
        broker = self.brokers[BrokerId(number)]
        for entry in broker.written:
            broker.disk.append(entry)
            if isinstance(entry, AcceptEntry):
                self._count(broker.identity, entry)
        broker.written.clear()
        for answer in broker.held:
            self._check_answer(broker, answer.message)
            self.messages.append(answer)
        broker.held.clear()

    def restart(self, number: int, written: int = 0) -> None:
        """A broker's process stops and starts; of what is not durable the first *written* entries
        are on its device."""
        broker = self.brokers[BrokerId(number)]
        for entry in broker.written[:written]:
            broker.disk.append(entry)
            if isinstance(entry, AcceptEntry):
                self._count(broker.identity, entry)
        broker.acceptor = self._acceptor(broker.identity)
        broker.acceptor.replay(broker.disk)
        self._start(broker)

    def replace_disk(self, number: int) -> None:
        """A broker comes back with an empty disk, under its old id."""
        broker = self.brokers[BrokerId(number)]
        self._disks += 1
        broker.identity = self.new_identity(broker.number)
        broker.disk = []
        broker.acceptor = self._acceptor(broker.identity)
        self._start(broker)

    def new_identity(self, broker: BrokerId) -> AcceptorId:
        """That of a fresh directory."""
        return _identity(broker, self._disks)

    def next_incarnation(self, broker: Broker) -> Incarnation:
        """That of the next process."""
        return Incarnation(broker.incarnation + 1)

    def _start(self, broker: Broker) -> None:
        broker.written, broker.held = [], []
        broker.incarnation = self.next_incarnation(broker)
        broker.proposer = self._proposer(broker.number, broker.incarnation)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and have all proposers notice."""
        self.now += seconds
        for broker in self.brokers.values():
            self._perform(broker, broker.proposer.tick(self.now))

    def settle(self, *cut_off: int, steps: int = 3000) -> None:
        """Deliver everything in order until no proposer has anything to do; only what goes to
        acceptors of the brokers *cut_off* is lost."""
        for _ in range(steps):
            for number in self.brokers:
                self.sync(number)
            while self.messages:
                first = self.messages[0]
                if isinstance(first, ToBroker) and first.acceptor.broker in cut_off:
                    self.lose(0)
                else:
                    self.deliver(0)
            if not any(one.held for one in self.brokers.values()):
                times = [one.proposer.wakes_at for one in self.brokers.values()]
                due = [one for one in times if one is not None]
                if not due:
                    return
                self.pass_time(max(0.0, min(due) - self.now))
        raise BrokenRule("the proposers never end")

    # --- what is done about it -----------------------------------------------------------

    def _accept(self, broker: Broker, sent: ToBroker) -> None:
        for effect in broker.acceptor.receive(sent.message):
            match effect:
                case Persist(entry):
                    broker.written.append(entry)
                case AnswerProposer(message):
                    broker.held.append(ToSender(sent.sender, message))
        broker.acceptor.check_invariants()

    def _perform(self, broker: Broker, effects: list[ProposerEffect]) -> None:
        for effect in effects:
            match effect:
                case SendToAcceptor(acceptor, message):
                    self.messages.append(ToBroker(acceptor, message, broker.life))
                case TellChosen(acceptors, chosen):
                    self._check_chosen(chosen.value)
                    self.messages += [
                        ToBroker(one, chosen, broker.life) for one in sorted(acceptors)
                    ]
                case ConcludeChange():
                    self._conclude(effect)
        broker.proposer.check_invariants()

    def _conclude(self, effect: ConcludeChange) -> None:
        self.outcomes[effect.number] = effect.outcome
        names = {f"o{effect.number}", f"q{effect.number}"}
        match effect.outcome:
            case ChangeMade(value):
                self._check_chosen(value)
                self.made |= names.intersection(operations(value))
            case ChangeNotMade(_, value):
                self._check_chosen(value)
                if not names.intersection(operations(value)):
                    self.refused |= names
        self._check_chain()

    # --- the rules -----------------------------------------------------------------------

    def _count(self, acceptor: AcceptorId, entry: AcceptEntry) -> None:
        """An acceptor has an accepted value on its device."""
        value, accepted = self._accepted.setdefault(entry.ballot, (entry.value, set()))
        if value != entry.value:
            raise BrokenRule(f"two values in one ballot: {value} and {entry.value}")
        accepted.add(acceptor)
        if is_chosen(value, accepted):
            known = self.chosen.setdefault(value.change, value)
            if known != value:
                raise BrokenRule(f"two histories are chosen: {known} and {value}")
            self._check_chain()

    def _check_chain(self) -> None:
        if fault := fault_in(self.chosen.values()):
            raise BrokenRule(fault)
        found = set(operations(self.newest))
        if lost := self.made - found:
            raise BrokenRule(f"what was made is lost: {sorted(lost)}")
        if came := self.refused & found:
            raise BrokenRule(f"what was refused came true: {sorted(came)}")

    def _check_chosen(self, value: AgreedValue) -> None:
        if value not in self.chosen.values():
            raise BrokenRule(f"a value is told that is not chosen: {value}")

    def _check_answer(self, broker: Broker, message: ToProposer) -> None:
        """An answer goes out: it has to be true of what is durable."""
        self.answers += 1
        state = AcceptorState(value=self.first if broker.identity in self.first.members else None)
        for entry in broker.disk:
            state = state.after(entry)
        match message:
            case BallotPromised(ballot=ballot):
                if ballot > state.promised:
                    raise BrokenRule(f"a promise is answered that is not durable: {ballot}")
                if ballot <= self._promises[broker.identity]:
                    raise BrokenRule(f"a promise is broken by a lower one: {ballot}")
                self._promises[broker.identity] = ballot
            case ValueAccepted(ballot=ballot):
                if broker.identity not in self._accepted.get(ballot, (None, ()))[1]:
                    raise BrokenRule(f"an acceptance is answered that is not durable: {ballot}")


def _identity(broker: int, disk: int) -> AcceptorId:
    return AcceptorId(BrokerId(broker), DirectoryId(f"d{disk}"))


def walk(
    seed: int,
    steps: int,
    make: Callable[[Random], World] = lambda random: World(4, 3, random),
    *,
    disks: bool = True,
) -> World:
    """A random walk; *disks*: brokers also come back with empty disks.

    Raises:
      BrokenRule: if a rule is broken.
    """
    random = Random(seed)
    world = make(random)
    numbers = list(world.brokers)
    for _ in range(steps):
        number = random.choice(numbers)
        kind = random.random()
        if world.messages and kind < 0.62:
            world.deliver(random.randrange(len(world.messages)), keep=random.random() < 0.05)
        elif kind < 0.80:
            world.sync(number)
        elif kind < 0.83 and world.messages:
            world.lose(random.randrange(len(world.messages)))
        elif kind < 0.87:
            world.append(number)
        elif kind < 0.91:
            world.append_if_unchanged(number)
        elif kind < 0.93:
            world.move(number, random.sample(numbers, random.choice([2, 3])))
        elif kind < 0.94:
            world.restart(number, random.randrange(3))
        elif kind < 0.941 and disks:
            world.replace_disk(number)
        else:
            world.pass_time(random.choice([0.0, 0.02, 0.3]))
    return world
