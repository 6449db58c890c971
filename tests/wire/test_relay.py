"""What relays say to each other, as it travels."""

from __future__ import annotations

import re

import attrs
import cbor2
import pytest

from octopi.errors import ProtocolError
from octopi.identifiers import BrokerId, Offset, PartitionId, TopicId
from octopi.limits import OFFSET_MAX, RELAY_STREAMS_TOLD_MAX
from octopi.model import TopicOptions, TopicRecord
from octopi.wire.codec import decode, encode
from octopi.wire.common import TopicInfo
from octopi.wire.declarations import TYPE_NAMES
from octopi.wire.relay import (
    AnswerTold,
    BeatTold,
    ComparedTold,
    CompareTold,
    OrderRefusal,
    OrderRefused,
    RelayState,
    StartTold,
    ToldSet,
    VoteTold,
    WrittenTold,
)
from octopi.wire.relay_rows import (
    ends_of,
    ids_of,
    packed_ends,
    packed_ids,
    packed_points,
    packed_streams,
    points_of,
    streams_of,
)

TOPIC = TopicId("00c1a5735eed0001")
EPOCH, ID, DIGEST = bytes(range(16)), b"i" * 16, b"d" * 32
POINT = (Offset(7), DIGEST)
MEMBERS = ToldSet(2, (BrokerId(1), BrokerId(3)))
BEAT = BeatTold(
    PartitionId(0), 0, 0, RelayState.NORMAL, EPOCH, EPOCH, (BrokerId(1),), 3, MEMBERS, MEMBERS
)
VOTE = VoteTold(PartitionId(0), 0, 0, EPOCH, EPOCH, MEMBERS, (), b"")


def again(message: object) -> object:
    return decode(encode(message), frozenset({type(message)}))


def test_rows_are_read_as_they_were_written() -> None:
    assert points_of(packed_points([POINT, (Offset(9), b"e" * 32)])) == [
        POINT,
        (Offset(9), b"e" * 32),
    ]
    assert streams_of(packed_streams([(TOPIC, *POINT)])) == [(TOPIC, *POINT)]
    assert ends_of(packed_ends([(TOPIC, *POINT, Offset(5))])) == [(TOPIC, *POINT, Offset(5))]
    assert points_of(b"") == []


def test_a_topic_says_whether_it_is_in_memory() -> None:
    record = TopicRecord("prices", "1" * 16, [PartitionId(0)], TopicOptions(), kind="relay")
    info = TopicInfo("prices", "1" * 16, [], TopicOptions())
    assert record.is_relay
    assert not info.is_relay
    assert attrs.evolve(info, kind="relay").is_relay


def test_ids_are_read_as_they_were_written() -> None:
    assert ids_of(packed_ids([TOPIC, TOPIC])) == [TOPIC, TOPIC]
    assert ids_of(b"") == []


def test_a_message_has_as_many_streams_as_its_bound_and_no_more() -> None:
    row = (TOPIC, *POINT, Offset(5))
    most = attrs.evolve(VOTE, streams=packed_ends([row] * RELAY_STREAMS_TOLD_MAX), more=True)
    assert again(most) == most
    with pytest.raises(ValueError, match=r"relay_vote\.streams: it has \d+ bytes, at most"):
        encode(attrs.evolve(most, streams=most.streams + packed_ends([row])))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (attrs.evolve(VOTE, streams=bytes(55)), "streams has 55 bytes, and a row has 56"),
        (
            attrs.evolve(VOTE, streams=packed_ends([(TOPIC, *POINT, Offset(OFFSET_MAX + 1))])),
            "streams has an offset above",
        ),
        (CompareTold(PartitionId(0), 0, 0, EPOCH, TOPIC, bytes(39)), "points has 39 bytes"),
        (ComparedTold(PartitionId(0), 0, 0, EPOCH, TOPIC, bytes(40)), "two places at least"),
        (ComparedTold(PartitionId(0), 0, 0, EPOCH, TOPIC, bytes(81)), "points has 81 bytes"),
        (AnswerTold(PartitionId(0), 0, 0, EPOCH, MEMBERS, (), bytes(47)), "streams has 47 bytes"),
        (StartTold(PartitionId(0), 0, 0, EPOCH, MEMBERS, (), b"", bytes(9)), "removed has 9 bytes"),
        (attrs.evolve(BEAT, known_set=ToldSet(1, ())), "its members are none"),
        (attrs.evolve(BEAT, known_set=ToldSet(1, (BrokerId(1),) * 2)), "not all different"),
        (attrs.evolve(BEAT, epoch=EPOCH[1:]), "it has 15 bytes, and has to have 16"),
        (attrs.evolve(BEAT, state="asleep"), "none of joining, normal, changing, fenced"),
        (attrs.evolve(BEAT, generation=1 << 24), "it is 16777216"),
        (
            OrderRefused(PartitionId(0), 0, 0, TOPIC, ID, "for fun", None, 0, ""),
            "none of not sequencer, not ready",
        ),
        (WrittenTold(PartitionId(0), 0, 0, EPOCH, TopicId("../up"), 7, DIGEST), "hexadecimal"),
    ],
    ids=lambda one: type(one).__name__ if not isinstance(one, str) else one[:20],
)
def test_what_no_relay_sends_is_refused_with_the_reason(message: object, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        encode(message)
    fields = {"type": TYPE_NAMES[type(message)]}
    fields |= attrs.asdict(message)
    with pytest.raises(ProtocolError, match=re.escape(why)):
        decode(cbor2.dumps(fields), frozenset({type(message)}))


def test_a_relay_without_history_answers_without_streams() -> None:
    silent = AnswerTold(PartitionId(0), 0, 0, EPOCH, MEMBERS, (), None)
    assert again(silent) == silent


@pytest.mark.parametrize("why", OrderRefusal)
def test_a_refusal_says_why(why: OrderRefusal) -> None:
    refused = OrderRefused(PartitionId(0), 0, 0, TOPIC, ID, why, BrokerId(2), 0, "")
    assert again(refused) == refused
