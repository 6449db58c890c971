"""Messages of producers, beyond their form."""

from __future__ import annotations

from octopi.conditions import LastRecord
from octopi.identifiers import Offset, PartitionId, ProducerEpoch, Sequence
from octopi.wire import messages as m


def produce(**fields: object) -> m.Produce:
    return m.Produce(1, "orders", PartitionId(0), b"", **fields)


def test_a_produce_has_a_condition_only_if_it_names_one() -> None:
    assert produce().condition is None
    for fields in (
        {"expected_end": Offset(0)},
        {"after": LastRecord(ProducerEpoch(1), Sequence(7))},
    ):
        condition = produce(**fields).condition
        assert condition is not None
        assert (condition.expected_end, condition.after) == (
            fields.get("expected_end"),
            fields.get("after"),
        )
