"""The driver that `tests.spark.kills` kills: an archive and a copy of a topic, as streams.

``python -m tests.spark.streams DIRECTORY URL follow|drain``
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from octopi.spark.jobs.archive import ArchiveOptions, start_archive
from octopi.spark.session import SMALL_JOB, spark_session


def main(directory: Path, url: str, mode: str) -> None:
    settings = SMALL_JOB | {"spark.ui.showConsoleProgress": "false"}
    spark = spark_session("streams", master="local[2,4]", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    drains = mode == "drain"
    source = {
        "server": url,
        "subscribe": "source",
        "startingOffsets": "earliest",
    }
    options = ArchiveOptions(
        directory / "archive",
        source | {"minPartitions": "4"},
        continuous=not drains,
        interval_s=0.5,
        file_bytes=0,
    )
    archiving = start_archive(spark, options)
    # One task for each log, so that the copy keeps the order.
    stream = spark.readStream.format("octopi").options(**source)
    copying = (
        stream.load()
        .selectExpr("key", "value", "timestamp")
        .writeStream.format("octopi")
        .options(server=url, topic="copy", checkpointLocation=str(directory / "copying"))
    )
    if drains:
        query = copying.trigger(availableNow=True).start()
    else:
        query = copying.trigger(processingTime="500 milliseconds").start()
    archiving.awaitTermination()
    query.awaitTermination()
    spark.stop()


def end_with_parent() -> None:
    """Whoever started this has gone when standard input ends."""
    # Not sys.stdin, whose lock this thread would hold when the interpreter ends.
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    main(Path(sys.argv[1]), *sys.argv[2:])
