"""What the pages of a node say of relays."""

from __future__ import annotations

import pytest

from octopi.admin.relay_look import RelayLook, StreamLook, off_the_majority, relay_page
from octopi.identifiers import BrokerId, PartitionId
from octopi.wire.relay_descriptions import RelayInfo

A, B, C = (BrokerId(one) for one in (1, 2, 3))
P4 = PartitionId(4)
ONE, OTHER, THIRD = (bytes([one]) * 32 for one in (1, 2, 3))


@pytest.mark.parametrize(
    ("digests", "differ"),
    [
        ({}, []),
        ({A: ONE}, []),
        ({A: ONE, B: ONE, C: ONE}, []),
        ({A: ONE, B: OTHER, C: ONE}, [B]),
        ({A: ONE, B: OTHER}, [A, B]),
        ({A: ONE, B: OTHER, C: THIRD}, [A, B, C]),
    ],
)
def test_who_differs_is_who_has_not_the_digest_of_more_than_half(
    digests: dict[BrokerId, bytes], differ: list[BrokerId]
) -> None:
    assert off_the_majority(digests) == differ


def said(state: str, generation: int, epoch: int, sequencer: BrokerId | None) -> RelayInfo:
    return RelayInfo(P4, (A, B, C), (A,), state, sequencer, generation, epoch, 0, 1, 0, 10, 0)


def test_the_newest_epoch_counts_and_a_member_that_did_not_answer_is_away() -> None:
    look = RelayLook(
        {A: (said("fenced", 1, 7, None),), C: (said("normal", 2, 3, C),)},
        [StreamLook("prices", 4, {A: 5, C: 9}, 5, {A: ONE})],
        1,
    )
    page = relay_page(look, lambda _: True)
    [partition] = page["partitions"]
    assert (partition["partition"], partition["sequencer"]) == (4, C)
    assert (partition["generation"], partition["epoch"]) == (2, 3)
    assert [one["state"] for one in partition["members"]] == ["fenced", "away", "normal"]
    [stream] = page["streams"]
    assert [one["digest"] for one in stream["members"]] == ["01010101", None]
    assert [one["end"] for one in stream["members"]] == [5, 9]


def test_streams_that_the_requester_may_not_know_of_are_not_named() -> None:
    streams = [StreamLook(name, 4, {}, 0, {}) for name in ("mine", "secret")]
    page = relay_page(RelayLook({}, streams, 2), lambda name: name == "mine")
    assert [one["topic"] for one in page["streams"]] == ["mine"]
    assert "secret" not in repr(page)
