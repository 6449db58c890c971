"""The rolling digest of a stream (R23, R25)."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given, strategies as st

from octopi.identifiers import PartitionId, TopicId
from octopi.relay.digest import Digest, first_digest, next_digest
from octopi.relay.message_ids import MessageId

TOPIC = TopicId("00000000000000ab")
BEGIN = first_digest(TOPIC, PartitionId(3))
ID = MessageId(bytes(range(16)))


def chained(transactions: list[tuple[bytes, bytes]]) -> Digest:
    digest = BEGIN
    for identity, records in transactions:
        digest = next_digest(digest, MessageId(identity), records)
    return digest


def test_the_digest_is_that_of_the_page_on_relays() -> None:
    begin = sha256(b"octopi relay" + b"00000000000000ab" + bytes([0] * 7 + [3])).digest()
    assert begin == BEGIN
    follows = sha256(begin + ID + bytes([0] * 7 + [5]) + b"hello").digest()
    assert next_digest(BEGIN, ID, b"hello") == follows


def test_streams_of_different_topics_and_partitions_begin_differently() -> None:
    assert first_digest(TOPIC, PartitionId(4)) != BEGIN
    assert first_digest(TopicId("00000000000000ac"), PartitionId(3)) != BEGIN


TRANSACTIONS = st.lists(
    st.tuples(st.binary(min_size=16, max_size=16), st.binary(min_size=1, max_size=8)),
    min_size=1,
    max_size=5,
)


@given(TRANSACTIONS, st.data())
def test_any_flipped_bit_changes_every_later_digest(
    transactions: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(transactions) - 1))
    part = data.draw(st.integers(0, 1))
    content = bytearray(transactions[at][part])
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    changed = list(transactions)
    changed[at] = (
        (bytes(content), changed[at][1]) if part == 0 else (changed[at][0], bytes(content))
    )
    for end in range(at + 1, len(transactions) + 1):
        assert chained(changed[:end]) != chained(transactions[:end])


@pytest.mark.parametrize("change", ["order", "drop", "join"])
def test_another_order_and_a_missing_or_joined_transaction_change_the_digest(change: str) -> None:
    one, two = (bytes(16), b"one"), (bytes(15) + b"1", b"two")
    changed = {"order": [two, one], "drop": [two], "join": [(bytes(16), b"onetwo")]}[change]
    assert chained(changed) != chained([one, two])
