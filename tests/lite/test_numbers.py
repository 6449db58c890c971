"""Numbers of messages by arithmetic, and who reads which partition."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from octopi.errors import InvalidOptionError
from octopi.lite import MESSAGE_BYTES, NotLiteError
from octopi.lite.manifest import deal
from octopi.lite.numbers import RECORD_BYTES, number_at, offset_of, padded


def test_a_record_of_lite_has_313_bytes() -> None:
    assert RECORD_BYTES == 313


@given(st.integers(0, 2**48))
def test_message_n_begins_at_n_times_the_size_of_a_record_and_nothing_else_begins_there(
    number: int,
) -> None:
    assert number_at(offset_of(number)) == number
    for beside in (1, RECORD_BYTES - 1):
        with pytest.raises(NotLiteError):
            number_at(offset_of(number) + beside)


def test_there_is_no_message_before_number_0() -> None:
    with pytest.raises(InvalidOptionError, match="numbered from 0"):
        offset_of(-1)


@given(st.binary(max_size=MESSAGE_BYTES))
def test_shorter_data_is_filled_up_with_zeros(data: bytes) -> None:
    value = padded(data)
    assert len(value) == MESSAGE_BYTES
    assert value.startswith(data)
    assert not any(value[len(data) :])


def test_longer_data_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="256 bytes at most, and this one has 257"):
        padded(bytes(257))


@given(st.lists(st.integers(0, 255)), st.integers(1, 20))
def test_each_partition_is_dealt_once_and_members_differ_by_one_at_most(
    partition_ids: list[int], member_count: int
) -> None:
    shares = deal(partition_ids, member_count)
    assert sorted(one for share in shares for one in share) == sorted(set(partition_ids))
    sizes = [len(share) for share in shares]
    assert len(sizes) == member_count
    assert max(sizes) - min(sizes) <= 1
