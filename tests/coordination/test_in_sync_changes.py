"""The in-sync set changes by a request that still fits, or because a log was lost."""

from typing import Any

import attrs
import pytest

from octopi.coordination.in_sync_changes import alter, without
from octopi.wire.messages import AlterInSync, PartitionRecord

RECORD = PartitionRecord(
    partition=0,
    epoch=4,
    version=2,
    leader=1,
    leader_incarnation=7,
    replicas=[1, 2, 3],
    in_sync=[1, 2],
)
LIVES = {1: 7, 2: 1, 3: 5, 4: 1}
JOIN = AlterInSync(0, 4, 1, 7, 2, [1, 2, 3], 5)
LEAVE = AlterInSync(0, 4, 1, 7, 2, [1], None)


def test_a_follower_joins_and_leaves_the_in_sync_set() -> None:
    assert alter(RECORD, JOIN, LIVES) == attrs.evolve(RECORD, version=3, in_sync=[1, 2, 3])
    assert alter(RECORD, LEAVE, LIVES) == attrs.evolve(RECORD, version=3, in_sync=[1])


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": 3},
        {"epoch": 5},
        {"version": 1},
        {"version": 3},
        {"leader": 2},
        {"leader_incarnation": 6},
        {"joiner_incarnation": 4},
        {"joiner_incarnation": None},
        {"in_sync": [1, 2]},
        {"in_sync": [1, 3]},
        {"in_sync": [2, 3]},
        {"in_sync": [2]},
        {"in_sync": []},
        {"in_sync": [1, 2, 4], "joiner_incarnation": 1},
    ],
    ids=str,
)
def test_a_request_that_does_not_fit_the_record_is_refused_with_the_reason(
    change: dict[str, Any],
) -> None:
    assert isinstance(alter(RECORD, attrs.evolve(JOIN, **change), LIVES), str)


def test_a_repeated_request_is_refused_because_the_version_moved() -> None:
    altered = alter(RECORD, JOIN, LIVES)
    assert isinstance(altered, PartitionRecord)
    assert alter(altered, JOIN, LIVES) == "the version is 3"


def test_a_replica_that_lost_its_log_leaves_the_in_sync_set_even_if_that_becomes_empty() -> None:
    assert without(without(RECORD, 1), 2) == attrs.evolve(
        RECORD, version=4, in_sync=[], lost=[1, 2]
    )
