"""Shows on the driver how far a job is, while it runs."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from octopi.spark import planning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_EVERY_S = 0.3


@contextmanager
def shown(spark: SparkSession, what: str) -> Iterator[None]:
    """Show the tasks of the running stages on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TimeElapsedColumn(),
    )
    over = threading.Event()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)

        def watch() -> None:
            tracker = spark.sparkContext.statusTracker()
            while not over.wait(_EVERY_S):
                infos = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
                known = [one for one in infos if one is not None]
                if known:
                    total = sum(one.numTasks for one in known)
                    done = sum(one.numCompletedTasks for one in known)
                    progress.update(task, total=total, completed=done)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def batch_lines(query: StreamingQuery) -> Iterator[str]:
    """A line for each batch of *query*, as soon as the batch is done, until the query ends.

    Raises:
      StreamingQueryException: if the query fails.
    """
    seen = -1
    while True:
        ended = query.awaitTermination(1)
        for one in query.recentProgress:
            if one.batchId > seen and one.numInputRows:
                seen = one.batchId
                lag_bytes = sum(lags(one).values())
                yield (
                    f"batch {one.batchId}: {one.numInputRows:,} rows, "
                    f"{one.processedRowsPerSecond:,.0f} rows/s, {lag_bytes:,} bytes behind"
                )
        if ended:
            return


def lags(progress: object) -> dict[str, int]:
    """The number of unread bytes of each log, by ``topic/partition``, at the moment of a query's
    *progress*."""
    behind: dict[str, int] = {}
    for source in json.loads(progress.json)["sources"]:  # type: ignore[attr-defined]
        latest, end = source.get("latestOffset"), source.get("endOffset")
        if not isinstance(latest, dict) or "positions" not in latest or not end:
            continue
        read, _ = planning.load(end)
        for log, offset in planning.load(latest)[0].items():
            behind[str(log)] = offset - read.get(log, 0)
    return behind
