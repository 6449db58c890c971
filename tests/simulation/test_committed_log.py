"""What was committed of a log, as the oracle keeps it."""

from __future__ import annotations

from octopi.simulation.invariants.committed_log import CommittedLog, agreement
from octopi.simulation.kernel.world import Event
from tests.kit.probes import batch


def test_the_common_part_of_two_logs_ends_with_a_record() -> None:
    """Two records of different leaders may begin with the same bytes: what was cut between those
    was no record any more for who committed on."""
    log = CommittedLog("topic", 0)
    first, second = batch(0, b"first"), batch(1, b"second")
    event = Event(0, 0.0, "broker-1", 1, "a commit", {})
    assert log.extend(first, event) is None
    assert log.extend(second, event) is None
    ends = len(first), len(first) + len(second)
    other = first + batch(1, b"sticky")
    agreed = agreement(other, log.data)
    assert ends[0] < agreed < ends[1]
    assert log.whole_records_end(agreed) == ends[0]
    assert [log.whole_records_end(one) for one in (0, *ends, 9999)] == [0, *ends, ends[1]]
    assert log.whole_records_end(ends[0] - 1) == 0
    log.cut(log.whole_records_end(agreed))
    assert log.extend(other[ends[0] :], event) is None
