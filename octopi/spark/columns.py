"""Records as columns: the rows of the source, built from the bytes without a loop over records.

A binary column of Arrow is one buffer, and the positions at which its values end.  So the buffer
with the records serves as the buffer of a column whose values are, in turn, the bytes before a
field and the field, for each record.  The field's column takes every second value of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from octopi.errors import IncompleteRecordError, InvalidOptionError
from octopi.identifiers import Offset, PartitionId, TopicName
from octopi.record import HEADER_BYTES, STRUCTURED_BYTES_MIN, Message, decode, decode_headers
from octopi.spark.frames import NO_KEY, Frames, Positions, check_records, find_records

_TIME: Final = pa.timestamp("us", tz="UTC")
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TYPES: Final[dict[str, Any]] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "next_offset": pa.int64(),
    "timestamp": _TIME,
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": _HEADERS,
    "request_id": pa.binary(),
}
TIMESTAMP_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, the last year of Spark's time stamps."""

_REQUEST_ID_AT: Final = 9


def arrow_schema(names: Sequence[str]) -> Any:  # pyarrow has no types
    """The Arrow schema of the columns *names*, with exactly the types that Spark expects.

    Raises:
      InvalidOptionError: if the source doesn't have one of them.
    """
    for name in names:
        if name not in _TYPES:
            raise InvalidOptionError(f"there is no column {name!r}; there are {list(_TYPES)}")
    return pa.schema([(name, _TYPES[name]) for name in names])


def checked_rows(
    records: bytes, base_offset: int, topic: TopicName, partition: PartitionId, schema: Any
) -> Any:
    """`record_batch` of *records*, which have to be whole and are checked.

    Raises:
      RecordError: if a record is not valid.
    """
    frames = find_records(records)
    if frames.size_bytes < len(records):
        raise IncompleteRecordError(
            f"the records end within the one at offset {base_offset + frames.size_bytes}"
        )
    check_records(frames, base_offset)
    return record_batch(frames, base_offset, topic, partition, schema)


def record_batch(
    frames: Frames,
    base_offset: int,
    topic: TopicName,
    partition: PartitionId,
    schema: Any,
) -> Any:
    """A `pyarrow.RecordBatch` with a row for each record of *frames*, which must be checked.

    *base_offset*: the offset of the first record.  *schema*: the columns, from `arrow_schema`.
    """
    build = _from_bytes if frames.is_structured else _from_messages
    columns = build(frames, base_offset, topic, partition, schema.names)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _from_bytes(
    frames: Frames,
    base_offset: int,
    topic: TopicName,
    partition: PartitionId,
    names: Sequence[str],
) -> list[Any]:
    count = len(frames)
    keys = frames.key_lengths()
    headers = frames.headers_lengths()
    key_at = frames.starts + STRUCTURED_BYTES_MIN + headers
    value_at = key_at + np.where(keys == NO_KEY, 0, keys)
    columns: list[Any] = []
    for name in names:
        match name:
            case "topic":
                columns.append(pa.repeat(pa.scalar(topic, pa.string()), count))
            case "partition":
                columns.append(_numbers(pa.int32(), np.full(count, partition, np.int32)))
            case "offset":
                columns.append(_numbers(pa.int64(), frames.starts + base_offset))
            case "next_offset":
                columns.append(_numbers(pa.int64(), frames.stops + base_offset))
            case "timestamp":
                columns.append(_times(frames.timestamps_ms()))
            case "headers":
                columns.append(_headers(frames, headers))
            case "request_id":
                at = frames.starts + _REQUEST_ID_AT
                columns.append(_taken(frames, at, frames.starts + HEADER_BYTES))
            case "key":
                columns.append(_taken(frames, key_at, value_at, missing=keys == NO_KEY))
            case "value":
                columns.append(_taken(frames, value_at, frames.stops))
            case _:
                raise AssertionError(f"arrow_schema lets no column {name} pass")
    return columns


def _numbers(kind: Any, numbers: Any) -> Any:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def _times(timestamps_ms: Any) -> Any:
    late = timestamps_ms > TIMESTAMP_MS_MAX
    if not late.any():
        return _numbers(_TIME, (timestamps_ms * 1000).astype(np.int64))
    return pa.array(np.where(late, 0, timestamps_ms * 1000).astype(np.int64), mask=late).cast(_TIME)


def _taken(frames: Frames, starts: Positions, stops: Positions, *, missing: Any = None) -> Any:
    """The bytes of each record from *starts* to *stops*; null where *missing* is true."""
    count = len(frames)
    ends = np.empty(2 * count + 1, np.int32)
    ends[0] = 0
    ends[1::2] = starts
    ends[2::2] = stops
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(frames.buffer)]
    fields = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
    return fields.take(pa.array(np.arange(1, 2 * count, 2), mask=missing))


def _headers(frames: Frames, lengths: Any) -> Any:
    """The headers of each record; null where a record has none."""
    if not lengths.any():
        return pa.nulls(len(frames), _HEADERS)
    rows: list[list[tuple[str, bytes]] | None] = [None] * len(frames)
    for row in np.flatnonzero(lengths):
        start = int(frames.starts[row]) + STRUCTURED_BYTES_MIN
        rows[row] = list(decode_headers(frames.buffer[start : start + int(lengths[row])]).items())
    return pa.array(rows, _HEADERS)


def _from_messages(
    frames: Frames,
    base_offset: int,
    topic: TopicName,
    partition: PartitionId,
    names: Sequence[str],
) -> list[Any]:
    """The columns, made record by record: for version 1 records, of which there are few."""
    records = frames.buffer[: frames.size_bytes]
    messages = decode(records, Offset(base_offset), topic, partition)
    return [pa.array([_cell(one, name) for one in messages], _TYPES[name]) for name in names]


def _cell(message: Message, name: str) -> object:
    if name == "timestamp":
        stamp = message.timestamp_ms
        return None if stamp is None or stamp > TIMESTAMP_MS_MAX else stamp * 1000
    if name == "headers":
        return list(message.headers.items()) or None
    return getattr(message, name)
