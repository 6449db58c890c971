"""Replays an archive into a topic: in order, each message once, and at the recorded pace if wanted.

One task replays each archived log, from its first file to its last.  The task is a producer whose
id is derived from the archived log and the target topic.  So a replay that is repeated, or that
continues after a kill, adds only messages that the topic doesn't have yet.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import pyarrow as pa

from octopi.errors import InvalidOptionError
from octopi.spark.client_thread import client_thread
from octopi.spark.jobs.archive_files import ArchivedLog, archived_logs, read_batches
from octopi.spark.options import WriteOptions, write_options
from octopi.spark.sink import TaskWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SLICE_S = 0.1
"""At the recorded pace, messages wait at most this long to be sent with others."""


@attrs.frozen
class ReplayOptions:
    """What a replay job replays, and where to."""

    directory: Path
    """The directory of the archive."""
    topic: str
    """The target topic."""
    sink: Mapping[str, str]
    """Options of the sink: ``server``, ``tokenFile``, ..."""
    only: tuple[str, ...] = ()
    """The archived topics to replay; empty: all of them."""
    speed: float | None = None
    """The factor to the recorded pace; None: as fast as possible."""


@attrs.frozen
class Replayed:
    """The result of a replay."""

    logs: int
    rows: int
    """The number of replayed messages, including those that earlier replays had added."""


def replay(spark: SparkSession, options: ReplayOptions) -> Replayed:
    """Replay an archive.

    Raises:
      InvalidOptionError: if there is nothing to replay, or, at a given speed, not a slot for each
          log.
      OctopiError: any error of producing.
    """
    logs = archived_logs(options.directory.absolute())
    logs = [one for one in logs if not options.only or one.topic in options.only]
    if not logs:
        raise InvalidOptionError(f"there is no archive of such topics in {options.directory}")
    slots = spark.sparkContext.defaultParallelism
    begin_ms: int | None = None
    if options.speed is not None:
        if len(logs) > slots:
            raise InvalidOptionError(
                f"a pace needs a task slot for each of the {len(logs)} logs, and "
                f"{spark.sparkContext.master} has {slots}: give --master 'local[{len(logs)}]'"
            )
        begin_ms = min(_first_ms(one) for one in logs)
    target = write_options({**options.sink, "topic": options.topic})
    _make_topic(target, len({one.partition for one in logs}))
    pace = None if options.speed is None or begin_ms is None else (begin_ms, options.speed)
    began_s = time.time()
    tasks = [(place, one) for place, one in enumerate(logs)]
    counts = (
        spark.sparkContext.parallelize(tasks, len(tasks))
        .map(lambda task: _replay_log(target, *task, pace, began_s))
        .collect()
    )
    return Replayed(len(logs), sum(counts))


def _make_topic(target: WriteOptions, partitions: int) -> None:
    thread = client_thread(target.connection)

    async def make() -> None:
        await thread.client.create_topic(target.topic, partitions, exist_ok=True)

    thread.call(make)


def _replay_log(
    target: WriteOptions,
    place: int,
    log: ArchivedLog,
    pace: tuple[int, float] | None,
    began_s: float,
) -> int:
    """Replay one log, the *place*-th of the archive; return the number of its messages."""
    thread = client_thread(target.connection)

    async def describe() -> list[int]:
        info = await thread.client.describe_topic(target.topic)
        return [one.partition for one in info.partitions]

    partitions = thread.call(describe)
    # Messages of one log without a key go to one partition, so they keep their order.
    keyless = partitions[place % len(partitions)]
    batches = _batches(log, keyless, 10_000 if pace is None else 500)
    if pace is not None:
        batches = _paced(batches, *pace, began_s)
    name = f"replay of {log.topic}/{log.partition} into {target.topic}"
    writer = TaskWriter(target, name, 0, lingers=pace is None)
    return writer.write(batches).rows


def _batches(log: ArchivedLog, keyless: int, rows: int) -> Iterator[Any]:
    for one in log.stretches():
        for batch in read_batches(one.path, rows):
            keys = batch.column("key")
            where = np.where(keys.is_null().to_numpy(zero_copy_only=False), keyless, -1)
            partitions = pa.array(where, pa.int64(), mask=where == -1)
            yield pa.record_batch(
                [
                    batch.column("value"),
                    keys,
                    batch.column("headers"),
                    batch.column("timestamp"),
                    partitions,
                ],
                names=["value", "key", "headers", "timestamp", "partition"],
            )


def _paced(batches: Iterator[Any], begin_ms: int, speed: float, began_s: float) -> Iterator[Any]:
    """The same rows, each no earlier than its time stamp and the speed demand."""
    for batch in batches:
        stamps = batch.column("timestamp").cast(pa.int64()).fill_null(0).to_numpy()
        due_s = began_s + np.maximum.accumulate(stamps / 1000 - begin_ms) / 1000 / speed
        at = 0
        while at < batch.num_rows:
            wait_s = due_s[at] - time.time()
            if wait_s > 0:
                time.sleep(wait_s)
            until = int(np.searchsorted(due_s, max(due_s[at], time.time()) + _SLICE_S))
            yield batch.slice(at, until - at)
            at = until


def _first_ms(log: ArchivedLog) -> int:
    for one in log.stretches():
        for batch in read_batches(one.path, 1):
            stamp = batch.column("timestamp").cast(pa.int64())[0].as_py()
            return int(stamp or 0) // 1000
    return 0
