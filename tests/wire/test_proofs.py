"""Proofs of digests, as they are packed beside the records of a delivery."""

import pytest
from hypothesis import given, strategies as st

from octopi.limits import BATCH_BYTES_MAX, OFFSET_MAX, RELAY_READ_TRANSACTIONS
from octopi.wire.proofs import (
    PROOF_BYTES_MAX,
    DigestProof,
    ProvenTransaction,
    packed_proof,
    proof_of,
)

DIGESTS = st.binary(min_size=32, max_size=32)
ROWS = st.tuples(st.binary(min_size=16, max_size=16), st.integers(1, BATCH_BYTES_MAX), DIGESTS)
ROW = (b"i" * 16, 1, b"d" * 32)


@given(st.integers(0, 2**50), DIGESTS, st.lists(ROWS, min_size=1, max_size=5))
def test_a_proof_is_read_as_it_was_packed(
    start: int, before: bytes, rows: list[tuple[bytes, int, bytes]]
) -> None:
    transactions = tuple(ProvenTransaction(*row) for row in rows)
    packed = packed_proof(start, before, rows)
    assert proof_of(packed) == DigestProof(start, before, transactions)


@given(st.binary(max_size=300))
def test_whatever_is_no_proof_is_refused_or_packs_to_the_same_bytes(data: bytes) -> None:
    try:
        found = proof_of(data)
    except ValueError:
        return
    rows = [(one.id, one.size_bytes, one.digest) for one in found.transactions]
    assert packed_proof(found.start, found.before, rows) == data


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes are no proof"),
        (packed_proof(0, b"d" * 32, []), "40 bytes are no proof"),
        (packed_proof(0, b"d" * 32, [ROW])[:-1], "95 bytes are no proof"),
        (packed_proof(OFFSET_MAX, b"d" * 32, [ROW]), "behind the greatest offset"),
        (packed_proof(0, b"d" * 32, [(b"i" * 16, 0, b"d" * 32)]), "1 to [0-9]+ bytes of records"),
        (
            packed_proof(0, b"d" * 32, [(b"i" * 16, BATCH_BYTES_MAX + 1, b"d" * 32)]),
            "1 to [0-9]+ bytes of records",
        ),
    ],
    ids=["empty", "no transaction", "cut", "too far", "a transaction without bytes", "too long"],
)
def test_a_proof_of_another_form_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        proof_of(data)


def test_the_longest_proof_has_the_transactions_of_one_reading_and_one_more() -> None:
    packed = packed_proof(0, b"d" * 32, [ROW] * (RELAY_READ_TRANSACTIONS + 1))
    assert len(packed) == PROOF_BYTES_MAX
