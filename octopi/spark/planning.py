"""Plans which ranges of logs a query reads next, from offsets and options.  It reads no records.

**Offsets** in a query's checkpoint are consumer positions, one for each topic, with which any
consumer can continue, too::

    {"positions": ["v1:orders@5f0c:0=1234~7-1200,3=99~6-0"], "min_partitions": 4}

They include the number of ranges to split into, because a batch that is repeated after a restart
must have the same ranges in the same order, even if the options have changed.  For the same reason
they include where the batch begins in logs of which the batch before says nothing (``begin``): in
all logs of the first batch, whose start Spark doesn't keep but asks for again, and in new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from octopi.errors import TopicReplacedError
from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.position import NO_ANCHOR, Anchor, Place, Position
from octopi.spark.logs import SourceLog

Offsets: TypeAlias = dict[SourceLog, Offset]
Boundary: TypeAlias = Callable[[SourceLog, Offset], Offset]


@attrs.frozen
class Range:
    """Consecutive records of one log: from one boundary to another."""

    log: SourceLog
    start: Offset
    end: Offset
    anchor: Anchor = NO_ANCHOR
    """The anchor of the start, to compare with the log; empty: it isn't known, or is compared by
    another task."""

    @property
    def size_bytes(self) -> int:
        """The size of its records."""
        return self.end - self.start


def dump(
    offsets: Mapping[SourceLog, Offset],
    min_partitions: int,
    anchors: Mapping[SourceLog, Anchor] | None = None,
) -> dict[str, Any]:
    """*offsets* in the form of a checkpoint, which Spark stores as JSON.  *anchors*: those of the
    offsets, as far as they are known."""
    by_topic: dict[tuple[TopicName, TopicId], dict[PartitionId, Place]] = {}
    for log, offset in sorted(offsets.items()):
        place = Place(offset, (anchors or {}).get(log, NO_ANCHOR))
        by_topic.setdefault((log.topic, log.topic_id), {})[log.partition] = place
    positions = [str(Position(*topic, places)) for topic, places in by_topic.items()]
    return {"positions": positions, "min_partitions": min_partitions}


def load(stored: Mapping[str, Any]) -> tuple[Offsets, int]:
    """The inverse of `dump`: offsets, and the number of ranges to split into.

    Raises:
      InvalidOptionError: if a position is malformed.
    """
    offsets = {log: place.offset for log, place in load_places(stored).items()}
    return offsets, stored["min_partitions"]


def load_places(stored: Mapping[str, Any]) -> dict[SourceLog, Place]:
    """The offsets in a result of `dump` with their anchors, as far as these are known.

    Raises:
      InvalidOptionError: if a position is malformed.
    """
    return _places(stored["positions"])


def initial(dumped: dict[str, Any]) -> dict[str, Any]:
    """*dumped*, a result of `dump`, as the place at which a query begins."""
    return dumped | {"initial": True}


def is_initial(stored: Mapping[str, Any]) -> bool:
    """Whether this is a result of `initial`, which no checkpoint has."""
    return bool(stored.get("initial"))


def beginning(
    dumped: dict[str, Any],
    offsets: Mapping[SourceLog, Offset],
    anchors: Mapping[SourceLog, Anchor],
) -> dict[str, Any]:
    """*dumped*, a result of `dump` where a batch ends, with the *offsets* at which it begins in
    logs of which the offsets before it say nothing."""
    return dumped | ({"begin": dump(offsets, 1, anchors)["positions"]} if offsets else {})


def begun(start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[SourceLog, Place]:
    """Where the batch from *start* to *end* begins.  What *end* says of it counts: the *start* of a
    first batch was made up anew.

    Raises:
      InvalidOptionError: if a position is malformed.
    """
    return load_places(start) | _places(end.get("begin", ()))


def _places(positions: Iterable[str]) -> dict[SourceLog, Place]:
    return {
        SourceLog(one.topic, partition, one.topic_id): place
        for one in map(Position.parse, positions)
        for partition, place in one.places.items()
    }


def check_topics(start: Mapping[SourceLog, Offset], found: Iterable[SourceLog]) -> None:
    """Check that the topics are those that the query began with.

    Raises:
      TopicReplacedError: if one was deleted and created again.
    """
    ids = {log.topic: log.topic_id for log in start}
    for log in found:
        if ids.get(log.topic, log.topic_id) != log.topic_id:
            raise TopicReplacedError(
                f"{log.topic}: the topic was deleted and created again since this query's "
                f"checkpoint (id {ids[log.topic]}, now {log.topic_id}); begin with a new "
                "checkpoint"
            )


def share_out(
    start: Mapping[SourceLog, Offset],
    end: Mapping[SourceLog, Offset],
    limit: int,
    advance: Callable[[SourceLog, Offset, int], tuple[Offset, int]],
) -> Offsets:
    """The ends of ranges that begin at *start*: they are at most *end*, and all ranges together
    have at most *limit* units (records or bytes).

    *advance*, called with a log, an offset and a number of units, goes forward by at most that
    number; it returns the offset reached, and the number of units up to there.  Logs share the
    limit in proportion to the size of their unread records.
    """
    backlogs = {log: end[log] - start[log] for log in sorted(end) if end[log] > start[log]}
    total = sum(backlogs.values())
    chosen = {log: start.get(log, offset) for log, offset in end.items()}
    left = limit
    shares = [(log, limit * backlog // total) for log, backlog in backlogs.items()]
    for log, share in shares:
        chosen[log], used = advance(log, chosen[log], share)
        left -= used
    for log in backlogs:  # distribute the rest of the limit
        if left and chosen[log] < end[log]:
            chosen[log], used = advance(log, chosen[log], left)
            left -= used
    return chosen


def split(
    start: Mapping[SourceLog, Offset],
    end: Mapping[SourceLog, Offset],
    min_partitions: int,
    boundary: Boundary,
) -> list[Range]:
    """The ranges to read from *start* to *end*: one for each log with records there, or about
    *min_partitions* ranges of about the same size, if that is more.

    The result depends on the arguments alone, since boundaries never change.  Ranges are in the
    order of logs and offsets.
    """
    whole = [
        Range(log, start.get(log, Offset(0)), end[log])
        for log in sorted(end)
        if end[log] > start.get(log, Offset(0))
    ]
    if len(whole) >= min_partitions:
        return whole
    total = sum(one.size_bytes for one in whole)
    ranges: list[Range] = []
    for one in whole:
        count = max(1, round(min_partitions * one.size_bytes / total))
        at = one.start
        for number in range(1, count + 1):
            target = Offset(one.start + one.size_bytes * number // count)
            stop = one.end if number == count else boundary(one.log, target)
            if stop > at:
                ranges.append(Range(one.log, at, stop))
                at = stop
    return ranges
