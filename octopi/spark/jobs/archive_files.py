"""The files of an archive: Parquet, one for each stretch of a log, named by its offsets.

``topic=orders/partition=0/00000000000000000000-00000000000000016384.parquet`` has the messages of
partition 0 of ``orders`` from the first offset up to the second, in order.  So the names in a
directory show whether messages are missing or archived twice.  A stretch that is written again
replaces its file.  Any program that reads Parquet can read an archive.

A file gets its name only when it is complete.  All other names begin with ``.`` or ``_``; readers
of Parquet directories leave these out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from octopi.errors import StorageError
from octopi.identifiers import PartitionId, TopicName
from octopi.spark.columns import arrow_schema

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{20})\.parquet", re.ASCII)
_MERGED: Final = re.compile(r"\.([0-9]{20})-([0-9]{20})\.merged", re.ASCII)

COLUMNS: Final = (
    "offset",
    "next_offset",
    "timestamp",
    "key",
    "value",
    "headers",
    "request_id",
)
"""The columns of a file.  Topic and partition are in the names of its directories."""

ROW_GROUP_ROWS: Final = 100_000


@attrs.frozen(order=True)
class Stretch:
    """One file of an archive."""

    start: int
    end: int
    """The offset behind its last message."""
    path: Path = attrs.field(eq=False, order=False)

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        return self.path.stat().st_size


@attrs.frozen(order=True)
class ArchivedLog:
    """The archive of one log."""

    topic: TopicName
    partition: PartitionId
    directory: Path = attrs.field(eq=False, order=False)

    def stretches(self) -> list[Stretch]:
        """The files of the log, in order.

        Raises:
          StorageError: if two of them overlap.
        """
        found = sorted(
            Stretch(int(match[1]), int(match[2]), path)
            for path in self.directory.iterdir()
            if (match := _NAME.fullmatch(path.name))
        )
        for one, other in pairwise(found):
            if other.start < one.end:
                raise StorageError(
                    f"{one.path} and {other.path.name} overlap: one of them was put there by "
                    "another program; move one away"
                )
        return found

    def gaps(self) -> list[tuple[int, int]]:
        """The gaps between the files, as pairs of offsets: nothing from the first to the second is
        archived."""
        pairs = pairwise(self.stretches())
        return [(one.end, other.start) for one, other in pairs if one.end != other.start]


def archived_logs(root: Path) -> list[ArchivedLog]:
    """The logs in the archive *root*, sorted."""
    return sorted(
        ArchivedLog(
            TopicName(folder.parent.name.removeprefix("topic=")),
            PartitionId(int(folder.name.removeprefix("partition="))),
            folder,
        )
        for folder in root.glob("topic=*/partition=*")
    )


class StretchWriter:
    """Writes consecutive rows of one log to one file."""

    def __init__(self, root: Path, topic: str, partition: int, start: int) -> None:
        self._topic = topic
        self._partition = partition
        self._directory = root / f"topic={topic}" / f"partition={partition}"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._start = start
        # Another attempt of the same task may write at the same time.
        self._beside = self._directory / f".{start:020d}.{os.getpid()}.tmp"
        self._writer = pq.ParquetWriter(self._beside, arrow_schema(COLUMNS), compression="zstd")
        self._rows = 0
        self.end = start

    def write(self, batch: Any) -> None:  # pyarrow.RecordBatch
        """Add rows, of which only `COLUMNS` are kept."""
        # Spark has other names for a list's elements and for UTC.
        rows = batch.select(COLUMNS).cast(arrow_schema(COLUMNS))
        self._writer.write_batch(rows, row_group_size=ROW_GROUP_ROWS)
        self.end = batch.column("next_offset")[-1].as_py()
        self._rows += batch.num_rows

    def close(self) -> tuple[str, int, int, int, int]:
        """Give the file its name, durably.  Return topic, partition, first offset, end, and number
        of rows."""
        self._writer.close()
        _name(self._beside, self._directory / f"{self._start:020d}-{self.end:020d}.parquet")
        return self._topic, self._partition, self._start, self.end, self._rows


def read_batches(path: Path, rows: int = 10_000) -> Iterator[Any]:
    """The rows of a file, as `pyarrow.RecordBatch`."""
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=rows)


# --- compaction --------------------------------------------------------------------------


def compact(log: ArchivedLog, target_bytes: int) -> int:
    """Merge neighbouring files of *log* that together have at most *target_bytes*; return by how
    many the files became fewer.

    If it is killed at any moment, no message is in the archive twice, and the next compaction
    finishes the merge.  Until then, the messages of one merged file may be missing.
    """
    gone = _finish(log)
    for group in _groups(log.stretches(), target_bytes):
        first, last = group[0], group[-1]
        beside = log.directory / f".{first.start:020d}.tmp"
        with pq.ParquetWriter(beside, arrow_schema(COLUMNS), compression="zstd") as writer:
            for one in group:
                for batch in read_batches(one.path, ROW_GROUP_ROWS):
                    writer.write_table(pa.Table.from_batches([batch]).select(COLUMNS))
        _name(beside, log.directory / f".{first.start:020d}-{last.end:020d}.merged")
        gone += _finish(log)
    return gone


def _finish(log: ArchivedLog) -> int:
    """Replace parts by the merged files, which are complete; return by how many the files became
    fewer."""
    gone = 0
    for path in sorted(log.directory.iterdir()):
        match = _MERGED.fullmatch(path.name)
        if match is None:
            continue
        start, end = int(match[1]), int(match[2])
        for part in list(log.directory.iterdir()):
            of_part = _NAME.fullmatch(part.name)
            if of_part and start <= int(of_part[1]) and int(of_part[2]) <= end:
                part.unlink()
                gone += 1
        _name(path, log.directory / f"{start:020d}-{end:020d}.parquet")
        gone -= 1
    return gone


def _groups(stretches: list[Stretch], target_bytes: int) -> list[list[Stretch]]:
    """The groups of neighbouring files to merge, each of two at least."""
    groups: list[list[Stretch]] = [[]]
    size_bytes = 0
    for one in stretches:
        group = groups[-1]
        if group and (group[-1].end != one.start or size_bytes + one.size_bytes > target_bytes):
            groups.append([])
            size_bytes = 0
        groups[-1].append(one)
        size_bytes += one.size_bytes
    return [group for group in groups if len(group) > 1]


def _name(beside: Path, path: Path) -> None:
    """Rename the file *beside* to *path*, durably."""
    with beside.open("rb") as file:
        os.fsync(file.fileno())
    beside.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
