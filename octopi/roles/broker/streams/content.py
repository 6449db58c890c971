"""The content of a stream, as its leader's log holds it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import attrs

from octopi.errors import NeedsTimeError, OffsetInsideRecordError, OffsetOutOfRangeError, Status
from octopi.identifiers import Epoch, Offset, TopicId, TopicName
from octopi.limits import KIB
from octopi.record import Message, decode
from octopi.roles.broker.local_log import LocalLog
from octopi.streams import sse
from octopi.streams.offsets import offset_text, place_of
from octopi.streams.problems import StreamProblem

_EVENTS_KEPT_MAX: Final = 16
_EVENT_BYTES_MAX: Final = 256 * KIB


@attrs.frozen
class Page:
    """Committed content from one place to another."""

    values: list[bytes]
    """The values of its records."""
    end: Offset


async def page(log: LocalLog, begin: Offset, bytes_max: int) -> Page:
    """The content from *begin* on, at most *bytes_max* of records, or one record.

    Raises:
      StreamProblem: if no record starts at *begin*.
      OctopiError: if the log can't be read.
    """
    found = await messages(log, begin, bytes_max)
    return Page([one.value for one in found], found[-1].next_offset if found else begin)


async def messages(log: LocalLog, begin: Offset, bytes_max: int) -> list[Message]:
    """Like `page`, the messages themselves."""
    found: list[Message] = []
    at, size_bytes = begin, 0
    while at < log.highwater and size_bytes < bytes_max:
        try:
            try:
                records = log.read(at, bytes_max - size_bytes)
            except NeedsTimeError:
                await log.prove(at)
                records = log.read(at, bytes_max - size_bytes)
        except OffsetInsideRecordError:
            raise StreamProblem(
                "the offset is none of this stream", Status.OFFSET_INSIDE_RECORD
            ) from None
        except OffsetOutOfRangeError:
            raise gone(log) from None
        if not records or (found and size_bytes + len(records) > bytes_max):
            break
        found += decode(records, at, TopicName(log.topic.topic), log.partition)
        at, size_bytes = Offset(at + len(records)), size_bytes + len(records)
    return found


def gone(log: LocalLog) -> StreamProblem:
    """The refusal of a place that retention has removed."""
    return StreamProblem(
        f"retention has removed what was there: the stream begins at {text(log, log.start)}",
        Status.OFFSET_OUT_OF_RANGE,
    )


def text(log: LocalLog, offset: Offset) -> str:
    """The text of *offset* for clients."""
    return offset_text(log.topic_id, offset, log.anchor_before(offset))


def checked_offset(log: LocalLog, given: str) -> Offset:
    """The offset in *log*, which is served, that the text *given* means.

    Raises:
      OctopiError: if it is no place in the stream.
    """
    found, stream = place_of(given), log.topic.stream
    if found.topic_id in {None, log.topic_id}:
        log.check_anchor(found.place.offset, found.place.anchor)
    elif stream is None or not stream.forked_from:
        raise StreamProblem(
            "the offset is one of a stream of that name that was deleted: begin again",
            Status.OFFSET_OUT_OF_RANGE,
        )
    # Else it is one of the stream's source, whose offsets a fork shares; but not its epochs.
    if found.place.offset > log.highwater:
        raise StreamProblem(
            "the offset is behind the end of the stream", Status.OFFSET_OUT_OF_RANGE, http=400
        )
    return found.place.offset


def is_closed(log: LocalLog) -> bool:
    """Whether the stream is closed, and that is committed."""
    return log.state.sequences.is_closed and log.highwater >= log.end


class SharedEvents:
    """The newest events of streams, since many readers wait for the same."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[TopicId, Epoch, Offset, Offset], tuple[bytes, Offset]] = (
            OrderedDict()
        )

    async def next(
        self, log: LocalLog, content_type: str, begin: Offset, bytes_max: int
    ) -> tuple[bytes, Offset]:
        """The event with the content from *begin* on, and where that ends.  The event is empty if
        there is no content.

        Raises:
          OctopiError: see `page`.
        """
        key = (log.topic_id, log.epoch, begin, log.highwater)
        known = self._kept.get(key)
        if known is not None:
            return known
        found = await page(log, begin, bytes_max)
        made = sse.data_event(content_type, found.values), found.end
        if len(made[0]) <= _EVENT_BYTES_MAX:
            self._kept[key] = made
            if len(self._kept) > _EVENTS_KEPT_MAX:
                self._kept.popitem(last=False)
        return made
