"""The acceptors of one node, on its disk: each answer waits for what it depends on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from octopi.agreement.acceptor import AnswerProposer, Persist
from octopi.agreement.acceptors import Acceptors
from octopi.agreement.entries import AcceptorEntry, DirectoryEntry, decode_entry, encode_entry
from octopi.environment import Environment
from octopi.identifiers import BrokerId, InstanceId
from octopi.limits import ACCEPTOR_SNAPSHOT_ENTRIES, AGREED_BYTES_MAX, KIB
from octopi.storage.journal import Journal, JournalFormat
from octopi.storage.owned_journal import open_owned_journal
from octopi.tracing import steps
from octopi.wire.agreement import AcceptorId, AgreedValue, ToAcceptor, ToProposer

_Entry: TypeAlias = DirectoryEntry | AcceptorEntry

ACCEPTOR_ENTRIES: Final[JournalFormat[_Entry]] = JournalFormat(
    encode_entry,
    decode_entry,
    entry_bytes_max=AGREED_BYTES_MAX + 8 * KIB,  # the acceptors of a value, twice
    owner="the acceptor",
    if_unknown="put it back, or move the whole data directory away, and the node begins as another "
    "acceptor",
)


class AcceptorJournal:
    """The acceptors of one node and their journal."""

    def __init__(
        self,
        environment: Environment,
        journal: Journal[_Entry],
        identity: AcceptorId,
        acceptors: Acceptors,
    ) -> None:
        self.identity = identity
        self._environment = environment
        self._journal = journal
        self._acceptors = acceptors

    @classmethod
    async def open(
        cls,
        environment: Environment,
        directory: str,
        broker: BrokerId,
        first: Callable[[InstanceId], AgreedValue | None],
        *,
        snapshot_entries: int = ACCEPTOR_SNAPSHOT_ENTRIES,
    ) -> AcceptorJournal:
        """Open or begin the journal in *directory*, which exists.  A journal that is begun has a
        random identity, so its acceptors are not those of an earlier journal of *broker*.

        *first*: see `Acceptors`.

        Raises:
          StorageError: if the disk fails.
          CorruptLogError: if anything that was durable is missing, damaged or can't be read: the
              node must not take part as the acceptor that it was.
        """
        journal, number, entries = await open_owned_journal(
            environment,
            directory,
            ACCEPTOR_ENTRIES,
            DirectoryEntry,
            snapshot_entries=snapshot_entries,
        )
        try:
            identity = AcceptorId(broker, number)
            acceptors = Acceptors(identity, first)
            acceptors.replay(one for one in entries if not isinstance(one, DirectoryEntry))
        except BaseException:
            await journal.close()
            raise
        return cls(environment, journal, identity, acceptors)

    def accepted(self, instance: InstanceId) -> AgreedValue | None:
        """The value of *instance* that was accepted last, or the first one; it may not be durable
        yet."""
        return self._acceptors.of(instance).state.value

    async def receive(self, message: ToAcceptor) -> list[ToProposer]:
        """Handle *message*; return the answers, which may be sent now.

        Raises:
          NotReadyError: while a snapshot is written; nothing has changed.
          LogReadOnlyError: if the disk failed; this node must not answer any more.
          StorageError: if the disk refused the entry otherwise; nothing has changed.
        """
        acceptor = self._acceptors.of(message.instance)
        before, trace = acceptor.state, self._environment.trace
        effects = acceptor.receive(message)
        entries = [one.entry for one in effects if isinstance(one, Persist)]
        if trace is not None:
            trace(steps.A2Storing(message.instance, entries))
        try:
            self._journal.append([*entries])
        except BaseException:
            acceptor.state = before
            raise
        await self._journal.flush()
        answers = [one.message for one in effects if isinstance(one, AnswerProposer)]
        if trace is not None:
            for one in answers:
                trace(steps.A2Answering(message.instance, one))
        return answers

    async def shorten(self) -> None:
        """Replace the journal by a snapshot if that is much shorter.

        Raises:
          LogReadOnlyError: if it is unknown what a restart would read; this node must not answer
              any more.
          StorageError: if it can't be done; the journal is unchanged.
        """
        if self._journal.wants_snapshot:
            state: list[_Entry] = [DirectoryEntry(self.identity.directory)]
            await self._journal.replace([*state, *self._acceptors.entries()])

    async def close(self) -> None:
        """Make everything durable and close the files."""
        await self._journal.close()
