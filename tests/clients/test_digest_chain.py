"""A reader computes the digests of what it is sent."""

from __future__ import annotations

import pytest

from octopi.clients.consuming.digest_chain import DigestChain
from octopi.errors import DigestMismatchError, OctopiError
from tests.clients.digest_cases import CASES, GOOD, OTHER, Case, anchor, delivery


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_a_reader_finds_in_deliveries_with_proofs(case: Case) -> None:
    chain = DigestChain("prices/3", case.anchor)
    *before, last = case.deliveries
    for one in before:
        chain.take(*one)
    if not case.code:
        chain.take(*last)
        return
    with pytest.raises(OctopiError) as caught:
        chain.take(*last)
    assert caught.value.code == case.code
    if isinstance(caught.value, DigestMismatchError):
        assert caught.value.offset == case.offset
        assert "octopi-node relay verify" in str(caught.value)


def test_a_reader_that_falls_back_compares_with_the_anchor_there_and_believes_again() -> None:
    chain = DigestChain("prices/3")
    chain.take(*delivery(GOOD[:4]))
    chain.begin()
    chain.take(*delivery(OTHER[2:]))
    chain.begin(anchor(GOOD[1]))
    with pytest.raises(DigestMismatchError):
        chain.take(*delivery(OTHER[2:]))


def test_views_of_received_bytes_are_digested_without_a_copy_of_them() -> None:
    chain = DigestChain("prices/3", anchor(GOOD[1]))
    offset, records, data = delivery(GOOD[2:])
    chain.take(offset, memoryview(bytearray(records)), data)
