"""The logs of a running cluster, read with the client protocol."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from octopi.clients.consuming.consumer_session import Chunk
from octopi.errors import (
    ConnectionLostError,
    HistoryForkedError,
    NotReadyError,
    OffsetOutOfRangeError,
    RefusedError,
    Status,
    UnreachableError,
)
from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.limits import GENERATIONS_MAX, MIB
from octopi.logger import get_logger
from octopi.position import NO_ANCHOR, Anchor, Place
from octopi.spark.client_thread import ClientThread, client_thread
from octopi.spark.frames import find_records
from octopi.spark.logs import PIECE_BYTES, Bounds, Piece, SourceLog, SourceLogs
from octopi.spark.options import ReadOptions
from octopi.wire.messages import TopicInfo

_WINDOW_BYTES: Final = 16 * MIB
_GATHERED_BYTES: Final = 4 * MIB

_log = get_logger(__name__)


class ServedLogs(SourceLogs):
    """The logs of a cluster that the options name."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._anchors: dict[SourceLog, Place] = {}
        """The place in each log that was looked up last, with its anchor."""
        self._named: list[SourceLog] | None = None
        """The logs of topics that were given by name, as they were found last."""

    def find(self) -> list[SourceLog]:
        thread = self._thread()
        if self._options.pattern:
            pattern = re.compile(self._options.pattern)
            topics = thread.call(thread.client.topics)
            return self._logs([one for one in topics if pattern.fullmatch(one.topic)])
        names = self._options.subscribe
        try:
            found = [thread.call(thread.client.describe_topic, name) for name in names]
        except (ConnectionLostError, UnreachableError, NotReadyError):
            # Without the register, what is known can be read on.  Logs that a topic has got
            # meanwhile are found later, and read from their beginning.
            if self._named is None:
                raise
        else:
            self._named = self._logs(found)
        return self._named

    def _logs(self, topics: list[TopicInfo]) -> list[SourceLog]:
        """All logs of *topics*, also those that take no messages any more.

        Raises:
          RefusedError: if a subscription is to be kept of a topic that got other partitions.
        """
        for topic in topics:
            if topic.generations and self._options.subscription:
                raise RefusedError(
                    f"topic {topic.topic} got other partitions while it was in use, and a stream "
                    "of Spark can't keep the marks of a subscription there: read it with a "
                    "checkpoint, without the option `subscription`",
                    Status.UNSUPPORTED_VERSION,
                )
        return sorted(
            SourceLog(TopicName(topic.topic), PartitionId(one.partition), TopicId(topic.topic_id))
            for topic in topics
            for one in (*topic.partitions, *topic.sealed_partitions)
        )

    def bounds(self, log: SourceLog) -> Bounds:
        start, highwater = self._find(log, "latest")[1:]
        return Bounds(start, highwater)

    def boundary(self, log: SourceLog, offset: Offset) -> Offset:
        return self._find(log, "boundary", offset)[0]

    def at_time(self, log: SourceLog, timestamp_ms: int) -> Offset:
        return self._find(log, "timestamp", timestamp_ms)[0]

    def anchor(self, log: SourceLog, offset: Offset) -> Anchor:
        known = self._anchors.get(log)
        if known is None or known.offset != offset:
            self._find(log, "boundary", offset)
            known = self._anchors[log]
        return known.anchor if known.offset == offset else NO_ANCHOR

    def common(self, log: SourceLog, place: Place) -> Offset | None:
        if not place.anchor:
            return None
        thread = self._thread()

        async def look() -> Offset | None:
            try:
                await thread.client.stored_records._check_place(
                    log.topic, log.partition, place, generation=GENERATIONS_MAX
                )
            except HistoryForkedError as error:
                return Offset(error.offset or 0)
            except OffsetOutOfRangeError:
                pass  # the next read raises it, if it matters
            return None

        return thread.call(look)

    def read(self, log: SourceLog, start: Place, end: Offset) -> Iterator[Piece]:
        thread = self._thread()
        skip_gaps = not self._options.fail_on_data_loss
        opened = thread.open_reader(
            log, start, end, window_bytes=_WINDOW_BYTES, skip_gaps=skip_gaps
        )
        reader = opened.reader

        async def gather() -> list[Chunk]:
            # Gather several chunks for each call, since a call to the other thread takes 0.2 ms.
            gathered: list[Chunk] = []
            size_bytes = 0
            while size_bytes < _GATHERED_BYTES and (chunks := await reader.chunks()):
                gathered += chunks
                size_bytes += sum(len(chunk.records) for chunk in chunks)
            return gathered

        waiting: list[bytes | memoryview] = []
        base = position = start.offset
        try:
            while position < end:
                chunks = thread.call(gather)
                if not chunks:
                    break  # retention has removed the rest
                for chunk in chunks:
                    if chunk.offset != position:
                        if waiting:
                            yield _piece(base, waiting)
                        base = position = chunk.offset
                    waiting.append(chunk.records)
                    position = Offset(position + len(chunk.records))
                    if position - base >= PIECE_BYTES:
                        yield _piece(base, waiting)
                        base = position
            if waiting:
                yield _piece(base, waiting)
        finally:
            opened.close()
        for gap in reader.gaps:
            _log.warning("records were removed by retention before they were read", why=str(gap))

    def _find(self, log: SourceLog, at: str, value: int = 0) -> tuple[Offset, Offset, Offset]:
        """The offset of the answer to `FindOffset`, and the log's start and highwater mark."""
        thread = self._thread()

        async def find() -> tuple[Offset, Offset, Offset]:
            records = thread.client.stored_records
            found = await records.find(log.topic, log.partition, at, value)
            self._anchors[log] = Place(Offset(found.offset), Anchor(found.anchor))
            return Offset(found.offset), Offset(found.log_start), Offset(found.highwater)

        return thread.call(find)

    def _thread(self) -> ClientThread:
        return client_thread(self._options.connection)


def _piece(offset: Offset, waiting: list[bytes | memoryview]) -> Piece:
    """The records in *waiting* as one piece; *waiting* is cleared."""
    records = b"".join(waiting)
    waiting.clear()
    return Piece(offset, find_records(records))
