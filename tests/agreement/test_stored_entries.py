"""The entries of an acceptor's journal are read as they were written."""

from __future__ import annotations

from typing import Any

import attrs
import cbor2
import pytest

from octopi.agreement.entries import (
    AcceptEntry,
    AcceptorEntry,
    DirectoryEntry,
    LeftEntry,
    PromiseEntry,
    decode_entry,
    encode_entry,
)
from octopi.identifiers import DirectoryId
from tests.agreement.test_acceptor import JOINT, ONE, B, C, D, ballot

ENTRIES: list[tuple[DirectoryEntry | AcceptorEntry, dict[str, Any]]] = [
    (DirectoryEntry(DirectoryId("0a")), {"directory": "0a", "entry": "directory"}),
    (PromiseEntry(ONE, ballot(3)), {"instance": 1, "ballot": [3, 9, 1], "entry": "promise"}),
    (
        AcceptEntry(ONE, ballot(3), ballot(4), JOINT),
        {
            "instance": 1,
            "ballot": [3, 9, 1],
            "entry": "accept",
            "successor": [4, 9, 1],
            "change": 2,
            "acceptors": [[2, "d"], [3, "d"], [4, "d"]],
            "previous": [[1, "d"], [2, "d"], [3, "d"]],
            "content": b"second",
        },
    ),
    (
        LeftEntry(ONE, ballot(3), (B, C, D)),
        {
            "instance": 1,
            "ballot": [3, 9, 1],
            "entry": "left",
            "successors": [[2, "d"], [3, "d"], [4, "d"]],
        },
    ),
]


@pytest.mark.parametrize(("entry", "fields"), ENTRIES, ids=lambda one: type(one).__name__)
def test_the_bytes_of_an_entry_stay_the_same(entry: AcceptorEntry, fields: dict[str, Any]) -> None:
    assert encode_entry(entry) == cbor2.dumps(fields)
    assert decode_entry(cbor2.dumps(fields)) == entry


@pytest.mark.parametrize(("entry", "fields"), ENTRIES, ids=lambda one: type(one).__name__)
def test_what_is_no_entry_is_not_read(entry: AcceptorEntry, fields: dict[str, Any]) -> None:
    wrong = [{**fields, "further": 1}, {**fields, "entry": "other"}, list(fields)]
    wrong += [{key: fields[key] for key in fields if key != left} for left in fields]
    wrong += [{**fields, key: None} for key in fields]
    wrong += [{**fields, key: [[]]} for key in fields]
    for one in wrong:
        with pytest.raises(ValueError, match="it "):
            decode_entry(cbor2.dumps(one))
    for cut in range(len(encode_entry(entry))):
        with pytest.raises(ValueError, match="no CBOR"):
            decode_entry(encode_entry(entry)[:cut])


def test_a_value_that_no_proposer_proposes_is_not_read() -> None:
    entry = AcceptEntry(ONE, ballot(3), ballot(4), attrs.evolve(JOINT, acceptors=()))
    with pytest.raises(ValueError, match="1 to 32 acceptors"):
        decode_entry(encode_entry(entry))
