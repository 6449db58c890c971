"""What a `Delivery` of a relay topic has so that its reader can compute the digests itself.

A proof has a head, and a row for each transaction of which the delivery has records, one behind the
other.  The first and the last transaction may have more records than the delivery has::

    head = where the first transaction begins (8)  digest there (32)
    row  = id (16)  length of its records (8)  digest behind it (32)

The digests follow from each other as `octopi.relay.digest` says.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

import attrs

from octopi.limits import BATCH_BYTES_MAX, OFFSET_MAX, RELAY_READ_TRANSACTIONS

_HEAD: Final = Struct(">Q32s")
_ROW: Final = Struct(">16sQ32s")

PROOF_BYTES_MAX: Final = _HEAD.size + (RELAY_READ_TRANSACTIONS + 1) * _ROW.size


@attrs.frozen
class ProvenTransaction:
    """One transaction, without its records."""

    id: bytes
    """16 bytes."""
    size_bytes: int
    digest: bytes
    """Behind it: 32 bytes."""


@attrs.frozen
class DigestProof:
    """The transactions that a delivery touches."""

    start: int
    """The offset at which the first one begins."""
    before: bytes
    """The digest there: 32 bytes."""
    transactions: tuple[ProvenTransaction, ...]


def packed_proof(start: int, before: bytes, rows: Iterable[tuple[bytes, int, bytes]]) -> bytes:
    """The bytes of a proof; *rows*: id, length and digest of each transaction."""
    return _HEAD.pack(start, before) + b"".join(_ROW.pack(*row) for row in rows)


def proof_of(data: bytes) -> DigestProof:
    """The inverse of `packed_proof`.

    Raises:
      ValueError: if *data* is no proof.
    """
    if len(data) <= _HEAD.size or (len(data) - _HEAD.size) % _ROW.size:
        raise ValueError(f"{len(data)} bytes are no proof")
    start, before = _HEAD.unpack_from(data)
    rows = tuple(ProvenTransaction(*row) for row in _ROW.iter_unpack(data[_HEAD.size :]))
    if start + sum(one.size_bytes for one in rows) > OFFSET_MAX:
        raise ValueError("it ends behind the greatest offset")
    if not all(1 <= one.size_bytes <= BATCH_BYTES_MAX for one in rows):
        raise ValueError(f"a transaction has 1 to {BATCH_BYTES_MAX} bytes of records")
    return DigestProof(start, before, rows)
