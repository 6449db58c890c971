"""What registers send each other about their journal.  Each message says who sends it, and in which
term."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from octopi.agreement.journal.history import JournalEntry
from octopi.agreement.journal.voters import RegisterId, Voters


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
    founders: Voters = ()
    """If the sender's journal is empty: all registers, with which the journal would begin.  Empty:
    it doesn't know all of them yet."""


@attrs.frozen
class VoteAnswer:
    """Answer to `VoteRequest`."""

    sender: RegisterId
    term: int
    """If granted, the term that was asked about; otherwise the term of the voter."""
    is_trial: bool
    is_granted: bool


@attrs.frozen
class EntriesSent:
    """The active register to another one: entries; none, if it only shows that it is there."""

    sender: RegisterId
    term: int
    start: int
    """The index of the first entry."""
    term_before: int
    """The term of the entry before that one."""
    entries: tuple[JournalEntry, ...]
    committed: int
    """The index behind the last committed entry."""
    sent_ms: int
    """When it was sent, by the sender's clock."""


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
    contents: tuple[bytes, ...]
    sent_ms: int


@attrs.frozen
class ActiveHeard:
    """Answer to `EntriesSent` and `SnapshotSent`, at once: the sender is a standby in that term."""

    sender: RegisterId
    term: int
    sent_ms: int
    """As in the message."""


@attrs.frozen
class EntriesStored:
    """The sender's journal is durable and that of the active register before the index *end*."""

    sender: RegisterId
    term: int
    end: int


@attrs.frozen
class EntriesMissed:
    """Answer to `EntriesSent`: they don't follow what the sender has.  Or its term is a later
    one."""

    sender: RegisterId
    term: int
    end: int
    """Where to try next."""


@attrs.frozen
class SnapshotTaken:
    """Answer to `SnapshotSent`: the sender has *count* contents of the snapshot with that *end*."""

    sender: RegisterId
    term: int
    end: int
    count: int


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
