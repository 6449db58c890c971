"""Archives topics in Parquet files, once or continuously; each message is in exactly one file.

A task writes the range of a log that it reads into one file, whose name has the offsets of that
range.  Ranges are stored in the stream's checkpoint before they are read.  So a batch that is
repeated after a kill writes the same files again, under the same names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from octopi.limits import GIB, MIB
from octopi.logger import get_logger
from octopi.spark.jobs.archive_files import StretchWriter, archived_logs, compact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

CHECKPOINT: Final = "_checkpoint"
FILE_BYTES: Final = 256 * MIB

_log = get_logger(__name__)


@attrs.frozen
class ArchiveOptions:
    """What an archive job archives, where to, and in which portions."""

    directory: Path
    source: Mapping[str, str]
    """Options of the source: ``server``, ``subscribe``, ..."""
    continuous: bool = False
    """Whether to run until stopped; otherwise the job stops at the present end of the logs."""
    interval_s: float = 60.0
    """How often files are written, if continuous."""
    batch_bytes: int = GIB
    """The size of the records in one batch."""
    file_bytes: int = FILE_BYTES
    """Neighbouring smaller files are merged, up to this size; 0: no files are merged."""


@attrs.frozen
class Archived:
    """What an archive job did."""

    batches: int
    rows: int
    merged_files: int
    gaps: int
    """The number of places at which messages are missing, because retention had removed them."""


def start_archive(spark: SparkSession, options: ArchiveOptions) -> StreamingQuery:
    """Begin to archive.  The checkpoint is in the directory, so the same call continues where the
    last one was stopped, or killed.  Without a checkpoint it continues behind the archived
    messages.
    """
    directory = options.directory.absolute()
    root = str(directory)
    begin = _begin(directory)
    source = {
        "startingOffsets": begin,
        "includeHeaders": "true",
        "maxBytesPerTrigger": str(options.batch_bytes),
        **options.source,
    }
    stream = spark.readStream.format("octopi").options(**source).load()

    spark.dataSource.register(ArchiveSink)
    writer = stream.writeStream.format("octopi-archive").option("path", root)
    writer = writer.option("checkpointLocation", f"{root}/{CHECKPOINT}")
    if options.continuous:
        return writer.trigger(processingTime=f"{options.interval_s} seconds").start()
    return writer.trigger(availableNow=True).start()


def archive(spark: SparkSession, options: ArchiveOptions) -> Archived:
    """Archive all messages that there are, merge small files, and look for gaps.

    Raises:
      StreamingQueryException: if the stream fails.
      StorageError: if files of the archive overlap.
    """
    query = start_archive(spark, options)
    query.awaitTermination()
    return finish(spark, options, query)


def finish(spark: SparkSession, options: ArchiveOptions, query: StreamingQuery) -> Archived:
    """Finish an archive job after its stream *query* has ended: merge small files, and look for
    gaps."""
    progress = [one for one in query.recentProgress if one.numInputRows]
    logs = archived_logs(options.directory)
    merged = 0
    if options.file_bytes and logs:
        target = options.file_bytes
        merged = (
            spark.sparkContext.parallelize(logs, len(logs))
            .map(lambda log: compact(log, target))
            .sum()
        )
    gaps = 0
    for log in logs:
        for start, end in log.gaps():
            gaps += 1
            where = f"{log.topic}/{log.partition}"
            _log.warning("messages are missing in the archive", log=where, start=start, end=end)
    rows = sum(one.numInputRows for one in progress)
    return Archived(len(progress), rows, merged, gaps)


def _begin(directory: Path) -> str:
    """The ``startingOffsets`` of a query without a checkpoint: behind the archived messages."""
    places: dict[str, dict[str, int]] = {}
    for log in archived_logs(directory):
        stretches = log.stretches()
        if stretches:
            places.setdefault(log.topic, {})[str(log.partition)] = stretches[-1].end
    return json.dumps(places) if places else "earliest"


# --- the sink ----------------------------------------------------------------------------


@attrs.frozen
class ArchivedFiles(WriterCommitMessage):
    """The files that one task wrote."""

    stretches: list[tuple[str, int, int, int, int]]
    """For each file: topic, partition, first offset, end, and number of rows."""


class ArchiveSink(DataSource):
    """``format("octopi-archive")``: writes rows of the source to an archive's files."""

    @classmethod
    def name(cls) -> str:
        return "octopi-archive"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return ArchiveWriter(self.options["path"])


class ArchiveWriter(DataSourceStreamArrowWriter):
    """Each task writes the range of a log that it was given."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def write(self, iterator: Iterator[Any]) -> ArchivedFiles:
        writer: StretchWriter | None = None
        done: list[tuple[str, int, int, int, int]] = []
        for batch in iterator:
            if not batch.num_rows:
                continue
            offset = batch.column("offset")[0].as_py()
            # If retention has removed records in between, the range becomes two files.
            if writer is not None and offset != writer.end:
                done.append(writer.close())
                writer = None
            if writer is None:
                topic, partition = (batch.column(one)[0].as_py() for one in ("topic", "partition"))
                writer = StretchWriter(self._root, topic, partition, offset)
            writer.write(batch)
        if writer is not None:
            done.append(writer.close())
        return ArchivedFiles(done)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        for message in messages:
            assert isinstance(message, ArchivedFiles)
            for topic, partition, start, end, rows in message.stretches:
                _log.info(
                    "archived",
                    batch=batchId,
                    topic=topic,
                    partition=partition,
                    start=start,
                    end=end,
                    rows=rows,
                )
