"""What a broker knows of the record of its cluster, and how it changes it.

The record is instance 0 of the agreed values.  Any broker proposes changes of it; its acceptors are
the founders, until others take over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from typing import Final

import attrs
import trio

from octopi.agreement.proposals import Change, NoChange, move_acceptors
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
from octopi.environment import Environment
from octopi.errors import NotReadyError
from octopi.identifiers import BrokerId, Incarnation, InstanceId
from octopi.logger import get_logger
from octopi.ring.address_book import AddressBook
from octopi.ring.cluster_record import ClusterRecord, decode_cluster, encode_cluster
from octopi.ring.steering import next_acceptors
from octopi.wire.agreement import (
    AcceptorId,
    AcceptValue,
    AgreedValue,
    KnownValue,
    KnownValues,
    PrepareBallot,
    ToProposer,
    ValueChosen,
)
from octopi.wire.ring import RingNode

_log = get_logger(__name__)

CLUSTER: Final = InstanceId(0)
"""The agreed value with the record of the cluster."""

RecordChange = Callable[[ClusterRecord], ClusterRecord]


class ClusterKeeper:
    """The record of the cluster on one broker."""

    def __init__(
        self,
        environment: Environment,
        send: Callable[[AcceptorId, PrepareBallot | AcceptValue], None],
        tell: Callable[[ValueChosen], None],
        learned: Callable[[], None],
        moved: Callable[[], None],
    ) -> None:
        """*send* sends to an acceptor, *tell* to all brokers that are known.  *learned*: there is a
        newer record, whoever proposed it.  *moved*: something has changed, also when `tick` has
        something to do."""
        self.chosen: ValueChosen | None = None
        """The newest value that is known to be chosen."""
        self.record: ClusterRecord | None = None
        """Its content."""
        self._environment = environment
        self._send, self._tell = send, tell
        self._learned, self._moved = learned, moved
        self._proposer: Proposer | None = None
        self._outcomes: dict[int, ChangeOutcome | None] = {}
        self._concluded = trio.Event()
        self._numbers = 0

    @property
    def wakes_at(self) -> float:
        """When `tick` has something to do."""
        wakes_at = None if self._proposer is None else self._proposer.wakes_at
        return inf if wakes_at is None else wakes_at

    def begin_proposing(self, broker: BrokerId, incarnation: Incarnation) -> None:
        """This broker is *broker*, and may propose; the record is known."""
        assert self.chosen is not None
        draw = self._environment.randomness.random
        self._proposer = Proposer(CLUSTER, broker, incarnation, self.chosen.value, draw)
        # The rounds that others used: without them its first ballots would be refused.
        self._perform(self._proposer.chosen(self.chosen, self._environment.clock.now()))

    def learn(self, message: ValueChosen) -> None:
        """*message* was chosen, and may be newer than what was known.

        A content that can't be read is not taken over: no broker of ours proposes one.
        """
        known = self.chosen
        if known is not None and message.value.change <= known.value.change:
            return
        try:
            record = decode_cluster(message.value.content)
        except ValueError as error:
            _log.error("the record of the cluster can't be read", why=str(error))
            return
        if self.record is not None and record.cluster != self.record.cluster:
            _log.error("the record of another cluster", cluster=record.cluster)
            return
        self.chosen, self.record = message, record
        if self._proposer is not None:
            now = self._environment.clock.now()
            self._perform(self._proposer.chosen(message, now))
        self._learned()
        self._moved()

    def compare(self, message: KnownValues, answer: Callable[[object], None]) -> None:
        """Another broker knows these values: tell it a newer one, or let it know that it has a
        newer one."""
        mine = -1 if self.chosen is None else self.chosen.value.change
        for one in message.values:
            if one.instance == CLUSTER and self.chosen is not None and one.change < mine:
                answer(self.chosen)
            elif one.instance == CLUSTER and one.change > mine:
                answer(self.known_values())

    def known_values(self) -> KnownValues:
        """What this broker knows, for comparing."""
        if self.chosen is None:
            return KnownValues(())
        return KnownValues((KnownValue(CLUSTER, self.chosen.value.change),))

    def receive(self, message: ToProposer) -> None:
        """An acceptor answers."""
        if self._proposer is not None:
            self._perform(self._proposer.receive(message, self._environment.clock.now()))

    def tick(self, now: float) -> None:
        """Time has passed."""
        if self._proposer is not None:
            self._perform(self._proposer.tick(now))

    async def change(self, change: RecordChange) -> ClusterRecord:
        """Change the record, unless it is what it shall be already; return what it is then.

        Raises:
          NotReadyError: if no majority answers in time.  The change may have been made.
        """
        match await self._ask(_change_of(change)):
            case ChangeMade(value):
                return decode_cluster(value.content)
            case ChangeNotMade(why, value):
                known = decode_cluster(value.content)
                if change(known) != known:
                    raise NotReadyError(f"the record of the cluster was not changed: {why}")
                return known
            case _:
                raise _in_doubt()

    async def replace_acceptor(
        self, me: RingNode, book: AddressBook, since: float, leaving: Collection[BrokerId]
    ) -> None:
        """If an acceptor of the record is gone or leaves, and this broker is the one to propose it,
        have another broker take its place: see `next_acceptors`."""
        assert self.chosen is not None
        now, value = self._environment.clock.now(), self.chosen.value
        if (group := next_acceptors(value, me, book, now, since, leaving)) is None:
            return
        try:
            outcome = await self._ask(move_acceptors(group))
        except NotReadyError as error:
            _log.info("acceptors not moved", why=str(error))
            return
        if isinstance(outcome, ChangeMade):
            _log.info("acceptors moved", to=" ".join(str(one.broker) for one in group))
        else:
            _log.info("acceptors not moved", why=str(outcome))

    async def _ask(self, change: Change) -> ChangeOutcome:
        """What becomes of *change*.

        Raises:
          NotReadyError: if this broker does not know the record yet.
        """
        if self._proposer is None:
            raise NotReadyError("this broker does not know the record of its cluster yet")
        number = self._numbers = self._numbers + 1
        self._outcomes[number] = None
        try:
            asked = self._proposer.ask(number, change, self._environment.clock.now())
            self._perform(asked)
            while (outcome := self._outcomes[number]) is None:
                await self._concluded.wait()
        finally:
            del self._outcomes[number]
        return outcome

    def _perform(self, effects: list[ProposerEffect]) -> None:
        for effect in effects:
            match effect:
                case SendToAcceptor(acceptor, message):
                    self._send(acceptor, message)
                case TellChosen(_, told):
                    self._tell(told)  # also a broker that is in no address book any more
                    self.learn(told)
                case ConcludeChange(number, outcome):
                    if number in self._outcomes:  # whoever asked may have been cancelled
                        self._outcomes[number] = outcome
                    self._concluded.set()
                    self._concluded = trio.Event()
        self._moved()


def _in_doubt() -> NotReadyError:
    return NotReadyError(
        "no majority of the acceptors of the cluster's record answers in time: start those that "
        "are down"
    )


def _change_of(change: RecordChange) -> Change:
    def of_value(value: AgreedValue) -> AgreedValue | NoChange:
        try:
            before = decode_cluster(value.content)
        except ValueError as error:
            return NoChange(f"the record can't be read: {error}")
        record = change(before)
        if record == before:
            return NoChange("it is so already")
        if before.is_frozen and attrs.evolve(record, ending=before.ending) != before:
            return NoChange("the brokers are handing their cluster over to a register")
        if why := record.fault():
            return NoChange(why)
        return value.with_content(encode_cluster(record))

    return of_value
