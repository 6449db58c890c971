"""The sink in a real Spark, against real brokers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from harness.spark_cluster import Cluster, by_partition
from octopi.limits import RECORD_BYTES_MAX
from octopi.spark.options import write_options
from octopi.spark.sink import TaskWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.process, pytest.mark.filterwarnings("default::ResourceWarning")]


def write(frame: DataFrame, cluster: Cluster, **options: object) -> None:
    given = {name: str(value) for name, value in options.items()}
    frame.write.format("octopi").options(server=cluster.url, **given).mode("append").save()


def failure(frame: DataFrame, cluster: Cluster, **options: object) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # Spark has many classes
        write(frame, cluster, **options)
    return str(raised.value)


def test_rows_arrive_with_all_their_columns(spark: SparkSession, cluster: Cluster) -> None:
    name = cluster.topic(3)
    number = cluster.ask(lambda client: client.describe_topic(name)).partitions[1].partition
    when = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    frame = spark.createDataFrame(
        [
            (b"one", b"key", [("h", b"1")], number, when),
            (b"two", None, None, number, when),
            (b"", b"", [], None, None),
        ],
        "value binary, key binary, headers array<struct<key:string,value:binary>>, "
        "partition int, timestamp timestamp",
    )
    write(frame.coalesce(1), cluster, topic=name)
    messages = cluster.messages(name)
    here = [one for one in messages if one.value]
    assert [(one.value, one.key, dict(one.headers)) for one in here] == [
        (b"one", b"key", {"h": b"1"}),
        (b"two", None, {}),
    ]
    assert {one.partition for one in here} == {number}
    assert {one.timestamp for one in here} == {when}
    (empty,) = [one for one in messages if not one.value]
    assert empty.key == b""
    assert empty.timestamp is not None
    assert empty.timestamp > when


def test_keys_choose_partitions_as_the_client_does_and_keep_their_order(
    spark: SparkSession, cluster: Cluster
) -> None:
    name = cluster.topic(3)
    frame = spark.range(3000).selectExpr(
        "cast(id % 17 as string) as key", "cast(id as string) as value"
    )
    write(frame.coalesce(1), cluster, topic=name)
    info = cluster.ask(lambda client: client.describe_topic(name))
    numbers = [one.partition for one in info.partitions]
    messages = cluster.messages(name)
    assert len(messages) == 3000
    for one in messages:
        assert one.partition == numbers[crc32(one.key or b"") % 3]
    for values in by_partition(messages).values():
        assert values == sorted(values, key=int)


def test_rows_may_name_their_topics(spark: SparkSession, cluster: Cluster) -> None:
    one, other = cluster.topic(), cluster.topic()
    frame = spark.range(100).selectExpr(
        f"if(id % 2 = 0, '{one}', '{other}') as topic", "cast(id as string) as value"
    )
    write(frame.coalesce(1), cluster)
    assert [int(m.value) for m in cluster.messages(one)] == list(range(0, 100, 2))
    assert [int(m.value) for m in cluster.messages(other)] == list(range(1, 100, 2))


def test_a_job_repeated_under_its_name_adds_no_messages(
    spark: SparkSession, cluster: Cluster
) -> None:
    name = cluster.topic()
    frame = spark.range(5000).selectExpr("repeat('x', 500) as value").coalesce(2)
    for _ in range(2):
        write(frame, cluster, topic=name, jobId="once")
    assert len(cluster.messages(name)) == 5000
    write(frame, cluster, topic=name)
    assert len(cluster.messages(name)) == 10_000


def test_a_task_that_fails_half_way_is_repeated_without_duplicates(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    name = cluster.topic()
    marker = str(tmp_path / "failed")

    def fail_once(rows: Any) -> Any:
        for number, row in enumerate(rows):
            if number == 25_000 and not Path(marker).exists():
                Path(marker).touch()
                raise RuntimeError("the first attempt")
            yield row

    frame = spark.range(30_000).selectExpr("repeat(cast(id as string), 50) as value").coalesce(1)
    again = spark.createDataFrame(frame.rdd.mapPartitions(fail_once), "value string")
    write(again, cluster, topic=name)
    assert Path(marker).exists()
    values = [one.value for one in cluster.messages(name)]
    assert values == [str(number).encode() * 50 for number in range(30_000)]


def test_a_repeated_batch_of_a_stream_adds_no_messages(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    source, target = cluster.topic(2), cluster.topic(2)

    def run() -> None:
        stream = (
            spark.readStream.format("octopi")
            .options(server=cluster.url, subscribe=source, startingOffsets="earliest")
            .options(maxBytesPerTrigger="40000")
            .load()
            .selectExpr("key", "value")
        )
        query = (
            stream.writeStream.format("octopi")
            .options(server=cluster.url, topic=target)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    cluster.fill(source, [b"%05d" % n for n in range(1000)])
    run()
    # As if the driver had died before it noted that the last batch was done.
    newest = max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink()
    cluster.fill(source, [b"%05d" % n for n in range(1000, 1200)])
    run()
    # Keys choose the same place in the topic's list of partitions; their numbers differ.
    there, here = (by_partition(cluster.messages(one)).values() for one in (target, source))
    assert sorted(there) == sorted(here)


def test_a_deposed_copy_of_a_task_is_fenced(spark: SparkSession, cluster: Cluster) -> None:
    import pyarrow as pa

    name = cluster.topic()
    options = write_options({"server": cluster.url, "topic": name})
    rows = pa.record_batch([pa.array([b"a", b"b"])], names=["value"])
    TaskWriter(options, "query q partition 0", 4).write(iter([rows]))
    TaskWriter(options, "query q partition 0", 5).write(iter([rows]))
    with pytest.raises(Exception, match="producer epoch 4 was replaced by 5"):
        TaskWriter(options, "query q partition 0", 4).write(iter([rows]))
    assert len(cluster.messages(name)) == 4


def test_a_row_that_cannot_be_written_is_named(spark: SparkSession, cluster: Cluster) -> None:
    name = cluster.topic()
    nothing = spark.range(5).selectExpr("if(id = 3, null, 'v') as value").coalesce(1)
    assert "row 3 of job" in failure(nothing, cluster, topic=name)
    size = RECORD_BYTES_MAX
    huge = spark.range(3).selectExpr(f"if(id = 1, repeat('x', {size}), 'v') as value").coalesce(1)
    text = failure(huge, cluster, topic=name)
    assert "row 1 of job" in text
    assert f"at most {RECORD_BYTES_MAX} bytes" in text
    nowhere = spark.range(3).selectExpr("'v' as value", "if(id = 2, 99, null) as partition")
    text = failure(nowhere.coalesce(1), cluster, topic=name)
    assert "row 2 of job" in text
    assert f"topic {name} has no partition 99" in text


def test_unwritable_rows_are_refused_before_any_row_is_written(
    spark: SparkSession, cluster: Cluster
) -> None:
    row = spark.range(1).selectExpr("'v' as value")
    assert "name one" in failure(row, cluster)
    assert "need a column value" in failure(spark.range(1), cluster, topic="t")
    assert "doesn't use column id" in failure(
        spark.range(1).selectExpr("id", "'v' as value"), cluster, topic="t"
    )
    assert "column key is int" in failure(
        spark.range(1).selectExpr("1 as key", "'v' as value"), cluster, topic="t"
    )
    with pytest.raises(Exception, match="can't be overwritten"):
        row.write.format("octopi").option("topic", "t").mode("overwrite").save()
    text = failure(row, cluster, topic="missing", createTopics=False)
    assert "no topic missing" in text
