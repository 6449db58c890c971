"""The form on disk of a register's journal: golden bytes, and what is read of damaged ones."""

from __future__ import annotations

import cbor2
import pytest

from octopi.agreement.entries import DirectoryEntry
from octopi.agreement.journal.stored import (
    Stored,
    StoredAppend,
    StoredContent,
    StoredSnapshot,
    StoredVote,
    decode_stored,
    encode_stored,
    replayed,
)
from octopi.identifiers import DirectoryId
from octopi.wire.registers import JournalEntry, RegisterId

ONE = RegisterId("ws://a:7000", DirectoryId("d1"))

GOLDEN: list[tuple[Stored, object]] = [
    (DirectoryEntry(DirectoryId("d1")), {"directory": "d1", "entry": "directory"}),
    (StoredVote(3, None), {"term": 3, "vote": [], "entry": "vote"}),
    (StoredVote(3, ONE), {"term": 3, "vote": ["ws://a:7000", "d1"], "entry": "vote"}),
    (
        StoredAppend(7, JournalEntry(3, b"x", (ONE,))),
        {
            "index": 7,
            "term": 3,
            "content": b"x",
            "voters": [["ws://a:7000", "d1"]],
            "entry": "append",
        },
    ),
    (
        StoredSnapshot(7, 3, (ONE,), 2),
        {"end": 7, "term": 3, "voters": [["ws://a:7000", "d1"]], "count": 2, "entry": "snapshot"},
    ),
    (StoredContent(b"x"), {"content": b"x", "entry": "content"}),
]


@pytest.mark.parametrize(("stored", "fields"), GOLDEN)
def test_each_entry_has_these_bytes(stored: Stored, fields: object) -> None:
    data = encode_stored(stored)
    assert data == cbor2.dumps(fields)
    assert decode_stored(data) == stored


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        cbor2.dumps({"entry": "vote", "term": 3}),
        cbor2.dumps({"entry": "vote", "term": 3, "vote": ["a"]}),
        cbor2.dumps({"entry": "content", "content": b"", "more": 1}),
        cbor2.dumps({"entry": "snapshot", "end": 1, "term": 1, "voters": 1, "count": 1}),
        cbor2.dumps(
            {"entry": "snapshot", "end": 1, "term": 1, "voters": [["a", "b"]] * 10, "count": 1}
        ),
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        decode_stored(data)


def test_an_entry_replaces_all_from_its_index_on() -> None:
    entries = [StoredAppend(one, JournalEntry(1, b"%d" % one)) for one in range(3)]
    state = replayed([*entries, StoredAppend(1, JournalEntry(2, b"new", (ONE,)))])
    assert list(state.history.contents()) == [b"0", b"new"]
    assert state.history.voters == (ONE,)


def test_a_snapshot_counts_when_all_of_it_is_there() -> None:
    first: list[Stored] = [StoredAppend(0, JournalEntry(1, b"old"))]
    begun: list[Stored] = [StoredSnapshot(5, 2, (ONE,), 2), StoredContent(b"a")]
    state = replayed([*first, *begun, StoredVote(3, ONE)])
    assert list(state.history.contents()) == [b"old"]
    state = replayed([*first, *begun, StoredContent(b"b"), StoredAppend(5, JournalEntry(3, b"c"))])
    assert list(state.history.contents()) == [b"a", b"b", b"c"]
    assert (state.history.snapshot.end, state.history.end) == (5, 6)


@pytest.mark.parametrize(
    "stored",
    [
        [StoredContent(b"a")],
        [StoredVote(3, None), StoredVote(2, None)],
        [StoredAppend(1, JournalEntry(1, b"a"))],
    ],
)
def test_what_no_register_stores_is_refused(stored: list[Stored]) -> None:
    with pytest.raises(ValueError, match=r"snapshot|after|before"):
        replayed(stored)
