"""The sink: writes rows as records, each row once, even if Spark repeats tasks or batches.

**Producers.**  Each task writes to a log as a producer of its own.  Its producer id is derived
from the query (or the job) and the number of Spark's partition, its producer epoch is the number of
the micro-batch, and its sequence counts the task's rows for that log.  A retried task, a second
copy of a task, and a batch that is repeated after a restart all send the same records with the same
producer id, epoch and sequences.  The broker appends only those that it doesn't have.  A copy that
still runs when the next batch has begun is fenced.

This requires that a repetition has the same rows, in the same order, in the same partition of
Spark.  That is so for rows that were read from Octopi and changed one by one.  After a shuffle it
is not, unless rows are sorted within partitions.

Records are acknowledged before a task ends, so Spark's commit has nothing left to do.  Records that
a task wrote before it failed stay in the log, and its repetition adds the rest.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from octopi.clients.producing.partitioner import place_for_key
from octopi.errors import InvalidOptionError, MalformedRecordError
from octopi.identifiers import (
    PartitionId,
    ProducerEpoch,
    TopicName,
    topic_name,
)
from octopi.limits import MIB, RECORD_BYTES_MAX
from octopi.record import encode_headers, producer_id_of
from octopi.spark.client_thread import AppendQueue, client_thread
from octopi.spark.encoding import EncodedRows, encode, record_sizes
from octopi.spark.options import WriteOptions
from octopi.wire.messages import TopicInfo

_BATCH_BYTES: Final = MIB // 2
"""The size of the records that are appended at a time.  Even of the smallest records, these are
fewer than a `Produce` may have."""

_TYPES: Final = {
    "value": {"binary", "string"},
    "key": {"binary", "string"},
    "topic": {"string"},
    "partition": {"int", "bigint"},
    "headers": {"array<struct<key:string,value:binary>>"},
    "timestamp": {"timestamp"},
}
_UNUSED: Final = {"offset", "next_offset", "request_id"}
"""Columns of the source that the sink ignores, since new records get their own."""


def check_columns(columns: Sequence[tuple[str, str]], options: WriteOptions) -> None:
    """Check the names and types of the columns of rows to write.

    Raises:
      InvalidOptionError: if such rows can't be written.
    """
    names = [name for name, _ in columns]
    if "value" not in names:
        raise InvalidOptionError(f"rows need a column value (binary or string); there are {names}")
    if "topic" not in names and not options.topic:
        raise InvalidOptionError("rows have no column topic: name one with .option('topic', NAME)")
    for name, kind in columns:
        if name in _UNUSED:
            continue
        if name not in _TYPES:
            raise InvalidOptionError(
                f"the sink doesn't use column {name}: select {', '.join(_TYPES)} (all but value "
                "are optional)"
            )
        if kind not in _TYPES[name]:
            raise InvalidOptionError(
                f"column {name} is {kind}; it must be {' or '.join(sorted(_TYPES[name]))}"
            )


@attrs.frozen
class TaskCommit(WriterCommitMessage):
    """How much one task wrote."""

    rows: int
    size_bytes: int


class OctopiWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, options: WriteOptions, columns: Sequence[tuple[str, str]]) -> None:
        check_columns(columns, options)
        self._options = options
        # Chosen where the job is planned, so it is the same in all tasks.
        self._job = options.job_id or secrets.token_hex(16)

    def write(self, iterator: Iterator[Any]) -> TaskCommit:
        context = _task()
        name = f"job {self._job} partition {context.partitionId()}"
        return TaskWriter(self._options, name, 0).write(iterator)


class OctopiStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write."""

    def __init__(self, options: WriteOptions, columns: Sequence[tuple[str, str]]) -> None:
        check_columns(columns, options)
        self._options = options

    def write(self, iterator: Iterator[Any]) -> TaskCommit:
        context = _task()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise InvalidOptionError(
                "this version of Spark doesn't say which query and batch it writes, so rows can't "
                "be written exactly once"
            )
        name = f"query {query} partition {context.partitionId()}"
        return TaskWriter(self._options, name, int(batch)).write(iterator)


