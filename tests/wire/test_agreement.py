"""Agreed values as they travel: what a value needs to be chosen, and what no proposer sends."""

from __future__ import annotations

import attrs
import cbor2
import pytest

from octopi.errors import ProtocolError
from octopi.identifiers import BrokerId, DirectoryId, Incarnation, InstanceId
from octopi.limits import ACCEPTORS_MAX, AGREED_BYTES_MAX
from octopi.wire.agreement import (
    NO_BALLOT,
    AcceptorId,
    AcceptValue,
    AgreedValue,
    Ballot,
    BallotPromised,
)
from octopi.wire.codec import decode, encode

A, B, C, D = (AcceptorId(BrokerId(number), DirectoryId("d")) for number in range(1, 5))
VALUE = AgreedValue(3, (A, B, C), (A, B, C), b"content")


def ballot(number: int) -> Ballot:
    return Ballot(number, BrokerId(9), Incarnation(1))


def test_a_joint_value_needs_a_majority_of_both_groups() -> None:
    joint = VALUE.moved_to([D, C, B])
    assert joint.is_joint
    assert not VALUE.is_joint
    assert (joint.change, joint.acceptors, joint.members) == (4, (B, C, D), frozenset({A, B, C, D}))
    assert joint.is_quorum([B, C])
    assert not joint.is_quorum([C, D])  # one of the former three
    assert not joint.is_quorum([A, B])
    assert joint.completed() == AgreedValue(5, (B, C, D), (B, C, D), b"content")


def test_a_value_follows_another_one_by_one_step() -> None:
    joint = VALUE.moved_to([B, C, D])
    assert VALUE.follows(VALUE)
    assert VALUE.with_content(b"next").follows(VALUE)
    assert joint.follows(VALUE)
    assert joint.completed().follows(joint)
    assert not joint.completed().follows(VALUE)  # without the joint value
    assert not attrs.evolve(joint.completed(), acceptors=(A,)).follows(joint)
    assert not VALUE.with_content(b"").with_content(b"").follows(VALUE)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (attrs.evolve(VALUE, acceptors=()), "1 to 32 acceptors, not 0"),
        (
            attrs.evolve(
                VALUE,
                previous=tuple(attrs.evolve(A, broker=n) for n in range(1, ACCEPTORS_MAX + 2)),
            ),
            "1 to 32 acceptors, not 33",
        ),
        (attrs.evolve(VALUE, previous=(A, attrs.evolve(A, directory="e"))), "one acceptor at most"),
        (attrs.evolve(VALUE, content=bytes(AGREED_BYTES_MAX + 1)), "at most 65536 bytes"),
        (attrs.evolve(VALUE, change=-1), "negative"),
    ],
)
def test_a_value_that_no_proposer_proposes_says_why(value: AgreedValue, why: str) -> None:
    assert why in value.fault()
    assert VALUE.fault() == ""


def test_what_a_peer_accepts_is_checked_before_other_code_gets_it() -> None:
    good = AcceptValue(InstanceId(0), ballot(2), VALUE, ballot(2))
    assert decode(encode(good), frozenset({AcceptValue})) == good
    lower = attrs.evolve(good, successor=ballot(1))
    with pytest.raises(ValueError, match="the next ballot is a lower one"):
        encode(lower)
    with pytest.raises(ProtocolError, match="accept_value: the next ballot is a lower one"):
        decode(unchecked(lower), frozenset({AcceptValue}))
    twice = attrs.evolve(VALUE, acceptors=(A, attrs.evolve(A, directory="e"), B))
    with pytest.raises(ProtocolError, match=r"accept_value\.value: a broker is one acceptor"):
        decode(unchecked(attrs.evolve(good, value=twice)), frozenset({AcceptValue}))


def unchecked(message: AcceptValue) -> bytes:
    """The bytes of *message*, which no encoder of ours makes."""
    group = [
        [{"broker": one.broker, "directory": one.directory} for one in members]
        for members in (message.value.acceptors, message.value.previous)
    ]
    return cbor2.dumps(
        {
            "type": "accept_value",
            "instance": message.instance,
            "ballot": attrs.asdict(message.ballot),
            "value": {
                "change": message.value.change,
                "acceptors": group[0],
                "previous": group[1],
                "content": message.value.content,
            },
            "successor": attrs.asdict(message.successor),
        }
    )


def test_a_promise_may_come_without_a_value() -> None:
    promised = BallotPromised(InstanceId(0), A, ballot(1), NO_BALLOT, None)
    assert decode(encode(promised), frozenset({BallotPromised})) == promised
