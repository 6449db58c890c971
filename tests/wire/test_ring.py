"""Nodes of the ring as they travel."""

from __future__ import annotations

import attrs
import pytest

from octopi.errors import ProtocolError
from octopi.identifiers import BrokerId, DirectoryId, Incarnation, InstanceId, RingPoint
from octopi.limits import (
    BALLOT_ROUND_MAX,
    FOUNDERS_MAX,
    INSTANCE_MAX,
    RING_NODES_TOLD_MAX,
    VALUES_TOLD_MAX,
)
from octopi.wire.agreement import Ballot, KnownValue, KnownValues, PrepareBallot
from octopi.wire.codec import decode, encode
from octopi.wire.ring import (
    FindHolder,
    HolderAnswer,
    Introduce,
    RingNode,
    RingRefusal,
    RingRefused,
    ring_refusal_fault,
)

NODE = RingNode(BrokerId(3), DirectoryId("d"), RingPoint(7), "rack", "ws://b3:9101", Incarnation(2))


def test_a_node_is_the_same_after_a_restart_and_another_one_with_another_disk() -> None:
    again = attrs.evolve(NODE, incarnation=Incarnation(3), address="ws://elsewhere:9101")
    assert again.is_same(NODE)
    assert not attrs.evolve(NODE, directory=DirectoryId("e")).is_same(NODE)
    assert NODE.place == (7, 3)


@pytest.mark.parametrize("why", RingRefusal)
def test_a_refusal_says_one_of_the_known_reasons(why: RingRefusal) -> None:
    refused = RingRefused(1, why)
    assert decode(encode(refused), frozenset({RingRefused})) == refused


def test_another_reason_is_refused() -> None:
    assert "none of no member" in ring_refusal_fault("for fun")
    data = encode(RingRefused(1, RingRefusal.NO_MEMBER)).replace(b"no member", b"no membre")
    with pytest.raises(ProtocolError, match=r"ring_refused\.why"):
        decode(data, frozenset({RingRefused}))


BALLOT = Ballot(1, BrokerId(1), Incarnation(1))


@pytest.mark.parametrize(
    "message",
    [
        PrepareBallot(InstanceId(INSTANCE_MAX + 1), BALLOT),
        PrepareBallot(InstanceId(0), attrs.evolve(BALLOT, round=BALLOT_ROUND_MAX + 1)),
        KnownValues((KnownValue(InstanceId(0), 1),) * (VALUES_TOLD_MAX + 1)),
        HolderAnswer(1, NODE, None, (NODE,) * (RING_NODES_TOLD_MAX + 1), ()),
        Introduce(1, "ws://a:1", ("ws://a:1",) * (FOUNDERS_MAX + 1)),
        FindHolder(1, RingPoint(1 << 52)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_numbers_and_lists_of_other_brokers_are_bounded(message: object) -> None:
    with pytest.raises(ValueError, match=r"at most|to "):
        encode(message)