class TaskWriter:
    """Writes the rows of one task, in one batch."""

    def __init__(
        self, options: WriteOptions, producer: str, epoch: int, *, lingers: bool = True
    ) -> None:
        """*producer*: a name that is the same in each repetition of the task; *epoch*: the number
        of the batch.  *lingers*: whether rows may wait for further rows to be sent with."""
        self._options = options
        self._lingers = lingers
        self._thread = client_thread(options.connection)
        self._producer_id = producer_id_of("spark", producer)
        self._epoch = ProducerEpoch(epoch)
        self._producer = producer
        self._topics: dict[str, TopicInfo] = {}
        self._logs: dict[tuple[str, int], _LogWriter] = {}
        self._first_place = int.from_bytes(self._producer_id[-4:], "big") + epoch
        """Chooses the log for rows without a key: one log in each batch, another in the next."""
        self._now_ms = time.time_ns() // 1_000_000
        self._rows = 0

    def write(self, batches: Iterator[Any]) -> TaskCommit:
        """Write all rows, and wait until they are acknowledged.

        Raises:
          MalformedRecordError: if a row can't be written; the text names it.
          OctopiError: any error of appending.
        """
        try:
            for batch in batches:
                self._take(batch)
                self._rows += batch.num_rows
                if not self._lingers:
                    for log in self._logs.values():
                        log.send_rest()
            for log in self._logs.values():
                log.send_rest()
        finally:
            errors = [error for log in self._logs.values() if (error := log.finish()) is not None]
        if errors:
            raise errors[0]
        return TaskCommit(self._rows, sum(log.size_bytes for log in self._logs.values()))

    def _take(self, batch: Any) -> None:  # pyarrow.RecordBatch
        rows = _Rows(batch, self._options.topic)
        self._check(rows)
        sizes = record_sizes(rows.values, rows.keys, rows.headers)
        if len(sizes) and sizes.max() > RECORD_BYTES_MAX:
            row = int(np.argmax(sizes > RECORD_BYTES_MAX))
            raise self._bad(
                row,
                f"a record has at most {RECORD_BYTES_MAX} bytes, this one would have {sizes[row]}",
            )
        for topic, of_topic in rows.by_topic():
            info = self._topic(topic)
            numbers = self._partitions(info, rows, of_topic)
            for number in np.unique(numbers):
                chosen = of_topic[numbers == number]
                log = self._logs.get((topic, int(number)))
                if log is None:
                    log = self._logs[topic, int(number)] = _LogWriter(
                        self._thread.open_appender(TopicName(topic), PartitionId(int(number)))
                    )
                whole = len(chosen) == batch.num_rows
                part = rows if whole else rows.take(chosen)
                log.add(
                    encode(
                        part.values,
                        part.keys,
                        part.headers,
                        part.timestamps_ms(self._now_ms),
                        self._producer_id,
                        self._epoch,
                        log.next_sequence,
                    )
                )

    def _check(self, rows: _Rows) -> None:
        if rows.values.null_count:
            row = int(np.argmax(rows.values.is_null().to_numpy(zero_copy_only=False)))
            raise self._bad(row, "its value is null; a message without content is an empty value")
        if rows.topics is not None and rows.topics.null_count:
            row = int(np.argmax(rows.topics.is_null().to_numpy(zero_copy_only=False)))
            raise self._bad(row, "its topic is null")

    def _bad(self, row: int, why: str) -> MalformedRecordError:
        return MalformedRecordError(
            f"row {self._rows + row} of {self._producer}, batch {self._epoch}: {why}"
        )

    def _partitions(self, info: TopicInfo, rows: _Rows, chosen: Any) -> Any:
        """The partition of each of the rows *chosen*."""
        there = np.array([one.partition for one in info.partitions])
        sticky = there[self._first_place % len(there)]
        if rows.partitions is not None:
            given = rows.partitions.take(pa.array(chosen))
            numbers = given.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
            wrong = (numbers != -1) & ~np.isin(numbers, there)
            if wrong.any():
                row = int(chosen[np.argmax(wrong)])
                number = numbers[np.argmax(wrong)]
                raise self._bad(row, f"topic {info.topic} has no partition {number}")
        else:
            numbers = np.full(len(chosen), -1, np.int64)
        free = np.flatnonzero(numbers == -1)
        if len(free):
            numbers[free] = sticky
            if len(there) > 1 and rows.keys.null_count < len(rows.keys):
                keys = rows.keys.take(pa.array(chosen[free])).to_pylist()
                for at, key in zip(free, keys, strict=True):
                    if key is not None:
                        numbers[at] = there[place_for_key(key, len(there))]
        return numbers

    def _topic(self, topic: str) -> TopicInfo:
        info = self._topics.get(topic)
        if info is None:
            name, create = topic_name(topic), self._options.create_topics
            thread = self._thread

            async def describe() -> TopicInfo:
                return await thread.client.describe_topic(name, create=create)

            info = self._topics[topic] = thread.call(describe)
        return info


