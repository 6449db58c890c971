"""Measures what reading and writing topics costs in Spark, as ratios within one run.

Starts a register and a broker as processes, and a Spark session.  Rates are per second of processor
time, of the JVM and Python together, taken from /proc, because machines are shared and the cost of
a job is what counts on a cluster.  The broker's processor time isn't counted, because in production
it is spent on another machine.  Every rate is the median of `--runs` interleaved runs.  Prints JSON
on standard output.

With `--kafka-jars` and `--connector-jars`, Spark's own Kafka source reads the same values from a
Kafka broker in the same run.  Both are directories of jars: the first has `kafka_2.13` and what it
needs, the second `spark-sql-kafka-0-10_2.13` and what it needs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.kafka_broker import KafkaBroker, kafka_broker
from harness.processes import node_processes
from harness.spark_cluster import Cluster
from octopi.identifiers import ProducerEpoch, ProducerId
from octopi.limits import MIB
from octopi.record import scan
from octopi.spark.encoding import encode
from octopi.spark.frames import check_records, find_records
from octopi.spark.jobs.audit import audit
from octopi.spark.options import write_options
from octopi.spark.session import spark_session
from octopi.spark.sink import TaskWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIZES = (100, 1024)
_TICKS = os.sysconf("SC_CLK_TCK")

Figures = defaultdict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=500, help="of values, for each size")
    parser.add_argument("--batches", type=int, default=30, help="to measure the latency")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--kafka-jars", type=Path)
    parser.add_argument("--connector-jars", type=Path)
    arguments = parser.parse_args()
    figures: dict[int, Figures] = {size: defaultdict(list) for size in SIZES}
    latency: Figures = defaultdict(list)
    with (
        tempfile.TemporaryDirectory() as name,
        node_processes(Path(name)) as nodes,
        ExitStack() as stack,
    ):
        directory = Path(name)
        register = nodes.register()
        broker = nodes.broker(register)
        settings = {"spark.driver.memory": "2g", "spark.ui.showConsoleProgress": "false"}
        kafka: KafkaBroker | None = None
        if arguments.kafka_jars:
            kafka = stack.enter_context(kafka_broker(arguments.kafka_jars, directory / "kafka"))
            settings["spark.driver.extraClassPath"] = f"{arguments.connector_jars}/*"
        spark = spark_session("bench", master=f"local[{arguments.cores}]", settings=settings)
        spark.sparkContext.setLogLevel("ERROR")
        cluster = Cluster(register, broker)
        counts = {size: arguments.megabytes * 1_000_000 // size for size in SIZES}
        for size in SIZES:
            fill(cluster, f"bench-{size}", size, counts[size])
            rows = topic(spark, cluster, size).select("value")
            rows.write.option("compression", "none").parquet(f"{name}/parquet-{size}")
            if kafka:
                to_kafka = rows.write.format("kafka").options(**kafka_topic(kafka, size, "topic"))
                to_kafka.save()
        broker.terminate()
        broker.restart()  # now the checkpoint has the highwater marks
        meter = Meter([register.pid, broker.pid, *([kafka.pid] if kafka else [])])
        for run in range(-1, arguments.runs):  # the first run warms up and isn't counted
            for size in SIZES:
                one = without_spark(size) | with_spark(
                    spark, cluster, kafka, meter, directory, size, counts[size], run
                )
                if run >= 0:
                    for what, rate in one.items():
                        figures[size][what].append(rate)
            print(f"run {run + 1} of {arguments.runs} done", file=sys.stderr, flush=True)
        measure_latency(spark, cluster, kafka, directory, arguments.batches, latency)
        spark.stop()
    print(json.dumps(report(figures, latency, arguments), indent=2))


# --- data --------------------------------------------------------------------------------


def fill(cluster: Cluster, topic: str, size: int, count: int) -> None:
    cluster.ask(lambda client: client.create_topic(topic, 2))
    info = cluster.ask(lambda client: client.describe_topic(topic))
    options = write_options({"server": cluster.url, "topic": topic})
    rng = np.random.default_rng(size)
    for place, one in enumerate(info.partitions):
        batches = (
            pa.record_batch(
                [values(rng, size, rows), pa.array([one.partition] * rows)],
                names=["value", "partition"],
            )
            for rows in [10_000] * (count // 2 // 10_000) + [count // 2 % 10_000]
        )
        TaskWriter(options, f"fill {topic} {place}", 0).write(batches)


def values(rng: np.random.Generator, size: int, rows: int) -> Any:
    ends = pa.py_buffer((np.arange(rows + 1) * size).astype(np.int32))
    return pa.Array.from_buffers(
        pa.binary(), rows, [None, ends, pa.py_buffer(rng.bytes(rows * size))]
    )


def topic(spark: SparkSession, cluster: Cluster, size: int, **options: str) -> DataFrame:
    reader = spark.read.format("octopi").schema("value binary")
    where = {"server": cluster.url} if "path" not in options else {}
    return reader.options(subscribe=f"bench-{size}", **where, **options).load()


def kafka_topic(kafka: KafkaBroker, name: int | str, option: str = "subscribe") -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.address, option: f"bench-{name}"}


# --- what is measured --------------------------------------------------------------------


class Meter:
    """Measures the processor time of this process and its descendants, except for the nodes."""

    def __init__(self, left_out: Collection[int]) -> None:
        self._left_out = left_out

    def seconds(self) -> float:
        parents: dict[int, int] = {}
        ticks: dict[int, int] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            pid = int(path.parent.name)
            parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))

        def is_ours(pid: int) -> bool:
            while pid in parents and pid not in self._left_out:
                if pid == os.getpid():
                    return True
                pid = parents[pid]
            return False

        own = sum(os.times()[:2]) * _TICKS  # without ended children, which include a node
        others = sum(ticks[pid] for pid in parents if pid != os.getpid() and is_ours(pid))
        return (own + others) / _TICKS

    def rate(self, count: int, work: Callable[[], object]) -> float:
        """Do *work*; return *count* per second of processor time."""
        before = self.seconds()
        work()
        return count / (self.seconds() - before)


def with_spark(
    spark: SparkSession,
    cluster: Cluster,
    kafka: KafkaBroker | None,
    meter: Meter,
    directory: Path,
    size: int,
    count: int,
    run: int,
) -> dict[str, float]:
    parquet = spark.read.parquet(f"{directory}/parquet-{size}")
    path = str(cluster.broker.data_dir)
    target = f"copy-{size}-{run}"

    def noop(frame: DataFrame) -> Callable[[], object]:
        return lambda: frame.write.format("noop").mode("overwrite").save()

    def sink() -> None:
        options = {"server": cluster.url, "topic": target}
        parquet.write.format("octopi").options(**options).mode("append").save()

    found = {
        "parquet": meter.rate(count, noop(parquet)),
        "files": meter.rate(count, noop(topic(spark, cluster, size, path=path))),
        "websocket": meter.rate(count, noop(topic(spark, cluster, size))),
        "sink": meter.rate(count, sink),
    }
    if kafka:
        records = spark.read.format("kafka").options(**kafka_topic(kafka, size)).load()
        found["kafka"] = meter.rate(count, noop(records.select("value")))
    cluster.ask(lambda client: client.delete_topic(target))
    if size == SIZES[-1]:
        stored = sum(one.stat().st_size for one in Path(path).glob("logs/*/*/*.log"))
        found["audit_bytes"] = meter.rate(stored, lambda: audit(spark, [Path(path)]))
    return found


def without_spark(size: int) -> dict[str, float]:
    """Rates of encoding, checking and hashing one piece of records in this process."""
    rows = 4 * MIB // (size + 57)
    stamps = np.zeros(rows, np.uint64)
    column = values(np.random.default_rng(1), size, rows)
    nothing = pa.nulls(rows, pa.binary())
    made = encode(column, nothing, None, stamps, ProducerId(b"p" * 16), ProducerEpoch(0), 0)
    buffer = bytes(made.records)

    def rate(amount: int, work: Callable[[], object], again: int) -> float:
        began = time.process_time()
        for _ in range(again):
            work()
        return amount * again / (time.process_time() - began)

    return {
        "parse_and_check": rate(rows, lambda: check_records(find_records(buffer), 0), 20),
        "python_loop": rate(rows, lambda: scan(buffer), 2),
        "blake2b_bytes": rate(
            len(buffer), lambda: hashlib.blake2b(buffer, digest_size=16).digest(), 20
        ),
    }


def measure_latency(
    spark: SparkSession,
    cluster: Cluster,
    kafka: KafkaBroker | None,
    directory: Path,
    batches: int,
    figures: Figures,
) -> None:
    """Measure how long a micro-batch with a few messages takes, and its planning, in ms."""
    cluster.ask(lambda client: client.create_topic("latency"))
    rates = spark.readStream.format("rate").option("rowsPerSecond", "10")
    topics = spark.readStream.format("octopi").options(server=cluster.url, subscribe="latency")
    feeds: dict[str, tuple[Any, Callable[[], object]]] = {
        "octopi": (topics, lambda: cluster.fill("latency", [b"message"])),
        "rate": (rates, lambda: None),
    }
    if kafka:
        source = spark.readStream.format("kafka").options(**kafka_topic(kafka, "latency"))
        feeds["kafka"] = (source, kafka_sender(spark, kafka, "bench-latency"))
    for name, (source, feed) in feeds.items():
        feed()  # Kafka creates the topic now
        writer = source.load().writeStream.format("noop")
        query = writer.option("checkpointLocation", str(directory / f"latency-{name}")).start()
        seen: set[int] = set()
        deadline = time.monotonic() + 120
        while len(seen) < batches + 3 and time.monotonic() < deadline:
            feed()
            for one in query.recentProgress:
                if one.numInputRows and one.batchId not in seen:
                    seen.add(one.batchId)
                    if len(seen) > 3:
                        took = one.durationMs
                        planning = took.get("latestOffset", 0) + took.get("getBatch", 0)
                        figures[f"{name}_batch_ms"].append(took["triggerExecution"])
                        figures[f"{name}_planning_ms"].append(planning)
            time.sleep(0.05)
        query.stop()


def kafka_sender(spark: SparkSession, kafka: KafkaBroker, topic: str) -> Callable[[], object]:
    """A function that sends a message with the Kafka client in Spark's JVM."""
    jvm: Any = spark.sparkContext._jvm
    settings = jvm.java.util.HashMap()
    settings["bootstrap.servers"] = kafka.address
    for role in ("key", "value"):
        serializer = "org.apache.kafka.common.serialization.StringSerializer"
        settings[f"{role}.serializer"] = serializer
    producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(settings)
    record = jvm.org.apache.kafka.clients.producer.ProducerRecord(topic, "message")
    return lambda: producer.send(record).get()


