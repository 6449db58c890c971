"""Sends real rows through Spark and back: produce, read, query with SQL, archive, replay, read.

Starts a register and brokers as processes, and a Spark session.  After each step the rows are
compared with those that were produced: the same values, as often, and in order for each partition.
Prints JSON on standard output.  Exits with an error at the first difference.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.processes import node_processes
from harness.spark_cluster import Cluster, flights
from octopi.spark.jobs.archive import ArchiveOptions, archive
from octopi.spark.jobs.replay import ReplayOptions, replay
from octopi.spark.session import SMALL_JOB, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("partition", "offset", "value")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--data", type=Path, help="a CSV file with a header line, gzipped or not")
    parser.add_argument("--key-column", type=int, default=9, help="counted from 0")
    arguments = parser.parse_args()
    column = arguments.key_column
    if arguments.data is None:  # column 0 is a number, before the 10,000 repeated rows
        lines, column = flights(arguments.rows), 10
    else:
        data = arguments.data.read_bytes()
        data = gzip.decompress(data) if arguments.data.suffix == ".gz" else data
        lines = data.splitlines()[1 : arguments.rows + 1]
    with tempfile.TemporaryDirectory() as name, node_processes(Path(name)) as nodes:
        register = nodes.register()
        brokers = [nodes.broker(register, f"broker-{n + 1}") for n in range(arguments.brokers)]
        settings = SMALL_JOB | {
            "spark.driver.memory": "2g",
            "spark.ui.showConsoleProgress": "false",
        }
        spark = spark_session("round trip", master="local[2]", settings=settings)
        spark.sparkContext.setLogLevel("ERROR")
        go_round(spark, Cluster(register, brokers[0]), lines, column, Path(name))
        spark.stop()
    print(json.dumps({"rows": len(lines), "distinct": len(set(lines)), "verdict": "equal"}))


def go_round(
    spark: SparkSession, cluster: Cluster, lines: list[bytes], column: int, directory: Path
) -> None:
    began = time.monotonic()

    def done(what: str) -> None:
        print(f"{time.monotonic() - began:.0f} s: {what}", file=sys.stderr, flush=True)

    def key(line: bytes) -> bytes:
        return line.split(b",")[column]

    source = {"server": cluster.url, "subscribe": cluster.topic(3, name="flights")}
    cluster.fill("flights", lines, key=key)
    done(f"produced {len(lines):,} rows")

    table = read(spark, source)
    produced = partitions(table)
    check("rows", sum(map(len, produced.values())), len(lines))
    # A key's rows are all in one partition, in the order in which they were produced.
    place = {key(value): number for number, values in produced.items() for value in values}
    expected: defaultdict[int, list[bytes]] = defaultdict(list)
    for line in lines:
        expected[place[key(line)]].append(line)
    check("a batch read", digests(produced), digests(expected))
    done("read as a batch")

    table.createOrReplaceTempView("flights")
    counted = spark.sql(
        f"select split(cast(value as string), ',')[{column}] as key, count(*) as count "
        "from flights group by 1"
    ).collect()
    counts = Counter(key(line).decode() for line in lines)
    check("SQL", {row["key"]: row["count"] for row in counted}, dict(counts))
    done(f"counted {len(counts)} keys in SQL")

    stream = spark.readStream.format("octopi").options(**source, startingOffsets="earliest").load()
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / "rows"))
    )
    query.awaitTermination()
    streamed = partitions(spark.read.parquet(str(directory / "rows")))
    check("a stream", digests(streamed), digests(produced))
    done("read as a stream")

    archived = archive(spark, ArchiveOptions(directory / "archive", source))
    check("the archive's rows and gaps", (archived.rows, archived.gaps), (len(lines), 0))
    stored = partitions(spark.read.parquet(str(directory / "archive")))
    check("the archive", digests(stored), digests(produced))
    done("archived")

    again = {"server": cluster.url}
    replayed = replay(spark, ReplayOptions(directory / "archive", "flights-again", again))
    check("replayed rows", replayed.rows, len(lines))
    copied = partitions(read(spark, again | {"subscribe": "flights-again"}))
    # The rows of a partition stay together and in order, but may be in another partition.
    check("the replay", sorted(digests(copied).values()), sorted(digests(produced).values()))
    done("replayed and read again")


def read(spark: SparkSession, source: dict[str, str]) -> DataFrame:
    return spark.read.format("octopi").options(**source).load()


def partitions(frame: DataFrame) -> dict[int, list[bytes]]:
    """The values of each partition, in the order of their offsets."""
    table: Any = (
        frame.select(*COLUMNS)
        .toArrow()
        .sort_by([("partition", "ascending"), ("offset", "ascending")])
    )
    found: defaultdict[int, list[bytes]] = defaultdict(list)
    numbers, values = table.column("partition").to_pylist(), table.column("value").to_pylist()
    for number, value in zip(numbers, values, strict=True):
        found[number].append(value)
    return found


def digests(found: dict[int, list[bytes]]) -> dict[int, tuple[int, str]]:
    """The number of values of each partition, and a hash of the values in order."""
    return {
        number: (len(values), hashlib.sha256(b"\n".join(values)).hexdigest())
        for number, values in found.items()
    }


def check(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        sys.exit(f"{what}: found {found}, expected {wanted}")


if __name__ == "__main__":
    main()
