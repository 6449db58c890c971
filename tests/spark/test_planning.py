"""Planning of batches and tasks from offsets alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from octopi.errors import TopicReplacedError
from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.position import Anchor, Place
from octopi.spark import planning
from octopi.spark.logs import SourceLog

RECORD = 10
"""Each record of these logs has ten bytes."""


def log(partition: int, topic: str = "orders", topic_id: str = "ab") -> SourceLog:
    return SourceLog(TopicName(topic), PartitionId(partition), TopicId(topic_id))


def boundary(_: SourceLog, offset: Offset) -> Offset:
    return Offset(offset - offset % RECORD)


OFFSETS = st.dictionaries(
    st.integers(0, 5).map(log), st.integers(0, 500).map(lambda n: Offset(n * RECORD))
)


@given(OFFSETS, st.integers(1, 9))
def test_offsets_survive_a_checkpoint(offsets: planning.Offsets, min_partitions: int) -> None:
    stored = json.loads(json.dumps(planning.dump(offsets, min_partitions)))
    assert planning.load(stored) == (offsets, min_partitions)


def test_offsets_are_resume_tokens() -> None:
    offsets = {log(3): Offset(99), log(0): Offset(1234), log(1, "users", "cd"): Offset(0)}
    positions = planning.dump(offsets, 1)["positions"]
    assert positions == ["v1:orders@ab:0=1234,3=99", "v1:users@cd:1=0"]


def test_the_anchors_of_offsets_are_kept_with_them() -> None:
    offsets = {log(3): Offset(99), log(0): Offset(1234)}
    stored = planning.dump(offsets, 1, {log(0): Anchor("7-1200.6-800")})
    assert stored["positions"] == ["v1:orders@ab:0=1234~7-1200.6-800,3=99"]
    assert planning.load(stored) == (offsets, 1)
    assert planning.load_places(stored) == {
        log(0): Place(Offset(1234), Anchor("7-1200.6-800")),
        log(3): Place(Offset(99)),
    }


@given(OFFSETS, st.data(), st.integers(1, 3000))
def test_a_limit_in_bytes_is_exact(end: planning.Offsets, data: st.DataObject, limit: int) -> None:
    start = {
        one: Offset(data.draw(st.integers(0, stop // RECORD)) * RECORD) for one, stop in end.items()
    }

    def advance(one: SourceLog, offset: Offset, size_bytes: int) -> tuple[Offset, int]:
        reached = min(end[one], boundary(one, Offset(offset + size_bytes)))
        return reached, reached - offset

    chosen = planning.share_out(start, end, limit, advance)
    waiting = sum(end[one] - start[one] for one in end)
    used = sum(chosen[one] - start[one] for one in end)
    assert all(start[one] <= chosen[one] <= end[one] for one in end)
    assert used == min(waiting, limit - limit % RECORD)


@given(OFFSETS, st.data(), st.integers(1, 12))
def test_ranges_cover_everything_once_and_in_order(
    end: planning.Offsets, data: st.DataObject, min_partitions: int
) -> None:
    start = {
        one: Offset(data.draw(st.integers(0, stop // RECORD)) * RECORD) for one, stop in end.items()
    }
    ranges = planning.split(start, end, min_partitions, boundary)
    assert ranges == planning.split(dict(reversed(start.items())), end, min_partitions, boundary)
    assert ranges == sorted(ranges, key=lambda one: (one.log, one.start))
    for one, stop in end.items():
        at = start[one]
        for part in ranges:
            if part.log == one:
                assert part.start == at < part.end
                at = part.end
        assert at == stop
    total = sum(part.size_bytes for part in ranges)
    if total >= min_partitions * RECORD * 20:
        assert len(ranges) >= min_partitions - len(end)


def test_one_log_is_read_by_several_tasks_if_so_configured() -> None:
    ranges = planning.split({}, {log(0): Offset(1000)}, 4, boundary)
    assert [(one.start, one.end) for one in ranges] == [
        (0, 250),
        (250, 500),
        (500, 750),
        (750, 1000),
    ]


def test_a_topic_that_was_made_anew_is_refused() -> None:
    planning.check_topics({log(0): Offset(1)}, [log(0), log(1), log(0, "users", "cd")])
    with pytest.raises(TopicReplacedError, match="new checkpoint"):
        planning.check_topics({log(0): Offset(1)}, [log(0, topic_id="cd")])