def report(
    figures: dict[int, Figures], latency: Figures, arguments: argparse.Namespace
) -> dict[str, Any]:
    rates = {
        size: {what: statistics.median(some) for what, some in one.items()}
        for size, one in figures.items()
    }

    def ratio(size: int, one: str, other: str) -> float:
        pairs = zip(figures[size][one], figures[size][other], strict=True)
        return round(statistics.median(a / b for a, b in pairs), 2)

    pairs = {
        "files / parquet": ("files", "parquet"),
        "websocket / files": ("websocket", "files"),
        "sink / files": ("sink", "files"),
        "parse and check / python loop": ("parse_and_check", "python_loop"),
    }
    if arguments.kafka_jars:
        pairs["websocket / kafka"] = ("websocket", "kafka")
        pairs["files / kafka"] = ("files", "kafka")
    last = SIZES[-1]
    return {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
        "runs": arguments.runs,
        "ratios": {
            size: {what: ratio(size, *pair) for what, pair in pairs.items()} for size in SIZES
        },
        "bare blake2b / audit": ratio(last, "blake2b_bytes", "audit_bytes"),
        "latency": {
            what: {"median": statistics.median(some), "max": max(some), "batches": len(some)}
            for what, some in latency.items()
        },
        "per_cpu_second": {
            size: {what: round(rate) for what, rate in one.items()} for size, one in rates.items()
        },
    }


if __name__ == "__main__":
    main()
