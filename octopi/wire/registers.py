"""What the registers of a cluster send each other about their journal (`octopi.agreement.journal`).

Each message says who sends it, and in which term.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import attrs

from octopi.field_bounds import AtMost, Grammar, MayBeMissing
from octopi.identifiers import DirectoryId, address_fault
from octopi.limits import (
    ADDRESS_BYTES_MAX,
    NONCE_BYTES_MAX,
    REGISTERS_MAX,
    REPLICATED_ENTRY_BYTES_MAX,
    REPLICATED_PAGE_ENTRIES,
)
from octopi.model import Verb
from octopi.wire.declarations import REGISTER_TO_REGISTER, notice, on_the_cluster

_OF_NODES: Final = on_the_cluster(Verb.REPLICATE)


@attrs.frozen(order=True)
class RegisterId:
    """A register.  One that comes back with an empty disk has another directory, so it is another
    register: it doesn't know for whom it voted, and lacks what it had stored."""

    address: Annotated[str, AtMost(ADDRESS_BYTES_MAX), Grammar(address_fault)]
    directory: Annotated[DirectoryId, AtMost(NONCE_BYTES_MAX)]


Voters: TypeAlias = Annotated[tuple[RegisterId, ...], AtMost(REGISTERS_MAX)]
"""The registers whose votes count, sorted; one of an address at most."""


@attrs.frozen
class JournalEntry:
    """One entry of the registers' journal.  It has a content, or it changes the voters, or it only
    begins a term."""

    term: int
    content: Annotated[bytes, AtMost(REPLICATED_ENTRY_BYTES_MAX), MayBeMissing()] = b""
    voters: Annotated[Voters, MayBeMissing()] = ()


@notice("vote_request", REGISTER_TO_REGISTER, needs=_OF_NODES, since=2)
@attrs.frozen
class VoteRequest:
    """Vote for the sender in *term*."""

    sender: RegisterId
    term: int
    is_trial: bool
    """Only say whether you would: nothing is promised, and the sender is not in that term yet."""
    end: int
    """How long the sender's journal is (entries)."""
    end_term: int
    """The term of its last entry."""
    founders: Annotated[Voters, MayBeMissing()] = ()
    """If the sender's journal is empty: all registers, with which the journal would begin.  Empty:
    it doesn't know all of them yet."""


@notice("vote_answer", REGISTER_TO_REGISTER, needs=_OF_NODES, since=2)
@attrs.frozen
class VoteAnswer:
    """Answer to `VoteRequest`."""

    sender: RegisterId
    term: int
    """If granted, the term that was asked about; otherwise the term of the voter."""
    is_trial: bool
    is_granted: bool


@notice("entries_sent", REGISTER_TO_REGISTER, needs=_OF_NODES, since=2)
@attrs.frozen
class EntriesSent:
    """The active register to another one: entries; none, if it only shows that it is there."""

    sender: RegisterId
    term: int
    start: int
    """The index of the first entry."""
    term_before: int
    """The term of the entry before that one."""
    entries: Annotated[tuple[JournalEntry, ...], AtMost(REPLICATED_PAGE_ENTRIES)]
    committed: int
    """The index behind the last committed entry."""
    sent_ms: int
    """When it was sent, by the sender's clock."""


@notice("snapshot_sent", REGISTER_TO_REGISTER, needs=_OF_NODES, since=2)
@attrs.frozen
class SnapshotSent:
    """The active register to another one: a page of the snapshot with which its journal begins."""

    sender: RegisterId
    term: int
    end: int
    end_term: int
    voters: Voters
    first: int
    """The number of contents before this page."""
    count: int
    """The number of all contents."""
    contents: Annotated[
        tuple[Annotated[bytes, AtMost(REPLICATED_ENTRY_BYTES_MAX)], ...],
        AtMost(REPLICATED_PAGE_ENTRIES),
    ]
    sent_ms: int


@notice("active_heard", REGISTER_TO_REGISTER, needs=_OF_NODES, since=2)
@attrs.frozen
class ActiveHeard:
    """Answer to `EntriesSent` and `SnapshotSent`, at once: the sender is a standby in that term."""

    sender: RegisterId
    term: int
    sent_ms: int
    """As in the message."""
    registers: Annotated[
        tuple[Annotated[str, AtMost(ADDRESS_BYTES_MAX), Grammar(address_fault)], ...],
        AtMost(REGISTERS_MAX),
        MayBeMissing(),
    ] = ()
    """The addresses that the sender's list has (`--peers`), sorted."""


@notice("entries_stored", REGISTER_TO_REGISTER, needs=_OF_NODES, since=2)
@attrs.frozen
class EntriesStored:
    """The sender's journal is durable and that of the active register before the index *end*."""

    sender: RegisterId
    term: int
    end: int


@notice("entries_missed", REGISTER_TO_REGISTER, needs=_OF_NODES, since=2)
@attrs.frozen
class EntriesMissed:
    """Answer to `EntriesSent`: they don't follow what the sender has.  Or its term is a later
    one."""

    sender: RegisterId
    term: int
    end: int
    """Where to try next."""


@notice("snapshot_taken", REGISTER_TO_REGISTER, needs=_OF_NODES, since=2)
@attrs.frozen
class SnapshotTaken:
    """Answer to `SnapshotSent`: the sender has *count* contents of the snapshot with that *end*."""

    sender: RegisterId
    term: int
    end: int
    count: int


@notice("active_gone", REGISTER_TO_REGISTER, needs=_OF_NODES, since=2)
@attrs.frozen
class ActiveGone:
    """The active register stops: others need not wait until it is silent."""

    sender: RegisterId
    term: int


ToRegister: TypeAlias = (
    VoteRequest
    | VoteAnswer
    | EntriesSent
    | SnapshotSent
    | ActiveHeard
    | EntriesStored
    | EntriesMissed
    | SnapshotTaken
    | ActiveGone
)
