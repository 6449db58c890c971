"""All acceptors of one broker, whose entries share a journal.  No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from octopi.agreement.acceptor import Acceptor, AcceptorEffect
from octopi.agreement.entries import AcceptorEntry
from octopi.identifiers import InstanceId
from octopi.wire.agreement import AcceptorId, AgreedValue, ToAcceptor


class Acceptors:
    """The acceptors of one broker, by instance."""

    def __init__(
        self, identity: AcceptorId, first: Callable[[InstanceId], AgreedValue | None]
    ) -> None:
        """*first* gives the first value of an instance; None: it has none that this broker knows
        yet, and it is asked again.  All brokers have to be given the same, whatever they know of
        the cluster: two first values are two histories.  While it may be unknown, an acceptor must
        not be asked anything: it would answer that it knows no value."""
        self._identity = identity
        self._first = first
        self._acceptors: dict[InstanceId, Acceptor] = {}

    def of(self, instance: InstanceId) -> Acceptor:
        """The acceptor of *instance*."""
        acceptor = self._acceptors.get(instance)
        if acceptor is None:
            acceptor = self._acceptors[instance] = Acceptor(instance, self._identity)
        if acceptor.lacks_value and (first := self._first(instance)) is not None:
            acceptor.begin(first)
        return acceptor

    def replay(self, entries: Iterable[AcceptorEntry]) -> None:
        """Take over the *entries* of the journal, at a start."""
        for entry in entries:
            self.of(entry.instance).replay([entry])

    def receive(self, message: ToAcceptor) -> list[AcceptorEffect]:
        """Handle *message*: see `Acceptor.receive`."""
        return self.of(message.instance).receive(message)

    def entries(self) -> list[AcceptorEntry]:
        """The fewest entries that lead to the present state."""
        return [
            entry
            for instance, acceptor in sorted(self._acceptors.items())
            for entry in acceptor.state.entries(instance)
        ]
