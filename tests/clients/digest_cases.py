"""Deliveries of a relay topic with their proofs, and what a reader finds: for the clients in Python
and in JavaScript."""

from __future__ import annotations

from typing import Final

import attrs

from octopi.identifiers import PartitionId, TopicId
from octopi.relay.digest import Digest, first_digest, next_digest
from octopi.relay.message_ids import MessageId, message_id
from octopi.wire.proofs import packed_proof

MISMATCH: Final = "digest_mismatch"
NO_PROOF: Final = "protocol"

_FIRST: Final = first_digest(TopicId("00c1a5735eed0001"), PartitionId(3))
_RECORDS: Final = (b"one", b"the second", bytes(300), b"4", b"five")


@attrs.frozen
class Transaction:
    """One of a stream."""

    offset: int
    id: MessageId
    records: bytes
    before: Digest
    digest: Digest

    @property
    def end(self) -> int:
        return self.offset + len(self.records)

    @property
    def row(self) -> tuple[bytes, int, bytes]:
        return self.id, len(self.records), self.digest


def stream(*records: bytes, first: Digest = _FIRST) -> list[Transaction]:
    """The transactions with these *records*."""
    found: list[Transaction] = []
    digest, at = first, 0
    for number, one in enumerate(records):
        identity = message_id(1_700_000_000_000 + number, b"node-a", 0)
        before, digest = digest, next_digest(digest, identity, one)
        found.append(Transaction(at, identity, one, before, digest))
        at += len(one)
    return found


GOOD: Final = stream(*_RECORDS)
OTHER: Final = stream(b"ONE", *_RECORDS[1:])
"""Another history: it has the same offsets."""


@attrs.frozen
class Case:
    """What comes, and what is found."""

    name: str
    anchor: str
    deliveries: list[tuple[int, bytes, bytes]]
    """Offset, records and proof of each."""
    code: str = ""
    """That of the error of the last delivery; empty: all is well."""
    offset: int | None = None
    """That of a mismatch."""


def proof(some: list[Transaction]) -> bytes:
    return packed_proof(some[0].offset, some[0].before, [one.row for one in some])


def delivery(
    some: list[Transaction], begin: int | None = None, end: int | None = None
) -> tuple[int, bytes, bytes]:
    """A delivery of *some*, perhaps without the records before *begin*, and from *end* on."""
    at = some[0].offset
    first = at if begin is None else begin
    records = b"".join(one.records for one in some)
    last = at + len(records) if end is None else end
    return first, records[first - at : last - at], proof(some)


def anchor(one: Transaction) -> str:
    """That of the place behind it."""
    return f"{one.end}.{one.digest[:8].hex()}"


def changed(some: tuple[int, bytes, bytes], place: int) -> tuple[int, bytes, bytes]:
    """The same with a flipped bit in its records."""
    offset, records, data = some
    flipped = bytes([records[place] ^ 1])
    return offset, records[:place] + flipped + records[place + 1 :], data


CASES: Final = [
    Case("all in one delivery", "", [delivery(GOOD)]),
    Case("one by one", "", [delivery([one]) for one in GOOD]),
    Case("from an anchored place on", anchor(GOOD[1]), [delivery(GOOD[2:])]),
    Case(
        "a transaction in three deliveries",
        anchor(GOOD[1]),
        [
            delivery(GOOD[2:3], end=20),
            delivery(GOOD[2:3], begin=20, end=200),
            delivery(GOOD[2:4], begin=200),
            delivery(GOOD[4:]),
        ],
    ),
    Case(
        "reading begins in the middle of a transaction, with the anchor behind it",
        anchor(GOOD[1]),
        [delivery(GOOD[1:3], begin=7), delivery(GOOD[3:])],
    ),
    Case("an anchor of epochs, which names no digest", "7-1200", [delivery(GOOD)]),
    Case("a flipped bit", "", [delivery(GOOD[:2]), changed(delivery(GOOD[2:]), 5)], MISMATCH, 313),
    Case(
        "a flipped bit in a transaction of two deliveries",
        "",
        [changed(delivery(GOOD[:3], end=200), 150), delivery(GOOD[2:3], begin=200)],
        MISMATCH,
        313,
    ),
    Case(
        "a flipped bit in the first part, where the anchor stands behind it",
        anchor(GOOD[1]),
        [changed(delivery(GOOD[:3]), 4)],
        MISMATCH,
        13,
    ),
    Case("another history than the anchor's", anchor(GOOD[1]), [delivery(OTHER[2:])], MISMATCH, 13),
    Case(
        "another history than the anchor's, whose place is passed",
        anchor(GOOD[2]),
        [delivery(OTHER[1:3], begin=7)],
        MISMATCH,
        313,
    ),
    Case(
        "another relay goes on with another history",
        "",
        [delivery(GOOD[:2]), delivery(OTHER[2:])],
        MISMATCH,
        13,
    ),
    Case(
        "another relay goes on with the rest of another transaction",
        "",
        [delivery(GOOD[:3], end=50), delivery(OTHER[2:3], begin=50)],
        MISMATCH,
        13,
    ),
    Case("no proof", "", [(0, b"one", b"")], NO_PROOF),
    Case("half a row", "", [(0, b"one", proof(GOOD[:1])[:-1])], NO_PROOF),
    Case("the proof of other offsets", "", [(0, b"one", proof(GOOD[1:2]))], NO_PROOF),
    Case("more records than the proof has", "", [(0, b"one, and more", proof(GOOD[:1]))], NO_PROOF),
    Case("a transaction too many", "", [(0, b"one", proof(GOOD[:2]))], NO_PROOF),
    Case(
        "a transaction without records",
        "",
        [(0, b"one", packed_proof(0, _FIRST, [(GOOD[0].id, 0, GOOD[0].digest), GOOD[0].row]))],
        NO_PROOF,
    ),
    Case(
        "a transaction that is too long",
        "",
        [(0, b"one", packed_proof(0, _FIRST, [(GOOD[0].id, 2**40, GOOD[0].digest)]))],
        NO_PROOF,
    ),
]
