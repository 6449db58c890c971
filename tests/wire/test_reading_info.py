"""How far a reading is behind, from what its broker says of it."""

from __future__ import annotations

import pytest

from octopi.identifiers import Offset, PartitionId
from octopi.wire import messages as m


@pytest.mark.parametrize(
    ("position", "dealt", "highwater", "sent_lag", "lag", "least_lag"),
    [
        (100, 40, 100, 0, 60, 60),
        (70, 40, 100, 30, 60, 60),
        (70, None, 100, 30, None, 30),
        (100, 100, 100, 0, 0, 0),
        (100, 100, 90, 0, 0, 0),  # a replica that has yet to hear of the newest commit
        (100, None, 90, 0, None, 0),
    ],
)
def test_sent_and_processed_messages_have_a_lag_each(
    position: int,
    dealt: int | None,
    highwater: int,
    sent_lag: int,
    lag: int | None,
    least_lag: int,
) -> None:
    offset = None if dealt is None else Offset(dealt)
    info = m.ReadingInfo(
        "a:1", "test", 1, "orders", PartitionId(0), position, 0, Offset(highwater), offset
    )
    assert (info.sent_lag_bytes, info.lag_bytes, info.least_lag_bytes) == (sent_lag, lag, least_lag)