class _Rows:
    """The columns of a batch of rows, in the types of the record."""

    def __init__(self, batch: Any, topic: str) -> None:
        names = batch.schema.names

        def column(name: str, kind: Any) -> Any:
            return batch.column(names.index(name)).cast(kind) if name in names else None

        count = batch.num_rows
        self.topic = topic
        self.values = column("value", pa.binary())
        keys = column("key", pa.binary())
        self.keys = pa.nulls(count, pa.binary()) if keys is None else keys
        self.topics = column("topic", pa.string())
        self.partitions = column("partition", pa.int64())
        self.stamps = column("timestamp", pa.timestamp("us", tz="UTC"))
        headers = batch.column(names.index("headers")) if "headers" in names else None
        self.headers = None if headers is None else _blocks(headers)

    def by_topic(self) -> Iterator[tuple[str, Any]]:
        """The topics, each with the indexes of its rows, in order."""
        if self.topics is None:
            yield self.topic, np.arange(len(self.values))
            return
        encoded = self.topics.dictionary_encode()
        indices = encoded.indices.to_numpy()
        for number, name in enumerate(encoded.dictionary.to_pylist()):
            yield name, np.flatnonzero(indices == number)

    def take(self, chosen: Any) -> _Rows:
        """The rows with the indexes *chosen*."""
        numbers = pa.array(chosen)
        part = object.__new__(_Rows)
        part.topic, part.topics, part.partitions = self.topic, None, None
        part.values, part.keys = self.values.take(numbers), self.keys.take(numbers)
        part.stamps = None if self.stamps is None else self.stamps.take(numbers)
        part.headers = None if self.headers is None else self.headers.take(numbers)
        return part

    def timestamps_ms(self, now_ms: int) -> Any:
        """The time stamp of each row; *now_ms* for rows without one."""
        if self.stamps is None:
            return np.full(len(self.values), now_ms, np.uint64)
        stamps = self.stamps.cast(pa.int64()).fill_null(now_ms * 1000)
        return np.maximum(stamps.to_numpy() // 1000, 0).astype(np.uint64)


class _LogWriter:
    """The rows of one task for one log."""

    def __init__(self, queue: AppendQueue) -> None:
        self._queue = queue
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self.next_sequence = 0
        self.size_bytes = 0

    def add(self, encoded: EncodedRows) -> None:
        """Take records, and send all full batches."""
        self.next_sequence += encoded.count
        self.size_bytes += len(encoded.records)
        for piece in encoded.pieces(_BATCH_BYTES - self._waiting_bytes, _BATCH_BYTES):
            self._waiting.append(piece)
            self._waiting_bytes += len(piece)
            if self._waiting_bytes >= _BATCH_BYTES:
                self.send_rest()

    def send_rest(self) -> None:
        """Send the records that were not sent yet."""
        if self._waiting:
            self._queue.append(b"".join(self._waiting))
            self._waiting.clear()
            self._waiting_bytes = 0

    def finish(self) -> Exception | None:
        """Wait until all sent records are acknowledged.  Return the reason if they can't be."""
        return self._queue.finish()


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "write() is called in a task"
    return context


def _blocks(headers: Any) -> Any:
    """The header blocks of records, empty where a row has none."""
    rows = headers.to_pylist()
    return pa.array(
        [
            encode_headers({one["key"]: one["value"] or b"" for one in row}) if row else b""
            for row in rows
        ],
        pa.binary(),
    )
