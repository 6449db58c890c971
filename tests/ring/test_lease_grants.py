"""An acceptor grants one leader the right to lead, and takes part in nothing that takes it away."""

from __future__ import annotations

import attrs
import pytest

from octopi.agreement.values import first_value
from octopi.coordination.agreed_partition import AgreedPartition, encode_partition
from octopi.identifiers import BrokerId, DirectoryId, Epoch, Incarnation, InstanceId, PartitionId
from octopi.model import PartitionRecord
from octopi.ring.lease_grants import LeaseHolder, granted, may_accept
from octopi.wire.agreement import AcceptorId, AcceptValue, AgreedValue, Ballot

GROUP = [AcceptorId(BrokerId(one), DirectoryId("d")) for one in (1, 2, 3)]
RECORD = PartitionRecord(
    PartitionId(0), Epoch(4), 2, BrokerId(1), Incarnation(7), [BrokerId(1), BrokerId(2)], []
)
AGREED = AgreedPartition(RECORD, Epoch(4))
VALUE = first_value(GROUP, encode_partition(AGREED))
HOLDER = LeaseHolder(BrokerId(1), Incarnation(7), Epoch(4))
ANNOUNCED = attrs.evolve(AGREED, announced=Epoch(5))


def followed_by(agreed: AgreedPartition, value: AgreedValue = VALUE) -> AgreedValue:
    return value.with_content(encode_partition(agreed))


def asked(value: AgreedValue, broker: int = 2, incarnation: int = 1) -> AcceptValue:
    ballot = Ballot(9, BrokerId(broker), Incarnation(incarnation))
    return AcceptValue(InstanceId(1), ballot, value, ballot)


def accepts(message: AcceptValue, *, is_suspected: bool = False) -> bool:
    return may_accept(message, VALUE, None, lambda broker, incarnation: is_suspected)


def test_the_leader_that_the_values_name_is_granted_the_right() -> None:
    assert granted(VALUE, None) == HOLDER
    assert granted(None, VALUE) == HOLDER
    assert granted(VALUE, VALUE) == HOLDER
    assert granted(None, None) is None


def test_when_an_epoch_is_announced_nobody_is_granted_it() -> None:
    later = followed_by(ANNOUNCED)
    assert granted(later, VALUE) is None
    assert granted(VALUE, later) is None


def test_an_older_value_does_not_count() -> None:
    decided = attrs.evolve(RECORD, epoch=Epoch(5), leader=BrokerId(2))
    later = followed_by(attrs.evolve(ANNOUNCED, record=decided))
    second = LeaseHolder(BrokerId(2), Incarnation(7), Epoch(5))
    assert granted(VALUE, later) == granted(later, VALUE) == second


def test_two_values_of_one_count_that_differ_grant_nothing() -> None:
    """One of them is not chosen."""
    least = followed_by(attrs.evolve(AGREED, min_insync=2))
    assert granted(followed_by(ANNOUNCED), least) is None
    assert granted(least, followed_by(attrs.evolve(AGREED, min_insync=3))) == HOLDER


def test_another_epoch_is_announced_only_when_the_leader_is_suspected_or_asks() -> None:
    assert not accepts(asked(followed_by(ANNOUNCED)))
    assert accepts(asked(followed_by(ANNOUNCED)), is_suspected=True)
    assert accepts(asked(followed_by(ANNOUNCED), 1, 7))
    assert not accepts(asked(followed_by(ANNOUNCED), 1, 6))  # its former process


def test_other_acceptors_are_taken_only_then_as_well() -> None:
    moved = asked(VALUE.moved_to(GROUP[:1]))
    assert not accepts(moved)
    assert accepts(moved, is_suspected=True)
    assert accepts(attrs.evolve(moved, ballot=Ballot(9, BrokerId(1), Incarnation(7))))
    other = AcceptorId(BrokerId(9), DirectoryId("d"))
    joint = VALUE.moved_to([*GROUP[:2], other])
    assert may_accept(asked(joint.completed()), joint, None, lambda broker, incarnation: False)


def test_what_takes_nothing_away_is_accepted_of_everybody() -> None:
    assert accepts(asked(VALUE))
    assert accepts(asked(followed_by(attrs.evolve(AGREED, min_insync=2))))
    narrowed = attrs.evolve(RECORD, version=3, in_sync=[BrokerId(1)])
    assert accepts(asked(followed_by(attrs.evolve(AGREED, record=narrowed))))
    assert may_accept(asked(followed_by(ANNOUNCED)), None, None, lambda broker, incarnation: False)


def test_a_value_about_no_partition_is_refused() -> None:
    with pytest.raises(ValueError, match="it is no partition"):
        accepts(asked(VALUE.with_content(b"?")))
