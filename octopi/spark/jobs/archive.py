"""Topics into Parquet files, once or for ever; each message in exactly one file.

A task writes the range of a log that it reads into one file, whose name is that range.  The
stream's checkpoint notes ranges before they are read, so a batch that is done again after a
kill writes the same files again, under the same names.
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
    """What is archived, where to, and in which portions."""

    directory: Path
    source: Mapping[str, str]
    """Options of the source: ``server``, ``subscribe``, ..."""
    continuous: bool = False
    """Go on until stopped; else end at what is the end now."""
    interval_s: float = 60.0
    """How often files are written, if continuous."""
    batch_bytes: int = GIB
    """Of records, in one batch."""
    file_bytes: int = FILE_BYTES
    """Smaller neighbours are merged, up to this; 0: none are."""


@attrs.frozen
class Archived:
    """What an archive job did."""

    batches: int
    rows: int
    merged_files: int
    gaps: int
    """Places at which messages are missing, because retention had removed them."""


def start_archive(spark: SparkSession, options: ArchiveOptions) -> StreamingQuery:
    """Begin to archive.  The checkpoint lies in the directory, so the same call goes on where
    the last one was stopped, or killed; without a checkpoint it goes on behind what is there.
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
    """Archive what there is, compact, and look for gaps.

    Raises:
      StreamingQueryException: if the stream fails.
      StorageError: if the archive holds what can't be.
    """
    query = start_archive(spark, options)
    query.awaitTermination()
    return finish(spark, options, query)


def finish(spark: SparkSession, options: ArchiveOptions, query: StreamingQuery) -> Archived:
    """What comes behind the stream *query*: compaction, and a look at the names."""
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
    """Where a query without a checkpoint begins: behind what is archived."""
    places: dict[str, dict[str, int]] = {}
    for log in archived_logs(directory):
        stretches = log.stretches()
        if stretches:
            places.setdefault(log.topic, {})[str(log.partition)] = stretches[-1].end
    return json.dumps(places) if places else "earliest"


# --- the sink ----------------------------------------------------------------------------


@attrs.frozen
class ArchivedFiles(WriterCommitMessage):
    """The files of one task: topic, partition, first offset, end, rows."""

    stretches: list[tuple[str, int, int, int, int]]


class ArchiveSink(DataSource):
    """``format("octopi-archive")``: rows of the source into an archive's files."""

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
            # What retention removed in between parts a range in two.
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
