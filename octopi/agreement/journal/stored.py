"""What a register has on its device of the replicated journal, and the bytes of it.

An entry is a CBOR map (RFC 8949); a register is the list of its address and directory.  The keys
and their order are the format, which golden tests check
(``tests/agreement/test_journal_stored.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import attrs
import cbor2

from octopi.agreement.entries import DirectoryEntry
from octopi.agreement.journal.history import JournalHistory, JournalSnapshot
from octopi.identifiers import DirectoryId
from octopi.limits import REGISTERS_MAX
from octopi.wire.registers import JournalEntry, RegisterId, Voters


@attrs.frozen
class StoredVote:
    """The register is in *term*, and has voted for *vote* there; None: for nobody yet."""

    term: int
    vote: RegisterId | None


@attrs.frozen
class StoredAppend:
    """*entry* is at *index*, in place of all that was there and behind it."""

    index: int
    entry: JournalEntry


@attrs.frozen
class StoredSnapshot:
    """The journal begins with a snapshot, whose *count* contents come next.  If they don't, as
    after a power cut, the journal is what it was."""

    end: int
    term: int
    voters: Voters
    count: int


@attrs.frozen
class StoredContent:
    """One content of a snapshot."""

    content: bytes


Stored: TypeAlias = DirectoryEntry | StoredVote | StoredAppend | StoredSnapshot | StoredContent


@attrs.define
class StoredState:
    """What a register finds on its device when it starts."""

    term: int = 0
    vote: RegisterId | None = None
    history: JournalHistory = attrs.field(factory=JournalHistory)


def replayed(stored: Iterable[Stored]) -> StoredState:
    """The state that *stored* leads to.

    Raises:
      ValueError: if no register could have stored that.
    """
    state = StoredState()
    begun: StoredSnapshot | None = None
    contents: list[bytes] = []
    for one in stored:
        if isinstance(one, StoredContent):
            if begun is None:
                raise ValueError("a content belongs to no snapshot")
            contents.append(one.content)
        elif begun is not None:
            begun = None  # its contents were lost before anything depended on them
        match one:
            case StoredVote(term, vote):
                if term < state.term:
                    raise ValueError(f"the term {term} comes after {state.term}")
                state.term, state.vote = term, vote
            case StoredAppend(index, entry):
                if not state.history.snapshot.end <= index <= state.history.end:
                    raise ValueError(f"there is nothing before the entry at {index}")
                state.history.put(index, entry)
            case StoredSnapshot():
                begun, contents = one, []
        if begun is not None and len(contents) == begun.count:
            snapshot = JournalSnapshot(begun.end, begun.term, begun.voters, tuple(contents))
            state.history, begun = JournalHistory(snapshot), None
    return state


def snapshot_stored(snapshot: JournalSnapshot) -> list[Stored]:
    """What is stored of *snapshot*."""
    contents = [StoredContent(one) for one in snapshot.contents]
    first = StoredSnapshot(snapshot.end, snapshot.term, snapshot.voters, len(contents))
    return [first, *contents]


def shortest(directory: DirectoryId, state: StoredState) -> list[Stored]:
    """The fewest entries that lead to *state*, beginning with the first one."""
    stored: list[Stored] = [DirectoryEntry(directory)]
    if state.term:
        stored.append(StoredVote(state.term, state.vote))
    history = state.history
    if history.snapshot.end:
        stored += snapshot_stored(history.snapshot)
    start = history.snapshot.end
    stored += [StoredAppend(start + at, entry) for at, entry in enumerate(history.entries)]
    return stored


def encode_stored(one: Stored) -> bytes:
    """The bytes of *one*."""
    fields: dict[str, Any]
    match one:
        case DirectoryEntry(directory):
            fields = {"directory": directory, "entry": "directory"}
        case StoredVote(term, vote):
            voted = [] if vote is None else [vote.address, vote.directory]
            fields = {"term": term, "vote": voted, "entry": "vote"}
        case StoredAppend(index, entry):
            fields = {
                "index": index,
                "term": entry.term,
                "content": entry.content,
                "voters": _voters_fields(entry.voters),
                "entry": "append",
            }
        case StoredSnapshot(end, term, voters, count):
            fields = {
                "end": end,
                "term": term,
                "voters": _voters_fields(voters),
                "count": count,
                "entry": "snapshot",
            }
        case StoredContent(content):
            fields = {"content": content, "entry": "content"}
    return cbor2.dumps(fields)


def decode_stored(data: bytes) -> Stored:
    """What has the bytes *data*.

    Raises:
      ValueError: if nothing has.
    """
    try:
        fields = cbor2.loads(data)
    except Exception as error:  # cbor2 lets several classes through
        raise ValueError("it is no CBOR") from error
    match fields:
        case {"directory": str(directory), "entry": "directory"} if len(fields) == 2:
            return DirectoryEntry(DirectoryId(directory))
        case {"term": int(term), "vote": [], "entry": "vote"} if len(fields) == 3:
            return StoredVote(term, None)
        case {"term": int(term), "vote": vote, "entry": "vote"} if len(fields) == 3:
            return StoredVote(term, _register(vote))
        case {
            "index": int(index),
            "term": int(term),
            "content": bytes(content),
            "voters": voters,
            "entry": "append",
        } if len(fields) == 5:
            return StoredAppend(index, JournalEntry(term, content, _voters(voters)))
        case {
            "end": int(end),
            "term": int(term),
            "voters": voters,
            "count": int(count),
            "entry": "snapshot",
        } if len(fields) == 5:
            return StoredSnapshot(end, term, _voters(voters), count)
        case {"content": bytes(content), "entry": "content"} if len(fields) == 2:
            return StoredContent(content)
    raise ValueError("it is nothing that a register stores of its journal")


def _voters_fields(voters: Voters) -> list[list[str]]:
    return [[one.address, one.directory] for one in voters]


def _voters(fields: object) -> Voters:
    if not isinstance(fields, list) or len(fields) > REGISTERS_MAX:
        raise ValueError(f"it has no list of voters, but {fields!r}")
    return tuple(_register(one) for one in fields)


def _register(fields: object) -> RegisterId:
    match fields:
        case [str(address), str(directory)]:
            return RegisterId(address, DirectoryId(directory))
    raise ValueError(f"it has no register, but {fields!r}")
