"""The source in a real Spark, against real brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.spark_cluster import Cluster, by_partition, flights

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

COUNT = 6_000

_NO_PYSPARK_WARNINGS = pytest.mark.filterwarnings("default::ResourceWarning")
pytestmark = [pytest.mark.process, _NO_PYSPARK_WARNINGS]


@pytest.fixture(scope="module")
def values() -> list[bytes]:
    return flights(COUNT)


@pytest.fixture(scope="module")
def topic(cluster: Cluster, values: list[bytes]) -> str:
    name = cluster.topic(3, name="flights")
    cluster.fill(name, values)
    return name


def batch(spark: SparkSession, cluster: Cluster, **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("octopi").options(server=cluster.url, **given).load()


def run_stream(
    spark: SparkSession, cluster: Cluster, directory: Path, **options: object
) -> list[dict[str, Any]]:
    """Read what there is into Parquet files in *directory*; the progress of each batch."""
    given = {name: str(value) for name, value in options.items()}
    stream = spark.readStream.format("octopi").options(server=cluster.url, **given).load()
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / "rows"))
    )
    query.awaitTermination()
    return [json.loads(one.json) for one in query.recentProgress]


def stored(spark: SparkSession, directory: Path) -> list[Row]:
    return spark.read.parquet(str(directory / "rows")).orderBy("partition", "offset").collect()


def failure(frame: DataFrame) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # Spark has many classes
        frame.collect()
    return str(raised.value)


# --- batch -------------------------------------------------------------------------------


def test_a_batch_has_every_message_with_all_columns(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    rows = batch(spark, cluster, subscribe=topic, includeHeaders=True).collect()
    messages = cluster.messages(topic)
    assert len(rows) == COUNT
    found = sorted(rows, key=lambda row: (row.partition, row.offset))
    expected = sorted(messages, key=lambda one: (one.partition, one.offset))
    for row, message in zip(found, expected, strict=True):
        assert (row.topic, row.partition) == (message.topic, message.partition)
        assert (row.offset, row.next_offset) == (message.offset, message.next_offset)
        assert (bytes(row.key), bytes(row.value)) == (message.key, message.value)
        assert bytes(row.request_id) == message.request_id
        assert row.headers is None
    newest = max(one.timestamp_ms or 0 for one in messages)
    assert max(row.timestamp.timestamp() for row in rows) == pytest.approx(newest / 1000)


def test_sql_counts_the_same_messages_as_a_program(
    spark: SparkSession, cluster: Cluster, topic: str, values: list[bytes]
) -> None:
    batch(spark, cluster, subscribe=topic).createOrReplaceTempView("flights")
    rows = spark.sql(
        "select split(cast(value as string), ',')[1] as first, count(*) as n "
        "from flights group by 1"
    ).collect()
    counts: dict[str, int] = {}
    for value in values:
        first = value.decode().split(",")[1]
        counts[first] = counts.get(first, 0) + 1
    assert {row["first"]: row["n"] for row in rows} == counts


def test_a_log_is_split_by_bytes_and_only_wanted_columns_are_read(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    frame = (
        spark.read.format("octopi")
        .schema("offset bigint, value binary")
        .options(server=cluster.url, subscribe=topic, minPartitions="7")
        .load()
    )
    assert frame.rdd.getNumPartitions() >= 6
    assert frame.count() == COUNT
    wrong = spark.read.format("octopi").schema("offset string").options(subscribe=topic).load()
    assert "column offset is string; it must be bigint" in failure(wrong)


def test_a_query_begins_and_ends_at_offsets_or_times(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    messages = cluster.messages(topic)
    partitions = sorted({one.partition for one in messages})
    some = [one for one in messages if one.partition == partitions[0]]
    start, end = some[10].offset, some[20].offset
    chosen = json.dumps({topic: {str(partitions[0]): start, str(partitions[1]): -1}})
    ends = json.dumps({topic: {str(partitions[0]): end, str(partitions[2]): 0}})
    rows = batch(spark, cluster, subscribe=topic, startingOffsets=chosen, endingOffsets=ends)
    assert by_partition(rows.collect()) == {partitions[0]: [one.value for one in some[10:20]]}
    newest = max(one.timestamp_ms or 0 for one in messages)
    after = batch(spark, cluster, subscribe=topic, startingTimestamp=newest + 1)
    assert after.count() == 0
    inside = json.dumps({topic: {str(partitions[0]): start + 1}})
    text = failure(batch(spark, cluster, subscribe=topic, startingOffsets=inside))
    assert f"offset {start + 1} of {topic}/{partitions[0]} is inside the record" in text


def test_filters_on_offset_and_partition_read_less(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    messages = cluster.messages(topic)
    partition = messages[0].partition
    some = [one for one in messages if one.partition == partition]
    low, high = some[100].offset, some[110].offset
    frame = batch(spark, cluster, subscribe=topic, pushdown=True)
    rows = frame.where(f"partition = {partition} and offset >= {low} and offset < {high}")
    assert [bytes(row.value) for row in rows.collect()] == [one.value for one in some[100:110]]
    assert rows.rdd.getNumPartitions() == 1
    assert frame.where(f"topic = '{topic}' and offset <= 0").count() == len(
        {one.partition for one in messages}
    )


def test_headers_and_null_keys_come_through(spark: SparkSession, cluster: Cluster) -> None:
    name = cluster.topic()

    async def produce(client: Any) -> None:
        async with client.producer() as producer:
            await producer.submit(name, b"with", headers={"a": b"1", "b": b""}, key=b"k")
            await producer.submit(name, b"", key=None)

    cluster.ask(produce)
    rows = batch(spark, cluster, subscribe=name, includeHeaders=True).orderBy("offset").collect()
    assert [(one.key, bytes(one.value)) for one in rows] == [(b"k", b"with"), (None, b"")]
    assert [(one.key, bytes(one.value)) for one in rows[0].headers] == [("a", b"1"), ("b", b"")]
    assert rows[1].headers is None


# --- files -------------------------------------------------------------------------------


def test_segment_files_are_read_without_a_broker(
    spark: SparkSession, cluster: Cluster, topic: str, values: list[bytes]
) -> None:
    cluster.broker.terminate()  # it notes its highwater marks
    try:
        frame = batch(
            spark, cluster, path=cluster.broker.data_dir, subscribe=topic, minPartitions=4
        )
        rows = frame.orderBy("partition", "offset").collect()
        log = next((cluster.broker.data_dir / "logs").glob(f"*/{topic}"))
        single = batch(spark, cluster, path=log).count()
    finally:
        cluster.broker.restart()
    assert by_partition(rows) == by_partition(cluster.messages(topic))
    assert single == sum(row.partition == int(log.parent.name) for row in rows)
    wrong = batch(spark, cluster, path=cluster.broker.data_dir, subscribe="nosuch")
    assert "there is no log of topic nosuch" in failure(wrong)


# --- streams -----------------------------------------------------------------------------


def test_a_stream_reads_on_from_its_checkpoint_and_keeps_its_limits(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    name = cluster.topic(2)
    cluster.fill(name, [b"%04d" % n for n in range(1000)])
    first = run_stream(
        spark,
        cluster,
        tmp_path,
        subscribe=name,
        startingOffsets="earliest",
        maxBytesPerTrigger=30_000,
    )
    sizes = [sum(int(size) for size in _consumed(one)) for one in first]
    assert all(size <= 30_000 for size in sizes)
    assert len([size for size in sizes if size]) == 3
    assert sum(one["numInputRows"] for one in first) == 1000
    cluster.fill(name, [b"%04d" % n for n in range(1000, 1500)])
    second = run_stream(
        spark, cluster, tmp_path, subscribe=name, maxRecordsPerTrigger=200, minPartitions=5
    )
    assert [one["numInputRows"] for one in second if one["numInputRows"]] == [200, 200, 100]
    rows = stored(spark, tmp_path)
    assert by_partition(rows) == by_partition(cluster.messages(name))


def _consumed(progress: dict[str, Any]) -> Iterator[int]:
    """Bytes of each log between the offsets of a batch."""

    def places(text: dict[str, Any] | None) -> dict[str, int]:
        position = text["positions"][0] if text else ":"
        offsets = position.rsplit(":", 1)[1]
        places = (one.partition("=") for one in offsets.split(",") if one)
        return {p: int(place.split("~")[0]) for p, _, place in places}

    source = progress["sources"][0]
    start, end = (places(source[name]) for name in ("startOffset", "endOffset"))
    return (offset - start.get(partition, 0) for partition, offset in end.items())


@pytest.mark.parametrize(("starting", "first"), [("latest", []), ("earliest", [b"0", b"1"])])
def test_a_stream_that_died_in_its_first_batch_misses_no_message(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, starting: str, first: list[bytes]
) -> None:
    name = cluster.topic()
    cluster.fill(name, [b"0", b"1"])
    batches: dict[int, list[bytes]] = {}
    fails = True

    def take(frame: DataFrame, number: int) -> None:
        batches[number] = [bytes(row.value) for row in frame.orderBy("offset").collect()]
        if fails:
            raise RuntimeError("the driver dies")

    stream = spark.readStream.format("octopi")
    stream = stream.options(server=cluster.url, subscribe=name, startingOffsets=starting)
    writer = (
        stream.load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    with pytest.raises(Exception, match="the driver dies"):
        writer.start().awaitTermination()
    assert batches == {0: first}
    fails = False
    cluster.fill(name, [b"2", b"3"])
    writer.start().awaitTermination()
    assert batches == {0: first, 1: [b"2", b"3"]}


def test_a_topic_that_comes_later_is_found_by_its_pattern(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    for number in (1, 2):
        name = cluster.topic(name=f"late-{number}")
        cluster.fill(name, [b"%s-%d" % (name.encode(), n) for n in range(20)])
        run_stream(spark, cluster, tmp_path, subscribePattern="late-.*", startingOffsets="earliest")
    rows = stored(spark, tmp_path)
    assert {row.topic for row in rows} == {"late-1", "late-2"}
    assert len(rows) == 40
