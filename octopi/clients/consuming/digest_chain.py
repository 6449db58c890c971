"""Computes the digests of a relay topic from what a reader is sent, and compares them.

The digest at an offset covers all messages before it.  The reader begins with a digest that a relay
states, at the first place of a transaction that it passes; if it knows the anchor of a place, which
has a part of the digest there, the two have to be the same.  From then on it computes each digest
from the one before it, the id and the records, and compares it with the one that the relay states.
So it notices what was changed, left out or put elsewhere on the way, or in the relay's memory since
that was digested; and when it goes on at another relay, any difference between the two.  A relay
that states digests of a history of its own is noticed only there.

Pure: it knows no connection.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from octopi.errors import DigestMismatchError, ProtocolError
from octopi.wire.proofs import DigestProof, ProvenTransaction, proof_of

if TYPE_CHECKING:
    from hashlib import _Hash

_ANCHOR_BYTES: Final = 8


class DigestChain:
    """The digests of one stream, from a place on.

    Invariant: the digest at `_at` was computed here from the first one that was believed.
    """

    def __init__(self, name: str, anchor: str = "") -> None:
        """*name*: of the stream, for errors.  *anchor*: that of where reading begins; empty: it is
        not known."""
        self._name = name
        self.begin(anchor)

    def begin(self, anchor: str = "") -> None:
        """Reading goes on elsewhere: believe the next relay again, but for *anchor*."""
        end, _, digest = anchor.partition(".")
        self._anchored = (int(end), bytes.fromhex(digest)) if digest else None
        self._at: int | None = None
        """Where the transaction begins that comes next, or of which a part has come; None: nothing
        is known yet."""
        self._digest = b""
        """There."""
        self._begun: _Hash | None = None
        """Of that transaction, as far as its records have come."""
        self._came = 0
        """How many bytes of its records have come."""

    def take(self, offset: int, records: bytes | memoryview, data: bytes) -> None:
        """*records*, which follow those before, have come from *offset* on with the proof *data*.

        Raises:
          DigestMismatchError: if they are not what a digest says.
          ProtocolError: if *data* is no proof of them.
        """
        proof = self._checked(offset, records, data)
        if self._at is None:
            self._start(proof)
        elif (proof.start, proof.before) != (self._at, self._digest):
            raise self._mismatch(proof.start, self._digest, proof.before)
        begin, view = proof.start, memoryview(records)
        for one in proof.transactions:
            end = begin + one.size_bytes
            part = view[max(begin, offset) - offset : max(0, end - offset)]
            if begin < offset and self._begun is None:
                self._pass(end, one)  # reading began in the middle of it
            else:
                self._add(begin, one, part)
            begin = end

    def _checked(self, offset: int, records: bytes | memoryview, data: bytes) -> DigestProof:
        try:
            proof = proof_of(data)
        except ValueError as error:
            raise ProtocolError(f"{self._name}: a relay sent what is no proof: {error}") from None
        *others, last = proof.transactions
        begin = proof.start + sum(one.size_bytes for one in others)
        first_end = proof.start + proof.transactions[0].size_bytes
        end = offset + len(records)
        if not (proof.start <= offset < first_end and begin < end <= begin + last.size_bytes):
            raise ProtocolError(
                f"{self._name}: the proof of offsets {offset} to {end} is one of {proof.start} to "
                f"{begin + last.size_bytes}"
            )
        if self._begun is not None and offset != (self._at or 0) + self._came:
            raise ProtocolError(f"{self._name}: records are missing before offset {offset}")
        return proof

    def _start(self, proof: DigestProof) -> None:
        self._compare_anchor(proof.start, proof.before)
        self._at, self._digest = proof.start, proof.before

    def _pass(self, end: int, one: ProvenTransaction) -> None:
        self._compare_anchor(end, one.digest)
        self._at, self._digest = end, one.digest

    def _add(self, begin: int, one: ProvenTransaction, part: memoryview) -> None:
        if self._begun is None:
            self._begun = sha256(self._digest + one.id + one.size_bytes.to_bytes(8, "big"))
            self._came = 0
        self._begun.update(part)
        self._came += len(part)
        if self._came < one.size_bytes:
            return
        digest, end = self._begun.digest(), begin + one.size_bytes
        if digest != one.digest:
            raise self._mismatch(end, digest, one.digest)
        self._compare_anchor(end, digest)
        self._at, self._digest, self._begun = end, digest, None

    def _compare_anchor(self, end: int, digest: bytes) -> None:
        if self._anchored is None or self._anchored[0] != end:
            return
        known, self._anchored = self._anchored[1], None
        if digest[:_ANCHOR_BYTES] != known:
            raise self._mismatch(end, known, digest)

    def _mismatch(self, offset: int, known: bytes, told: bytes) -> DigestMismatchError:
        return DigestMismatchError(
            f"{self._name}: at offset {offset} the digest is {known[:_ANCHOR_BYTES].hex()} by what "
            f"was read, and the relay says {told[:_ANCHOR_BYTES].hex()}: its memory, or what is "
            "between, changes messages; `octopi-node relay verify TOPIC` says which relay differs",
            offset,
        )
