"""What is agreed on about a partition is read as it was written, and has golden bytes."""

from __future__ import annotations

from typing import Any

import attrs
import cbor2
import pytest

from octopi.coordination.agreed_partition import (
    AgreedPartition,
    RegisteredIncarnation,
    decode_partition,
    encode_partition,
)
from octopi.identifiers import BrokerId, Epoch, Incarnation, PartitionId
from octopi.model import PartitionRecord

RECORD = PartitionRecord(
    partition=PartitionId(3),
    epoch=Epoch(4),
    version=2,
    leader=BrokerId(1),
    leader_incarnation=Incarnation(7),
    replicas=[BrokerId(1), BrokerId(2), BrokerId(3)],
    in_sync=[BrokerId(1), BrokerId(2)],
)
AGREED = AgreedPartition(
    RECORD,
    announced=Epoch(4),
    incarnations=(
        RegisteredIncarnation(BrokerId(1), Incarnation(7), "n7"),
        RegisteredIncarnation(BrokerId(3), Incarnation(5), "n5"),
    ),
    min_insync=2,
)
FIELDS: dict[str, Any] = {
    "record": {
        "partition": 3,
        "epoch": 4,
        "version": 2,
        "leader": 1,
        "leader_incarnation": 7,
        "replicas": [1, 2, 3],
        "in_sync": [1, 2],
        "lost": [],
        "recovered_epoch": 0,
        "seal": "",
    },
    "announced": 4,
    "incarnations": [
        {"broker": 1, "incarnation": 7, "nonce": "n7"},
        {"broker": 3, "incarnation": 5, "nonce": "n5"},
    ],
    "min_insync": 2,
}


def test_the_bytes_of_an_agreed_partition_stay_the_same() -> None:
    assert encode_partition(AGREED) == cbor2.dumps(FIELDS)
    assert decode_partition(cbor2.dumps(FIELDS)) == AGREED


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({**FIELDS, "further": 1}, "no partition"),
        ({key: FIELDS[key] for key in FIELDS if key != "record"}, "no partition"),
        ({**FIELDS, "announced": 3}, "never announced"),
        ({**FIELDS, "record": {**FIELDS["record"], "leader": 9}}, "leader 9 is not among"),
        ({**FIELDS, "record": {**FIELDS["record"], "in_sync": [9]}}, "not among its replicas"),
        ([], "no partition"),
    ],
)
def test_what_can_not_be_decided_is_not_read(fields: Any, why: str) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=why):
        decode_partition(cbor2.dumps(fields))
    with pytest.raises(ValueError, match="no partition"):
        decode_partition(encode_partition(AGREED)[:-1])


def test_a_broker_has_one_registered_incarnation() -> None:
    later = RegisteredIncarnation(BrokerId(1), Incarnation(8), "n8")
    second = RegisteredIncarnation(BrokerId(2), Incarnation(1), "n1")
    agreed = AGREED.registered(second).registered(later)
    assert agreed.incarnations == (later, second, AGREED.incarnations[1])
    assert agreed.incarnation(BrokerId(1)) == later
    assert agreed.incarnation(BrokerId(9)) is None
    assert attrs.evolve(agreed, incarnations=AGREED.incarnations) == AGREED
