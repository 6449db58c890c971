"""Where the other brokers of a ring are reached."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from octopi.identifiers import BrokerId
from octopi.ring.chord import Chord
from octopi.ring.cluster_record import ClusterRecord
from octopi.roles.broker.ring.peers import RingPeers
from octopi.transport.pending_requests import Numbered
from octopi.wire import messages as m


class KnowsBrokers(Protocol):
    """What a broker knows of the others."""

    @property
    def chord(self) -> Chord | None:
        """Its place on the ring; None: it has none yet."""

    @property
    def record(self) -> ClusterRecord | None:
        """The record of the cluster."""


class RingRoutes:
    """Sends messages to brokers by their ids: by the address book, and to those that it does not
    have by the record of the cluster."""

    def __init__(self, peers: RingPeers, known: KnowsBrokers) -> None:
        self._peers = peers
        self._known = known

    def send(self, acceptor: m.AcceptorId, message: m.PrepareBallot | m.AcceptValue) -> None:
        """Send *message* to another broker's acceptor, if it is known where it is."""
        node = self._node(acceptor.broker)
        if node is not None and node.identity == acceptor:
            self._peers.post(node.address, message)
            return
        former = next((one for one in self._founding() if one.identity == acceptor), None)
        if former is not None:
            self._peers.post(former.address, message)

    def post(self, broker: BrokerId, message: object) -> None:
        """Send *message* to *broker*, if it is known where it is."""
        if (node := self._node(broker)) is not None:
            self._peers.post(node.address, message)

    def ask(self, broker: BrokerId, message: Numbered, on_answer: Callable[[object], None]) -> None:
        """Send a request to *broker*, if it is known where it is; see `RingPeers.ask`."""
        if (node := self._node(broker)) is not None:
            self._peers.ask(node.address, message, on_answer)

    def tell(self, brokers: Collection[BrokerId], message: m.ValueChosen) -> None:
        """Tell *brokers*, and all others of the address book that are not silent."""
        chord = self._known.chord
        told: set[BrokerId] = set()
        for entry in () if chord is None else chord.book:
            if not entry.is_silent or entry.node.broker in brokers:
                told.add(entry.node.broker)
                self._peers.post(entry.node.address, message)
        for node in self._founding():
            if node.broker in brokers and node.broker not in told and not self._is_me(node.broker):
                told.add(node.broker)
                self._peers.post(node.address, message)

    def brokers(self, live: Collection[BrokerId]) -> Iterator[m.BrokerInfo]:
        """All brokers that are known and not gone for good, this one among them; *live*: those that
        are there."""
        record = self._known.record
        drained = () if record is None else record.drained
        leaving = () if record is None else record.leaving
        gone = () if record is None else record.gone
        nodes = {one.broker: one for one in self._founding()}
        chord = self._known.chord
        if chord is not None:
            nodes |= {one.broker: one for one in (*chord.book.nodes(), chord.me)}
        for broker, node in sorted(nodes.items()):
            if broker not in gone:
                yield m.BrokerInfo(
                    broker,
                    node.address,
                    node.incarnation,
                    broker in live,
                    0,
                    host=node.host,
                    drained=broker in drained,
                    leaving=broker in leaving,
                )

    def addresses(self) -> dict[BrokerId, str]:
        """Where each broker is reached that is known."""
        return {one.broker: one.address for one in self.brokers(())}

    def is_silent(self, broker: BrokerId) -> bool:
        """Whether a broker of the address book did not answer lately."""
        entry = None if self._known.chord is None else self._known.chord.book.entry(broker)
        return entry is not None and entry.is_silent

    def _node(self, broker: BrokerId) -> m.RingNode | None:
        entry = None if self._known.chord is None else self._known.chord.book.entry(broker)
        if entry is not None:
            return entry.node
        return next((one for one in self._founding() if one.broker == broker), None)

    def _founding(self) -> Iterator[m.RingNode]:
        """The brokers that growths of the cluster name."""
        record = self._known.record
        for growth in () if record is None else record.growths:
            yield from growth.members

    def _is_me(self, broker: BrokerId) -> bool:
        return self._known.chord is not None and self._known.chord.me.broker == broker
