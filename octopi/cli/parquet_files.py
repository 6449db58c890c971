"""Messages in Parquet files, without Spark.

The columns have the names and types of the Spark source and of archives (docs/spark.md), so that
what one of them writes the others read.  Only this module and `octopi.spark` import pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from octopi.cli.failures import CommandError
from octopi.cli.json_messages import TIMESTAMP_MS_MAX, Outgoing, timestamp_of
from octopi.cli.line_splitter import BadLineError
from octopi.limits import MIB
from octopi.record import NO_HEADERS, Message

_TIME: Final = pa.timestamp("us", tz="UTC")
_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("next_offset", pa.int64()),
        ("timestamp", _TIME),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
_GROUP_BYTES: Final = 64 * MIB
"""The size of the keys and values of a row group, of which a reader and a writer hold one."""
_GROUP_ROWS: Final = 100_000
_READ_ROWS: Final = 1_000


class ParquetWriter:
    """Writes messages to the file *path*."""

    def __init__(self, path: Path) -> None:
        self._writer = pq.ParquetWriter(path, _SCHEMA, compression="zstd")
        self._held: list[Message] = []
        self._held_bytes = 0

    def write(self, messages: list[Message]) -> int:
        """Write *messages*; return the size of their keys and values in bytes."""
        size_bytes = sum(len(one.value) + len(one.key or b"") for one in messages)
        self._held += messages
        self._held_bytes += size_bytes
        if len(self._held) >= _GROUP_ROWS or self._held_bytes >= _GROUP_BYTES:
            self._write_held()
        return size_bytes

    def close(self) -> None:
        """Write what is left, and the end of the file."""
        if self._held:
            self._write_held()
        self._writer.close()

    def _write_held(self) -> None:
        columns = [
            pa.array([_cell(one, field.name) for one in self._held], field.type)
            for field in _SCHEMA
        ]
        self._held, self._held_bytes = [], 0
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))


def _cell(message: Message, name: str) -> object:
    if name == "timestamp":
        stamp = message.timestamp_ms
        return None if stamp is None or stamp > TIMESTAMP_MS_MAX else stamp * 1000
    if name == "headers":
        return list(message.headers.items()) or None
    return getattr(message, name)


class ParquetReader:
    """Reads the messages of the file *path*.

    Raises:
      CommandError: if it is no Parquet file, or has no column of values.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = pq.ParquetFile(path)
        except pa.ArrowInvalid as error:
            raise CommandError(f"{path} is no Parquet file: {error}") from None
        self._path = path
        self.count: int = self._file.metadata.num_rows
        """The number of messages."""
        names = self._file.schema_arrow.names
        if "value" not in names:
            raise CommandError(
                f"{path} has no column value, but {', '.join(names)}: rename the column that has "
                "the contents of the messages"
            )
        self._columns = [name for name in ("key", "value", "headers", "timestamp") if name in names]

    def portions(self, skip: int) -> Iterator[list[Outgoing]]:
        """The messages without the first *skip* ones, some at a time.

        Raises:
          BadLineError: if a row is no message, or the file is damaged; the messages before it were
              returned.
        """
        number = 0
        try:
            for batch in self._file.iter_batches(_READ_ROWS, columns=self._columns):
                first = max(0, skip - number)
                if first < batch.num_rows:
                    yield from self._messages(batch.slice(first), number + first)
                number += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise BadLineError(f"{self._path} is damaged behind row {number:,}: {error}") from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _messages(self, batch: Any, before: int) -> Iterator[list[Outgoing]]:
        columns = {name: batch.column(name) for name in self._columns}
        values = _bytes_in(columns["value"])
        absent = [None] * len(values)
        keys = _bytes_in(columns["key"]) if "key" in columns else absent
        headers = columns["headers"].to_pylist() if "headers" in columns else absent
        times = _milliseconds_in(columns["timestamp"]) if "timestamp" in columns else absent
        found: list[Outgoing] = []
        rows = zip(values, keys, headers, times, strict=True)
        for row, (value, key, given, time) in enumerate(rows, before + 1):
            try:
                if value is None:
                    raise ValueError("it has no value")
                found.append(Outgoing(value, key, _headers(given), timestamp_of(time)))
            except ValueError as error:
                yield found
                raise BadLineError(f"row {row:,} is no message: {error}") from None
        yield found


def _bytes_in(column: Any) -> list[bytes | None]:
    return [one.encode() if isinstance(one, str) else one for one in column.to_pylist()]


def _milliseconds_in(column: Any) -> list[int | None]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    found: list[int | None] = column.to_pylist()
    return found


def _headers(given: Any) -> dict[str, bytes] | Any:
    if not given:
        return NO_HEADERS
    pairs = [(one["key"], one["value"]) if isinstance(one, dict) else one for one in given]
    headers = {name: value.encode() if isinstance(value, str) else value for name, value in pairs}
    if len(headers) != len(pairs) or None in headers or None in headers.values():
        raise ValueError("its headers have a name twice, or one without name or value")
    return headers
