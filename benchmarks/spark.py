"""What Spark pays for reading and writing topics, as ratios measured in one run.

Starts a register and a broker as processes and a Spark session beside them.  Rates are per
second of processor time, JVM and Python together, taken from /proc: machines are shared, and
what a job costs is what counts on a cluster.  The broker's own time is not counted, as it is
spent on another machine.  Prints JSON on standard output; every rate is a median over `--runs`
interleaved runs.
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
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from octopi.identifiers import ProducerEpoch, ProducerId
from octopi.limits import MIB
from octopi.record import scan
from octopi.spark.encoding import encode
from octopi.spark.frames import check_records, find_records
from octopi.spark.jobs.audit import audit
from octopi.spark.options import write_options
from octopi.spark.session import spark_session
from octopi.spark.sink import TaskWriter
from tests.processes import NodeProcess, node_processes
from tests.spark.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIZES = (100, 1024)
_TICKS = os.sysconf("SC_CLK_TCK")

Figures = defaultdict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=150, help="of values, for each size")
    parser.add_argument("--batches", type=int, default=30, help="for the latency")
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    figures: dict[int, Figures] = {size: defaultdict(list) for size in SIZES}
    latency: Figures = defaultdict(list)
    with tempfile.TemporaryDirectory() as name, node_processes(Path(name)) as nodes:
        directory = Path(name)
        register = nodes.register()
        broker = nodes.broker(register)
        settings = {"spark.driver.memory": "2g", "spark.ui.showConsoleProgress": "false"}
        spark = spark_session("bench", master=f"local[{arguments.cores}]", settings=settings)
        spark.sparkContext.setLogLevel("ERROR")
        cluster = Cluster(register, broker)
        meter = Meter([register, broker])
        counts = {size: arguments.megabytes * 1_000_000 // size for size in SIZES}
        for size in SIZES:
            fill(cluster, f"bench-{size}", size, counts[size])
            topic(spark, cluster, size).select("value").write.option("compression", "none").parquet(
                f"{name}/parquet-{size}"
            )
        broker.terminate()
        broker.restart()  # the checkpoint has the highwater marks now
        for run in range(-1, arguments.runs):  # the first one warms up
            for size in SIZES:
                one = without_spark(size) | with_spark(
                    spark, cluster, meter, directory, size, counts[size], run
                )
                if run >= 0:
                    for what, rate in one.items():
                        figures[size][what].append(rate)
            print(f"run {run + 1} of {arguments.runs} done", file=sys.stderr, flush=True)
        measure_latency(spark, cluster, directory, arguments.batches, latency)
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


# --- what is measured --------------------------------------------------------------------


class Meter:
    """Processor time of this process and all that it started, but for the nodes."""

    def __init__(self, nodes: list[NodeProcess]) -> None:
        self._nodes = nodes

    def seconds(self) -> float:
        left_out = {one.pid for one in self._nodes if one.is_running}
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
            while pid in parents and pid not in left_out:
                if pid == os.getpid():
                    return True
                pid = parents[pid]
            return False

        own = sum(os.times()[:2]) * _TICKS  # without children that have ended: nodes did
        others = sum(ticks[pid] for pid in parents if pid != os.getpid() and is_ours(pid))
        return (own + others) / _TICKS

    def rate(self, count: int, work: Callable[[], object]) -> float:
        """*count* per second of processor time."""
        before = self.seconds()
        work()
        return count / (self.seconds() - before)


def with_spark(
    spark: SparkSession,
    cluster: Cluster,
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
    cluster.ask(lambda client: client.delete_topic(target))
    if size == SIZES[-1]:
        stored = sum(one.stat().st_size for one in Path(path).glob("logs/*/*/*.log"))
        found["audit_bytes"] = meter.rate(stored, lambda: audit(spark, [Path(path)]))
    return found


def without_spark(size: int) -> dict[str, float]:
    """What this very process does with one piece of records."""
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
    spark: SparkSession, cluster: Cluster, directory: Path, batches: int, figures: Figures
) -> None:
    """How long a micro-batch with a few messages takes, and what of it is ours."""
    name = "latency"
    cluster.ask(lambda client: client.create_topic(name))
    stream = spark.readStream.format("octopi").options(server=cluster.url, subscribe=name).load()
    for sink in ("octopi", "rate"):
        if sink == "rate":
            source = spark.readStream.format("rate").option("rowsPerSecond", "10").load()
        else:
            source = stream
        query = (
            source.writeStream.format("noop")
            .option("checkpointLocation", str(directory / f"latency-{sink}"))
            .start()
        )
        seen: set[int] = set()
        deadline = time.monotonic() + 120
        while len(seen) < batches + 3 and time.monotonic() < deadline:
            if sink == "octopi":
                cluster.fill(name, [b"message"])
            for one in query.recentProgress:
                if one.numInputRows and one.batchId not in seen:
                    seen.add(one.batchId)
                    if len(seen) > 3:
                        took = one.durationMs
                        figures[f"{sink}_batch_ms"].append(took["triggerExecution"])
                        if sink == "octopi":
                            ours = took.get("latestOffset", 0) + took.get("getBatch", 0)
                            figures["octopi_planning_ms"].append(ours)
            time.sleep(0.05)
        query.stop()


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

    last = SIZES[-1]
    return {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
        "runs": arguments.runs,
        "ratios": {
            size: {
                "files / parquet": ratio(size, "files", "parquet"),
                "websocket / files": ratio(size, "websocket", "files"),
                "sink / files": ratio(size, "sink", "files"),
                "parse and check / python loop": ratio(size, "parse_and_check", "python_loop"),
            }
            for size in SIZES
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
