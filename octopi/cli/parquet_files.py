"""Messages in Parquet files, without Spark.

The columns have the names and types of the Spark source and of archives (docs/spark.md), so that
what one of them writes the others read.  Only this module and `octopi.spark` import pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from octopi import MessageBatch
from octopi.cli.failures import CommandError
from octopi.cli.json_messages import Outgoing, timestamp_of
from octopi.cli.line_splitter import BadLineError
from octopi.limits import MIB
from octopi.record import NO_HEADERS
from octopi.spark.columns import arrow_schema, checked_rows

_SCHEMA: Final = arrow_schema(
    ["topic", "partition", "offset", "next_offset", "timestamp", "key", "value", "headers"]
)
_GROUP_BYTES: Final = 64 * MIB
"""The size of the keys and values of a row group, of which a reader and a writer hold one."""
_GROUP_ROWS: Final = 100_000
_READ_ROWS: Final = 1_000


class ParquetWriter:
    """Writes messages to the file *path*.  No object is made of a message: the columns are built
    from the records of a batch, as in the Spark source."""

    def __init__(self, path: Path) -> None:
        self._writer = pq.ParquetWriter(path, _SCHEMA, compression="zstd")
        self._held: list[Any] = []
        self._held_rows = self._held_bytes = 0

    def write(self, batch: MessageBatch) -> tuple[int, int]:
        """Write the messages of *batch*; return their number, and the size of their keys and values
        in bytes."""
        rows = batch.decoded(
            lambda records, offset: checked_rows(
                bytes(records), offset, batch.topic, batch.partition, _SCHEMA
            )
        )
        lengths = [pc.sum(pc.binary_length(rows.column(name))).as_py() for name in ("key", "value")]
        size_bytes = sum(one or 0 for one in lengths)
        self._held.append(rows)
        self._held_rows += rows.num_rows
        self._held_bytes += size_bytes
        if self._held_rows >= _GROUP_ROWS or self._held_bytes >= _GROUP_BYTES:
            self._write_held()
        return rows.num_rows, size_bytes

    def close(self) -> None:
        """Write what is left, and the end of the file."""
        if self._held:
            self._write_held()
        self._writer.close()

    def _write_held(self) -> None:
        group = pa.Table.from_batches(self._held, _SCHEMA)
        self._writer.write_table(group, row_group_size=self._held_rows)
        self._held, self._held_rows, self._held_bytes = [], 0, 0


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
