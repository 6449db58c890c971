"""Resolves the start that a consumer's caller gave to an offset for each partition."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

import attrs

from octopi.clients.options import within
from octopi.errors import InvalidOptionError, TopicReplacedError
from octopi.identifiers import Offset, PartitionId
from octopi.position import Anchor, Place, Position
from octopi.wire.messages import FoundOffset, TopicInfo

_LAST_MAX: Final = 2**63 - 1
"""The greatest number of the wire."""

_ID_BYTES: Final = 16


@attrs.frozen
class LastMessages:
    """The last *count* messages of each log; see `last`."""

    count: int


def last(count: int) -> LastMessages:
    """The start of the last *count* messages of each log, for `octopi.Client.consumer`::

        async with client.consumer("orders", start=octopi.last(10)) as consumer:
            ...

    A log with fewer messages is read from its start.

    Raises:
      InvalidOptionError: if *count* is not from 1 to 2^63 - 1.
    """
    within("count", count, 1, _LAST_MAX)
    return LastMessages(count)


OffsetSpec: TypeAlias = Literal["earliest", "latest"] | int | datetime | LastMessages | bytes
"""A place in one log: its start, its end, an offset, the first message that isn't older than a
time (with time zone), the first of the last messages (`last`), or behind the message of a relay
topic with that id (16 bytes, `octopi.Receipt.id`)."""

Start: TypeAlias = OffsetSpec | Position | str
"""A place in each log of a topic, or a consumer position, also in its form as text."""

FindOffset: TypeAlias = Callable[[PartitionId, str, int | bytes], Awaitable[FoundOffset]]
"""Asks a log for an offset; the arguments are the partition, and ``at`` and ``value`` of the wire's
message."""

_NONE_SEALED: Final[Mapping[PartitionId, Offset]] = {}

_UNIX_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)


@attrs.frozen
class LogStart:
    """Where reading a log begins."""

    place: Place
    end: Offset
    """The highwater mark when the log was asked, if requested; otherwise the offset of `place`."""


def offset_query(place: OffsetSpec) -> tuple[str, int | bytes] | None:
    """The ``at`` and ``value`` that ask a log for *place*; None if it is an offset already.

    Raises:
      InvalidOptionError: if *place* is no `OffsetSpec`.
    """
    match place:
        case "earliest":
            return "earliest", 0
        case "latest":
            return "latest", 0
        case datetime():
            if place.tzinfo is None:
                raise InvalidOptionError(f"the time {place} has no time zone")
            return "timestamp", max(0, (place - _UNIX_ZERO) // timedelta(milliseconds=1))
        case bool():
            raise InvalidOptionError(
                "start is a bool; it must be earliest, latest, an offset, octopi.last(n), "
                "a datetime, the id of a message or a position"
            )
        case int():
            if place < 0:
                raise InvalidOptionError(
                    f"start is {place}, and an offset is never negative; the last {-place} "
                    f"messages are octopi.last({-place})"
                )
            return None
        case LastMessages(count):
            return "last", count
        case bytes():
            if len(place) != _ID_BYTES:
                raise InvalidOptionError(
                    f"start has {len(place)} bytes, and the id of a message has {_ID_BYTES}"
                )
            return "message", place
        case _:
            raise InvalidOptionError(
                f"start is {place!r}; it must be earliest, latest, an offset, octopi.last(n), "
                "a datetime, the id of a message or a position"
            )


def start_places(
    info: TopicInfo, start: Start, partitions: list[PartitionId]
) -> dict[PartitionId, OffsetSpec | Place]:
    """The place to begin at in each of *partitions*.

    Raises:
      InvalidOptionError: if *start* doesn't fit the topic.
      TopicReplacedError: if it is a position in an older creation of the topic.
    """
    if isinstance(start, str) and start.startswith("v1:"):
        start = Position.parse(start)
    if isinstance(start, Position):
        return _places_of_position(info, start, partitions)
    if isinstance(start, int) and start >= 0 and len(partitions) > 1:
        raise InvalidOptionError(
            f"an offset is a place in one partition, and {info.topic} has {len(partitions)}: "
            "choose one with partitions=[...], or use a position"
        )
    offset_query(start)  # type: ignore[arg-type]  # raises if it is another text
    return dict.fromkeys(partitions, start)  # type: ignore[arg-type]


def _places_of_position(
    info: TopicInfo, position: Position, partitions: list[PartitionId]
) -> dict[PartitionId, OffsetSpec | Place]:
    if position.topic != info.topic:
        raise InvalidOptionError(f"the position is one in {position.topic}, not in {info.topic}")
    if position.topic_id != info.topic_id:
        raise TopicReplacedError(
            f"{info.topic}: the topic was deleted and created again since the position was taken "
            f"(id {position.topic_id}, now {info.topic_id}); start from earliest or latest"
        )
    return {one: position.places.get(one, "earliest") for one in partitions}


async def find_starts(
    wanted: Mapping[PartitionId, OffsetSpec | Place],
    find: FindOffset,
    *,
    with_end: bool,
    sealed: Mapping[PartitionId, Offset] = _NONE_SEALED,
) -> dict[PartitionId, LogStart]:
    """Ask each log for its start; with *with_end* also for its end.  *sealed*: where logs end that
    take no messages any more.  They have none of the last messages, which go elsewhere.

    Raises:
      OctopiError: any error that *find* raises.
    """
    found: dict[PartitionId, LogStart] = {}
    for partition, spec in wanted.items():
        sealed_end = sealed.get(partition)
        if sealed_end is not None and (spec == "latest" or isinstance(spec, LastMessages)):
            place = Place(sealed_end)
        else:
            place = await _find_start(partition, spec, find)
        if not with_end:
            end = place.offset
        elif sealed_end is not None:
            end = sealed_end
        else:
            end = Offset((await find(partition, "latest", 0)).offset)
        found[partition] = LogStart(place, end)
    return found


async def _find_start(partition: PartitionId, spec: OffsetSpec | Place, find: FindOffset) -> Place:
    if isinstance(spec, Place):
        return spec
    asked = offset_query(spec)
    if asked is None:
        assert isinstance(spec, int), "a place that needs no request is an offset"
        return Place(Offset(spec))
    answer = await find(partition, *asked)
    return Place(Offset(answer.offset), Anchor(answer.anchor))
